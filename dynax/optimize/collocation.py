"""Direct collocation: between knots the motion is a polynomial that obeys the dynamics at chosen points.

In the coordinates `z` of the states about the first of an interval of length `h`, with `z' = g(z, u)`:

    trapezoid          z1 = h/2 (g0 + g1)                                                 u linear
    hermite_simpson    z1 = h/6 (g0 + 4 gm + g1)   zm = z1/2 + h/8 (g0 - g1)              u quadratic, its middle free
    midpoint           z1 = h gm                   zm = z1/2                              u constant

Costs are integrals by the same rule (Kelly 2017, "An introduction to trajectory optimization", sections 3 and 4; Betts
2010, section 4.5). A knot of the problem is the state with the control there; what is chosen is the control in the
middle and at the end. Its step solves the equation of the interval, so that every solver here and its derivatives take
it; the first control is chosen by an interval of no length in front, and so is the factor of all lengths where the
final time is free. `mesh` makes guesses, reads results, and refines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.optimize.interval import METHODS, CollocatedPlant
from dynax.optimize.plant import FunctionPlant, ModelPlant, refuse_scene
from dynax.optimize.problem import Problem, Term
from dynax.optimize.problem import problem as make_problem
from dynax.simulate.stepper import refuse_closed


def collocation(
    dynamics: Any,
    x0: ArrayLike,
    dt: ArrayLike,
    *,
    method: str = "hermite_simpson",
    costs: Sequence[Term] = (),
    end_costs: Sequence[Term] = (),
    constraints: Sequence[Term] = (),
    end_constraints: Sequence[Term] = (),
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    params: Any = None,
    free_time: tuple[float, float] | None = None,
) -> Problem:
    """A problem of optimal control in continuous time, by collocation.

    **Arguments:**

    - `dynamics`: an `o.plant`: of a model, whose stepper is not looked at; or of a function, which is then
      `rate(x, u, params)`, the velocity of the state in its tangents; or an `o.inverse_plant`, which has the
      optima of its model and compiles sooner.
    - `x0`: the first state; `dt`: the length of each interval [s], shape `(N,)`.
    - `method`: `"hermite_simpson"`, of fourth order, `"trapezoid"` or `"midpoint"`, of second.
    - `free_time`: least and largest factor of all lengths; which it is, is then chosen with the motion, from one.
    - `costs`: rates of cost, whose integral counts, terms of `(x, u, params)`; `constraints`: at the beginning of every
      interval. The others as for `o.problem`.

    **Returns:** a `Problem` of `N + 1` knots for all solvers; `o.guess` makes its states and controls of those at the
    nodes, `o.nodes` reads a result. A trapezoid's controls may ring where nothing but the integral sees them.
    """
    if method not in METHODS:
        raise ValueError(f"`method` is {method!r}, expected one of {', '.join(map(repr, METHODS))}")
    start = jnp.asarray(x0, float) if not hasattr(x0, "dtype") else jnp.asarray(x0)
    steps = jnp.asarray(dt, start.dtype)
    if steps.ndim != 1:
        raise ValueError(f"`dt` has shape {steps.shape}, expected (N,), the length of each interval")
    rate = dynamics.function if isinstance(dynamics, FunctionPlant) else None
    if isinstance(dynamics, ModelPlant):
        refuse_scene(dynamics.model, "collocation")
        refuse_closed(dynamics.model, dynamics.stepper)  # type: ignore[arg-type]
    if free_time is not None and not 0.0 < free_time[0] <= free_time[1]:
        raise ValueError(f"`free_time` is {free_time}, expected two positive factors, the least first")
    plant, m = CollocatedPlant(dynamics, method, rate, free_time is not None), dynamics.nu
    lengths = jnp.concatenate([jnp.zeros(1, start.dtype), steps, jnp.zeros(1, start.dtype)])
    if start.shape != (dynamics.nx,):
        raise ValueError(f"`x0` has shape {start.shape}, expected ({dynamics.nx},); for a batch use jax.vmap")

    def widened(limit: ArrayLike | None, none: float, factor: int) -> jax.Array | None:
        if limit is None and free_time is None:
            return None
        own = jnp.broadcast_to(jnp.asarray(none if limit is None else limit, start.dtype), (m,))
        own = jnp.tile(own, plant.width // m)
        return own if free_time is None else jnp.append(own, free_time[factor])

    return make_problem(
        plant,  # type: ignore[arg-type]
        jnp.concatenate([start, jnp.zeros(m, start.dtype), jnp.ones(int(plant.free), start.dtype)]),
        lengths[:-1],
        costs=[*(_integral(term, plant) for term in costs), *_idle(plant)],
        end_costs=[_at_node(term, plant, end=True) for term in end_costs],
        constraints=[_at_node(term, plant, end=False) for term in constraints],
        end_constraints=[_at_node(term, plant, end=True) for term in end_constraints],
        lower=widened(lower, -jnp.inf, 0),
        upper=widened(upper, jnp.inf, 1),
        params=params,
        per_knot=lengths,
    )


def _integral(term: Term, plant: CollocatedPlant) -> Term:
    """The rule of the method for a rate of cost; the first interval, of no length, weighs nothing."""

    def values(x: jax.Array, chosen: jax.Array, known: Any) -> jax.Array:
        params, h, *solved = known
        start, first, mid, end = plant.points(x, chosen)
        after = (solved[0] if solved else plant.step(x, chosen, known, h))[: plant.base.nx]
        if plant.method == "trapezoid":
            weights, at = (0.5, 0.5), ((start, first), (after, end))
        else:
            z = plant.base.difference(start, after)
            halfway = solved[1] if solved else plant.middle(x, chosen, z, params, h)
            halfway = plant.base.integrate(start, halfway)
            weights, at = (1.0,), ((halfway, mid),)
            if plant.method == "hermite_simpson":
                weights, at = (1 / 6, 4 / 6, 1 / 6), ((start, first), (halfway, mid), (after, end))
        found, s = [jnp.ravel(jnp.asarray(term.function(x, u, params))) for x, u in at], plant.scale(x)
        if term.kind == "cost":
            return jnp.sum(jnp.stack([w * y[0] for w, y in zip(weights, found, strict=True)])) * h * s * term.weight
        return jnp.sqrt(s) * jnp.concatenate(
            [jnp.sqrt(w * h * term.weight) * y for w, y in zip(weights, found, strict=True)]
        )

    if term.activation is not None:
        raise ValueError("a rate of cost by `residual` has no `activation` here: use `cost`")
    return Term(values, jnp.ones(()), None, term.kind)


def _idle(plant: CollocatedPlant) -> tuple[Term, ...]:
    """What an interval need not choose, the first or the others, stays where it is, so that it is known."""

    def unused(x: jax.Array, chosen: jax.Array, known: Any) -> jax.Array:
        _, _, mid, end = plant.points(x, chosen)
        first = {"midpoint": end, "hermite_simpson": mid - end, "trapezoid": end[:0]}[plant.method]
        first = jnp.where(known[1] > 0, 0.0, first)
        return jnp.append(first, jnp.where(known[1] > 0, chosen[-1] - x[-1], 0.0)) if plant.free else first

    return () if plant.method == "trapezoid" and not plant.free else (Term(unused, jnp.ones(()), None, "residual"),)


def _at_node(term: Term, plant: CollocatedPlant, *, end: bool) -> Term:
    n = plant.base.nx

    def at_end(x: jax.Array, known: Any) -> jax.Array:
        return term.function(x[:n], known[0])

    def on_path(x: jax.Array, chosen: jax.Array, known: Any) -> jax.Array:
        return term.function(x[:n], plant.points(x, chosen)[1], known[0])

    return Term(at_end if end else on_path, term.weight, term.activation, term.kind)
