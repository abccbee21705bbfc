"""The pseudo-inverse: Penrose's conditions, rank, and derivatives where those of its decomposition do not exist."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.linear.pseudo_inverse import pseudo_inverse

SHAPES = [(5, 3, 2), (3, 5, 3), (4, 4, 1), (3, 3, 3), (2, 3, 0)]
"""Rows, columns, rank."""


def factors(rng, m, n, r):
    """Of a matrix of rank `r`, not near any other rank."""
    q, p = np.linalg.qr(rng.normal(size=(m, m)))[0][:, :r], np.linalg.qr(rng.normal(size=(n, n)))[0][:, :r]
    return jnp.asarray(q * rng.uniform(0.5, 2.0, r)), jnp.asarray(p.T)


@pytest.mark.parametrize(("m", "n", "r"), SHAPES)
def test_values_and_derivatives(rng, m, n, r):
    b, c = factors(rng, m, n, r)
    db, dc = (jnp.asarray(rng.normal(size=x.shape)) for x in (b, c))
    weight = jnp.asarray(rng.normal(size=(n, m)))

    def along(t):
        """A curve of matrices of the same rank."""
        found = pseudo_inverse((b + t * db) @ (c + t * dc))
        return jnp.sum(weight * found.matrix), found

    slope = jax.grad(along, has_aux=True)
    (first, found), second = slope(0.0), jax.jit(jax.jacfwd(slope, has_aux=True))(0.0)[0]
    a, x = np.asarray(b @ c), np.asarray(found.matrix)
    for product, expected in ((a @ x @ a, a), (x @ a @ x, x), (a @ x, (a @ x).T), (x @ a, (x @ a).T)):
        np.testing.assert_allclose(product, expected, atol=1e-14)
    assert found.rank == r
    np.testing.assert_allclose(found.singular_values, np.linalg.svd(a, compute_uv=False), atol=1e-14)
    at = {k: along(k * 1e-3)[0] for k in (-2, -1, 0, 1, 2)}
    np.testing.assert_allclose(first, (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / 12e-3, rtol=1e-8, atol=1e-8)
    centred = (16 * (at[1] + at[-1]) - (at[2] + at[-2]) - 30 * at[0]) / 12e-6
    np.testing.assert_allclose(second, centred, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("a", [np.eye(3), np.zeros((2, 3)), np.ones((3, 3)), np.diag([2.0, 2.0, 0.0])], ids=str)
def test_repeated_and_vanishing_singular_values(a):
    def size(a):
        found = pseudo_inverse(a)
        return jnp.sum(found.matrix**2) + jnp.sum(found.singular_values)

    slope = jax.grad(size)(jnp.asarray(a))
    # Of `|A+|^2` it is `-2 A+^T A+ A+^T` at constant rank.
    x = np.linalg.pinv(a)
    np.testing.assert_allclose(slope - jax.grad(lambda a: jnp.sum(pseudo_inverse(a).singular_values))(jnp.asarray(a)),
                               -2.0 * x.T @ x @ x.T, atol=1e-13)  # fmt: skip
    assert np.isfinite(jax.hessian(lambda a: jnp.sum(pseudo_inverse(a).matrix ** 2))(jnp.asarray(a))).all()


def test_tolerance_types_and_nothing():
    a = jnp.diag(jnp.array([1.0, 1e-3, 1e-12]))
    assert pseudo_inverse(a).rank == 3
    coarse = jax.jit(pseudo_inverse)(a, 1e-2)
    assert coarse.rank == 1
    np.testing.assert_allclose(coarse.matrix, np.diag([1.0, 0.0, 0.0]), atol=1e-15)
    single = pseudo_inverse(a.astype(jnp.float32))
    assert single.rank == 2
    assert single.matrix.dtype == single.singular_values.dtype == np.float32
    for shape in ((0, 3), (3, 0), (0, 0)):
        found = jax.vmap(pseudo_inverse)(jnp.zeros((2, *shape)))
        assert found.matrix.shape == (2, *shape[::-1])
        assert not found.rank.any()
        assert jax.grad(lambda a: jnp.sum(pseudo_inverse(a).matrix))(jnp.zeros(shape)).shape == shape
