"""First derivatives of forward dynamics of bodies that bend, as those of embedded loops (`embedding.slopes`): the way
back (`flexible_adjoint`) from every acceleration at once, in one motion that all of them share.

    da_i/dq = -dP(w)/dq      da_i/dv = -dP(w)/dv      da_i/dtau = w = M^-1 e_i
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.compile.batching import batch_last
from dynax.embedding.flexible_adjoint import power_rates
from dynax.model.flexible import FlexibleModel


@batch_last
def forward_slopes(model: FlexibleModel, q, v, a, external, inverse: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The Jacobians of accelerations `a` along the tangent of `q` and along `v`, each `(nv, nv, *batch)`, where joints
    have as many directions as velocities; `inverse`: the inverse mass matrix."""
    axes = q.ndim - 1
    # The motion gets an axis of length one, on which the weights have one acceleration after the other.
    model, q, v, a, external = jax.tree.map(lambda x: jnp.expand_dims(x, x.ndim - axes), (model, q, v, a, external))
    by_q, by_v, _ = power_rates(model, q, v, a, external, inverse)
    return -jnp.swapaxes(by_q, 0, 1), -jnp.swapaxes(by_v, 0, 1)
