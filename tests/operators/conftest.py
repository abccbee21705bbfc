"""What tests of operators share. XLA's optimiser is off in them: they compile much and run little."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture(autouse=True)
def _compile_quickly():
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
