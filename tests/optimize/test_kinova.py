"""The reach of a Kinova arm that Crocoddyl ships (`arm_manipulation_fwddyn`), from two guesses to two optima."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import converged, near
from oracles.robots import example_robots

import dynax as dx
from dynax import optimize as o

HAND = "j2s6s200_end_effector"


@pytest.mark.slow
@pytest.mark.spec("OC-23")
def test_two_guesses_lead_to_two_optima():
    """100 steps of 10 ms; costs of the way count by the step, that of the end does not."""
    path = example_robots().get("kinova_description/robots/kinova.urdf")
    if path is None:
        pytest.skip("the robots of example-robot-data are not installed")
    model = dx.load(path)
    nothing, h, N = jnp.zeros(6), 0.01, 100
    model = model.replace(damping=nothing, friction_loss=nothing, armature=nothing)
    x0 = jnp.concatenate([jnp.array([1.5707, 2.618, -1.5707, 3.1415, 2.618, 0.0]), nothing])
    there = dx.Transform.from_translation((0.6, 0.2, 0.5))

    def missed(x):
        """The twist that takes the hand from its goal to where it is."""
        return (there.inverse @ dx.frame_pose(model, x[:6], HAND)).log().array

    problem = o.problem(
        o.plant(model),
        x0,
        h,
        knots=N,
        costs=[
            o.residual(lambda x, u, p: missed(x), h),
            o.residual(lambda x, u, p: x - x0, 0.1 * h),
            o.residual(lambda x, u, p: u, 0.1 * h),
        ],
        end_costs=[o.residual(lambda x, p: missed(x), 1e3)],
    )
    solve = jax.jit(lambda states: o.solve(problem, jnp.zeros((N, 6)), states))
    for states, cost in ((jnp.zeros((N + 1, 12)), 8.12507800577), (jnp.tile(x0, (N + 1, 1)), 3.69842274893)):
        result = converged(solve(states))
        assert np.all(np.isfinite(result.controls))
        near(result.cost, cost, 1e-8)
