"""Search by samples, and many starts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import near

from dynax import optimize as o
from dynax.optimize.sampling import splines

H = 0.1


def two_valleys(**more) -> o.Problem:
    """A point that is pushed to one of two places, at the far one of which it is a little cheaper to be."""

    def step(x, u, p):
        v = x[1] + H * u[0]
        return jnp.stack([x[0] + H * v, v])

    def height(x, p):
        return (x[0] ** 2 - 1.0) ** 2 + 0.3 * x[0] + 0.5 * x[1] ** 2

    return o.problem(
        o.plant(step, states=2, controls=1),
        jnp.array([0.1, 0.0]),
        H,
        knots=20,
        costs=[o.residual(lambda x, u, p: u, 0.01 * H)],
        end_costs=[o.cost(height, 5.0)],
        lower=-4.0,
        upper=4.0,
        **more,
    )


def test_splines():
    """They add up to one, are never negative, and are those of third order: straight lines stay straight."""
    b = splines(31, 7)
    near(b.sum(axis=1), 1.0, 1e-15)
    assert b.min() >= 0.0
    near(np.diff(b @ np.arange(7.0), 2), 0.0, 1e-14)
    assert np.max(np.abs(np.diff(b, 3, axis=0))) < 10 * (4 / 30) ** 3
    with pytest.raises(ValueError, match="`knots` is 3, expected at least 4"):
        splines(10, 3)


def test_searches_and_starts(key):
    """Every search comes near the optimum that slopes find from there; from many starts slopes find both optima."""
    problem = two_valleys()
    keys = jax.random.split(key, 12)
    guesses = jax.vmap(lambda k: o.random_controls(problem, k, 2.0))(keys)
    assert np.max(np.abs(guesses)) <= 4.0
    starts = jax.jit(lambda g: o.multi_start(lambda u: o.solve(problem, u, o.rollout(problem, u)), g))(guesses)
    ends = np.asarray(starts.results.states[:, -1, 0])
    assert starts.found == 12
    assert np.any(ends > 0.5)
    assert np.any(ends < -0.5)
    best = np.min(starts.results.cost)
    assert starts.best.cost == best
    assert starts.best.states[-1, 0] < -0.9
    near(starts.spread, np.max(starts.results.cost) - best, 0.0)
    nothing = jnp.zeros((20, 1))
    for search in (o.predictive_sampling, o.cross_entropy, o.path_integral):
        find = jax.jit(lambda k, search=search: search(problem, nothing, k, 2.0, samples=64, rounds=30))
        found = find(key)
        assert best <= found.cost <= best + 0.05, search
        assert np.all(np.abs(found.controls) <= 4.0)
        assert np.min(found.history) == pytest.approx(float(found.cost))
        near(found.states, o.rollout(problem, found.controls), 1e-14)


def test_constraints_and_what_is_not_finite(key):
    """A wall in between is kept off, and samples that fail count as the worst; where all fail it is said."""
    wall = two_valleys(end_constraints=[o.inequality(lambda x, p: -x[:1])])
    found = o.cross_entropy(wall, jnp.zeros((20, 1)), key, 2.0, samples=64)
    assert found.states[-1, 0] > 0.5
    broken = two_valleys(constraints=[o.inequality(lambda x, u, p: jnp.log(3.0 - x[:1]) - 9.0)])
    assert np.isfinite(o.path_integral(broken, jnp.zeros((20, 1)), key, 8.0, samples=64).cost)
    hopeless = two_valleys(end_constraints=[o.inequality(lambda x, p: jnp.log(-1.0 - x[:1] ** 2))])
    results = o.multi_start(lambda k: o.path_integral(hopeless, jnp.zeros((20, 1)), k, 1.0, rounds=2), key[None])
    assert results.found == 0
    assert results.best.status == o.Status.NOT_FINITE
    assert np.isnan(results.spread)
