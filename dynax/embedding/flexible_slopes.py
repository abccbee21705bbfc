"""First derivatives of forward dynamics of bodies that bend, as those of embedded loops (`embedding.slopes`): the way
back (`flexible_adjoint`) from every acceleration at once, in one motion that all of them share with forward dynamics.

    da_i/dq = -dP(w)/dq      da_i/dv = -dP(w)/dv      da_i/dtau = w = M^-1 e_i
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from dynax.algorithms.factor import inverse_of
from dynax.compile.batching import batch_last
from dynax.compile.prepared import Lines
from dynax.derivatives.forward_dynamics import ForwardDynamicsDerivatives
from dynax.embedding.flexible import expanded, moving
from dynax.embedding.flexible_adjoint import in_motion, placed, power_rates_in
from dynax.embedding.flexible_nodes import solved_in
from dynax.embedding.flexible_plan import plan
from dynax.model.flexible import FlexibleModel
from dynax.tree.kinematics import moved
from dynax.tree.layout import Parts


@partial(batch_last, lines=Lines.DERIVATIVE)
def forward_slopes(model: FlexibleModel, q, v, tau, external) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    """Accelerations and their Jacobians, where joints have as many directions as velocities."""
    axes, like = q.ndim - 1, v
    # The motion gets an axis of length one, on which the weights have one acceleration after the other.
    model, q, v, tau, external = jax.tree.map(lambda x: jnp.expand_dims(x, x.ndim - axes), (model, q, v, tau, external))
    at = placed(model, q, v)
    x = at.x
    m = moving(model, x, None, external)
    a, factor = solved_in(model, x, m, tau, plan(model.skeleton.topology, model.members))
    inverse = inverse_of(jax.tree.map(lambda x: jnp.squeeze(x, x.ndim - axes - 1), factor), like)
    rates = expanded(model, x.bodies, x.columns, a)
    change = moved(model.skeleton, m.setup, m.kin, rates)
    kin = Parts(*(k._replace(acceleration=k.acceleration + d) for k, d in zip(m.kin, change, strict=True)))
    motion = in_motion(model, (q, v, a), at, x.drift + rates, m.setup, kin, m.inertias.rigid)
    by_q, by_v, _ = power_rates_in(model, motion, external, inverse)
    return a[:, 0], ForwardDynamicsDerivatives(-jnp.swapaxes(by_q, 0, 1), -jnp.swapaxes(by_v, 0, 1), inverse)
