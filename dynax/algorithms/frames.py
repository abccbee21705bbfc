"""Forward kinematics: poses, velocities, accelerations and Jacobians of bodies and frames (sections 4.1, 4.2)."""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.compile.batching import batch_last_vectors, trailing, walking
from dynax.compile.prepared import Lines
from dynax.linear.row_products import components
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Mat3, Motion, Transform, Vec3, classical_acceleration
from dynax.sweep import take_rows
from dynax.tree.bodies import public_motion, public_rotation
from dynax.tree.freedoms import root_columns
from dynax.tree.kinematics import columns, kinematics
from dynax.tree.layout import Parts, layout
from dynax.tree.path import path
from dynax.tree.setup import Setup, setup

FrameChoice = Literal["body", "world", "world_aligned"]
FrameOfChain = tuple[Model, Transform | None]
"""A chain and the placement of a frame on its last body."""


def root_offsets(model: Model, s: Setup) -> Vec3:
    """For each body the position of its tree's free root in the world, zero where the tree stands on the ground."""
    topology = model.topology
    base = topology.base_of.copy()
    for body, parent in enumerate(topology.parents):
        if base[body] < 0:
            base[body] = 0 if parent < 0 else base[parent]
    return take_rows(s.root_position, base - 1)


def body_poses(model: Model, s: Setup, kin: Parts) -> tuple[Mat3, Vec3]:
    """World axes and origins of the bodies' own frames, in body order."""
    constants = s.layout.body_order(s.constants)
    internal, relative = s.layout.body_order(
        Parts((kin.roots.rotation, kin.roots.position), (kin.rows.rotation, kin.rows.position))
    )
    rotation = public_rotation(constants, internal)
    return rotation, relative + root_offsets(model, s) - rotation @ constants.hinge_offset


@walking(trailing)
def _poses(model: Model, q: jax.Array, *, execution: str) -> tuple[Mat3, Vec3]:
    s = setup(model, q, execution=execution)
    return body_poses(model, s, kinematics(model, s, positions=True))


@jax.jit
def _forward_kinematics(model: Model, q: jax.Array) -> Transform:
    rotation, position = _poses(model, q)
    return Transform(rotation.array, position.array)


