"""First derivatives of inverse dynamics in closed form: `_linearize`, then products of its rows over the ancestor
relation.

Few freedoms: each product is one elementwise kernel, both rows taken to the ancestor's joint. Many: all rows are taken
to the base of the tree and the products are matrix products; that costs a digit at most, and only of these products.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.compile.batching import batch_last, trailing
from dynax.compile.fence import apart
from dynax.derivatives.linearize import Linearization, linearize
from dynax.derivatives.variations import spring_variations, within_joints
from dynax.linear.row_products import batch_leading, batch_trailing, components, materialized, product
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.tree.bodies import per_velocity, world_inertias
from dynax.tree.freedoms import diagonal, in_tree, on_support, pair
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import setup

# Freedoms up to which products of rows are elementwise; panda (7) gains a factor of two, talos (38) loses one.
ELEMENTWISE = 16


class InverseDynamicsDerivatives(NamedTuple):
    """Jacobians of `inverse_dynamics`, each of shape `(nv, nv)`."""

    q: jax.Array
    """Along the tangent space of `integrate`."""
    v: jax.Array
    a: jax.Array
    """The mass matrix."""


def rigid_jacobians(model: Model, x: Linearization, *, mass: bool) -> tuple[jax.Array, ...]:
    """`dtau/dq`, `dtau/dv` and, if asked for, the mass matrix of the rigid bodies, each `(nv, nv, *batch)`: few
    freedoms."""
    if x.position.x.ndim > 1:  # each row of a batch is computed once, and not again with every partner
        x = jax.tree.map(apart, x._replace(joint=None))
    at = x.position

    def matrix(below: jax.Array, above: jax.Array | None = None) -> jax.Array:
        return on_support(model, below, None if above is None else jnp.swapaxes(above, 0, 1))

    along_q = matrix(pair(x.w, x.psi, at, at) + pair(x.u, x.psi_rate, at, at), pair(x.t, x.s, at, at))
    along_v = matrix(pair(x.w, x.s, at, at) + pair(x.u, x.phi, at, at), pair(x.v, x.s, at, at))
    return (along_q, along_v, matrix(pair(x.u, x.s, at, at))) if mass else (along_q, along_v)


class AtBase(NamedTuple):
    """The rows taken to the base of the tree, where motions and forces simply add up: components on axis 0."""

    carried: jax.Array
    """`(W; U)`, shape `(9, nv, *batch)`: what is paired with sums over the carrying joints."""
    along_q: jax.Array
    """`(Psi' angular; Psi'')`"""
    along_v: jax.Array
    """`(S angular; Phi)`"""
    column: jax.Array
    """`S`, shape `(6, nv, *batch)`: what is paired with sums over the carried joints."""
    force_q: jax.Array
    """`T`"""
    force_v: jax.Array
    """`V`"""


def placed(model: Model, x: Linearization) -> Linearization:
    """The rows with positions from the base of their tree, for `at_base`."""
    return x._replace(joint=None, position=in_tree(model, x.position))


def at_base(x: Linearization) -> AtBase:
    """The rows of a linearisation, moved by their `position`."""
    back = -x.position
    return AtBase(
        components(x.w.angular, x.u.shift_to_parent(x.position)),
        components(x.psi.angular, x.psi_rate.shift(back)),
        components(x.s.angular, x.phi.shift(back)),
        components(x.s.shift(back)),
        components(x.t.shift_to_parent(x.position)),
        components(x.v.shift_to_parent(x.position)),
    )


def rigid_jacobians_by_products(model: Model, x: Linearization, *, mass: bool) -> tuple[jax.Array, ...]:
    """The same for many freedoms, the batch leading and flat: each `(batch, nv, nv)`."""
    rows = jax.tree.map(
        batch_leading, materialized(at_base, x._replace(joint=None, position=in_tree(model, x.position)))
    )
    mask = jnp.asarray(model.topology.velocity_support)

    def matrix(below: jax.Array, above: jax.Array) -> jax.Array:
        return jnp.where(mask, below, jnp.where(mask.T, above, jnp.zeros((), below.dtype)))

    along_q = matrix(product(rows.carried, rows.along_q), product(rows.column, rows.force_q))
    along_v = matrix(product(rows.carried, rows.along_v), product(rows.column, rows.force_v))
    if not mass:
        return along_q, along_v
    upper = product(rows.carried[:, 3:], rows.column)
    return along_q, along_v, matrix(upper, jnp.swapaxes(upper, 1, 2))


def joint_block(model: Model, moving: jax.Array | None, q: jax.Array) -> jax.Array:
    """What joints add to `dtau/dq` by themselves, springs and `moving` columns, within joints: `(nv, k, *batch)`."""
    springs = spring_variations(model, q)
    return springs if moving is None else springs + moving


def joint_slope(model: Model, v: jax.Array) -> jax.Array:
    """What joints add to the diagonal of `dtau/dv`: damping and dry friction, shape `(nv, *batch)`."""
    scale = model.friction_velocity.astype(v.dtype)
    friction = per_velocity(model.friction_loss, v) * (1.0 - jnp.tanh(v / scale) ** 2) / scale
    return per_velocity(model.damping, v) + friction


def jacobians(
    model: Model, rows: Linearization, q, v, *, mass: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The Jacobians from the rows, joints and all, each `(batch, nv, nv)` if there are many freedoms."""
    block, slope, armature = joint_block(model, rows.joint, q), joint_slope(model, v), per_velocity(model.armature, v)
    if model.nv <= ELEMENTWISE:
        along_q, along_v, *inertia = rigid_jacobians(model, rows, mass=mass)
        along_q, along_v = along_q + within_joints(model, block), along_v + diagonal(slope)
        return along_q, along_v, inertia[0] + diagonal(armature) if mass else None
    along_q, along_v, *inertia = rigid_jacobians_by_products(model, rows, mass=mass)
    # The same additions where the batch leads.
    along_q = along_q + jax.vmap(partial(within_joints, model))(batch_leading(block))
    eye = jnp.eye(model.nv, dtype=v.dtype)
    slope, armature = (
        jnp.moveaxis(jnp.broadcast_to(x, v.shape).reshape(model.nv, -1), -1, 0) for x in (slope, armature)
    )
    along_v = along_v + slope[:, :, None] * eye
    return along_q, along_v, (inertia[0] + armature[:, :, None] * eye) if mass else None


