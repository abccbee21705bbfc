"""The outward walk: poses, velocities and accelerations of all bodies, in world axes about each body's own joint.

From parent `p` to body `i`:

    R_i = R_p E_i R_J          d_i = R_p r_i + ...                    (offset from the parent's joint)
    v_i = phi*(d_i) v_p + S v                                         (Featherstone 2008, eq. 5.14; Jain, SOA-VEL)
    a_i = phi*(d_i) a_p + S a + S_ring v + v_i x S v                  (eq. 5.15; SOA-ACC)
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.model import Model
from dynax.spatial import Mat3, Motion, Scalar, Vec3
from dynax.spatial.column import Column, MotionColumn, ScrewColumn
from dynax.sweep import take_rows
from dynax.tree.layout import Parts
from dynax.tree.setup import JointRows, Setup, joint_biases, joint_motions, joint_rates, slot_columns


class Kinematics(NamedTuple):
    """Per body; `None` for what was not asked for.

    Positions are relative to the tree's free root, or to the world where the tree stands on it. The offset of a free
    root is its position in the world.
    """

    rotation: Mat3
    offset: Vec3
    position: Vec3 | None
    velocity: Motion | None
    acceleration: Motion | None


class _Row(NamedTuple):
    rotation: Mat3
    offset: Vec3
    joints: JointRows
    rate: Scalar | Motion | None
    bias: Motion | None
    acceleration: Scalar | Motion | None


class _Frame(NamedTuple):
    rotation: Mat3
    position: Vec3 | None
    velocity: Motion | None
    acceleration: Motion | None


def place(parent: Mat3, x: _Row) -> tuple[Mat3, Vec3]:
    """The body's axes and the offset of its joint, from the parent's axes."""
    j = x.joints
    axes = parent @ x.rotation
    offset = parent @ x.offset
    if j.rotation is not None and j.translation is not None:
        return axes @ j.rotation, offset + axes @ j.translation
    rotation = axes.rotate_z(j.cosine, j.sine)
    if j.slide is not None:
        offset = offset + Vec3(axes.xz, axes.yz, axes.zz) * j.slide
    return rotation, offset


def in_world(rotation: Mat3, joints: JointRows, rate: Scalar | Motion) -> Motion:
    """A joint motion (a rate along z, or components in body axes) in world axes."""
    if isinstance(rate, Motion):
        return rate.rotate(rotation)
    z = Vec3(rotation.xz, rotation.yz, rotation.zz)
    if joints.turn_per_unit is None:
        return Motion(z * rate, Vec3.zero(z.x))
    return Motion(z * (joints.turn_per_unit * rate), z * (joints.slide_per_unit * rate))


def _step(parent: _Frame, x: _Row) -> tuple[_Frame, Kinematics]:
    rotation, offset = place(parent.rotation, x)
    position = None if parent.position is None else parent.position + offset
    velocity = acceleration = None
    if parent.velocity is not None and x.rate is not None:
        joint_velocity = in_world(rotation, x.joints, x.rate)
        velocity = parent.velocity.shift(offset) + joint_velocity
        if parent.acceleration is not None:
            acceleration = parent.acceleration.shift(offset) + velocity.cross(joint_velocity)
            if x.bias is not None:
                acceleration = acceleration + x.bias.rotate(rotation)
            if x.acceleration is not None:
                acceleration = acceleration + in_world(rotation, x.joints, x.acceleration)
    frame = _Frame(rotation, position, velocity, acceleration)
    return frame, Kinematics(rotation, offset, position, velocity, acceleration)


def kinematics(
    model: Model,
    s: Setup,
    v: jax.Array | None = None,
    a: jax.Array | None = None,
    *,
    positions: bool = False,
    accelerations: bool = False,
    gravity: bool = False,
) -> Parts:
    """Walk outward. With `accelerations`, those for joint accelerations `a` (zero if `None`); `gravity` adds `-g`."""
    roots, zero = s.root_rotation, jnp.zeros(s.batch, s.dtype)
    velocity = acceleration = root_velocity = root_acceleration = None
    if v is not None:
        root_velocity, velocity = _base_velocities(s, v)
        if accelerations:
            root_acceleration, acceleration = _base_accelerations(s, a, gravity=gravity)
    # Relative to the free root: differences within a tree keep their digits however far the tree has flown.
    position = _with_world(Vec3.zero(s.root_position.x), Vec3.zero(zero)) if positions else None
    base = _Frame(_with_world(roots, Mat3.identity(zero)), position, velocity, acceleration)
    xs = _Row(
        s.constants.rows.rotation,
        s.constants.rows.offset,
        s.joints,
        None if v is None else joint_rates(s, model, v),
        joint_biases(s, model) if accelerations else None,
        joint_motions(s, model, a) if accelerations and a is not None else None,
    )
    rows = s.layout.bodies.scatter(_step, base, xs)
    root = Kinematics(
        roots, s.root_position, Vec3.zero(s.root_position.x) if positions else None, root_velocity, root_acceleration
    )
    return Parts(root, rows)


def motions(model: Model, s: Setup, kin: Parts, v: jax.Array, a: jax.Array | None = None) -> Parts:
    """Velocities and accelerations, those with gravity, of bodies whose places `kin` has."""
    rotation = kin.rows.rotation
    joint = in_world(rotation, s.joints, joint_rates(s, model, v))
    bias = joint_biases(s, model)
    own = None if bias is None else bias.rotate(rotation)
    if a is not None:
        driven = in_world(rotation, s.joints, joint_motions(s, model, a))
        own = driven if own is None else own + driven

    def step(parent: tuple[Motion, Motion], x: tuple) -> tuple:
        offset, joint, own = x
        velocity = parent[0].shift(offset) + joint
        acceleration = parent[1].shift(offset) + velocity.cross(joint)
        found = velocity, acceleration if own is None else acceleration + own
        return found, found

    (root_velocity, velocity), (root_acceleration, acceleration) = _base_velocities(s, v), _base_accelerations(s, a)
    rows = s.layout.bodies.scatter(step, (velocity, acceleration), (kin.rows.offset, joint, own))
    return Parts(
        kin.roots._replace(velocity=root_velocity, acceleration=root_acceleration),
        kin.rows._replace(velocity=rows[0], acceleration=rows[1]),
    )


def moved(model: Model, s: Setup, kin: Parts, rates: jax.Array) -> Parts:
    """The motions that rates of the freedoms give the bodies, `phi* H* rates`, in world axes about their joints.

    Batch axes of the state may have length one where those of the rates are longer.
    """
    whole = s._replace(batch=rates.shape[1:])
    joint = in_world(kin.rows.rotation, s.joints, joint_motions(whole, model, rates))
    own = root_motion(s, rates).rotate(s.root_rotation)

    def step(parent: Motion, x: tuple) -> tuple[Motion, Motion]:
        offset, joint = x
        found = parent.shift(offset) + joint
        return found, found

    still = Motion.zero(jnp.zeros(whole.batch, s.dtype))
    return Parts(own, s.layout.bodies.scatter(step, _with_world(own, still), (kin.rows.offset, joint)))


def _base_velocities(s: Setup, v: jax.Array) -> tuple[Motion, Motion]:
    """Of the free roots, and of the world before them."""
    own = root_motion(s, v).rotate(s.root_rotation)
    return own, _with_world(own, Motion.zero(jnp.zeros(s.batch, s.dtype)))


def _base_accelerations(s: Setup, a: jax.Array | None, *, gravity: bool = True) -> tuple[Motion, Motion]:
    zero = jnp.zeros(s.batch, s.dtype)
    lift = s.gravity if gravity else Vec3.zero(zero)
    world = Motion(Vec3.zero(zero), Vec3(*(zero - g for g in (lift.x, lift.y, lift.z))))
    own = jax.tree.map(lambda w: w + jnp.zeros_like(s.root_rotation.xx), world)
    if a is not None:
        own = own + root_motion(s, a).rotate(s.root_rotation)
    return own, _with_world(own, world)


def _with_world(roots, world):
    """The carries of the bases: the world's, then the roots'."""
    return jax.tree.map(lambda r, w: jnp.concatenate([w[None], r]), roots, world)


def root_motion(s: Setup, x: jax.Array) -> Motion:
    """The free roots' entries of a velocity-like vector, as motions in body axes."""
    own = take_rows(x, s.layout.root_velocity.reshape(-1, 6))
    return Motion(Vec3(own[:, 0], own[:, 1], own[:, 2]), Vec3(own[:, 3], own[:, 4], own[:, 5]))


def columns(model: Model, s: Setup, rotation: Mat3) -> Column:
    """The motion columns in slot rows, world axes, from the rotations of the carried bodies in rows."""
    if model.topology.all_screws:
        z = Vec3(rotation.xz, rotation.yz, rotation.zz)
        return ScrewColumn(z, s.joints.turn_per_unit, s.joints.slide_per_unit)
    return MotionColumn(slot_columns(s, model).rotate(s.layout.to_slots(rotation, s.layout.slot_body)))
