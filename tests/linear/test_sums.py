"""Sums over a short axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.linear.sums import across
from dynax.sweep.sums import WRITTEN_OUT


@pytest.mark.parametrize("n", [0, 1, 18, WRITTEN_OUT, WRITTEN_OUT + 1])
@pytest.mark.parametrize(("lead", "batch"), [((), ()), ((4,), (5,)), ((4, 3), (5,))])
def test_rows_by_a_vector(n, lead, batch, rng):
    """As one formula, and of many terms as a loop: the value, and its derivative by both."""
    rows, x, way = (jnp.asarray(rng.normal(size=shape)) for shape in ((*lead, n, *batch), (n, *batch), (*lead, *batch)))

    def einsum(rows, x):
        return jnp.moveaxis(rows, len(lead), -1) @ x if not batch else jnp.einsum("...nb,nb->...b", rows, x)

    np.testing.assert_allclose(across(rows, x), einsum(rows, x), atol=1e-13)
    for one, other in zip(*(jax.vjp(f, rows, x)[1](way) for f in (across, einsum)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13)