def linearized(model: Model, q, v, a, external=None) -> Linearization:
    """All that walks find: the rows of the Jacobians."""
    s = setup(model, q, v, "automatic")
    kin = kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True)
    return linearize(model, s, kin, world_inertias(s, kin), v, a, external)


# A function of its own, which one kernel can hold; the products of many freedoms that follow it cannot be in one.
_linearized = trailing(linearized)


def rnea_derivatives(model: Model, q, v, a, external=None) -> InverseDynamicsDerivatives:
    """The Jacobians for trailing batch axes."""
    rows = (linearized if model.nv <= ELEMENTWISE else _linearized)(model, q, v, a, external)
    along_q, along_v, mass = jacobians(model, rows, q, v)
    assert mass is not None
    found = InverseDynamicsDerivatives(along_q, along_v, mass)
    if model.nv <= ELEMENTWISE:
        return found
    return InverseDynamicsDerivatives(*(batch_trailing(x, q.shape[1:]) for x in found))


def _like(model: Model, q, v, *_) -> InverseDynamicsDerivatives:
    """Of the shapes of `rnea_derivatives`."""
    return InverseDynamicsDerivatives(*(jnp.zeros((model.nv, *v.shape), v.dtype) for _ in range(3)))


_rnea_derivatives = batch_last(rnea_derivatives, like=_like)


@for_models
def inverse_dynamics_derivatives(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike, external: ArrayLike | None = None
) -> InverseDynamicsDerivatives:
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
