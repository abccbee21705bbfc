"""Articulated inertias: the Kalman filter along the body, one motion column at a time (Featherstone 2008, section 7.3;
Jain, ABI-*, SOA-FD).

    inward    P = I + sum over children of phi P+ phi*      U = P s     D = s.U + armature
              g = U / sqrt(D)      P+ = P - g g^T           w = (tau - s.z) / sqrt(D)      z+ = z + g w
    outward   a+ = phi* a_p        a = (w - g.a+) / sqrt(D)                                 a_i = a+ + s a

A joint with several freedoms is several columns with nothing between them, which is exactly its block elimination. The
bias is outside: forces enter as `z`, and the accelerations of this recursion are what comes on top of the bias.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.linear.gauss_jordan import gauss_jordan
from dynax.model import Model
from dynax.spatial import ArticulatedInertia, Force, Mat3, Motion, RigidInertia, Scalar, Vec3
from dynax.spatial.column import Column
from dynax.sweep import take_rows
from dynax.tree.bodies import per_velocity, stacked
from dynax.tree.kinematics import columns
from dynax.tree.layout import Layout, Parts
from dynax.tree.setup import Setup


class Slots(NamedTuple):
    """What the recursions read, in slot rows."""

    column: Column
    offset: Vec3
    armature: Scalar


class Gains(NamedTuple):
    """The factor of the mass matrix, in slot rows: Kalman gains `g = U / sqrt(D)` and the roots `sqrt(D)`."""

    gain: Force
    root: Scalar


def slot_rows(model: Model, s: Setup, kin: Parts, locked: np.ndarray | None = None) -> Slots:
    """Columns, offsets and armatures in slot rows; `locked` freedoms (mask over `nv`) are taken out of the
    recursion."""
    velocity = s.layout.slot_velocity
    armature = per_velocity(model.armature, jnp.zeros((model.nv, *s.batch), s.dtype))
    held = velocity < 0 if locked is None else (velocity < 0) | locked[np.maximum(velocity, 0)]
    shape = (-1,) + (1,) * len(s.batch)
    # A slot without freedom is a zero column with unit armature: its gain is zero and nothing divides by zero.
    own = take_rows(armature, np.where(held, -1, velocity)) + jnp.asarray(held, s.dtype).reshape(shape)
    column = columns(model, s, kin.rows.rotation)
    if locked is not None and np.any(held & (velocity >= 0)):
        keep = jnp.asarray(~held, s.dtype).reshape(shape)
        column = jax.tree.map(lambda a: a * keep, column)
    return Slots(column, s.layout.to_slots(kin.rows.offset, s.layout.slot_first), own)


def articulate(handed: ArticulatedInertia, inertia: RigidInertia, x: Slots) -> tuple[ArticulatedInertia, Gains]:
    """One column eliminated from the articulated inertia of its body: `P+` and the gain."""
    p = handed + inertia
    u = x.column.image(p)
    root = jnp.sqrt(x.column.dot(u) + x.armature)
    gain = u / root
    return p.downdate(gain), Gains(gain, root)


def innovate(z: Force, x: Slots, gains: Gains, tau: Scalar) -> tuple[Force, Scalar]:
    """The whitened innovation of one column, and the force that passes on."""
    w = (tau - x.column.dot(z)) / gains.root
    return z + gains.gain * w, w


def accelerate(parent: Motion, x: tuple[Slots, Gains, Scalar]) -> tuple[Motion, Scalar]:
    """One column's acceleration from its parent's: the smoother."""
    slot, gains, w = x
    before = parent.shift(slot.offset)
    rate = (w - gains.gain.dot(before)) / gains.root
    return slot.column.add(before, rate), rate


def respond(parent: Motion, x: tuple[Slots, Gains, Scalar]) -> tuple[Motion, tuple[Motion, Scalar]]:
    """`accelerate`, which keeps the motion as well."""
    motion, rate = accelerate(parent, x)
    return motion, (motion, rate)


class Elimination(NamedTuple):
    """What one inward and one outward walk find."""

    a: jax.Array
    """Accelerations of the freedoms, shape `(nv, *batch)`."""
    gains: Gains
    roots: RootInertia
    motions: Parts | None
    """Accelerations of the bodies on top of the bias, world axes about the joints, if asked for."""


def eliminate(
    model: Model, s: Setup, slots: Slots, inertias: Parts, forces: Parts, tau: jax.Array, locked=None, *, motions=False
) -> Elimination:
    """Accelerations from joint forces (the fused recursion)."""
    zero = jnp.zeros(s.batch, s.dtype)
    xs = (
        slots,
        s.layout.to_slots(inertias.rows, s.layout.slot_last),
        s.layout.to_slots(forces.rows, s.layout.slot_last),
        slot_scalars(s.layout, tau),
    )

    def inward(handed, x):
        (p, z), (slot, inertia, force, torque) = handed, x
        p, gains = articulate(p, inertia, slot)
        z, w = innovate(z + force, slot, gains, torque)
        return (p.shift_to_parent(slot.offset), z.shift_to_parent(slot.offset)), (gains, w)

    (p, z), (gains, w) = s.layout.slots.gather(inward, (ArticulatedInertia.zero(zero), Force.zero(zero)), xs)
    inverse = RootInertia.of(model, s, p, inertias.roots)
    free = not len(s.layout.topology.free_roots)
    if free or (locked is not None and locked[s.layout.root_velocity].any()):
        base = jnp.zeros((len(s.layout.root_velocity), *s.batch), s.dtype)
    else:
        force = jax.tree.map(lambda a, b: a + b[1:], forces.roots, z)
        own = tau[s.layout.root_velocity] - root_forces(s.root_rotation, force)
        base = inverse.solve(own[:, None])[:, 0]
    bases = base_accelerations(s.root_rotation, base)
    if not motions:
        rows = s.layout.slots.scatter(accelerate, bases, (slots, gains, w))
        return Elimination(s.layout.velocity_order(base, rows), gains, inverse, None)

    rows, rates = s.layout.slots.scatter(respond, bases, (slots, gains, w))
    carried = s.layout.to_bodies(rows)
    return Elimination(
        s.layout.velocity_order(base, rates), gains, inverse, Parts(jax.tree.map(lambda a: a[1:], bases), carried)
    )


def slot_scalars(plan: Layout, x: jax.Array) -> jax.Array:
    """Entries of a vector over freedoms in slot rows, zeros where there is none."""
    return take_rows(x, plan.slot_velocity)


def root_forces(rotation: Mat3, force: Force) -> jax.Array:
    """Forces on the free roots in their own axes, shape `(6 k, *batch)`."""
    own = stacked(force.rotate_back(rotation))
    return own.reshape(own.shape[0] * own.shape[1], *own.shape[2:])


def base_accelerations(rotation: Mat3, own: jax.Array) -> Motion:
    """The bases' accelerations in world axes: zero for the world, then the free roots' from their own axes."""
    six = own.reshape(own.shape[0] // 6, 6, *own.shape[1:])
    motion = Motion(Vec3(six[:, 0], six[:, 1], six[:, 2]), Vec3(six[:, 3], six[:, 4], six[:, 5])).rotate(rotation)
    return jax.tree.map(lambda a: jnp.concatenate([jnp.zeros_like(a, shape=(1, *a.shape[1:])), a]), motion)


class RootInertia(NamedTuple):
    """The articulated inertias of the free roots in their own axes, shape `(6, 6, k, *batch)`."""

    matrix: jax.Array

    @staticmethod
    def of(model: Model, s: Setup, handed: ArticulatedInertia, inertia: RigidInertia) -> RootInertia:
        total = (jax.tree.map(lambda a: a[1:], handed) + inertia).rotate(s.root_rotation.T)
        rows = jnp.stack([jnp.stack(jnp.broadcast_arrays(*row)) for row in total.rows])
        count = len(s.layout.topology.free_roots)
        armature = per_velocity(model.armature, jnp.zeros((model.nv, *s.batch)))[s.layout.root_velocity]
        own = jnp.moveaxis(armature.reshape(count, 6, *armature.shape[1:]), 0, 1)
        eye = jnp.eye(6, dtype=rows.dtype).reshape((6, 6) + (1,) * (rows.ndim - 2))
        return RootInertia(rows + eye * own[None].astype(rows.dtype))

    def solve(self, rhs: jax.Array) -> jax.Array:
        """Accelerations from forces, both in the roots' own axes and of shape `(6 k, m, *batch)`."""
        own = jnp.moveaxis(rhs.reshape(rhs.shape[0] // 6, 6, *rhs.shape[1:]), 0, 2)
        return jnp.moveaxis(gauss_jordan(self.matrix, own), 2, 0).reshape(rhs.shape)
