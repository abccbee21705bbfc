"""Direct collocation: between knots the motion is a polynomial that obeys the dynamics at chosen points.

In the coordinates `z` of the states about the first of an interval of length `h`, with `z' = g(z, u)`:

    trapezoid          z1 = h/2 (g0 + g1)                                                 u linear
    hermite_simpson    z1 = h/6 (g0 + 4 gm + g1)   zm = z1/2 + h/8 (g0 - g1)              u quadratic, its middle free
    midpoint           z1 = h gm                   zm = z1/2                              u constant

Costs are integrals by the same rule (Kelly 2017, "An introduction to trajectory optimization", sections 3 and 4; Betts
2010, section 4.5). A knot of the problem is the state with the control there; what is chosen is the control in the
middle and at the end. Its step solves the equation of the interval, so that every solver here and its derivatives take
it; the first control is chosen by an interval of no length in front.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.inverse_plant import InversePlant
from dynax.optimize.plant import FunctionPlant, ModelPlant
from dynax.optimize.problem import Problem, Term
from dynax.optimize.problem import problem as make_problem
from dynax.optimize.result import Result
from dynax.simulate.newton import root
from dynax.simulate.stepper import refuse_closed

METHODS = ("trapezoid", "hermite_simpson", "midpoint")
# Newton's steps for the equation of an interval.
STEPS = 20


@pytree_dataclass("method", "rate")
class CollocatedPlant:
    """An interval as a step of knots `[x, u]`; made by `collocation`."""

    base: FunctionPlant | ModelPlant | InversePlant
    """Whose states and tangents these are."""
    method: str
    rate: Callable | None
    """`rate(x, u, params)`, the velocity of the state in its tangents, or that of the model."""

    @property
    def nx(self) -> int:
        return self.base.nx + self.base.nu

    @property
    def ndx(self) -> int:
        return self.base.ndx + self.base.nu

    @property
    def nu(self) -> int:
        return 2 * self.base.nu if self.method == "hermite_simpson" else self.base.nu

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        n, m = self.base.nx, self.base.ndx
        return jnp.concatenate([self.base.integrate(x[:n], dx[:m]), x[n:] + dx[m:]])

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        n = self.base.nx
        return jnp.concatenate([self.base.difference(x0[:n], x1[:n]), x1[n:] - x0[n:]])

    def points(self, x: jax.Array, chosen: jax.Array) -> tuple[jax.Array, ...]:
        """The state, and the controls at the beginning, in the middle and at the end of an interval."""
        n, m = self.base.nx, self.base.nu
        start, end = x[n:], chosen[-m:]
        if self.method == "midpoint":
            return x[:n], end, end, end
        return x[:n], start, chosen[:m] if self.method == "hermite_simpson" else 0.5 * (start + end), end

    def velocity(self, x: jax.Array, u: jax.Array, params: Any) -> jax.Array:
        """Of the state, in its tangents."""
        if self.rate is not None:
            return self.rate(x, u, params)
        base: Any = self.base
        return jnp.concatenate([x[base.nx - base.ndx // 2 :], base.acceleration(x, u)])

    def along(self, x: jax.Array, z: jax.Array, u: jax.Array, params: Any) -> jax.Array:
        """`g(z, u)`: the rate of the coordinates about `x`. For a model `v + [z, v] / 2 + [z, [z, v]] / 12`, whose error
        is that of the rules and smaller (Munthe-Kaas 1999, "High order Runge-Kutta methods on manifolds")."""
        now, zero = self.base.integrate(x, z), jnp.zeros_like(z)
        velocity = self.velocity(now, u, params)
        if not isinstance(self.base, FunctionPlant):
            turned = self.base.bracket(z, velocity)
            return velocity + 0.5 * turned + self.base.bracket(z, turned) / 12.0
        return jax.jvp(lambda w: self.base.difference(x, self.base.integrate(now, w)), (zero,), (velocity,))[1]

    def ends(self, x: jax.Array, chosen: jax.Array, z: jax.Array, params: Any) -> jax.Array:
        """The rates at the beginning and at the end, by one function of both, shape `(2, ndx of the states)`."""
        start, first, _, end = self.points(x, chosen)
        at = jnp.stack([jnp.zeros_like(z), z]), jnp.stack([first, end])
        return jax.vmap(lambda z, u: self.along(start, z, u, params))(*at)

    def middle(self, x: jax.Array, chosen: jax.Array, z: jax.Array, params: Any, h: jax.Array) -> jax.Array:
        """The coordinates of the middle of an interval that ends at `z`."""
        if self.method == "midpoint":
            return 0.5 * z
        g = self.ends(x, chosen, z, params)
        return 0.5 * z + 0.125 * h * (g[0] - g[1])

    def defect(
        self, x: jax.Array, chosen: jax.Array, z: jax.Array, params: Any, h: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """What the equation of the interval misses, shape `(ndx of the states,)`, and the coordinates of its middle."""
        start, _, mid, _ = self.points(x, chosen)
        if self.method == "midpoint":
            return z - h * self.along(start, 0.5 * z, mid, params), 0.5 * z
        g = self.ends(x, chosen, z, params)
        halfway = 0.5 * z + 0.125 * h * (g[0] - g[1])
        if self.method == "trapezoid":
            return z - 0.5 * h * (g[0] + g[1]), halfway
        return z - h / 6.0 * (g[0] + 4.0 * self.along(start, halfway, mid, params) + g[1]), halfway

    def step(self, x: jax.Array, u: jax.Array, params: tuple, dt: jax.Array) -> jax.Array:
        """`params`: the problem's, with the length of the interval."""

        def equation(z: jax.Array) -> tuple[jax.Array, jax.Array]:
            return self.defect(x, u, z, params[0], dt)[0], z[:0]

        zero = jnp.zeros(self.base.ndx, x.dtype)
        z, _ = root(equation, jax.jacfwd(lambda z: equation(z)[0]), zero, STEPS)
        start, _, _, end = self.points(x, u)
        return jnp.concatenate([self.base.integrate(start, z), end])


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
) -> Problem:
    """A problem of optimal control in continuous time, by collocation.

    **Arguments:**

    - `dynamics`: an `o.plant`: of a model, whose stepper is not looked at; or of a function, which is then
      `rate(x, u, params)`, the velocity of the state in its tangents; or an `o.inverse_plant`, which has the
      optima of its model and compiles sooner (the Jacobian of a turning body's program in 12 s instead of 36).
    - `x0`: the first state; `dt`: the length of each interval [s], shape `(N,)`.
    - `method`: `"hermite_simpson"`, of fourth order, `"trapezoid"` or `"midpoint"`, of second.
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
        refuse_closed(dynamics.model, dynamics.stepper)  # type: ignore[arg-type]
    plant, m = CollocatedPlant(dynamics, method, rate), dynamics.nu
    lengths = jnp.concatenate([jnp.zeros(1, start.dtype), steps, jnp.zeros(1, start.dtype)])
    both = 2 if method == "hermite_simpson" else 1
    if start.shape != (dynamics.nx,):
        raise ValueError(f"`x0` has shape {start.shape}, expected ({dynamics.nx},); for a batch use jax.vmap")

    def widened(limit: ArrayLike | None) -> jax.Array | None:
        return None if limit is None else jnp.tile(jnp.broadcast_to(jnp.asarray(limit, start.dtype), (m,)), both)

    return make_problem(
        plant,  # type: ignore[arg-type]
        jnp.concatenate([start, jnp.zeros(m, start.dtype)]),
        lengths[:-1],
        costs=[*(_integral(term, plant) for term in costs), *_idle(plant)],
        end_costs=[_at_node(term, plant, end=True) for term in end_costs],
        constraints=[_at_node(term, plant, end=False) for term in constraints],
        end_constraints=[_at_node(term, plant, end=True) for term in end_constraints],
        lower=widened(lower),
        upper=widened(upper),
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
        found = [jnp.ravel(jnp.asarray(term.function(x, u, params))) for x, u in at]
        if term.kind == "cost":
            return jnp.sum(jnp.stack([w * y[0] for w, y in zip(weights, found, strict=True)])) * h * term.weight
        return jnp.concatenate([jnp.sqrt(w * h * term.weight) * y for w, y in zip(weights, found, strict=True)])

    if term.activation is not None:
        raise ValueError("a rate of cost by `residual` has no `activation` here: use `cost`")
    return Term(values, jnp.ones(()), None, term.kind)


def _idle(plant: CollocatedPlant) -> tuple[Term, ...]:
    """What the interval of no length need not choose is zero there, so that it is known."""

    def unused(x: jax.Array, chosen: jax.Array, known: Any) -> jax.Array:
        _, _, mid, end = plant.points(x, chosen)
        return jnp.where(known[1] > 0, 0.0, end if plant.method == "midpoint" else mid - end)

    return () if plant.method == "trapezoid" else (Term(unused, jnp.ones(()), None, "residual"),)


def _at_node(term: Term, plant: CollocatedPlant, *, end: bool) -> Term:
    n = plant.base.nx

    def at_end(x: jax.Array, known: Any) -> jax.Array:
        return term.function(x[:n], known[0])

    def on_path(x: jax.Array, chosen: jax.Array, known: Any) -> jax.Array:
        return term.function(x[:n], plant.points(x, chosen)[1], known[0])

    return Term(at_end if end else on_path, term.weight, term.activation, term.kind)


class Nodes(NamedTuple):
    """A trajectory at the nodes of a collocation."""

    time: jax.Array
    """[s], from zero, shape `(N + 1,)`."""
    states: jax.Array
    """Shape `(N + 1, nx)`."""
    controls: jax.Array
    """Shape `(N + 1, nu)`; by the rule of the midpoint those of each interval, the last twice."""
    middles: jax.Array
    """The controls in the middle of each interval, shape `(N, nu)`."""


def guess(problem: Problem, states: ArrayLike, controls: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """`controls, states` as `o.solve` takes them, of states `(N + 1, nx)` and controls `(N + 1, nu)` at the nodes."""
    plant = problem.plant
    assert isinstance(plant, CollocatedPlant)
    x, u = jnp.asarray(states, problem.x0.dtype), jnp.asarray(controls, problem.x0.dtype)
    for name, given, width in (("states", x, plant.base.nx), ("controls", u, plant.base.nu)):
        if given.shape != (problem.knots, width):
            raise ValueError(f"`{name}` has shape {given.shape}, expected ({problem.knots}, {width}), a row per node")
    before = jnp.concatenate([u[:1], u[:-1]])
    chosen = jnp.concatenate([0.5 * (before + u), u], axis=1) if plant.method == "hermite_simpson" else u
    knots = jnp.concatenate([jnp.concatenate([x[:1], x]), jnp.concatenate([jnp.zeros_like(u[:1]), u])], axis=1)
    return chosen, knots


def nodes(problem: Problem, result: Result) -> Nodes:
    """A result of a collocation at its nodes."""
    plant = problem.plant
    assert isinstance(plant, CollocatedPlant)
    n = plant.base.nx
    x = result.states[1:]
    time = jnp.concatenate([jnp.zeros(1, x.dtype), jnp.cumsum(problem.dt[1:])])
    mid = jax.vmap(lambda x, u: plant.points(x, u)[2])(result.states[1:-1], result.controls[1:])
    return Nodes(time, x[:, :n], x[:, n:], mid)


class Refined(NamedTuple):
    """A finer mesh and what is known on it."""

    problem: Problem
    controls: jax.Array
    states: jax.Array
    error: np.ndarray
    """Of each interval of the old mesh: how far its end is from that of two halves, shape `(N,)`."""


def refine(problem: Problem, result: Result, tolerance: float) -> Refined:
    """The problem on a mesh whose intervals are halved where the result errs by more than `tolerance`, with a guess.

    The error of an interval is the largest entry of the tangent between its end and that of two halves with the same
    controls. Not for `jax.jit`, since what it returns depends on numbers; where nothing errs, it is the problem itself.
    """
    plant = problem.plant
    assert isinstance(plant, CollocatedPlant)
    n, found = plant.base.nx, nodes(problem, result)
    lengths = problem.dt[1:]
    whole, chosen = result.states[1:-1], result.controls[1:]

    @jax.vmap
    def halves(x: jax.Array, u: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        _, first, mid, end = plant.points(x, u)
        quarters = (0.375 * first + 0.75 * mid - 0.125 * end, 0.375 * end + 0.75 * mid - 0.125 * first)
        if plant.method != "hermite_simpson":
            first_half, second_half = mid, end
        else:
            first_half, second_half = (jnp.concatenate(pair) for pair in zip(quarters, (mid, end), strict=True))
        known = problem.params, 0.5 * h
        between = plant.step(x, first_half, known, 0.5 * h)
        after, once = plant.step(between, second_half, known, 0.5 * h), plant.step(x, u, (problem.params, h), h)
        return between[:n], mid, jnp.max(jnp.abs(plant.base.difference(once[:n], after[:n])))

    between, mid, error = (np.asarray(part) for part in halves(whole, chosen, lengths))
    rough = np.flatnonzero(~(error <= tolerance))
    if not len(rough):
        return Refined(problem, result.controls, result.states, error)
    steps = np.repeat(np.asarray(lengths), 1 + np.isin(np.arange(len(lengths)), rough))
    steps[rough + np.arange(len(rough))] *= 0.5
    steps[rough + np.arange(len(rough)) + 1] *= 0.5
    states = np.insert(np.asarray(found.states), rough + 1, between[rough], axis=0)
    controls = np.insert(np.asarray(found.controls), rough + 1, mid[rough], axis=0)
    padded = jnp.pad(jnp.asarray(steps, lengths.dtype), 1)
    limits = problem.limits
    if limits is not None:
        limits = tuple(jnp.broadcast_to(limit[0], (len(steps) + 1, plant.nu)) for limit in limits)
    finer = dataclasses.replace(problem, dt=padded[:-1], per_knot=padded, limits=limits)
    return Refined(finer, *guess(finer, states, controls), error)
