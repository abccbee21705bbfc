"""What holds for all tests: float64, and randomness that depends on the test's name alone."""

from __future__ import annotations

import zlib

import jax
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)


def _seed(request: pytest.FixtureRequest) -> int:
    return zlib.crc32(request.node.nodeid.encode())


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A NumPy generator that gives each test the same numbers in any order, selection or worker."""
    return np.random.default_rng(_seed(request))


@pytest.fixture
def key(request: pytest.FixtureRequest) -> jax.Array:
    """A JAX key, seeded like `rng`."""
    return jax.random.key(_seed(request))
