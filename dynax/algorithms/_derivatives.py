"""First derivatives of inverse dynamics in closed form: `_linearize`, then products of its rows over the ancestor
relation.

Few freedoms: each product is one elementwise kernel, both rows taken to the ancestor's joint. Many: all rows are taken
to the origin of the tree and the products are matrix products; that costs a digit at most, and only of these products.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms._batching import batch_last
from dynax.algorithms._bodies import per_velocity, world_inertias
from dynax.algorithms._crba import diagonal, on_support, pair
from dynax.algorithms._kinematics import kinematics
from dynax.algorithms._linearize import Linearization, linearize
from dynax.algorithms._setup import setup
from dynax.algorithms._variations import spring_variations, within_joints
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.spatial import Force, Motion

# Freedoms up to which products of rows are elementwise; panda (7) gains a factor of two, talos (38) loses one.
ELEMENTWISE = 16


class InverseDynamicsDerivatives(NamedTuple):
    """Jacobians of `inverse_dynamics`, each of shape `(nv, nv)`."""

    q: jax.Array
    """Along the tangent space of `integrate`."""
    v: jax.Array
    a: jax.Array
    """The mass matrix."""


def rigid_jacobians(model: Model, rows: Linearization, *, mass: bool = True) -> tuple[jax.Array, ...]:
    """`dtau/dq`, `dtau/dv` and the mass matrix of the rigid bodies, each `(nv, nv, *batch)`."""
    products = _elementwise if model.nv <= ELEMENTWISE else _matrices
    return products(model, rows, mass=mass)


def _elementwise(model: Model, x: Linearization, *, mass: bool) -> tuple[jax.Array, ...]:
    at = x.position

    def matrix(below: jax.Array, above: jax.Array | None = None) -> jax.Array:
        return on_support(model, below, None if above is None else jnp.swapaxes(above, 0, 1))

    along_q = matrix(pair(x.w, x.psi, at, at) + pair(x.u, x.psi_rate, at, at), pair(x.t, x.s, at, at))
    along_v = matrix(pair(x.w, x.s, at, at) + pair(x.u, x.phi, at, at), pair(x.v, x.s, at, at))
    return (along_q, along_v, matrix(pair(x.u, x.s, at, at))) if mass else (along_q, along_v)


def _matrices(model: Model, x: Linearization, *, mass: bool) -> tuple[jax.Array, ...]:
    at, back = x.position, -x.position

    def motion(m: Motion) -> list:
        m = m.shift(back)
        return [m.angular.x, m.angular.y, m.angular.z, m.linear.x, m.linear.y, m.linear.z]

    def force(f: Force) -> list:
        f = f.shift_to_parent(at)
        return [f.angular.x, f.angular.y, f.angular.z, f.linear.x, f.linear.y, f.linear.z]

    def couple(c: Motion | Force) -> list:
        return [c.angular.x, c.angular.y, c.angular.z]

    s, u = motion(x.s), force(x.u)
    left = couple(x.w) + u
    below = [couple(x.psi) + motion(x.psi_rate), couple(x.s) + motion(x.phi)]
    above = [force(x.t), force(x.v)]
    matrices = [on_support(model, _product(left, b), _product(s, c)) for b, c in zip(below, above, strict=True)]
    if mass:
        matrices.append(on_support(model, _product(u, s)))
    return tuple(matrices)


def _product(left: list, right: list) -> jax.Array:
    """`sum_k left_k[i] right_k[j]`, shape `(n, n, *batch)`; the batch leads inside, as the library's products want."""
    a, b = (jnp.stack(jnp.broadcast_arrays(*x)) for x in (left, right))
    flat = (a.shape[0], a.shape[1], -1)
    a, b = a.reshape(flat), b.reshape(flat)
    product = lax.dot_general(a, b, (((0,), (0,)), ((2,), (2,))), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, 0, -1).reshape(product.shape[1:] + left[0].shape[1:])


def joint_block(model: Model, rows: Linearization, q: jax.Array) -> jax.Array:
    """What joints add to `dtau/dq` by themselves, springs and moving columns, within joints: `(nv, k, *batch)`."""
    springs = spring_variations(model, q)
    return springs if rows.joint is None else springs + rows.joint


def joint_slope(model: Model, v: jax.Array) -> jax.Array:
    """What joints add to the diagonal of `dtau/dv`: damping and dry friction, shape `(nv, *batch)`."""
    scale = model.friction_velocity.astype(v.dtype)
    friction = per_velocity(model.friction_loss, v) * (1.0 - jnp.tanh(v / scale) ** 2) / scale
    return per_velocity(model.damping, v) + friction


def rnea_derivatives(model: Model, q, v, a, external=None) -> InverseDynamicsDerivatives:
    """The Jacobians for trailing batch axes."""
    s = setup(model, q, v)
    kin = kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True)
    rows = linearize(model, s, kin, world_inertias(s, kin), v, a, external)
    along_q, along_v, mass = jacobians(model, rows, q, v)
    assert mass is not None
    return InverseDynamicsDerivatives(along_q, along_v, mass)


def jacobians(
    model: Model, rows: Linearization, q, v, *, mass: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The Jacobians from the rows, joints and all."""
    along_q, along_v, *inertia = rigid_jacobians(model, rows, mass=mass)
    along_q = along_q + within_joints(model, joint_block(model, rows, q))
    along_v = along_v + diagonal(joint_slope(model, v))
    if not mass:
        return along_q, along_v, None
    armature = per_velocity(model.armature, jnp.zeros_like(v))
    return along_q, along_v, inertia[0] + diagonal(armature)


_rnea_derivatives = batch_last(rnea_derivatives)


def inverse_dynamics_derivatives(model: Model, q, v, a, external=None) -> InverseDynamicsDerivatives:
    """The Jacobians of `inverse_dynamics` with respect to `q` (tangent), `v` and `a`, in closed form, O(n^2).

    Singh, Russo and Wensing (2021), for joints of every type; damping, friction and springs take part. Column `j` of
    the first is the rate of `tau` as `q` moves along `integrate(model, q, t e_j)`: for a free or spherical joint along
    the body's axes. `external` stays fixed in the bodies' axes.

    **Arguments:**

    - `q`: configuration, shape `(nq,)`; quaternions of unit length.
    - `v`, `a`: velocity and acceleration, shape `(nv,)`.
    - `external`: wrenches on the bodies, shape `(n, 6)`.

    **Returns:** `(q, v, a)`, each of shape `(nv, nv)`, rows those of `tau`.
    """
    return _rnea_derivatives(model, *as_state(model, q=q, v=v, a=a, external=external))
