"""First derivatives of forward dynamics: those of inverse dynamics at the acceleration found, through the inverse of
the mass matrix (Carpentier and Mansard 2018).

    da/dq = -M^-1 dtau/dq      da/dv = -M^-1 dtau/dv      da/dtau = M^-1

The inverse comes from the mass matrix by Gauss-Jordan while it is small, and from the innovations factor otherwise,
which keeps two to four digits more on long chains.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms._articulated import eliminate, gauss_jordan, slot_rows
from dynax.algorithms._batching import batch_last
from dynax.algorithms._bodies import net_forces, passive_force, world_inertias
from dynax.algorithms._derivatives import jacobians
from dynax.algorithms._factor import Factor, solve
from dynax.algorithms._kinematics import kinematics
from dynax.algorithms._layout import Parts
from dynax.algorithms._linearize import Linearization, linearize
from dynax.algorithms._setup import setup
from dynax.model import Model
from dynax.model.checks import as_state

# Freedoms up to which a dense inverse is as accurate as the factor, and faster.
DENSE = 12


class ForwardDynamicsDerivatives(NamedTuple):
    """Jacobians of `forward_dynamics`, each of shape `(nv, nv)`."""

    q: jax.Array
    """Along the tangent space of `integrate`."""
    v: jax.Array
    tau: jax.Array
    """The inverse mass matrix."""


def linearized(model: Model, q, v, tau, external) -> tuple[jax.Array, Linearization, Factor]:
    """The acceleration, the rows of the linearisation at it, and the factor that forward dynamics made on its way."""
    s = setup(model, q, v)
    bias = kinematics(model, s, v, positions=True, accelerations=True, gravity=True)
    inertias = world_inertias(s, bias)
    slots = slot_rows(model, s, bias)
    forces = net_forces(s, bias, inertias, external)
    found = eliminate(model, s, slots, inertias, forces, tau - passive_force(model, q, v), motions=True)
    assert found.motions is not None
    kin = Parts(*(k._replace(acceleration=k.acceleration + m) for k, m in zip(bias, found.motions, strict=True)))
    rows = linearize(model, s, kin, inertias, v, found.a, external)
    return found.a, rows, Factor(s.layout, s.root_rotation, slots, found.gains, found.roots)


def aba_derivatives(model: Model, q, v, tau, external=None) -> ForwardDynamicsDerivatives:
    """The Jacobians for trailing batch axes."""
    _, rows, factor = linearized(model, q, v, tau, external)
    dense = model.nv <= DENSE
    along_q, along_v, mass = jacobians(model, rows, q, v, mass=dense)
    eye = jnp.eye(model.nv, dtype=q.dtype).reshape((model.nv, model.nv) + (1,) * len(q.shape[1:]))
    eye = jnp.broadcast_to(eye, (model.nv, model.nv, *q.shape[1:]))
    inverse = solve(factor, eye) if mass is None else gauss_jordan(mass, eye)
    inverse = 0.5 * (inverse + jnp.swapaxes(inverse, 0, 1))
    product = -_times(inverse, jnp.concatenate([along_q, along_v], axis=1))
    return ForwardDynamicsDerivatives(product[:, : model.nv], product[:, model.nv :], inverse)


def _times(a: jax.Array, b: jax.Array) -> jax.Array:
    """The product of matrices `(n, n, *batch)` and `(n, m, *batch)`: one kernel while small, else the library's."""
    if a.shape[0] <= DENSE:
        total = a[:, 0, None] * b[None, 0]
        for k in range(1, a.shape[1]):
            total = total + a[:, k, None] * b[None, k]
        return total
    x, y = (z.reshape(*z.shape[:2], -1) for z in (a, b))
    product = lax.dot_general(x, y, (((1,), (0,)), ((2,), (2,))), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, 0, -1).reshape(product.shape[1:] + a.shape[2:])


_aba_derivatives = batch_last(aba_derivatives)


def forward_dynamics_derivatives(model: Model, q, v, tau, external=None) -> ForwardDynamicsDerivatives:
    """The Jacobians of `forward_dynamics` with respect to `q` (tangent), `v` and `tau`, in closed form.

    **Arguments:** those of `forward_dynamics`. `external` stays fixed in the bodies' axes.

    **Returns:** `(q, v, tau)`, each of shape `(nv, nv)`, rows those of the acceleration; the last is the inverse mass
    matrix. Column `j` of the first is the rate as `q` moves along `integrate(model, q, t e_j)`.
    """
    return _aba_derivatives(model, *as_state(model, q=q, v=v, tau=tau, external=external))
