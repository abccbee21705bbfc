"""The derivative of inverse dynamics transposed, by one inward walk: what reverse mode needs, O(n) for each direction.

Velocities `w` that the forces `tau` of inverse dynamics are paired with give the power `sum of w_k . F_k` over the
bodies, with `F_k = I a_k + v_k x* I v_k`, and its rates along `q` and `v`. With the displacements `Psi'`, `Psi''`, `S`
and `Phi` of `_linearize`, and sums over the bodies that a freedom `j` carries,

    A = sum of I_k w_k      C = sum of 2 B_k^T w_k      F = sum of F_k
    q_j    Psi'_j . C + Psi''_j . A + (w_p x S_j) . F        v_j    S_j . C + Phi_j . A

`C` is a pure couple, the same about every point: 15 numbers walk inward.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.coriolis import VelocityMoment, velocity_moments
from dynax.derivatives.inverse_dynamics import joint_block, joint_slope
from dynax.derivatives.linearize import displacements
from dynax.model import Model
from dynax.spatial import Force, Motion, Vec3
from dynax.spatial.components import component_dataclass
from dynax.sweep import take_rows
from dynax.tree.bodies import carried_sums, net_forces, passive_force, per_velocity, world_inertias
from dynax.tree.freedoms import per_freedom
from dynax.tree.kinematics import in_world
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, joint_motions, setup

LOCAL = frozenset(
    (
        *("mass", "com", "first_moment", "inertia"),
        *("armature", "damping", "friction_loss", "friction_velocity", "stiffness", "spring_reference"),
    )
)
"""Leaves of a model that leave its motions as they are: they act on each body, or on each joint, by itself."""


@component_dataclass
class Couple:
    """A moment without a force."""

    moment: Vec3

    def __add__(self, other: Couple) -> Couple:
        return Couple(self.moment + other.moment)

    def shift_to_parent(self, offset: Vec3) -> Couple:
        return self


def couple_of(moment: VelocityMoment, weight: Motion) -> Couple:
    """`C` of a rigid body."""
    return Couple(moment.apply_transpose(weight).angular * 2.0)


class Weights(NamedTuple):
    """What the forces of inverse dynamics are paired with."""

    freedoms: jax.Array
    """Shape `(nv, *batch)`."""
    bodies: Parts
    """The velocities of the bodies with these rates, in world axes about their joints."""


class Adjoint(NamedTuple):
    """The rates of a power, each `(nv, *batch)`."""

    along_q: jax.Array
    along_v: jax.Array
    along_a: jax.Array
    forces: jax.Array
    """What the bodies ask of the joints, `S_j . F`: inverse dynamics but for what joints need by themselves."""


def adjoint(
    model: Model, s: Setup, kin: Parts, inertias: Parts, q, v, a, external, weights: Weights
) -> tuple[jax.Array, jax.Array]:
    """The rates of `weights . inverse_dynamics(q, v, a)` along the tangent of `q` and along `v`, each `(nv, *batch)`.

    Batch axes of the state may have length one where those of the weights are longer.
    """
    found = whole_adjoint(model, s, kin, inertias, q, v, a, external, weights)
    return found.along_q, found.along_v


def whole_adjoint(model: Model, s: Setup, kin: Parts, inertias: Parts, q, v, a, external, weights: Weights) -> Adjoint:
    """The rates of `adjoint`, and those along `a`: the mass matrix times the weights, `S_j . A`."""
    whole = s._replace(batch=weights.freedoms.shape[1:])
    own = velocity_moments(kin, inertias)
    momenta = Parts(*(i @ w for i, w in zip(inertias, weights.bodies, strict=True)))
    couples = Parts(*(couple_of(b, w) for b, w in zip(own, weights.bodies, strict=True)))
    sums = carried_sums(whole, kin, momenta, couples, net_forces(s, kin, inertias, external))
    momentum, couple, force = (per_freedom(s, total) for total in sums)

    x = displacements(model, s, kin, v, a, force)
    turned = above(model, whole, kin, weights).cross(x.s).dot(force)
    along_q = x.psi.angular.dot(couple.moment) + x.psi_rate.dot(momentum) + turned
    along_v = x.s.angular.dot(couple.moment) + x.phi.dot(momentum) + joint_slope(model, v) * weights.freedoms
    along_a = x.s.dot(momentum) + per_velocity(model.armature, weights.freedoms) * weights.freedoms
    along_q = along_q + paired_within(model, joint_block(model, x.joint, q), weights.freedoms)
    return Adjoint(along_q, along_v, along_a, x.s.dot(force))


def above(model: Model, s: Setup, kin: Parts, weights: Weights) -> Motion:
    """`w_p` of each freedom, that of a point of the parent at the joint."""
    step = in_world(kin.rows.rotation, s.joints, joint_motions(s, model, weights.freedoms))
    still = Motion.zero(jnp.zeros_like(weights.bodies.roots.angular.x))
    return per_freedom(s, Parts(still, weights.bodies.rows - step))


class AtJoints(NamedTuple):
    """Rates of a power by the motion at each body's joint, in body order, world axes about the joint."""

    displacement: Force
    """Of all that the body carries."""
    velocity: Force
    acceleration: Force
    weight: Force


