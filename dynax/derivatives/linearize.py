"""What the derivatives of the equations of motion are made of: a few vectors for each freedom (Singh, Russo and Wensing
2021; Carpentier and Mansard 2018), in world axes about the freedom's own joint.

A displacement along freedom `j` of body `b` (parent `p`) moves everything it carries rigidly, and changes the velocity
and acceleration of each body `k` there, as seen on the moved body, by `Y_j` and `X_j - v_k x Y_j`:

    along q_j    Y = Psi' = v_p x S + e     X = Psi'' = a_p x S + v_p x Psi' + g + v_b x e
    along v_j    Y = S                      X = Phi  = v_p x S + v_b x S + beta

(`e`, `g`, `beta` of `_variations`). A body's force then changes by `I X + 2 B Y`, with the velocity moment `B` of
`_coriolis`, and both add up over the bodies carried. With composite `I`, `B` and force `F`:

    U = I S     W = 2 B^T S     T = 2 B Psi' + I Psi'' + S x* F     V = 2 B S + I Phi
    i below j, or of its joint      dtau_i/dq_j = W_i . Psi'_j + U_i . Psi''_j     dtau_i/dv_j = W_i . S_j + U_i . Phi_j
    i above j                       dtau_i/dq_j = S_i . T_j                        dtau_i/dv_j = S_i . V_j
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.coriolis import VelocityMoment, velocity_moments
from dynax.derivatives.variations import variations
from dynax.model import Model
from dynax.spatial import Force, Motion, RigidInertia, Vec3
from dynax.tree.bodies import carried_sums, net_forces
from dynax.tree.freedoms import Freedoms, freedoms, per_freedom
from dynax.tree.kinematics import in_world
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, joint_biases, joint_motions, joint_rates


class Linearization(NamedTuple):
    """One row per freedom, in the order of `v`; the names are those of the equations above."""

    position: Vec3
    s: Motion
    psi: Motion
    psi_rate: Motion
    phi: Motion
    u: Force
    w: Force
    t: Force
    v: Force
    joint: jax.Array | None
    """`(dS_i/dq_j) . F_i` for `j` of the joint of `i`, shape `(nv, k, *batch)`; `None` where columns stand still."""


class Displacements(NamedTuple):
    """The motions `S`, `Psi'`, `Psi''` and `Phi` of each freedom, in the order of `v`."""

    position: Vec3
    s: Motion
    psi: Motion
    psi_rate: Motion
    phi: Motion
    joint: jax.Array | None
    """As in `Linearization`."""


def displacements(
    model: Model, s: Setup, kin: Parts, v: jax.Array, a: jax.Array, force: Force, at: Freedoms | None = None
) -> Displacements:
    """What displacements along each freedom do to the motions of what it carries; `force` is per freedom. `at`: the
    columns, where they are known."""
    velocity = per_freedom(s, Parts(kin.roots.velocity, kin.rows.velocity))
    parent_velocity, parent_acceleration = per_freedom(s, parent_motions(model, s, kin, v, a))
    column, position = at or freedoms(model, s, kin)
    psi = parent_velocity.cross(column)
    phi = psi + velocity.cross(column)
    rotation = per_freedom(s, Parts(kin.roots.rotation, kin.rows.rotation))
    joint = variations(model, s, v, a, rotation, force)
    if joint is not None:
        psi, phi = psi + joint.velocity, phi + joint.bias
    psi_rate = parent_acceleration.cross(column) + parent_velocity.cross(psi)
    if joint is not None:
        psi_rate = psi_rate + joint.acceleration + velocity.cross(joint.velocity)
    return Displacements(position, column, psi, psi_rate, phi, None if joint is None else joint.force)


def linearize(
    model: Model, s: Setup, kin: Parts, inertias: Parts, v: jax.Array, a: jax.Array, external: jax.Array | None
) -> Linearization:
    """The rows for accelerations `a`, shapes `(nv, *batch)`; `kin` holds positions, velocities and accelerations."""
    own = inertias, velocity_moments(kin, inertias), net_forces(s, kin, inertias, external)
    inertia, moment, force = (per_freedom(s, total) for total in carried_sums(s, kin, *own))
    at = freedoms(model, s, kin)
    return linearization(model, s, kin, v, a, at, inertia @ at.column, Carried(inertia, moment, force))


class Carried(NamedTuple):
    """Composites of what each freedom carries, about its joint."""

    inertia: RigidInertia
    moment: VelocityMoment
    force: Force


def linearization(
    model: Model, s: Setup, kin: Parts, v: jax.Array, a: jax.Array, at: Freedoms, u: Force, carried: Carried
) -> Linearization:
    """`linearize` where the columns, `u` and all composites are known."""
    inertia, moment, force = carried
    x = displacements(model, s, kin, v, a, force, at)
    return Linearization(
        x.position,
        x.s,
        x.psi,
        x.psi_rate,
        x.phi,
        u=u,
        w=moment.apply_transpose(x.s) * 2.0,
        t=moment.apply(x.psi) * 2.0 + inertia @ x.psi_rate + x.s.cross(force),
        v=moment.apply(x.s) * 2.0 + inertia @ x.phi,
        joint=x.joint,
    )


def parent_motions(model: Model, s: Setup, kin: Parts, v: jax.Array, a: jax.Array) -> Parts:
    """Velocity and acceleration of each body's parent, as a point of the parent at the body's joint."""
    rows = kin.rows
    joint_velocity = in_world(rows.rotation, s.joints, joint_rates(s, model, v))
    own = in_world(rows.rotation, s.joints, joint_motions(s, model, a)) + rows.velocity.cross(joint_velocity)
    bias = joint_biases(s, model)
    if bias is not None:
        own = own + bias.rotate(rows.rotation)
    still = Motion.zero(jnp.zeros_like(s.root_rotation.xx))
    gravity = Vec3(*(still.linear.x - g for g in (s.gravity.x, s.gravity.y, s.gravity.z)))
    return Parts((still, Motion(still.angular, gravity)), (rows.velocity - joint_velocity, rows.acceleration - own))
