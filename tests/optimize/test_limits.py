"""Limits of a model as constraints, and the last digits of solutions that rest on them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import block, converged, near, pendulum_problem

import dynax as dx
from dynax import optimize as o


def slider(**limits) -> dx.Model:
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    inertia = dx.SpatialInertia(1.0, np.zeros(3), np.eye(3))
    builder.body("cart", parent="world", joint=dx.Prismatic((1.0, 0.0, 0.0)), inertia=inertia, **limits)
    return builder.build()


def test_all_limits_in_one_call():
    """A cart is drawn to where it may not go, faster than it may, by more than it can: it ends at its limit, has gone
    at its greatest speed and begins with its greatest force."""
    N, h = 30, 0.05
    model = slider(position_limits=(-1.0, 0.5), velocity_limit=0.6, effort_limit=2.0)
    problem = o.problem(
        o.plant(model),
        jnp.array([-0.2, 0.0]),
        h,
        knots=N,
        costs=[o.residual(lambda x, u, p: x[:1] - 1.0, h), o.residual(lambda x, u, p: u, 1e-3 * h)],
        lower=-1.5,
    )
    limited = o.with_limits(problem)
    assert limited.limits is not None
    near(limited.limits[0], -1.5, 0.0)
    near(limited.limits[1], 2.0, 0.0)
    result = converged(o.solve(limited, jnp.zeros((N, 1))))
    near(np.max(result.states, axis=0), [0.5, 0.6], 1e-7)
    near(result.controls[0], 2.0, 0.0)

    mixed = o.with_limits(dataclasses.replace(problem, plant=o.plant(model, actuation=np.array([[4.0]])), limits=None))
    assert mixed.limits is None
    beyond = mixed.constraints[-1].function(problem.x0, jnp.array([0.6]), None)
    near(beyond, [(-2.0 - 2.4) / 4.0, (2.4 - 2.0) / 4.0], 1e-15)


def test_what_has_no_limits_is_said():
    with pytest.raises(ValueError, match="the plant of `problem` has no limits"):
        o.with_limits(block(5))
    problem = o.problem(o.plant(slider(effort_limit=1.0)), jnp.zeros(2), 0.1, knots=3, lower=2.0)
    with pytest.raises(ValueError, match="`lower` or `upper` of `problem` lies beyond `effort_limits`"):
        o.with_limits(problem)


def test_last_digits():
    """A swing-up at the limit of its torque, its goal met to four digits and then to all; gradients stay."""
    problem, u = pendulum_problem(), jnp.full((50, 1), 0.1)
    limits = jnp.full((50, 1), -2.0), jnp.full((50, 1), 2.0)

    def both(mass):
        params = {**problem.params, "mass": mass}
        moved = dataclasses.replace(problem, params=params, limits=limits)
        result = o.solve(moved, u, second_order=True, constraint_tolerance=1e-4)
        sharp = o.polish(moved, result)
        return sharp.controls, (result, sharp)

    slope, (result, sharp) = jax.jit(jax.jacfwd(both, has_aux=True))(1.0)
    converged(result)
    assert sharp.violation < 1e-13
    assert sharp.gap < 1e-13
    assert sharp.residual < 1e-12
    assert np.max(np.abs(sharp.controls)) == 2.0
    assert np.all(np.isfinite(slope))


def test_last_digits_on_a_wall():
    """A block that may not go as fast as it would: constraints of its path press for a while, others do not."""
    slow = (o.inequality(lambda x, u, p: x[1:] - 1.2),)
    problem = dataclasses.replace(block(20), constraints=slow)
    result = converged(o.solve(problem, jnp.zeros((20, 1)), constraint_tolerance=1e-4))
    sharp = o.polish(problem, result)
    assert result.violation > 1e-8
    assert 3 < np.sum(sharp.multipliers.path > 0) < 17
    near(np.max(sharp.states[:, 1]), 1.2, 1e-14)
    near(sharp.states[-1], [1.0, 0.0], 1e-14)
    assert sharp.violation < 1e-14
    assert sharp.residual < 1e-12