@for_models
def forward_kinematics(model: Model, q: ArrayLike) -> Transform:
    """The poses of all bodies in the world: `.rotation (n, 3, 3)`, `.translation (n, 3)` [m].

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _forward_kinematics(model, *as_state(model, q=q))


def _motions(model: Model, q, v, a, *, accelerations: bool, execution: str) -> Motion:
    s = setup(model, q, v, execution)
    kin = kinematics(model, s, v, a, accelerations=accelerations)

    def public(constants, k) -> Motion:
        return public_motion(constants, k.rotation, k.acceleration if accelerations else k.velocity)

    return s.layout.body_order(Parts(public(s.constants.roots, kin.roots), public(s.constants.rows, kin.rows)))


@walking(batch_last_vectors)
def _body_velocities(model: Model, q, v, *, execution: str) -> Motion:
    return _motions(model, q, v, None, accelerations=False, execution=execution)


@walking(batch_last_vectors)
def _body_accelerations(model: Model, q, v, a, *, execution: str) -> Motion:
    return _motions(model, q, v, a, accelerations=True, execution=execution)


@for_models
def body_velocities(model: Model, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """The velocities of all bodies in their own axes about their own origins, shape `(n, 6)` [rad/s, m/s]."""
    q, v = as_state(model, q=q, v=v)
    return _body_velocities(model, q, v)


@for_models
def body_accelerations(model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> jax.Array:
    """The spatial accelerations of all bodies in their own axes about their own origins, shape `(n, 6)`.

    These are the rates of `body_velocities` (eq. 2.46), without gravity; `classical_acceleration` turns one into the
    acceleration of the point at the origin.
    """
    q, v, a = as_state(model, q=q, v=v, a=a)
    return _body_accelerations(model, q, v, a)


def _check_frame(frame: str) -> None:
    if frame not in ("body", "world", "world_aligned"):
        raise ValueError(f"`frame` must be 'body', 'world' or 'world_aligned', got {frame!r}")


def framed_columns(tree: FrameOfChain, q: jax.Array, *, frame: FrameChoice) -> tuple[Mat3, Vec3, jax.Array, jax.Array]:
    """World axes and origin of a frame of the last body of a chain, and the columns `(6, k, *batch)` of its Jacobian:
    the free root's, then those of its slots.

    Apart, as results of one kernel: put together inside of it, each element would choose between the two.
    """
    model, pose = tree
    s = setup(model, q, execution="automatic")
    kin = kinematics(model, s, positions=True)
    rotation, origin = frame_at(model, s, kin, model.num_bodies - 1, pose)
    root = jax.tree.map(lambda a: a[-1], root_offsets(model, s))

    def moved(column: Motion, position: Vec3) -> jax.Array:
        # Columns stand about their joints, at positions from the free root; so does the frame, until the world asks.
        offset = jax.tree.map(lambda o, r, p: (0.0 if frame == "world" else o) - r - p, origin, root, position)
        own = column.shift(offset)
        return components(own.rotate_back(rotation) if frame == "body" else own)

    root_column, slot_column = root_columns(s), columns(model, s, kin.rows.rotation).motion()
    at_slot = s.layout.to_slots(kin.rows.position, s.layout.slot_body)
    return rotation, origin, moved(root_column, Vec3.zero(root_column.angular.x)), moved(slot_column, at_slot)


def _columns(tree: FrameOfChain, q: jax.Array, *, frame: FrameChoice) -> tuple[jax.Array, jax.Array]:
    return framed_columns(tree, q, frame=frame)[2:]


_path_jacobians = {f: trailing(partial(_columns, frame=f), lines=Lines.PARTS) for f in get_args(FrameChoice)}


@partial(jax.jit, static_argnames=("body", "frame"))
def _jacobian(model: Model, q, pose: Transform | None, *, body: int, frame: FrameChoice) -> jax.Array:
    if body < 0:
        return jnp.zeros((6, model.nv), q.dtype)
    way = path(model.structure, body)
    own = way.model(model)
    roots, slots = _path_jacobians[frame]((own, pose), q[way.q])
    carried = layout(own.topology, "automatic").order.vector(roots.T, slots.T)
    return take_rows(carried, way.from_v).T


def frame_at(model: Model, s: Setup, kin: Parts, body: int, pose: Transform | None) -> tuple[Mat3, Vec3]:
    """World axes and origin of a frame fixed to a body."""
    rotation, position = jax.tree.map(lambda a: a[body], body_poses(model, s, kin))
    if pose is None:
        return rotation, position
    dtype = s.dtype
    turn, offset = pose.rotation.astype(dtype), pose.translation.astype(dtype)  # batch axes, if any, trail
    local = Mat3(*(turn[i, j] for i in range(3) for j in range(3)))
    return rotation @ local, position + rotation @ Vec3(*offset)


@for_models
def jacobian(model: Model, q: ArrayLike, name: str, *, frame: FrameChoice) -> jax.Array:
    """The Jacobian of a body or frame: `J v` is its velocity `[angular; linear]`, shape `(6, nv)` (eq. 4.4).

    **Arguments:**

    - `q`: configuration, shape `(nq,)`.
    - `name`: a body or a frame; `KeyError` with near names otherwise.
    - `frame`: `"body"` for the frame's own axes and origin, `"world"` for world axes about the world's origin,
      `"world_aligned"` for world axes about the frame's origin.
    """
    _check_frame(frame)
    body, pose = model.locate(name)
    return _jacobian(model, *as_state(model, q=q), pose, body=body, frame=frame)


@partial(jax.jit, static_argnames=("body", "frame"))
def _jacobian_bias(model: Model, q, v, pose: Transform | None, *, body: int, frame: FrameChoice) -> jax.Array:
    if body < 0:
        return jnp.zeros(6, q.dtype)
    s = setup(model, q, v)
    kin = kinematics(model, s, v, positions=True, accelerations=True)
    rotation, origin = frame_at(model, s, kin, body, pose)
    velocity, acceleration, at = jax.tree.map(
        lambda a: a[body],
        s.layout.body_order(
            Parts(
                (kin.roots.velocity, kin.roots.acceleration, kin.roots.position),
                (kin.rows.velocity, kin.rows.acceleration, kin.rows.position),
            )
        ),
    )
    root = jax.tree.map(lambda a: a[body], root_offsets(model, s))
    offset = (Vec3.zero(origin.x) if frame == "world" else origin) - root - at
    acceleration = acceleration.shift(offset)
    if frame == "world":
        return acceleration.array
    if frame == "body":
        return acceleration.rotate_back(rotation).array
    return classical_acceleration(acceleration, velocity.shift(offset)).array


@for_models
def jacobian_bias(model: Model, q: ArrayLike, v: ArrayLike, name: str, *, frame: FrameChoice) -> jax.Array:
    """`Jdot v` of a body or frame, shape `(6,)`: its acceleration when the joints do not accelerate (eq. 2.57).

    The rate of the Jacobian of the same `frame`: for `"world_aligned"` the classical acceleration of the origin, for
    the other two the spatial acceleration.
    """
    _check_frame(frame)
    body, pose = model.locate(name)
    return _jacobian_bias(model, *as_state(model, q=q, v=v), pose, body=body, frame=frame)
