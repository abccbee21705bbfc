"""Inequalities as costs that rise before them: a logarithm that goes on as a parabola.

    b(z) = -log z                                  z > d        z = -g: the room that is left
           ((z - 2 d)^2 / d^2 - 1) / 2 - log d     z <= d

Value, slope and curvature meet at `d`. It is finite and convex everywhere, so a solver may pass through what is
forbidden, and no active set is looked for; as the weight and `d` go to zero the optimum goes to that of the inequality,
whose multiplier `weight / z` approaches (Hauser & Saccon 2006, "A barrier function method for the optimization of
trajectory functionals with constraints"; Feller & Ebenbauer 2017, "Relaxed logarithmic barrier function based model
predictive control of linear systems").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.optimize.problem import Term, residual


def relaxed_barrier(function: Callable, weight: ArrayLike = 1.0, relaxation: float = 1e-3) -> Term:
    """A term of the cost that keeps `function(x, u, params) < 0`, or of `(x, params)` at the end, entry by entry.

    Below `relaxation`, the room where the logarithm ends, it is a parabola. It holds as long as what a unit of room is
    worth is less than `2 weight / relaxation`, and gives way beyond. Solve with a weight that fades, each time from the
    solution before; `o.inequality` is met exactly. `ValueError` for a relaxation that is not positive.
    """
    if not relaxation > 0:
        raise ValueError(f"`relaxation` of a barrier is {relaxation}, expected more than zero")
    return residual(function, weight, partial(_barrier, float(relaxation)))


def _barrier(d: float, g: jax.Array) -> jax.Array:
    """Of each entry of `g`, negative where there is room."""
    far = -g > d
    near = 0.5 * (((g + 2.0 * d) / d) ** 2 - 1.0) - jnp.log(d)
    return jnp.where(far, -jnp.log(jnp.where(far, -g, 1.0)), near)
