"""Where one frame is and how it moves, from the chain that carries it alone: one walk for all that is asked of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.frames import body_accelerations, body_velocities, forward_kinematics, frame_at, root_offsets
from dynax.compile.batching import trailing, walking
from dynax.model import Model
from dynax.spatial import Mat3, Motion, Transform, Vec3, classical_acceleration
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.path import path
from dynax.tree.setup import setup


class FrameMotion(NamedTuple):
    """Axes and origin in the world; the rest `[angular; linear]` along the frame's own axes, of its origin."""

    rotation: jax.Array
    """Shape `(3, 3)`."""
    position: jax.Array
    """Shape `(3,)` [m]."""
    velocity: jax.Array
    """Shape `(6,)` [rad/s, m/s]."""
    acceleration: jax.Array | None
    """Classical, without gravity, shape `(6,)`; `None` where no acceleration is given."""


def frame_motion(model: Any, q: jax.Array, v: jax.Array, a: jax.Array | None, name: str) -> FrameMotion:
    """The motion of a body or frame at a state; of a tree by its chain, of another kind of model by all its bodies."""
    body, pose = model.locate(name)
    if body < 0:
        still = jnp.zeros(6, q.dtype)
        return FrameMotion(*_placed(pose, q.dtype), still, None if a is None else still)
    if not isinstance(model, Model):
        return _of_bodies(model, q, v, a, body, pose)
    way = path(model.structure, body)
    rates = v[way.v], None if a is None else a[way.v]
    rotation, position, velocity, acceleration = _along((way.model(model), pose), q[way.q], *rates)
    felt = None if acceleration is None else acceleration.array
    return FrameMotion(rotation.array, position.array, velocity.array, felt)


@walking(trailing)
def _along(
    tree: tuple[Model, Transform | None], q: jax.Array, v: jax.Array, a: jax.Array | None, *, execution: str
) -> tuple[Mat3, Vec3, Motion, Motion | None]:
    """Of a frame of the last body of a chain."""
    model, pose = tree
    s = setup(model, q, v, execution)
    kin = kinematics(model, s, v, a, positions=True, accelerations=a is not None)
    last = model.num_bodies - 1
    rotation, origin = frame_at(model, s, kin, last, pose)
    every = s.layout.body_order(Parts(*(k._replace(rotation=None, offset=None) for k in (kin.roots, kin.rows))))
    at, root = jax.tree.map(lambda x: x[last], (every, root_offsets(model, s)))
    offset = origin - root - at.position
    velocity = at.velocity.shift(offset).rotate_back(rotation)
    if a is None:
        return rotation, origin, velocity, None
    acceleration = at.acceleration.shift(offset).rotate_back(rotation)
    return rotation, origin, velocity, classical_acceleration(acceleration, velocity)


def _of_bodies(model, q, v, a, body: int, pose: Transform | None) -> FrameMotion:
    poses, velocities = forward_kinematics(model, q), body_velocities(model, q, v)
    turn, offset = _placed(pose, q.dtype)
    axes, shift = Mat3.from_array(turn), Vec3.from_array(offset)
    velocity = Motion.from_array(velocities[body]).shift(shift).rotate_back(axes)
    acceleration = None
    if a is not None:
        spatial = Motion.from_array(body_accelerations(model, q, v, a)[body]).shift(shift).rotate_back(axes)
        acceleration = classical_acceleration(spatial, velocity).array
    rotation = poses.rotation[body]
    return FrameMotion(rotation @ turn, poses.translation[body] + rotation @ offset, velocity.array, acceleration)


def _placed(pose: Transform | None, dtype) -> tuple[jax.Array, jax.Array]:
    if pose is None:
        return jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype)
    return jnp.asarray(pose.rotation, dtype), jnp.asarray(pose.translation, dtype)
