"""Per-body quantities in world axes about each body's joint, and the ways between them and the public frames."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dynax.model import Model
from dynax.model.configuration import differences_of
from dynax.spatial import Force, Mat3, Motion, RigidInertia, Vec3
from dynax.sweep import take_rows
from dynax.tree.kinematics import Kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Constants, Setup


def world_inertias(s: Setup, kin: Parts) -> Parts:
    """The rigid inertias in world axes about each body's joint."""
    return Parts(
        s.constants.roots.inertia.rotate(kin.roots.rotation), s.constants.rows.inertia.rotate(kin.rows.rotation)
    )


def carried_sums(s: Setup, kin: Parts, *own: Parts) -> tuple[Parts, ...]:
    """Each quantity added up over everything a body carries, itself included, in world axes about its joint.

    The quantities are of any types that add and `shift_to_parent`: one inward walk for all of them.
    """

    def step(children: tuple, x: tuple) -> tuple[tuple, tuple]:
        totals = tuple(child + quantity for child, quantity in zip(children, x[0], strict=True))
        return tuple(total.shift_to_parent(x[1]) for total in totals), totals

    rows = jax.tree.map(lambda a: jnp.broadcast_to(a, (a.shape[0], *s.batch)), tuple(part.rows for part in own))
    nothing = jax.tree.map(lambda a: jnp.zeros(s.batch, s.dtype), rows)
    sums, totals = s.layout.bodies.gather(step, nothing, (rows, kin.rows.offset))
    return tuple(
        Parts(jax.tree.map(lambda a, b: a + b[1:], part.roots, handed), total)
        for part, handed, total in zip(own, sums, totals, strict=True)
    )


def body_force(inertia: RigidInertia, velocity: Motion, acceleration: Motion) -> Force:
    """`I a + v x* I v` (Featherstone 2008, eq. 2.68)."""
    return inertia @ acceleration + velocity.cross(inertia @ velocity)


def net_forces(s: Setup, kin: Parts, inertias: Parts, external: jax.Array | None) -> Parts:
    """The force each body needs for its motion, less the external wrench on it, in world axes about its joint."""
    outside = None if external is None else external_forces(s, kin, external)

    def net(inertia: RigidInertia, k: Kinematics, extra: Force | None) -> Force:
        assert k.velocity is not None
        assert k.acceleration is not None
        force = body_force(inertia, k.velocity, k.acceleration)
        return force if extra is None else force - extra

    return Parts(
        net(inertias.roots, kin.roots, outside and outside.roots),
        net(inertias.rows, kin.rows, outside and outside.rows),
    )


def external_forces(s: Setup, kin: Parts, external: jax.Array) -> Parts:
    """Wrenches `(n, 6, *batch)` in body axes about body origins, in world axes about the joints."""
    wrench = Force(
        Vec3(external[:, 0], external[:, 1], external[:, 2]), Vec3(external[:, 3], external[:, 4], external[:, 5])
    )
    parts = s.layout.split(wrench)

    def turn(constants: Constants, k: Kinematics, f: Force) -> Force:
        return f.shift(constants.hinge_offset).rotate_back(constants.hinge_rotation).rotate(k.rotation)

    return Parts(turn(s.constants.roots, kin.roots, parts.roots), turn(s.constants.rows, kin.rows, parts.rows))


def public_rotation(constants: Constants, rotation: Mat3) -> Mat3:
    """Body axes (those of the file) in the world, from internal axes in the world."""
    return rotation @ constants.hinge_rotation.T


def public_motion(constants: Constants, rotation: Mat3, motion: Motion) -> Motion:
    """A motion in world axes about the joint, in body axes about the body's origin."""
    return motion.rotate_back(rotation).rotate(constants.hinge_rotation).shift(-constants.hinge_offset)


def public_force(constants: Constants, rotation: Mat3, force: Force) -> Force:
    """A force in world axes about the joint, in body axes about the body's origin."""
    return force.rotate_back(rotation).rotate(constants.hinge_rotation).shift_to_parent(constants.hinge_offset)


def stacked(vector: Motion | Force) -> jax.Array:
    """`(n, 6, *batch)` from components `(n, *batch)`."""
    a, b = vector.angular, vector.linear
    return jnp.stack(jnp.broadcast_arrays(a.x, a.y, a.z, b.x, b.y, b.z), axis=1)


def per_velocity(leaf: jax.Array, like: jax.Array, own: np.ndarray | slice = slice(None)) -> jax.Array:
    """A leaf with one entry per freedom, or those of some, shaped to combine with `like` of shape `(nv, *batch)`."""
    leaf = leaf.astype(like.dtype)
    leaf = leaf if isinstance(own, slice) else take_rows(leaf, own)
    return leaf.reshape(leaf.shape + (1,) * (like.ndim - leaf.ndim))


def passive_force(model: Model, q: jax.Array, v: jax.Array, bodies: np.ndarray | None = None) -> jax.Array:
    """What joints, all or those of some bodies, need against damping, dry friction and springs:
    `d v + f tanh(v / v_f) + k (q - q_0)`."""
    return resistance(model, v, bodies) + spring_force(model, q, bodies)


def resistance(model: Model, v: jax.Array, bodies: np.ndarray | None = None) -> jax.Array:
    """What joints need against damping and dry friction, `d v + f tanh(v / v_f)`."""
    own = slice(None) if bodies is None else np.flatnonzero(np.isin(model.topology.body_of_velocity, bodies))
    v = v if isinstance(own, slice) else take_rows(v, own)
    friction_velocity = model.friction_velocity.astype(v.dtype)
    smooth = per_velocity(model.friction_loss, v, own) * jnp.tanh(v / friction_velocity)
    return per_velocity(model.damping, v, own) * v + smooth


def spring_force(model: Model, q: jax.Array, bodies: np.ndarray | None = None) -> jax.Array:
    """What joints need against their springs, `k (q - q_0)`."""
    own = slice(None) if bodies is None else np.flatnonzero(np.isin(model.topology.body_of_velocity, bodies))
    reference = per_velocity(model.spring_reference, q) + jnp.zeros_like(q)
    return per_velocity(model.stiffness, q, own) * differences_of(model, bodies, reference, q)
