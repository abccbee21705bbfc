"""First derivatives of forward dynamics: those of inverse dynamics at the acceleration found, through the inverse of
the mass matrix (Carpentier and Mansard 2018).

    da/dq = -M^-1 dtau/dq      da/dv = -M^-1 dtau/dv      da/dtau = M^-1

Products of dense matrices make the inverse of up to some sixty freedoms faster than the O(n) factor does, one walk for
each column. On long chains the factor keeps two to four digits more.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.algorithms.aba import solved
from dynax.algorithms.factor import Factor, solve
from dynax.compile.batching import batch_last, trailing
from dynax.derivatives.inverse_dynamics import ELEMENTWISE, jacobians
from dynax.derivatives.linearize import Linearization, linearize
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.linear.inverse import inverse as dense_inverse
from dynax.linear.row_products import batch_leading, batch_trailing
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models

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
    dense, batch = model.nv <= DENSE, q.shape[1:]
    if ELEMENTWISE < model.nv <= DENSE:
        (a, rows), factor = _rows(model, q, v, tau, external), None
    else:
        a, rows, factor = linearized(model, q, v, tau, external)
    along_q, along_v, mass = jacobians(model, rows, q, v, mass=dense)
    eye = jnp.eye(model.nv, dtype=q.dtype).reshape((model.nv, model.nv) + (1,) * len(batch))
    eye = jnp.broadcast_to(eye, (model.nv, model.nv, *batch))
    if model.nv <= ELEMENTWISE:
        assert mass is not None
        # The loop over pivots also keeps XLA from computing the right sides once for every row of a product.
        solution = gauss_jordan(mass, jnp.concatenate([-along_q, -along_v, eye], axis=1))
        return a, ForwardDynamicsDerivatives(*(solution[:, k * model.nv : (k + 1) * model.nv] for k in range(3)))
    if factor is not None:
        inverse = batch_leading(solve(factor, eye))
        inverse = 0.5 * (inverse + jnp.swapaxes(inverse, 1, 2))
    else:
        assert mass is not None
        inverse = dense_inverse(mass)
    by_q, by_v = (-jnp.matmul(inverse, x, precision=lax.Precision.HIGHEST) for x in (along_q, along_v))
    return a, ForwardDynamicsDerivatives(*(batch_trailing(x, batch) for x in (by_q, by_v, inverse)))


_aba_and_derivatives = batch_last(aba_derivatives)
# A program of its own: what nobody asks for is not computed.
_aba_derivatives = batch_last(lambda *args: aba_derivatives(*args)[1])


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
