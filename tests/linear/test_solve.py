"""Systems of equations by elimination with pivots."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.linear.solve import solve


def systems(rng, dtype, n=8):
    """Light things that stick on two hard contacts; some have nothing where the first pivot would be."""
    light, rows = 10.0 ** rng.uniform(-3, 0, size=(200, n)), rng.normal(size=(200, 6, n))
    hard = 1e6 if dtype == np.float64 else 1e3
    a = light[:, :, None] * np.eye(n) + hard * np.swapaxes(rows, 1, 2) @ rows
    a[::4] = a[::4, ::-1]
    a[::4, 0, 0] = 0.0
    return a.astype(dtype), rng.normal(size=(200, n)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_left_is_rounding(rng, dtype):
    """By the size of the matrix and of the solution, however badly it is conditioned; Jordan's elimination, of what is
    above the pivots too, leaves a hundred times as much and more."""
    a, b = systems(rng, dtype)
    one, many = jax.jit(solve), jax.jit(jax.vmap(solve))
    for x in (many(a, b), jnp.stack([one(*own) for own in zip(a, b, strict=True)])):
        assert x.dtype == dtype
        exact, found = a.astype(np.longdouble), np.asarray(x, np.longdouble)
        left = np.abs(np.einsum("kij,kj->ki", exact, found) - b)
        size = np.abs(a).max(axis=(1, 2)) * np.abs(found).max(axis=1)
        assert np.max(left.max(axis=1) / size) < 20 * np.finfo(dtype).eps


def test_derivatives(rng):
    a, b = rng.normal(size=(5, 5)), rng.normal(size=(5, 2))
    da, db = rng.normal(size=(5, 5)), rng.normal(size=(5, 2))
    x, change = jax.jit(lambda *way: jax.jvp(solve, (a, b), way))(da, db)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), atol=1e-12)
    np.testing.assert_allclose(change, np.linalg.solve(a, db - da @ x), atol=1e-11)
    bar = rng.normal(size=(5, 2))
    by_a, by_b = jax.jit(lambda bar: jax.vjp(solve, a, b)[1](bar))(bar)
    np.testing.assert_allclose(jnp.sum(by_a * da) + jnp.sum(by_b * db), jnp.sum(bar * change), rtol=1e-11)
