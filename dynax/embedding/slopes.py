"""First derivatives of forward dynamics of embedded loops: the way back (`adjoint`) from every acceleration at once.

The rate of `a_i` is that of the power of inverse dynamics with the weights `w = M^-1 e_i`, whose closed form shares the
motion and the factor with forward dynamics. So one walk finds all: nothing is differentiated.

    da_i/dq = -dP(w)/dq X      da_i/dv = -dP(w)/dv      da_i/dtau = w
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.algorithms.factor import inverse_of
from dynax.compile.batching import batch_last
from dynax.derivatives.forward_dynamics import ForwardDynamicsDerivatives
from dynax.derivatives.rule import Point
from dynax.embedding.adjoint import EXECUTION, paired
from dynax.embedding.coefficients import plan_of, reduced
from dynax.embedding.dynamics import in_motion, moved_in
from dynax.embedding.model import EmbeddedModel


@batch_last
def forward_slopes(embedded: EmbeddedModel, q, v, tau, external) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    """Accelerations and their Jacobians, where `adjoint.has_closed_adjoint`."""
    axes, like = q.ndim - 1, v
    # The motion gets an axis of length one, on which the weights have one acceleration after the other.
    embedded, q, v, tau, external = jax.tree.map(
        lambda a: jnp.expand_dims(a, a.ndim - axes), (embedded, q, v, tau, external)
    )
    model, chart = embedded.tree, embedded.chart
    p = plan_of(model, embedded.embedding)
    x = in_motion(model, q, v, p, chart, EXECUTION)
    found = moved_in(model, x, q, v, tau, external, chart)
    inverse = inverse_of(jax.tree.map(lambda a: jnp.squeeze(a, a.ndim - axes - 1), found.factor), like)
    own = paired(embedded, x, Point(q, v, found.a, ()), inverse, external)
    by_q, by_v = (-jnp.swapaxes(b, 0, 1) for b in (reduced(p, x.coordinates.x, own.along_q), own.along_v))
    return found.a[:, 0], ForwardDynamicsDerivatives(by_q, by_v, inverse)
