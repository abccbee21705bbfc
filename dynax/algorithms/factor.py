"""The innovations factor of the mass matrix and what it solves (Jain, LEM-0.1 to 0.3, SOA-MINV).

    M = [1 + H phi K] D [1 + H phi K]^T        M^-1 = [1 - H psi K]^T D^-1 [1 - H psi K]

Factor once, in O(n), then each solution is one inward and one outward walk of 6-vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.articulated import (
    Gains,
    RootInertia,
    Slots,
    accelerate,
    articulate,
    base_accelerations,
    innovate,
    respond,
    root_forces,
    slot_rows,
    slot_scalars,
)
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import ArticulatedInertia, Force, Mat3
from dynax.tree.bodies import world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Layout, Parts
from dynax.tree.setup import Setup, setup


class Factor(NamedTuple):
    """The factor at one configuration."""

    layout: Layout
    root_rotation: Mat3
    slots: Slots
    gains: Gains
    roots: RootInertia


def factorize(model: Model, q: jax.Array) -> Factor:
    """Articulated inertias and gains for trailing batch axes."""
    s = setup(model, q)
    kin = kinematics(model, s)
    return factor_at(model, s, kin, world_inertias(s, kin))


def factor_at(model: Model, s: Setup, kin: Parts, inertias: Parts) -> Factor:
    """The same from what is known already."""
    slots = slot_rows(model, s, kin)

    def inward(handed, x):
        slot, inertia = x
        p, gains = articulate(handed, inertia, slot)
        return p.shift_to_parent(slot.offset), gains

    zero = ArticulatedInertia.zero(jnp.zeros(s.batch, s.dtype))
    p, gains = s.layout.slots.gather(inward, zero, (slots, s.layout.to_slots(inertias.rows, s.layout.slot_last)))
    return Factor(s.layout, s.root_rotation, slots, gains, RootInertia.of(model, s, p, inertias.roots))


def solve(factor: Factor, rhs: jax.Array) -> jax.Array:
    """`M^-1 rhs` for `rhs` of shape `(nv, m, *batch)`: `m` right-hand sides at once."""
    slots, gains, w, base, bases = _inward(factor, rhs)
    rows = factor.layout.slots.scatter(accelerate, bases, (slots, gains, w))
    return factor.layout.velocity_order(base, rows)


def response(factor: Factor, rhs: jax.Array) -> tuple[jax.Array, Parts]:
    """`solve`, and the motions that these rates give the bodies, world axes about their joints, `(n, m, *batch)`."""
    slots, gains, w, base, bases = _inward(factor, rhs)

    rows, rates = factor.layout.slots.scatter(respond, bases, (slots, gains, w))
    motions = Parts(jax.tree.map(lambda a: a[1:], bases), factor.layout.to_bodies(rows))
    return factor.layout.velocity_order(base, rates), motions


def _inward(factor: Factor, rhs: jax.Array):
    """Innovations of all columns, and the accelerations of the bases."""
    plan, roots = factor.layout, factor.layout.root_velocity
    rotation, slots, gains = jax.tree.map(lambda a: a[:, None], (factor.root_rotation, factor.slots, factor.gains))

    def inward(z, x):
        slot, gain, torque = x
        z, w = innovate(z, slot, gain, torque)
        return z.shift_to_parent(slot.offset), w

    zero = Force.zero(jnp.zeros(rhs.shape[1:], rhs.dtype))
    z, w = plan.slots.gather(inward, zero, (slots, gains, slot_scalars(plan, rhs)))
    base = jnp.zeros((0, *rhs.shape[1:]), rhs.dtype)
    if len(roots):
        base = factor.roots.solve(rhs[roots] - root_forces(rotation, jax.tree.map(lambda a: a[1:], z)))
    return slots, gains, w, base, base_accelerations(rotation, base)


@jax.jit
def _inverse_mass_matrix(model: Model, q: jax.Array) -> jax.Array:
    eye = jnp.eye(model.nv, dtype=q.dtype)
    inverse = solve(factorize(model, q), eye.reshape(eye.shape + (1,) * (q.ndim - 1)) + jnp.zeros(q.shape[1:], q.dtype))
    return 0.5 * (inverse + jnp.swapaxes(inverse, 0, 1))


@for_models
def inverse_mass_matrix(model: Model, q) -> jax.Array:
    """The inverse of the mass matrix, shape `(nv, nv)`, without forming the mass matrix.

    From the innovations factor, O(n) for each column; it keeps more digits than inverting `mass_matrix`.

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _inverse_mass_matrix(model, *as_state(model, q=q))