def at_joints(s: Setup, kin: Parts, weights: Parts, momenta: Parts, couples: Parts, forces: Parts) -> AtJoints:
    """The same for a tree of bodies of any kind, from the rates `A`, `C` and `F` of the power of each body by its own
    acceleration, velocity and weights; where these move with it, `C` has `v x* A` besides and is a couple.

    Batch axes of the motion may have length one where those of the weights and of `s` are longer. With the motions of
    the parent, as those of a point of it at the joint,

        displacement    v_p x* (v_p x* A) - a_p x* A - v_p x* C - w_p x* F        velocity    C - (v_p + v) x* A
    """
    order, parents = s.layout.body_order, np.asarray(s.layout.topology.parents)
    a, c, f = map(order, carried_sums(s, kin, momenta, couples, forces))
    own = order(Parts(*((k.velocity, k.acceleration, w) for k, w in zip(kin, weights, strict=True))))
    offset = order(Parts(kin.roots.offset, kin.rows.offset))
    still = Motion.zero(jnp.zeros((1,) * (1 + len(s.batch)), s.dtype))
    falling = Motion(still.angular, Vec3(*(still.linear.x - g for g in (s.gravity.x, s.gravity.y, s.gravity.z))))
    above = jax.tree.map(
        lambda x, y: jnp.concatenate([x, jnp.broadcast_to(y, (1, *x.shape[1:]))]), own, (still, falling, still)
    )
    above = take_rows(above, np.where(parents < 0, len(parents), parents))
    velocity, acceleration, weight = (x.shift(offset) for x in above)
    turned = velocity.cross(a)
    carried = velocity.cross(turned) - acceleration.cross(a) - weight.cross(f)
    by_velocity = turned + own[0].cross(a)
    return AtJoints(
        Force(carried.angular - velocity.angular.cross(c.moment), carried.linear),
        Force(c.moment - by_velocity.angular, -by_velocity.linear),
        a,
        f,
    )


def is_local(path: tuple) -> bool:
    """Whether a leaf of `(model, external)`, given by its path, is one of those."""
    return path[0].idx == 1 or path[1].name in LOCAL


def local_power(
    model: Model, kin: Parts, q, v, a, external, weights: Weights, execution: str = "automatic"
) -> jax.Array:
    """`weights . inverse_dynamics(q, v, a)` for motions already known, shape `(*batch)`: no walk."""
    s = setup(model, q, v, execution)
    forces = net_forces(s, kin, world_inertias(s, kin), external)
    bodies = (jnp.sum(w.dot(f), axis=0) for w, f in zip(weights.bodies, forces, strict=True))
    joints = passive_force(model, q, v) + per_velocity(model.armature, a) * a
    return sum(bodies, jnp.sum(weights.freedoms * joints, axis=0))


def paired_within(model: Model, block: jax.Array, weights: jax.Array) -> jax.Array:
    """`sum_i weights[i] block[i, k]` over the freedoms `i` of the joint, for its `k`-th."""
    topology, width = model.topology, block.shape[1]
    first, stop = (bound[topology.body_of_velocity] for bound in (topology.v_start[:-1], topology.v_start[1:]))
    weighted = (block * weights[:, None]).reshape(-1, *weights.shape[1:])
    k = np.arange(topology.nv) - first
    rows = (np.where(first + i < stop, (first + i) * width + k, -1) for i in range(width))
    return sum((take_rows(weighted, row) for row in rows), jnp.zeros_like(weights))
