"""The cone of dry friction as a constraint of a problem, rounded at its tip: one row for each contact.

    sqrt(|f_t|^2 + r^2) <= mu f_n

This hyperboloid lies within the cone `|f_t| <= mu f_n`, so that what is found can be held, and comes to it as `r` goes
to zero. It is convex and smooth everywhere, and its multiplier is the price of a newton: solvers, polish, derivatives
and nonlinear programs take it as any inequality. The other forms: the square `f_t^2 <= (mu f_n)^2` is no convex set
and flat at the tip, where it has no multiplier (a block pushed from rest to rest did not converge); the cone itself has
a corner on its axis; projections on the cone (Jackson et al. 2021, "ALTRO-C") have multipliers that press together,
for which derivatives of solutions, row by row, have no place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from dynax.optimize.problem import Term, inequality


def friction_cone(force: Callable, friction: ArrayLike | Callable, *, rounding: float = 1e-3) -> Term:
    """Forces that dry friction can hold (Coulomb), a constraint of a problem.

    **Arguments:**

    - `force`: a function of `(x, u, params)`, of `(x, params)` at the end, that gives a force [N] or one for each
      contact, shape `(..., k)`: along `k - 1` directions at right angles in the plane of contact, then along its
      normal.
    - `friction`: the coefficient, a number or one for each contact; or a function of the same arguments, such as
      `lambda x, u, p: p["friction"]`, by which solutions can be differentiated.
    - `rounding`: of the tip [N]; no normal force is less than `rounding / friction`.

    Where forces come to the tip solve with `second_order=True`, which knows how the cone bends. `ValueError` for a
    coefficient or a rounding that is not positive, and a force without tangents.
    """
    if not callable(friction) and not isinstance(friction, Tracer) and not np.all(np.asarray(friction) > 0):
        raise ValueError(f"`friction` of a cone is {friction}, expected more than zero")
    if not rounding > 0:
        raise ValueError(f"`rounding` of a friction cone is {rounding}, expected more than zero")

    def beyond(*args: Any) -> jax.Array:
        dtype = args[0].dtype
        f = jnp.asarray(force(*args), dtype)
        if f.ndim < 1 or f.shape[-1] < 2:
            raise ValueError(f"`force` of a friction cone has shape {f.shape}, expected tangents, then the normal")
        mu = jnp.asarray(friction(*args) if callable(friction) else friction, dtype)
        return jnp.ravel(jnp.sqrt(jnp.sum(f[..., :-1] ** 2, axis=-1) + rounding**2) - mu * f[..., -1])

    return inequality(beyond)
