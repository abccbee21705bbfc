"""The public door to inverse dynamics: the recursion and its differentiation rule."""

from __future__ import annotations

import jax
from jax.typing import ArrayLike

from dynax.derivatives.inverse_rule import rnea_with_rule
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models


@for_models
def inverse_dynamics(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike, external: ArrayLike | None = None
) -> jax.Array:
    """The joint forces that produce a given acceleration, by recursive Newton-Euler, in O(n).

    Solves `tau = M(q) a + bias(q, v, external)`; Featherstone (2008), section 5.3. Armature, damping, dry friction and
    springs of the model take part; set their leaves to zero to leave them out.

    **Arguments:**

    - `q`: configuration, shape `(nq,)`; quaternions of unit length.
    - `v`, `a`: velocity and acceleration, shape `(nv,)` [m/s, rad/s and per second].
    - `external`: wrenches `[moment; force]` on the bodies, in body axes about the body origins, shape `(n, 6)` [N m,
      N].

    **Returns:** `tau`, shape `(nv,)` [N, N m].
    """
    return rnea_with_rule(model, *as_state(model, q=q, v=v, a=a, external=external))


@for_models
def bias_force(model: Model, q: ArrayLike, v: ArrayLike, external: ArrayLike | None = None) -> jax.Array:
    """What joints must do for zero acceleration: `M a + bias = tau`, shape `(nv,)` (Featherstone 2008, eq. 6.2).

    Coriolis, centrifugal and gravity terms, damping, friction and springs, less the effect of `external`.
    """
    q, v, external = as_state(model, q=q, v=v, external=external)
    return rnea_with_rule(model, q, v, None, external)
