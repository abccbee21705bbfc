"""Second derivatives of inverse dynamics, paired with weights, in closed form: O(n d) for a tree of depth d, no
direction followed by itself.

The rates of the power `sum of w_k . F_k` along freedom `j` are products of motions that nothing at or below `j` changes
with sums over the bodies it carries (`adjoint`). So the rate of these rates along a freedom `k` that `j` carries is
that of the sums alone, which all joints above `k` share: with `w_p` the weights' velocity of the parent, the
displacements of `linearize`, the velocity moments `B` and `B_w` of the velocities and of the weights,

    A = sum of I_k w_k      C = sum of 2 B_k^T w_k      F = sum of F_k      omega_k = w_p x S_k
    along q_k    dF = T_k      dA = I omega_k + S_k x* A      dC = 2 B^T omega_k - 2 B_w^T Psi'_k + S_k x* C
    along v_k    dF = V_k      dC = -2 B_w^T S_k              along a_k    dF = U_k
    q_j q_k   Psi'_j . dC + Psi''_j . dA + omega_j . dF       v_j q_k   S_j . dC + Phi_j . dA      a_j q_k   S_j . dA
    q_j v_k   Psi'_j . dC + omega_j . dF                      v_j v_k   S_j . dC                  q_j a_k   omega_j . dF

Within a free root, whose columns move with it and whose parent stands still, all moves with what is paired, but

    q_j q_k   (Psi''_k x S_j) . A        v_j v_k   S_j . dC + (S_k x S_j) . A

After Singh, Russo and Wensing 2023, "On second-order derivatives of rigid-body dynamics: theory and implementation",
and Echeandia and Wensing 2021, contracted; for screws on the world and on free roots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.coriolis import VelocityMoment, velocity_moments
from dynax.compile.batching import trailing
from dynax.derivatives.adjoint import Weights, above, couple_of
from dynax.derivatives.inverse_dynamics import ELEMENTWISE, joint_slope
from dynax.derivatives.linearize import displacements
from dynax.derivatives.variations import within_joints
from dynax.linear.row_products import batch_leading, batch_trailing, components, product
from dynax.model import Model
from dynax.model.configuration import difference_rate_rows, rate_rows
from dynax.sweep import take_rows
from dynax.tree.bodies import carried_sums, net_forces, world_inertias
from dynax.tree.freedoms import diagonal, in_tree, on_support, per_freedom
from dynax.tree.kinematics import kinematics, moved
from dynax.tree.layout import Parts
from dynax.tree.setup import lift, setup


class Curvature(NamedTuple):
    """Rates of the weighed inverse dynamics' slopes, rows `bar_j`, columns along `k`; each `(nv, nv, *batch)`."""

    q_q: jax.Array
    """Not symmetric within a free root, where `bar_q` is taken in axes that move."""
    v_q: jax.Array
    v_v: jax.Array
    a_q: jax.Array


class _Rows(NamedTuple):
    """What is paired, at the base of each tree, `(components, nv, *batch)`."""

    q: jax.Array
    """`(Psi'', Psi' angular, omega)`"""
    v: jax.Array
    """`(Phi, S angular)`"""
    s: jax.Array
    along_q: jax.Array
    """`(dA, dC, dF)`"""
    along_v: jax.Array
    """`(dC, dF)`"""
    along_a: jax.Array
    """`dF`"""


class _Within(NamedTuple):
    """What joints have by themselves: entries within free roots, `(nv, 6, *batch)`, and the diagonal of `v_v`."""

    q_q: jax.Array
    v_v: jax.Array
    slope: jax.Array


def _rows(model: Model, q: jax.Array, v: jax.Array, a: jax.Array, weights: jax.Array) -> tuple[_Rows, _Within]:
    s = setup(model, q, v, "automatic")
    kin = kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True)
    inertias, bodies = world_inertias(s, kin), moved(model, s, kin, weights)
    moments = velocity_moments(kin, inertias)
    turns = Parts(*(VelocityMoment.of(i, w) for i, w in zip(inertias, bodies, strict=True)))
    momenta = Parts(*(i @ w for i, w in zip(inertias, bodies, strict=True)))
    couples = Parts(*(couple_of(b, w) for b, w in zip(moments, bodies, strict=True)))
    sums = carried_sums(s, kin, inertias, moments, turns, momenta, couples, net_forces(s, kin, inertias, None))
    inertia, moment, turn, momentum, couple, force = (per_freedom(s, total) for total in sums)

    x = displacements(model, s, kin, v, a, force)
    omega = above(model, s, kin, Weights(weights, bodies)).cross(x.s)

    d_a = inertia @ omega + x.s.cross(momentum)
    d_c = moment.apply_transpose(omega) - turn.apply_transpose(x.psi)
    d_f = moment.apply(x.psi) * 2.0 + inertia @ x.psi_rate + x.s.cross(force)
    by_v = turn.apply_transpose(x.s).angular * -2.0

    at = in_tree(model, x.position)
    motion, wrench = (lambda m: m.shift(-at)), (lambda f: f.shift_to_parent(at))
    rows = _Rows(
        components(motion(x.psi_rate), x.psi.angular, motion(omega)),
        components(motion(x.phi), x.s.angular),
        components(motion(x.s)),
        components(wrench(d_a), d_c.angular * 2.0 + x.s.angular.cross(couple.moment), wrench(d_f)),
        components(by_v, wrench(moment.apply(x.s) * 2.0 + inertia @ x.phi)),
        components(wrench(inertia @ x.s)),
    )
    return rows, _within(model, q, v, weights, (x.s, momentum, x.psi_rate, by_v))


