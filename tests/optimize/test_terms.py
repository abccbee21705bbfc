"""Friction cones and relaxed barriers against optima in closed form."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import converged, near

from dynax import optimize as o


@pytest.mark.spec("OC-31")
def test_friction_cone():
    """A block pushed across a floor by `f` in the plane, pressed on it by `n`; cost (|f|^2 + n^2) / 2. The cone presses
    throughout, also in the middle of the way, where the force is zero: n^2 = (|f|^2 + r^2) / mu^2 there and anywhere.
    So the push is that without a cone; the price of a newton balances the cost of n, and the coefficient is worth what
    the presses cost."""
    N, mu, r = 21, 0.5, 0.01
    h, there = 1.0 / N, np.array([0.6, 0.8])

    def step(x, u, params):
        v = x[2:] + h * u[:2]
        return jnp.concatenate([x[:2] + h * v, v])

    problem = o.problem(
        o.plant(step, states=4, controls=3),
        jnp.zeros(4),
        h,
        knots=N,
        costs=[o.residual(lambda x, u, p: u, h)],
        constraints=[o.friction_cone(lambda x, u, p: u, lambda x, u, p: p, rounding=r)],
        end_constraints=[o.equality(lambda x, p: x - jnp.append(there, jnp.zeros(2)))],
        params=mu,
    )

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def solved(mu):
        result = o.solve(dataclasses.replace(problem, params=mu), jnp.ones((N, 3)), second_order=True)
        return result.cost, result

    (cost, result), slope = solved(mu)
    assert converged(result).violation < 1e-6
    rows = np.stack([h * h * np.arange(N, 0, -1), np.full(N, h)])
    f = rows.T @ np.linalg.solve(rows @ rows.T, [1.0, 0.0])
    n = np.sqrt(f**2 + r**2) / mu
    assert np.min(np.abs(f)) < 1e-9
    near(result.controls[:, :2], f[:, None] * there, 1e-5)
    near(result.controls[:, 2], n, 1e-5)
    near(result.multipliers.path[:, 0], h * n / mu, 1e-5)
    near(cost, 0.5 * h * np.sum(f**2 + n**2), 1e-6)
    near(slope, -h * np.sum(n**2) / mu, 1e-5)


def test_cones_take_what_there_is():
    """Forces in a plane, several contacts with coefficients of their own; what is no cone is said."""
    f = jnp.array([[3.0, 4.0, 5.0], [0.0, 0.0, 1.0], [1.0, 0.0, -1.0]])
    cone = o.friction_cone(lambda x, p: x.reshape(3, 3), (1.0, 0.5, 2.0), rounding=1e-9)
    assert cone.kind == "inequality"
    near(cone.found(jnp.ravel(f), None), [0.0, -0.5, 3.0], 1e-8)
    plane = o.friction_cone(lambda x, u, p: u, 0.5, rounding=1e-9)
    near(plane.found(f[0], jnp.array([-2.0, 3.0]), None), [0.5], 1e-8)
    assert np.all(np.isfinite(jax.jacfwd(lambda u: plane.found(f[0], u, None))(jnp.zeros(2))))
    for words, wrong in {
        "`friction` of a cone is -0.1": lambda: o.friction_cone(lambda x, p: x, -0.1),
        "`rounding` of a friction cone is 0": lambda: o.friction_cone(lambda x, p: x, 0.1, rounding=0),
        r"`force` of a friction cone has shape \(1,\)": lambda: o.friction_cone(lambda x, p: x, 0.1).found(f[0, :1], 0),
        "`relaxation` of a barrier is 0": lambda: o.relaxed_barrier(lambda x, p: x, relaxation=0),
    }.items():
        with pytest.raises(ValueError, match=words):
            wrong()


def test_relaxed_barrier():
    """A point that would be at 2 and may not be beyond 1: where the slopes of (x - 2)^2 / 2 and of the barrier meet, in
    the logarithm, in the parabola before the wall, and behind it where it gives way."""
    d = 0.01
    problem = o.problem(
        o.plant(lambda x, u, p: x + u, states=1, controls=1),
        jnp.zeros(1),
        1.0,
        knots=1,
        end_costs=[o.residual(lambda x, p: x - 2.0), o.relaxed_barrier(lambda x, p: x - 1.0, relaxation=d)],
    )

    def solved(weight):
        square, barrier = problem.end_costs
        moved = dataclasses.replace(problem, end_costs=(square, dataclasses.replace(barrier, weight=weight)))
        return o.solve(moved, jnp.zeros((1, 1)))

    w = np.array([1.0, 0.05, 0.01, 0.001])
    result = converged(jax.jit(jax.vmap(solved))(w))
    log, parabola = (np.sqrt(1.0 + 4.0 * w) - 1.0) / 2.0, (2.0 * w / d - 1.0) / (1.0 + w / d**2)
    assert (log > d).tolist() == [True, True, False, False]
    near(1.0 - result.states[:, -1, 0], np.where(log > d, log, parabola), 1e-7)
    # Value, slope and curvature go on where the logarithm ends.
    barrier = problem.end_costs[1].activation
    slope = jax.grad(barrier)
    sides = jnp.array([-d * (1 - 1e-9), -d * (1 + 1e-9)])
    for found in jax.jit(jax.vmap(lambda g: (barrier(g), slope(g), jax.grad(slope)(g))))(sides):
        near(found[0] / found[1], 1.0, 1e-6)
