"""XLA's optimiser is off in tests of rollouts, which compile much and run little, but for those that ask for it."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture
def optimised():
    """Ask for this where a test runs long or looks at what is compiled."""


@pytest.fixture(autouse=True)
def _compile_quickly(request: pytest.FixtureRequest):
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", "optimised" not in request.fixturenames)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
