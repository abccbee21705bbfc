"""Forward dynamics of a chain in logarithmic depth: every walk is an associative product (`dynax.sweep.associative`).

| walk | element | product |
|---|---|---|
| rotations | `E R_J` | `R_i R_j` |
| velocities, bias accelerations | what each joint adds, in world axes: angular first, then linear | sum |
| articulated inertias | a run of slots with two handles | `joined` |
| accelerations | `a -> A a + b` | composition |

**Two handles.** A run of slots lies between the acceleration `a_p` before its first joint and that of its last body,
`a`. In Gauss's principle it is a Gaussian, `a = A a_p + b` up to a covariance `C`, with a cost
`a_p.J a_p / 2 - eta.a_p` at the inner handle. `C` is the inverse inertia at the outer handle and `J` the articulated
inertia at the inner one: Featherstone (1999), "A divide-and-conquer articulated-body algorithm", parts 1 and 2. Two
runs join as the elements of the parallel Kalman filter do: Särkkä and García-Fernández (2021), "Temporal
parallelization of Bayesian smoothers", section 3. With `X = phi*`, `U = I s`, `D = s.U + armature` and the bias as
force `z`, one slot is

    A = (1 - s U^T / D) X     b = s (tau - s.z) / D     C = s s^T / D
    J = X^T (I - U U^T / D) X                           eta = -X^T (z + U (tau - s.z) / D)

**Borrowed inertia.** A slot whose own body resists it little or not at all (a massless body, or all but the last
column of a joint with several) would have no finite `C`. It borrows the inertia of the body it carries, which then
lacks it at its inner handle: what acts where two runs meet may be counted in either.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.bodies.base import base_accelerations, free_bases, root_forces
from dynax.bodies.hinge import Hinge, slot_rows
from dynax.linear.matrices import product, shifts, symmetric, turned
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.spatial import ArticulatedInertia, Force, Mat3, Motion, RigidInertia, Vec3
from dynax.sweep.associative import is_chain, of_children, of_parents, prefixes, suffixes
from dynax.tree.bodies import net_forces, passive_force, world_inertias
from dynax.tree.kinematics import Kinematics, _Row, in_world, place, root_motion
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, joint_biases, joint_rates, setup

#: A slot borrows where what it carries resists it this many times as much as its own body and rotor.
LIGHT = 30.0
#: How many slots in a row can borrow of the one they all carry.
RUN = 6


def aba_associative(model: Model, q, v, tau, external=None) -> jax.Array:
    """Accelerations for trailing batch axes, of one chain of bodies on the ground or on a free root.

    They are not finite where more than `RUN` slots in a row have neither inertia nor armature.
    """
    parents, roots = model.topology.carried_parents, len(model.topology.free_roots)
    if roots > 1 or not is_chain(parents) or parents[0] != -1 - roots:
        raise ValueError(f"model {model.name!r} is not one unbranched chain of bodies")
    s = setup(model, q, v)
    kin = chain_kinematics(model, s, v)
    inertias = world_inertias(s, kin)
    forces = net_forces(s, kin, inertias, external)
    return eliminate_chain(model, s, slot_rows(model, s, kin), inertias, forces, tau - passive_force(model, q, v))


def chain_kinematics(model: Model, s: Setup, v: jax.Array) -> Parts:
    """Rotations, offsets, velocities and bias accelerations of all bodies, the base accelerating with `-gravity`."""
    zero = jnp.zeros((1, *s.batch), s.dtype)
    lift = Motion(Vec3.zero(zero), Vec3(zero - s.gravity.x, zero - s.gravity.y, zero - s.gravity.z))
    root_velocity = root_motion(s, v).rotate(s.root_rotation)
    floating = len(model.topology.free_roots) == 1
    base, moving = (s.root_rotation, root_velocity) if floating else (Mat3.identity(zero), Motion.zero(zero))

    rate, bias = joint_rates(s, model, v), joint_biases(s, model)
    row = _Row(s.constants.rows.rotation, s.constants.rows.offset, s.joints, rate, bias, None)
    turn, reach = place(Mat3.identity(zero), row)
    rotation = base @ Mat3.from_array(prefixes(product, jnp.eye(3, dtype=s.dtype), turn.array))
    offset = of_parents(base, rotation) @ reach

    joint = in_world(rotation, s.joints, rate)
    velocity = running(moving, joint, offset)
    own = Motion.zero() if bias is None else bias.rotate(rotation)
    acceleration = running(lift, own + velocity.cross(joint), offset)
    root_acceleration = jax.tree.map(lambda g, r: g[: len(r)] + jnp.zeros_like(r), lift, root_velocity)
    return Parts(
        Kinematics(s.root_rotation, s.root_position, None, root_velocity, root_acceleration),
        Kinematics(rotation, offset, None, velocity, acceleration),
    )


def running(base: Motion, own: Motion, offset: Vec3) -> Motion:
    """`m_i = phi* m_p + own_i`: sums along the chain, the linear one once the angular one is known."""

    def total(start: Vec3, x: Vec3) -> Vec3:
        return start + Vec3.from_array(jnp.cumsum(x.array, 0))

    angular = total(base.angular, own.angular)
    return Motion(angular, total(base.linear, own.linear + of_parents(base.angular, angular).cross(offset)))


class Run(NamedTuple):
    """A run of slots, with what it is to either neighbour."""

    outer: jax.Array
    """`[A, C, b]`, shape `(n, *batch, 6, 13)`."""
    inner: jax.Array
    """`[J, eta]`, shape `(n, *batch, 6, 7)`."""


def joined(near: Run, far: Run) -> Run:
    """Two runs as one, `near` the one on the side of the base."""
    a, c, b = near.outer[..., :6], near.outer[..., 6:12], near.outer[..., 12:]
    far_a, j, eta = far.outer[..., :6], far.inner[..., :6], far.inner[..., 6:]
    # 1 + C J has a positive spectrum, but it is not symmetric: elimination without pivots would lose digits.
    met = solve(jnp.eye(6, dtype=c.dtype) + product(c, j), jnp.concatenate([a, c, b + product(c, eta)], -1))
    outer = product(far_a, met)
    inner = product(turned(met[..., :6]), jnp.concatenate([product(j, a), eta - product(j, b)], -1))
    covariance = symmetric(product(outer[..., 6:12], turned(far_a)))
    return Run(
        jnp.concatenate([outer[..., :6], covariance + far.outer[..., 6:12], outer[..., 12:] + far.outer[..., 12:]], -1),
        near.inner + jnp.concatenate([symmetric(inner[..., :6]), inner[..., 6:]], -1),
    )


def eliminate_chain(model: Model, s: Setup, slots: Hinge, inertias: Parts, forces: Parts, tau: jax.Array) -> jax.Array:
    """Accelerations from joint forces, shape `(nv, *batch)`."""
    plan = s.layout
    own, lent = with_borrowed(slots, plan.to_slots(inertias.rows, plan.slot_last))
    inertia, z = own.matrix, plan.to_slots(forces.rows, plan.slot_last).array[..., None]
    torque, armature = plan.order.rows(tau)[..., None, None], slots.armature[..., None, None]
    column, shift = slots.column.motion().array[..., None], shifts(slots.offset)

    u = product(inertia, column)
    d = product(turned(column), u) + armature
    push = (torque - product(turned(column), z)) / d
    a = shift - column * product(turned(u / d), shift)
    j = symmetric(product(turned(shift), product(inertia - u * turned(u / d), shift))) - lent.matrix
    eta = -product(turned(shift), z + u * push)
    runs = Run(jnp.concatenate([a, column * turned(column / d), column * push], -1), jnp.concatenate([j, eta], -1))
    eye = jnp.eye(6, dtype=s.dtype)
    unit = Run(jnp.pad(eye, ((0, 0), (0, 7))), jnp.zeros((6, 7), s.dtype))
    carried = suffixes(joined, unit, runs).inner

    # With all that a slot carries, the rest is as in the recursion.
    beyond = of_children(carried)
    u = product(inertia + beyond[..., :6], column)
    root = jnp.sqrt(product(turned(column), u) + armature)
    gain, scaled = u / root, column / root
    w = (torque - product(turned(column), z - beyond[..., 6:])) / root

    base = jnp.zeros((len(plan.root_velocity), *s.batch), s.dtype)
    if len(base):
        # Of the bases the world comes first; what it carries is not asked for.
        handed = ArticulatedInertia.from_matrix(jnp.broadcast_to(carried[:1, ..., :6], (2, *s.batch, 6, 6)))
        force = forces.roots - Force.from_array(carried[:1, ..., 6])
        inverse = free_bases(model, s, inertias).closed(handed)
        own_force = tau[plan.root_velocity] - root_forces(s.root_rotation, force)
        base = inverse.solve(own_force[:, None])[:, 0]
    start = jax.tree.map(lambda x: x[-1:], base_accelerations(s.root_rotation, base)).array[..., None]

    steps = jnp.concatenate([shift - scaled * product(turned(gain), shift), scaled * w], -1)
    unit = jnp.eye(7, dtype=s.dtype)
    steps = jnp.concatenate([steps, jnp.broadcast_to(unit[6:], (*steps.shape[:-2], 1, 7))], -2)
    path = prefixes(lambda near, far: product(far, near), unit, steps)
    motion = product(path[..., :6, :6], start) + path[..., :6, 6:]
    rates = (w - product(turned(gain), product(shift, of_parents(start, motion)))) / root
    return plan.order.vector(base, rates[..., 0, 0])


def with_borrowed(slots: Hinge, own: RigidInertia) -> tuple[RigidInertia, RigidInertia]:
    """The inertias with what they borrow, and what each lends to its parent, about the parent's joint."""
    offset, column = of_children(slots.offset), slots.column.motion()

    def resistance(inertia: RigidInertia) -> jax.Array:
        return column.dot(inertia @ column)

    enough = LIGHT * (resistance(own) + slots.armature)

    def borrow(borrowed: RigidInertia, _) -> tuple[RigidInertia, None]:
        carried = of_children(own + borrowed).shift_to_parent(offset)
        # A slot that meets no resistance yet borrows of one that meets none either, which borrows in its turn.
        return carried * (resistance(carried) >= enough).astype(enough.dtype), None

    nothing = jax.tree.map(lambda x: jnp.zeros_like(x, shape=enough.shape), own)
    borrowed, _ = jax.lax.scan(borrow, nothing, length=RUN)
    return own + borrowed, of_parents(jax.tree.map(lambda x: jnp.zeros_like(x[:1]), borrowed), borrowed)