def _within(model: Model, q: jax.Array, v: jax.Array, weights: jax.Array, rows: tuple) -> _Within:
    slope = jax.jvp(partial(joint_slope, model), (v,), (jnp.ones_like(v),))[1] * weights
    roots = model.topology.v_start[model.topology.free_roots][:, None] + np.arange(6)
    if not roots.size:
        nothing = jnp.zeros((model.nv, 1, *v.shape[1:]), v.dtype)
        return _Within(nothing, nothing, slope)
    own, other = (np.full((model.nv, 6), -1) for _ in range(2))
    own[roots], other[roots] = roots[:, :, None], roots[:, None]
    column, momentum = take_rows(rows[:2], own)
    moving, gravity, couple = take_rows((rows[0], *rows[2:]), other)
    along_q = gravity.cross(column).dot(momentum)
    along_v = column.angular.dot(couple) + moving.cross(column).dot(momentum)

    rest = lift(model.spring_reference, 1, q.ndim - 1, q.dtype) + jnp.zeros_like(q)
    drawn = lift(model.stiffness, 1, q.ndim - 1, q.dtype) * weights

    def pull(q: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda v: difference_rate_rows(model, rest, q, v), v)(drawn)[0]

    def springs(unit: jax.Array) -> jax.Array:
        turn = jnp.broadcast_to(unit.reshape(-1, *(1 for _ in v.shape[1:])), v.shape)
        return jax.jvp(pull, (q,), (rate_rows(model, q, turn),))[1]

    units = np.zeros((6, model.nv))
    units[np.arange(6), roots] = 1.0
    return _Within(along_q + jax.vmap(springs, out_axes=1)(jnp.asarray(units, v.dtype)), along_v, slope)


def _elementwise(left: jax.Array, right: jax.Array) -> jax.Array:
    return sum((x[:, None] * y for x, y in zip(left, right, strict=True)), jnp.zeros((), left.dtype))


def _by_products(left: jax.Array, right: jax.Array) -> jax.Array:
    return batch_trailing(product(batch_leading(left), batch_leading(right)), left.shape[2:])


def _paired(model: Model, rows: _Rows, own: _Within, pairs: Callable) -> Curvature:
    """The matrices from products of rows `j` with what they carry, `k`, and of `k` with what carries it."""
    t = model.topology
    shape = t.velocity_support.shape + (1,) * (own.slope.ndim - 1)
    v_q, q_v = pairs(rows.v, rows.along_q[:9]), pairs(rows.q[6:], rows.along_v)
    q_q, v_v = pairs(rows.q, rows.along_q), pairs(rows.v[6:], rows.along_v[:3])
    a_q, q_a = pairs(rows.s, rows.along_q[:6]), pairs(rows.q[9:], rows.along_a)
    found = (
        on_support(model, jnp.swapaxes(below, 0, 1), above)
        for below, above in ((q_q, q_q), (q_v, v_q), (v_v, v_v), (q_a, a_q))
    )
    if len(t.free_roots):
        root = np.isin(t.body_of_velocity, t.free_roots)
        same = (root[:, None] & (t.body_of_velocity[:, None] == t.body_of_velocity)).reshape(shape)
        blocks = own.q_q, None, own.v_v, None
        found = (
            jnp.where(same, 0.0 if block is None else within_joints(model, block), x)
            for x, block in zip(found, blocks, strict=True)
        )
    q_q, v_q, v_v, a_q = found
    return Curvature(q_q, v_q, v_v + diagonal(own.slope), a_q)


@trailing
def _few(model: Model, *at: jax.Array) -> Curvature:
    return _paired(model, *_rows(model, *at), _elementwise)


def curvature(model: Model, q: jax.Array, v: jax.Array, a: jax.Array, weights: jax.Array) -> Curvature:
    """The rates of the slopes of `weights . inverse_dynamics(q, v, a)` by `q` (tangent), `v` and `a`, shapes
    `(nv, *batch)`, for trailing batch axes; of a tree of screws on the world and on free roots."""
    if model.nv <= ELEMENTWISE:
        return _few(model, q, v, a, weights)
    return _paired(model, *_rows_in_a_kernel(model, q, v, a, weights), _by_products)


_rows_in_a_kernel = trailing(_rows)
