"""Inverse dynamics by recursive Newton-Euler, O(n) (Featherstone 2008, section 5.3; Jain, SOA-RNEA).

Two walks, with the force of each body formed in between:

    outward   v_i, a_i                                        (the base accelerates with -g)
    at once   f_i^B = I_i a_i + v_i x* I_i v_i - f_i^ext
    inward    f_i = f_i^B + sum over children of phi f_j      tau_i = S_i^T f_i
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.compile.batching import batch_last, batch_last_vectors, walking
from dynax.compile.prepared import Lines
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Force
from dynax.tree.bodies import (
    carried_sums,
    net_forces,
    passive_force,
    per_velocity,
    public_force,
    stacked,
    world_inertias,
)
from dynax.tree.kinematics import columns, kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, setup


def transmitted(s: Setup, kin: Parts, forces: Parts) -> Parts:
    """The force through each body's joint: those on all bodies it carries, in world axes about the joint."""
    return carried_sums(s, kin, forces)[0]


def project(model: Model, s: Setup, kin: Parts, forces: Parts) -> jax.Array:
    """`tau_i = S_i^T f_i` for all freedoms, shape `(nv, *batch)`."""
    slots = columns(model, s, kin.rows.rotation).dot(s.layout.to_slots(forces.rows, s.layout.slot_body))
    own = stacked(forces.roots.rotate_back(kin.roots.rotation))
    return s.layout.order.vector(own.reshape(own.shape[0] * own.shape[1], *s.batch), slots)


def rigid_forces(
    model: Model, q, v, a, external, execution: str = "levels", *, stopped: bool = False
) -> tuple[Setup, Parts, Parts]:
    """Setup, kinematics and transmitted forces of the rigid bodies alone."""
    s = setup(model, q, v, execution, stopped=stopped)
    kin = kinematics(model, s, v, a, accelerations=True, gravity=True)
    return s, kin, transmitted(s, kin, net_forces(s, kin, world_inertias(s, kin), external))


def rnea(model: Model, q, v, a, external=None, execution: str = "levels") -> jax.Array:
    """Joint forces for trailing batch axes; `a = None` gives the bias force."""
    return forces_of(model, q, v, a, external, execution)[0]


def forces_of(model: Model, q, v, a, external, execution: str) -> tuple[jax.Array, Parts, Parts]:
    """`rnea`, with the kinematics and the inertias of the bodies."""
    s = setup(model, q, v, execution)
    kin = kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True)
    inertias = world_inertias(s, kin)
    forces = transmitted(s, kin, net_forces(s, kin, inertias, external))
    tau = project(model, s, kin, forces) + passive_force(model, q, v)
    return tau if a is None else tau + per_velocity(model.armature, a) * a, kin, inertias


@partial(batch_last, lines=Lines.PARTS)
def _gravity_force(model: Model, q: jax.Array) -> jax.Array:
    v = jnp.zeros((model.nv, *q.shape[1:]), q.dtype)
    s, kin, forces = rigid_forces(model, q, v, None, None, stopped=True)
    return project(model, s, kin, forces)


@for_models
def gravity_force(model: Model, q: ArrayLike) -> jax.Array:
    """The joint forces that hold the system at rest against gravity alone, shape `(nv,)` (eq. 5.12): the gradient of
    the potential energy of its weight."""
    return _gravity_force(model, *as_state(model, q=q))


@walking(batch_last_vectors)
def _joint_forces(model: Model, q, v, a, external, *, execution: str) -> Force:
    s, kin, forces = rigid_forces(model, q, v, a, external, execution)
    parts = Parts(
        public_force(s.constants.roots, kin.roots.rotation, forces.roots),
        public_force(s.constants.rows, kin.rows.rotation, forces.rows),
    )
    return s.layout.body_order(parts)


@for_models
def joint_forces(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike, external: ArrayLike | None = None
) -> jax.Array:
    """The wrench each joint transmits to the body it carries (bearing loads), shape `(n, 6)`.

    `[moment; force]` in body axes about the body's origin; its projection on the joint's freedoms is the joint force of
    the rigid bodies. Featherstone (2008), section 5.3; the same forces follow from the articulated quantities (Jain,
    IBF).
    """
    return _joint_forces(model, *as_state(model, q=q, v=v, a=a, external=external))
