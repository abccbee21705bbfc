"""The hinge: one freedom, one port. Every joint of a tree is a run of them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.model import Model
from dynax.spatial import ArticulatedInertia, Force, Motion, Scalar, Vec3
from dynax.spatial.column import Column
from dynax.sweep import take_rows
from dynax.tree.bodies import per_velocity
from dynax.tree.kinematics import columns
from dynax.tree.layout import Parts
from dynax.tree.nodes import Shiftable
from dynax.tree.setup import Setup


class HingeGains(NamedTuple):
    """The factor of a hinge, in rows: its Kalman gain `g = U / sqrt(D)` and the root `sqrt(D)`."""

    gain: Force
    root: Scalar

    def along(self, x: Scalar) -> Force:
        return self.gain * x

    def dual(self, a: Motion) -> Scalar:
        return self.gain.dot(a)

    def apply(self, x: Scalar) -> Scalar:
        return self.root * x

    def solve(self, x: Scalar) -> Scalar:
        return x / self.root

    apply_transpose, solve_transpose = apply, solve

    def log_pivots(self) -> Scalar:
        return jnp.log(self.root)


class Hinge(NamedTuple):
    """One motion column in each row; its port is its own point."""

    column: Column
    offset: Vec3
    """From the point of its parent."""
    armature: Scalar

    def coupled(self, p: ArticulatedInertia) -> tuple[Force, Scalar]:
        u = self.column.image(p)
        return u, self.column.dot(u) + self.armature

    def eliminated(self, p: ArticulatedInertia, phi: Force, d: Scalar) -> tuple[ArticulatedInertia, HingeGains]:
        root = jnp.sqrt(d)
        gain = phi / root
        return p.downdate(gain), HingeGains(gain, root)

    def inertia(self, p: ArticulatedInertia) -> ArticulatedInertia:
        return p

    def force(self, z: Force) -> Force:
        return z

    def dual(self, z: Force) -> Scalar:
        return self.column.dot(z)

    def moved(self, a: Motion, x: Scalar) -> Motion:
        return self.column.add(a, x)

    def handed(self, own: Shiftable) -> Shiftable:
        return own.shift_to_parent(self.offset)

    def carried(self, ports: Motion) -> Motion:
        return ports.shift(self.offset)

    def without(self, held: jax.Array) -> Hinge:
        """With freedoms that do not move, where `held` is one: zero columns of unit armature."""
        return self._replace(
            column=jax.tree.map(lambda a: a * (1.0 - held), self.column), armature=self.armature + held
        )

    def ports(self, like: jax.Array) -> jax.Array:
        return like

    def of_bases(self, ports: Shiftable) -> Shiftable:
        return ports

    def on_bases(self, motion: Motion) -> Motion:
        return motion


def slot_rows(model: Model, s: Setup, kin: Parts, locked: np.ndarray | None = None) -> Hinge:
    """All hinges of a tree in slot rows; `locked` freedoms (mask over `nv`) are taken out of the recursion."""
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
    return Hinge(column, s.layout.to_slots(kin.rows.offset, s.layout.slot_first), own)
