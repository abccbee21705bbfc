"""The pose of one body or frame, whose derivative is its Jacobian (eq. 4.4).

With `[w; v] = J dv` about the frame's origin, of the velocity `dv` that moves `q` at the rate `dq`,

    dR = [w x] R,    dp = v.

`J` is found in the walk that finds the pose, once for all directions.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.frames import FrameOfChain, frame_at, framed_columns
from dynax.compile.batching import along_moving, is_zero, linear, trailing
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import tangent_rows
from dynax.model.kinds import for_models
from dynax.spatial import Mat3, Transform, Vec3
from dynax.sweep import take_rows
from dynax.sweep.sums import summed
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import layout
from dynax.tree.path import path
from dynax.tree.setup import setup

Pose = tuple[Mat3, Vec3]
Framed = tuple[jax.Array, Mat3]
"""The columns of a Jacobian, shape `(nv, 6, *batch)`, and the axes of its frame."""


def _at(tree: FrameOfChain, q: jax.Array) -> Pose:
    model, pose = tree
    s = setup(model, q, execution="automatic")
    return frame_at(model, s, kinematics(model, s, positions=True), model.num_bodies - 1, pose)


def _moved(framed: Framed, dv: jax.Array) -> Pose:
    """How the pose changes along `dv`."""
    along, rotation = framed
    motion = summed(along * dv[:, None], axis=0)
    return Vec3(*motion[:3]).skew() @ rotation, Vec3(*motion[3:])


def _pulled(framed: Framed, bar: Pose) -> jax.Array:
    """The transpose: the forces on the freedoms of a torque and a force on the frame."""
    along, rotation = framed
    turned, pushed = bar
    turning = [axis.cross(pull) for axis, pull in zip(rotation.columns, turned.columns, strict=True)]
    torque = turning[0] + turning[1] + turning[2]
    wrench = [torque.x, torque.y, torque.z, pushed.x, pushed.y, pushed.z]
    return reduce(jnp.add, (along[:, k] * force for k, force in enumerate(wrench)))


def _rule(primals: tuple[FrameOfChain, jax.Array], tangents: tuple) -> tuple[Pose, Pose]:
    (tree, q), (dtree, dq) = primals, tangents
    model = tree[0]
    if is_zero(dq) or not all(joint.holonomic for joint in model.joints):
        return along_moving(_by_recursion, primals, tangents)
    rotation, origin, roots, slots = _with_columns(tree, q)
    rows = (jnp.swapaxes(columns, 0, 1) for columns in (roots, slots))
    along = layout(model.topology, "automatic").order.vector(*rows)
    change = _there((along, rotation), tangent_rows(model, q, dq))
    if not all(map(is_zero, jax.tree.leaves(dtree, is_leaf=is_zero))):
        _, by_leaves = along_moving(lambda tree: _by_recursion(tree, q), (tree,), (dtree,))
        change = jax.tree.map(jnp.add, change, by_leaves)
    return (rotation, origin), change


_by_recursion, _pose = trailing(_at), trailing(_at, _rule)
_with_columns = trailing(partial(framed_columns, frame="world_aligned"))
_there, _ = linear(_moved, _pulled, _moved, lambda framed, dv: (framed[1], framed[1].columns[0]))


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
