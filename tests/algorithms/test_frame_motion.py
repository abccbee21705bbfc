"""The motion of one frame by its chain, against poses, Jacobians and their bias, which go other ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from flexible.systems import arm, nodal_data

import dynax as dx
from dynax.algorithms.frame_motion import frame_motion

NAMES = "tool", "b1", "mark", "world"


def near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-11 * max(1.0, np.abs(expected).max()))


def expected(model, q, v, a, name):
    """By the definitions: `J v`, and `J a + Jdot v` with the Jacobian in world axes about the frame's origin."""
    pose, J = dx.frame_pose(model, q, name), dx.jacobian(model, q, name, frame="world_aligned")
    moving = J @ v, J @ a + dx.jacobian_bias(model, q, v, name, frame="world_aligned")
    velocity, acceleration = ((x.reshape(2, 3) @ pose.rotation).reshape(6) for x in moving)
    return pose.rotation, pose.translation, velocity, acceleration


@pytest.mark.slow
@pytest.mark.parametrize("name", ["screws", "mixed"])
def test_it_is_that_of_the_jacobian(name):
    model, s = trees.tree(name), trees.states(trees.tree(name), 3)

    def both(q, v, a):
        return [(tuple(frame_motion(model, q, v, a, f)), expected(model, q, v, a, f)) for f in NAMES]

    for found, wanted in jax.jit(jax.vmap(both))(s.q, s.v, s.a):
        jax.tree.map(near, found, wanted)
    assert frame_motion(model, s.q[0], s.v[0], None, "tool").acceleration is None


def test_so_are_its_derivatives():
    """And values, of hinges: by the state, by acceleration and by a leaf of the model, in reverse and in a batch."""
    model, s = trees.tree("arm"), trees.states(trees.tree("arm"), 3)
    weights = np.random.default_rng(0).normal(size=24)

    def slope(motion):
        def said(placements, q, v, a):
            own = model.replace(placements=dx.Transform(model.placements.rotation, placements))
            found = motion(own, q, v, a, "tool")
            return jnp.concatenate([x.reshape(-1) for x in found]) @ weights

        one = jax.value_and_grad(said, argnums=(0, 1, 2, 3))
        return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))(model.placements.translation, s.q, s.v, s.a)

    jax.tree.map(near, slope(frame_motion), slope(expected))


@pytest.mark.slow
def test_of_a_model_that_bends(rng):
    """A frame on what the tip of a bending body carries."""
    model = arm(nodal_data(rng, 3), nodal_data(rng, 2))
    q, v, a = jnp.asarray(0.1 * rng.normal(size=model.nq)), *jnp.asarray(rng.normal(size=(2, model.nv)))
    for name in ("camera", "panel/side"):
        found, wanted = jax.jit(lambda q, v, a, f=name: (
            tuple(frame_motion(model, q, v, a, f)), expected(model, q, v, a, f)))(q, v, a)  # fmt: skip
        jax.tree.map(near, found, wanted)
