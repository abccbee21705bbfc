"""Scenes as plants: motions that push against the ground."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax import optimize as o

KNOTS, DT, GOAL = 15, 0.01, 0.1
START = jnp.array([0, 0, 0.1, 1, 0, 0, 0, *jnp.zeros(6)])
PUSH = jnp.full((KNOTS, 1), 30.0)
FORWARD = jnp.eye(6)[:, 3:4]


def sled() -> c.Scene:
    """A floating body on three feet."""
    builder = dx.ModelBuilder()
    inertia = dx.SpatialInertia.box((0.3, 0.3, 0.1), density=300.0)
    builder.body("sled", joint=dx.Free(), inertia=inertia, effort_limit=35.0)
    places = [dx.Transform.from_translation((x, y, -0.08)) for x, y in ((0.1, 0.0), (-0.1, 0.1), (-0.1, -0.1))]
    feet = [c.Collider("sled", c.Sphere(0.02), place) for place in places]
    return c.scene(builder.build(), [c.Collider("world", c.Plane()), *feet])


def pushed(scene: c.Scene) -> o.Problem:
    return o.problem(
        o.plant(scene, actuation=FORWARD),
        START,
        DT,
        knots=KNOTS,
        costs=[o.residual(lambda x, u, p: 1e-3 * u)],
        end_costs=[o.residual(lambda x, p: 10.0 * (x[:1] - GOAL))],
    )


@pytest.fixture(scope="module")
def solution() -> o.Result:
    return o.solve(pushed(sled()), PUSH)


def test_a_sled_is_pushed_along_the_ground(solution):
    """It comes where it is to, without leaving the ground."""
    assert solution.status == o.Status.CONVERGED
    np.testing.assert_allclose(solution.states[:, 2], 0.1, atol=1e-6)
    np.testing.assert_allclose(solution.states[-1, 0], GOAL, atol=0.01)


@pytest.mark.slow
def test_no_control_is_better(solution):
    """Of a rollout, which takes the same steps."""

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def cost(u):
        end = dx.rollout(sled(), START[:7], START[7:], u @ FORWARD.T, DT).q[-1]
        return 0.5 * jnp.sum((1e-3 * u) ** 2) + 0.5 * (10.0 * (end[0] - GOAL)) ** 2, end

    (value, end), slope = cost(solution.controls)
    np.testing.assert_allclose(end, solution.states[-1, :7], atol=1e-9)
    np.testing.assert_allclose(value, solution.cost, rtol=1e-9)
    assert np.abs(slope).max() < 1e-5 * np.abs(cost(PUSH)[1]).max()


def test_limits_are_those_of_the_model():
    problem = o.problem(o.plant(sled()), START, DT, knots=KNOTS, costs=[o.residual(lambda x, u, p: u)])
    limited = o.with_limits(problem)
    assert limited.limits is not None
    np.testing.assert_array_equal(limited.limits[1], np.full((KNOTS, 6), 35.0))


def test_what_needs_accelerations_takes_no_scene():
    for refused in (lambda: o.inverse_plant(sled()), lambda: o.collocation(o.plant(sled()), START, np.full(3, DT))):
        with pytest.raises(ValueError, match=r"a scene has no acceleration, only steps; take `o.problem\(o.plant"):
            refused()
