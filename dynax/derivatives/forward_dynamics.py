"""First derivatives of forward dynamics: those of inverse dynamics at the acceleration found, through the inverse of
the mass matrix (Carpentier and Mansard 2018).

    da/dq = -M^-1 dtau/dq      da/dv = -M^-1 dtau/dv      da/dtau = M^-1

Products of dense matrices make the inverse of up to some sixty freedoms faster than the O(n) factor does, one walk for
each column. On long chains the factor keeps two to four digits more. Of few freedoms it gives the accelerations too.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.algorithms.aba import solved
from dynax.algorithms.coriolis import velocity_moments
from dynax.algorithms.factor import Factor, solve
from dynax.compile.batching import batch_last, trailing
from dynax.compile.fence import apart
from dynax.derivatives.inverse_dynamics import ELEMENTWISE, jacobians
from dynax.derivatives.linearize import Carried, Linearization, linearization, linearize
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.linear.inverse import inverse as dense_inverse
from dynax.linear.row_products import batch_leading, batch_trailing
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.tree.bodies import carried_sums, net_forces, passive_force, per_velocity, world_inertias
from dynax.tree.freedoms import diagonal, freedoms, on_support, pair, per_freedom
from dynax.tree.kinematics import kinematics, moved
from dynax.tree.layout import Parts
from dynax.tree.setup import setup

# Freedoms up to which the inverse comes from the mass matrix.
DENSE = 64


class ForwardDynamicsDerivatives(NamedTuple):
    """Jacobians of `forward_dynamics`, each of shape `(nv, nv)`."""

    q: jax.Array
    """Along the tangent space of `integrate`."""
    v: jax.Array
    tau: jax.Array
    """The inverse mass matrix."""


def linearized(model: Model, q, v, tau, external) -> tuple[jax.Array, Linearization, Factor]:
    """All that walks find: accelerations, the rows of the Jacobians, and the factor of the mass matrix."""
    found = solved(model, q, v, tau, external)
    return found.a, linearize(model, found.setup, found.kin, found.inertias, v, found.a, external), found.factor


# A function of its own, which one kernel can hold; the products of many freedoms that follow it cannot be in one.
_rows = trailing(lambda *args: linearized(*args)[:2])


def aba_derivatives(model: Model, q, v, tau, external=None) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    """Accelerations and their Jacobians for trailing batch axes."""
    if model.nv <= ELEMENTWISE:
        return _of_few(model, q, v, tau, external)
    dense, batch = model.nv <= DENSE, q.shape[1:]
    if dense:
        (a, rows), factor = _rows(model, q, v, tau, external), None
    else:
        a, rows, factor = linearized(model, q, v, tau, external)
    along_q, along_v, mass = jacobians(model, rows, q, v, mass=dense)
    if factor is not None:
        inverse = batch_leading(solve(factor, _identity(model, q)))
        inverse = 0.5 * (inverse + jnp.swapaxes(inverse, 1, 2))
    else:
        assert mass is not None
        inverse = dense_inverse(mass)
    by_q, by_v = (-jnp.matmul(inverse, x, precision=lax.Precision.HIGHEST) for x in (along_q, along_v))
    return a, ForwardDynamicsDerivatives(*(batch_trailing(x, batch) for x in (by_q, by_v, inverse)))


def _of_few(model: Model, q, v, tau, external) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    """Few freedoms: the mass matrix, which is needed anyhow, gives the accelerations too, and spares the walks of
    articulated bodies. What accelerations add to motions and forces is linear: one walk out, one walk in."""
    s = setup(model, q, v, "automatic")
    still = kinematics(model, s, v, positions=True, accelerations=True, gravity=True)
    inertias = world_inertias(s, still)
    own = inertias, velocity_moments(still, inertias), net_forces(s, still, inertias, external)
    inertia, moment, force = (per_freedom(s, total) for total in carried_sums(s, still, *own))
    at = freedoms(model, s, still)
    u = inertia @ at.column
    if s.batch:  # each row of a batch is computed once, and not again with every partner
        at, u = jax.tree.map(apart, (at, u))
    pairs = on_support(model, pair(u, at.column, at.position, at.position))
    mass = pairs + diagonal(per_velocity(model.armature, v))
    needed = at.column.dot(force) + passive_force(model, q, v)
    inverse = gauss_jordan(mass, _identity(model, q))
    a = _times(inverse, (tau - needed)[:, None])[:, 0]
    gained = moved(model, s, still, a)
    (more,) = carried_sums(s, still, Parts(*(i @ m for i, m in zip(inertias, gained, strict=True))))
    kin = Parts(*(k._replace(acceleration=k.acceleration + m) for k, m in zip(still, gained, strict=True)))
    carried = Carried(inertia, moment, force + per_freedom(s, more))
    along_q, along_v, _ = jacobians(model, linearization(model, s, kin, v, a, at, u, carried), q, v, mass=False)
    return a, ForwardDynamicsDerivatives(-_times(inverse, along_q), -_times(inverse, along_v), inverse)


def _times(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a b`, where `b` is computed once and not with every row."""
    if not len(b):
        return jnp.zeros((len(a), *b.shape[1:]), b.dtype)
    b = apart(b)
    return sum((a[:, k, None] * b[k] for k in range(1, len(b))), a[:, 0, None] * b[0])


def _identity(model: Model, q: jax.Array) -> jax.Array:
    eye = jnp.eye(model.nv, dtype=q.dtype).reshape((model.nv, model.nv) + (1,) * (q.ndim - 1))
    return jnp.broadcast_to(eye, (model.nv, model.nv, *q.shape[1:]))


def _like(model: Model, q, v, *_) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    """Of the shapes of `aba_derivatives`."""
    matrix = jnp.zeros((model.nv, *v.shape), v.dtype)
    return v, ForwardDynamicsDerivatives(matrix, matrix, matrix)


_aba_and_derivatives = batch_last(aba_derivatives, like=_like)
# A program of its own: what nobody asks for is not computed.
_aba_derivatives = batch_last(lambda *args: aba_derivatives(*args)[1], like=lambda *args: _like(*args)[1])


@for_models
def forward_dynamics_and_derivatives(
    model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, external: jax.Array | None = None
) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    """`forward_dynamics` and `forward_dynamics_derivatives` in one walk."""
    return _aba_and_derivatives(model, q, v, tau, external)


@for_models
def forward_dynamics_derivatives(
    model: Model, q: ArrayLike, v: ArrayLike, tau: ArrayLike, external: ArrayLike | None = None
) -> ForwardDynamicsDerivatives:
    """The Jacobians of `forward_dynamics` with respect to `q` (tangent), `v` and `tau`, in closed form.

    **Arguments:** those of `forward_dynamics`. `external` stays fixed in the bodies' axes.

    **Returns:** `(q, v, tau)`, each of shape `(nv, nv)`, rows those of the acceleration; the last is the inverse mass
    matrix. Column `j` of the first is the rate as `q` moves along `integrate(model, q, t e_j)`.
    """
    return _aba_derivatives(model, *as_state(model, q=q, v=v, tau=tau, external=external))
