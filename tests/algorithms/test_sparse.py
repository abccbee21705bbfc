"""Sparse factors: the pattern of the lower triangle, no fill-in, nothing read above the diagonal."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import routes
import trees

import dynax as dx
from dynax.linear.ltl import reduced_parents


def pattern(parents):
    mask = np.eye(len(parents), dtype=bool)
    for row, parent in enumerate(parents):
        if parent >= 0:
            mask[row] |= mask[parent]
    return mask


@lru_cache
def problem(kind: str):
    """A parent array and a matrix with its row rule."""
    rng = np.random.default_rng(5)
    if kind in trees.TREES:
        model, _, y = routes.case(kind)
        return tuple(int(p) for p in model.topology.expanded_parents), y["mass"][0]
    n = 12
    parents = {
        "chain": tuple(range(-1, n - 1)),
        "star": (-1,) * n,
        "random": trees.random_parents(rng, n),
    }[kind]
    lower = np.where(pattern(parents), rng.normal(size=(n, n)), 0.0) + 3 * np.eye(n)
    return parents, lower.T @ lower


KINDS = ["mixed", "screws", "arm", "chain", "star", "random"]


@jax.jit
def everything(factor, x):
    return factor.apply(x), factor.apply_transpose(x), factor.solve_lower(x), factor.solve_transpose(x), factor.solve(x)


@pytest.mark.spec("RBDA-6.5-LTL", "RBDA-6.5-LTDL", "RBDA-6.5-SOLVE", "RBDA-X-TREE")
@pytest.mark.parametrize("make", [dx.factor_ltl, dx.factor_ltdl])
@pytest.mark.parametrize("kind", KINDS)
def test_factor(kind, make, rng):
    parents, h = problem(kind)
    mask = pattern(parents)
    poisoned = np.where(np.tri(len(h), dtype=bool), h, np.nan)  # the upper triangle is never read
    factor = make(poisoned, parents)
    lower = np.asarray(factor.lower)
    d = np.ones(len(h)) if factor.diagonal is None else np.asarray(factor.diagonal)
    scale = np.abs(h).max()
    np.testing.assert_allclose(lower.T @ np.diag(d) @ lower / scale, h / scale, atol=1e-14)
    assert np.all(lower[~mask] == 0.0)
    assert np.all((np.diagonal(lower) == 1.0) if make is dx.factor_ltdl else (np.diagonal(lower) > 0.0))
    x = rng.normal(size=len(h))
    product, transposed, solved, solved_transposed, solution = everything(factor, x)
    condition = np.linalg.cond(h)
    np.testing.assert_allclose(product, lower @ x, atol=1e-12 * scale)
    np.testing.assert_allclose(transposed, lower.T @ x, atol=1e-12 * scale)
    np.testing.assert_allclose(lower @ solved, x, atol=1e-13 * condition)
    np.testing.assert_allclose(lower.T @ solved_transposed, x, atol=1e-13 * condition)
    expected = np.linalg.solve(h, x)
    np.testing.assert_allclose(solution, expected, atol=1e-14 * condition * np.abs(expected).max())
    np.testing.assert_allclose(dx.sparse_product(poisoned, x, parents), h @ x, atol=1e-12 * scale)


@pytest.mark.spec("RBDA-6.4-BIS")
def test_predicted_pattern():
    parents, h = problem("star")
    assert np.all((h != 0) == np.eye(len(h), dtype=bool))
    parents, h = problem("chain")
    assert np.all(h != 0)
    # A Cholesky factor fills in where this one does not.
    parents, h = problem("random")
    mask = pattern(parents)
    assert np.any(np.abs(np.linalg.cholesky(h)[~mask]) > 1e-6)


@pytest.mark.spec("RBDA-9.1-LAMBDA", "RBDA-9.1-NUFD", "RBDA-9.1-H11")
def test_reduced_parents():
    """The book's example: with joints 1 and 2 prescribed, nodes 3 to 7 become 1 to 5."""
    parents = np.array([0, 1, 1, 2, 2, 3, 3]) - 1  # a binary tree of seven
    kept = np.array([False, False, True, True, True, True, True])
    assert list(reduced_parents(parents, kept) + 1) == [0, 0, 0, 1, 1]
    tree_parents, h = problem("mixed")
    kept = np.random.default_rng(3).uniform(size=len(h)) < 0.6
    reduced = reduced_parents(tree_parents, kept)
    inner = h[np.ix_(kept, kept)]
    lower = np.asarray(dx.factor_ltl(inner, reduced).lower)
    np.testing.assert_allclose(lower.T @ lower, inner, atol=1e-12 * np.abs(inner).max())
    # nu(fd), the bodies beyond the kept joints: recursion (9.5) and definition.
    support = pattern(tree_parents)
    beyond = support[:, kept].any(1)
    by_recursion = np.zeros(len(h), dtype=bool)
    for k, parent in enumerate(tree_parents):
        by_recursion[k] = kept[k] or (parent >= 0 and by_recursion[parent])
    np.testing.assert_array_equal(beyond, by_recursion)
    # Masses elsewhere do not enter.
    model, s, _ = routes.case("mixed")
    moved = model.topology.support[:, model.topology.body_of_velocity[kept]].any(1)
    outside = ~moved
    lighter = model.replace(mass=jnp.where(outside, 0.1, model.mass))
    other = routes.dynamics("mixed", lighter, *s)["mass"][0]
    np.testing.assert_allclose(other[np.ix_(kept, kept)], inner, atol=1e-12 * np.abs(inner).max())


def test_gradients_and_errors():
    parents, h = problem("random")
    x = np.arange(len(h), dtype=float)

    def energy(h):
        return x @ dx.factor_ltdl(h, parents).solve(jnp.asarray(x))

    expected = -np.outer(np.linalg.solve(h, x), np.linalg.solve(h, x))
    slope = np.asarray(jax.grad(energy)(h))
    # Only the lower triangle is read, so it carries the slope of both halves.
    np.testing.assert_allclose(
        slope, np.where(pattern(parents), 2 * expected - np.diag(np.diag(expected)), 0), rtol=1e-9
    )
    with pytest.raises(ValueError, match="expanded_parents"):
        dx.factor_ltl(h, parents[:-1])
    with pytest.raises(ValueError, match="before their children"):
        dx.factor_ltl(np.eye(2), (1, -1))
