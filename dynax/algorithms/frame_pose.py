"""The pose of one body or frame, whose derivative is its Jacobian (eq. 4.4).

With `[w; v] = J dv` about the frame's origin, of the velocity `dv` that moves `q` at the rate `dq`,

    dR = [w x] R,    dp = v.

`J` is found in the walk that finds the pose, once for all directions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.frames import FrameOfChain, frame_at, framed_columns
from dynax.algorithms.places import Columns, with_jacobian
from dynax.compile.batching import trailing
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Mat3, Transform, Vec3
from dynax.sweep import take_rows
from dynax.tree.kinematics import kinematics
from dynax.tree.path import path
from dynax.tree.setup import setup

Pose = tuple[Mat3, Vec3]


def _at(tree: FrameOfChain, q: jax.Array) -> Pose:
    model, pose = tree
    s = setup(model, q, execution="automatic")
    return frame_at(model, s, kinematics(model, s, positions=True), model.num_bodies - 1, pose)


def _columns(tree: FrameOfChain, q: jax.Array) -> tuple[Pose, Columns]:
    rotation, origin, *columns = framed_columns(tree, q, frame="world_aligned")
    return (rotation, origin), tuple(columns)


def _moved(pose: Pose, motion: jax.Array) -> Pose:
    """How the pose changes with the frame's motion."""
    return Vec3(*motion[:3]).skew() @ pose[0], Vec3(*motion[3:])


def _pulled(pose: Pose, bar: Pose) -> jax.Array:
    """The transpose: a torque and a force on the frame."""
    turned, pushed = bar
    turning = [axis.cross(pull) for axis, pull in zip(pose[0].columns, turned.columns, strict=True)]
    torque = turning[0] + turning[1] + turning[2]
    return jnp.stack([torque.x, torque.y, torque.z, pushed.x, pushed.y, pushed.z])


_pose = with_jacobian(_at, trailing(_at), _columns, _moved, _pulled, lambda tree: tree[0])


@partial(jax.jit, static_argnames="body")
def _frame_pose(model: Model, q: jax.Array, pose: Any, *, body: int) -> Transform:
    way = path(model.structure, body)
    rotation, position = _pose((way.model(model), pose), take_rows(q, way.q))
    return Transform(rotation.array, position.array)


@for_models
def frame_pose(model: Model, q: ArrayLike, name: str) -> Transform:
    """The pose of a body or frame in the world: `.rotation (3, 3)`, `.translation (3,)` [m].

    Of the bodies only those between the base and the frame are looked at, and the derivative by `q` is the frame's
    Jacobian in closed form.

    **Arguments:** `q`: configuration, shape `(nq,)`; `name`: of a body or frame, or `"world"`. `KeyError`, with near
    names, for a name the model does not have.
    """
    body, pose = model.locate(name)
    q = as_state(model, q=q)[0]
    if body < 0:
        assert pose is not None
        return Transform(jnp.asarray(pose.rotation, q.dtype), jnp.asarray(pose.translation, q.dtype))
    return _frame_pose(model, q, pose, body=body)
