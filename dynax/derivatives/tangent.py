"""The derivative of inverse dynamics as a linear map, O(n) for each direction without forming a Jacobian.

With the rows of `_linearize`, all taken to the base of the tree so that motions and forces simply add up,

    dtau_i = W_i . sum (Psi'_j dq_j + S_j dv_j) + U_i . sum (Psi''_j dq_j + Phi_j dv_j)    over the joints that carry i
             + S_i . sum (T_j dq_j + V_j dv_j)                                             over those that i carries

and the sums are products with the ancestor relation.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.derivatives.inverse_dynamics import ELEMENTWISE, AtBase, at_base, joint_block, joint_slope, placed
from dynax.derivatives.linearize import Linearization
from dynax.model import Model
from dynax.sweep import take_rows


class Tangent(NamedTuple):
    """The map at one state."""

    rows: AtBase
    block: jax.Array
    """What joints add by themselves along `q`, shape `(nv, k, *batch)`."""
    slope: jax.Array
    """Damping and friction, shape `(nv, *batch)`."""


def tangent(model: Model, x: Linearization, q: jax.Array, v: jax.Array) -> Tangent:
    """The map from the rows."""
    return Tangent(at_base(placed(model, x)), joint_block(model, x.joint, q), joint_slope(model, v))


def apply(model: Model, x: Tangent, dq: jax.Array | None, dv: jax.Array | None) -> jax.Array:
    """`dtau` for a tangent `dq` and `dv`, each of shape `(nv, *batch)`; `None` for zero."""
    topology = model.topology
    carrying = topology.velocity_support
    rows = x.rows
    parts = [(rows.along_q, rows.force_q, dq), (rows.along_v, rows.force_v, dv)]
    moving = [(along, force, d) for along, force, d in parts if d is not None]
    total = jnp.zeros_like(x.slope)
    if moving:
        outward = sums_over(carrying, reduce(jnp.add, (along * d for along, _, d in moving)))
        inward = sums_over(carrying.T & ~carrying, reduce(jnp.add, (force * d for _, force, d in moving)))
        total = dot(rows.carried, outward) + dot(rows.column, inward)
    if dv is not None:
        total = total + x.slope * dv
    if dq is not None:
        start = topology.v_start[:-1][topology.body_of_velocity]
        width = np.diff(topology.v_start)[topology.body_of_velocity]
        for k in range(x.block.shape[1]):
            total = total + x.block[:, k] * take_rows(dq, np.where(k < width, start + k, -1))
    return total


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """`sum_k a[k] b[k]`, written out: a reduction over the first axis is several times slower."""
    return sum((a[k] * b[k] for k in range(1, a.shape[0])), a[0] * b[0])


def sums_over(relation: np.ndarray, x: jax.Array) -> jax.Array:
    """`sum_j relation[i, j] x[:, j]`. A matrix product is a library's, and what holds one is in many kernels: for few
    freedoms the sum is written out, and derivatives of an arm take half to a quarter of the time."""
    if relation.shape[1] <= ELEMENTWISE:
        mask = jnp.asarray(relation.T, x.dtype).reshape(*relation.T.shape, *(1,) * (x.ndim - 2))
        return sum((row * x[:, j, None] for j, row in enumerate(mask) if j), mask[0] * x[:, 0, None])
    product = lax.dot_general(
        jnp.asarray(relation, x.dtype), x, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST
    )
    return jnp.moveaxis(product, 0, 1)
