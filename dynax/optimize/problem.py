"""A problem of optimal control, an immutable pytree: all numbers are leaves, so a batch of problems is `jax.vmap`.

    min  sum_k cost(x_k, u_k) + end_cost(x_N)     x_k+1 = step(x_k, u_k)     lower <= u_k <= upper
    equalities  h(x_k, u_k) = 0, h(x_N) = 0       inequalities  g(x_k, u_k) <= 0, g(x_N) <= 0

Costs are sums of terms as they are given: no step of time is put in. Derivatives are taken along the tangent space.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from dynax.linear.matrices import product
from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.elsewhere import Elsewhere, taken
from dynax.optimize.inverse_plant import InversePlant
from dynax.optimize.plant import FunctionPlant, ModelPlant


@pytree_dataclass("function", "activation", "kind")
class Term:
    """A part of the cost, made by `cost` or `residual`; or a constraint, made by `equality` or `inequality`."""

    function: Callable
    weight: jax.Array
    activation: Callable | None
    kind: str

    def found(self, *args: Any) -> jax.Array:
        """What the function gives, in the type of the state."""
        return jnp.asarray(self.function(*args)).astype(args[0].dtype)

    def value(self, *args: Any) -> jax.Array:
        found = self.found(*args)
        if self.kind == "residual":
            found = jnp.ravel(found)
            found = 0.5 * found * found if self.activation is None else self.activation(found)
        return jnp.sum(self.weight.astype(found.dtype) * found)


def cost(function: Callable, weight: ArrayLike = 1.0) -> Term:
    """`weight * function(x, u, params)`, or `function(x, params)` at the end; a scalar with second derivatives."""
    return Term(function, jnp.asarray(weight, float), None, "cost")


def residual(function: Callable, weight: ArrayLike = 1.0, activation: Callable | None = None) -> Term:
    """`sum of weight * activation(r)` over the entries of `r = function(x, u, params)`, or of `(x, params)` at the end.

    `activation`: of each entry, convex; `r^2 / 2` by default. The curvature of `r` itself is left out (Gauss-Newton),
    so that no solver meets a cost which bends the wrong way. `weight`: a scalar, or one for each entry, not negative
    (`ValueError`).
    """
    weights = jnp.asarray(weight, float)
    if not isinstance(weights, Tracer) and not np.all(np.asarray(weights) >= 0):
        raise ValueError(f"`weight` of a residual is {weight}, expected zero or more, with which squares are added")
    return Term(function, weights, activation, "residual")


def equality(function: Callable) -> Term:
    """`function(x, u, params) = 0`, or of `(x, params)` at the end, entry by entry."""
    return Term(function, jnp.ones(()), None, "equality")


def inequality(function: Callable) -> Term:
    """`function(x, u, params) <= 0`, or of `(x, params)` at the end, entry by entry."""
    return Term(function, jnp.ones(()), None, "inequality")


@pytree_dataclass()
class Problem:
    """Made by `problem`."""

    plant: FunctionPlant | ModelPlant | InversePlant
    x0: jax.Array
    dt: jax.Array
    """The step of each knot [s], shape `(N,)`."""
    params: Any
    per_knot: Any
    """Trees of arrays with a row for each of the `N + 1` knots, or `None`."""
    costs: tuple[Term, ...]
    end_costs: tuple[Term, ...]
    constraints: tuple[Term, ...]
    end_constraints: tuple[Term, ...]
    limits: tuple[jax.Array, jax.Array] | None
    """Lower and upper limits of the controls, each of shape `(N, nu)`."""
    elsewhere: Elsewhere
    """Traced numbers that functions take from elsewhere than their arguments."""

    @property
    def knots(self) -> int:
        return self.dt.shape[-1]

    @property
    def known_axes(self) -> Any:
        """For `vmap` over the knots of what functions get as `params`."""
        return None if self.per_knot is None else (None, 0)

    def known_rows(self, end: bool) -> Any:
        """Those of the end, or of all knots before it."""
        if self.per_knot is None:
            return self.params
        return self.params, jax.tree.map(lambda x: x[-1] if end else x[:-1], self.per_knot)


def problem(
    plant: FunctionPlant | ModelPlant | InversePlant,
    x0: ArrayLike,
    dt: ArrayLike,
    *,
    knots: int | None = None,
    costs: Sequence[Term] = (),
    end_costs: Sequence[Term] = (),
    constraints: Sequence[Term] = (),
    end_constraints: Sequence[Term] = (),
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    params: Any = None,
    per_knot: Any = None,
) -> Problem:
    """A problem of optimal control.

    **Arguments:**

    - `plant`: made by `plant`; `x0`: the first state, shape `(nx,)`, for a model `[q, v]`.
    - `dt`: the step [s], a scalar with `knots`, or shape `(N,)`. A plant of a function takes its own from `params`.
    - `costs`, `constraints`: terms of functions of `(x, u, params)`; `end_costs`, `end_constraints`: of `(x, params)`.
    - `lower`, `upper`: of the controls, shape `(nu,)` or `(N, nu)`; a scalar for all.
    - `params`: whatever the functions take: weights, targets, lengths to be designed.
    - `per_knot`: trees of arrays of `N + 1` rows; functions then get `(params, row)` in the place of `params`.

    `ValueError` for shapes that do not fit, with the part's name.
    """
    if not isinstance(plant, FunctionPlant | ModelPlant | InversePlant) and not hasattr(plant, "ndx"):
        raise ValueError(f"`plant` is {plant!r}, expected one made by o.plant, o.inverse_plant or the like")
    start = jnp.asarray(x0)
    start = start if jnp.issubdtype(start.dtype, jnp.floating) else start.astype(float)
    steps = jnp.asarray(dt, start.dtype)
    if knots is not None and (isinstance(knots, bool) or not isinstance(knots, int | np.integer) or knots < 0):
        raise ValueError(f"`knots` is {knots!r}, expected a whole number, at least 1")
    if steps.ndim == 0 and knots is not None:
        steps = jnp.broadcast_to(steps, (knots,))
    if steps.ndim != 1 or (knots is not None and steps.shape != (knots,)):
        raise ValueError(f"`dt` has shape {steps.shape}, expected (N,), or a scalar with `knots`, which is {knots}")
    if not len(steps):
        raise ValueError("`knots` is 0: a problem has at least one step")
    if not isinstance(steps, Tracer) and not np.all(np.isfinite(steps)):
        raise ValueError(f"`dt` is not finite at knot {int(np.argmin(np.isfinite(steps)))}")
    if isinstance(plant, ModelPlant | InversePlant) and not isinstance(steps, Tracer) and np.any(steps <= 0.0):
        row = int(np.argmin(steps > 0.0))
        raise ValueError(f"`dt` is {steps[row]} at knot {row}, expected the length of a step [s], positive")
    if start.shape != (plant.nx,):
        raise ValueError(f"`x0` has shape {start.shape}, expected ({plant.nx},); for a batch use jax.vmap")
    N = len(steps)
    for path, leaf in jax.tree_util.tree_leaves_with_path(per_knot):
        if jnp.shape(leaf)[:1] != (N + 1,):
            name = jax.tree_util.keystr(path)
            raise ValueError(f"`per_knot`{name} has shape {jnp.shape(leaf)}, expected {N + 1} rows")
    limits = None
    if lower is not None or upper is not None:
        limits = (
            _limit("lower", -jnp.inf if lower is None else lower, N, plant.nu, start.dtype),
            _limit("upper", jnp.inf if upper is None else upper, N, plant.nu, start.dtype),
        )
        if not any(isinstance(limit, Tracer) for limit in limits):
            rows, entries = np.nonzero(~np.asarray(limits[0] <= limits[1]))
            if len(rows):
                raise ValueError(f"`lower` is not below `upper` for control {entries[0]} of knot {rows[0]}")
    groups = {"costs": costs, "end_costs": end_costs, "constraints": constraints, "end_constraints": end_constraints}
    for name, terms in groups.items():
        if isinstance(terms, Term):
            raise ValueError(f"`{name}` is one term, expected a list: [{terms.kind}(...)]")
    params = jax.tree_util.tree_map_with_path(_number, params)
    path, end = (tuple(costs), tuple(constraints)), (tuple(end_costs), tuple(end_constraints))
    found = Problem(plant, start, steps, params, per_knot, path[0], end[0], path[1], end[1], limits, {})
    return dataclasses.replace(found, elsewhere=_check(found))


def _number(path: Any, leaf: Any) -> jax.Array:
    try:
        return jnp.asarray(leaf)
    except (TypeError, ValueError):
        raise ValueError(f"`params`{jax.tree_util.keystr(path)} is {leaf!r}, expected numbers") from None


def _limit(name: str, given: ArrayLike, N: int, nu: int, dtype: Any) -> jax.Array:
    limit = jnp.asarray(given, dtype)
    if limit.shape not in ((), (nu,), (N, nu)):
        raise ValueError(f"`{name}` has shape {limit.shape}, expected ({nu},) or ({N}, {nu})")
    return jnp.broadcast_to(limit, (N, nu))


@contextmanager
def _named(part: str, arguments: str) -> Iterator[None]:
    """Says whose function it was that raised."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {part} of o.problem, which is called with {arguments}")
        raise


def _check(p: Problem) -> Elsewhere:
    """Every function once, by shapes alone; what they take from elsewhere."""
    elsewhere: Elsewhere = {}
    own = {id(leaf) for leaf in jax.tree.leaves(p.plant)}  # which terms of a collocation read as well

    def shape_of(part: str, function: Callable, *args: Any) -> tuple[int, ...]:
        found, gives = taken(function, *args)
        if found := [x for x in found if id(x) not in own]:
            elsewhere[part] = found
        return gives.shape

    x, u = jnp.zeros(p.plant.nx, p.x0.dtype), jnp.zeros(p.plant.nu, p.x0.dtype)
    row = p.params if p.per_knot is None else (p.params, jax.tree.map(lambda x: jnp.asarray(x)[0], p.per_knot))
    with _named("the plant's step", "(x, u, params)"):
        moved = shape_of("the plant's step", p.plant.step, x, u, row, p.dt[0])
    if moved != x.shape:
        raise ValueError(f"the plant's step gives shape {moved}, expected {x.shape}, that of the state")
    groups = {
        "costs": (("cost", "residual"), (x, u, row)),
        "end_costs": (("cost", "residual"), (x, row)),
        "constraints": (("equality", "inequality"), (x, u, row)),
        "end_constraints": (("equality", "inequality"), (x, row)),
    }
    for name, (kinds, args) in groups.items():
        for k, term in enumerate(getattr(p, name)):
            if not isinstance(term, Term) or term.kind not in kinds:
                raise ValueError(f"`{name}[{k}]` is {term!r}, expected one made by {' or '.join(kinds)}")
            with _named(f"`{name}[{k}]`", "(x, u, params)" if len(args) == 3 else "(x, params)"):
                shape = shape_of(f"`{name}[{k}]`", term.found, *args)
                if term.activation is not None:
                    shape_of(f"the activation of `{name}[{k}]`", term.activation, x[:1])
            if term.kind == "cost" and shape != ():
                raise ValueError(f"`{name}[{k}]` gives shape {shape}, expected a scalar; or use `residual`")
            if len(shape) > 1 or (term.kind == "residual" and term.weight.shape not in ((), shape or (1,))):
                raise ValueError(f"`{name}[{k}]` gives shape {shape} for a weight of shape {term.weight.shape}")
    return elsewhere


class Multipliers(NamedTuple):
    """Of the constraints, and how hard they are penalised."""

    path: jax.Array
    """Shape `(N, nc)`."""
    end: jax.Array
    """Shape `(ne,)`."""
    penalty: jax.Array


def stacked(terms: tuple[Term, ...], args: tuple) -> jax.Array:
    """All constraints of a knot in one vector."""
    parts = [jnp.ravel(term.found(*args)) for term in terms]
    return jnp.concatenate(parts) if parts else jnp.zeros(0, args[0].dtype)


def one_sided(terms: tuple[Term, ...], args: tuple) -> jax.Array:
    """Which of them are inequalities."""
    parts = [jnp.full(jnp.size(term.found(*args)), term.kind == "inequality") for term in terms]
    return jnp.concatenate(parts) if parts else jnp.zeros(0, bool)


def pressed(terms: tuple[Term, ...], args: tuple, multipliers: jax.Array, penalty: jax.Array) -> jax.Array:
    """`h + multiplier / penalty`, of inequalities what is positive: half its square by the penalty is the augmented
    Lagrangian but for a constant (Nocedal & Wright 2006, section 17.4)."""
    found = stacked(terms, args) + multipliers / penalty
    return jnp.where(one_sided(terms, args) & (found < 0), 0.0, found)


def cost_of(costs: tuple[Term, ...], args: tuple) -> jax.Array:
    """Of one knot."""
    return sum((term.value(*args) for term in costs), jnp.zeros((), args[0].dtype))


def penalty_of(terms: tuple[Term, ...], args: tuple, multipliers: jax.Array, penalty: jax.Array) -> jax.Array:
    """What the augmented Lagrangian adds to the cost of one knot."""
    found = pressed(terms, args, multipliers, penalty)
    return 0.5 * penalty * jnp.sum(found * found)


def value(costs: tuple[Term, ...], terms: tuple[Term, ...], args: tuple, multipliers, penalty) -> jax.Array:
    """Costs and augmented Lagrangian of one knot."""
    return cost_of(costs, args) + penalty_of(terms, args, multipliers, penalty)


def told(*args: Any) -> tuple:
    """What terms get: states, controls and what all know, where what is known of the step is put."""
    if len(args) <= 3:
        return args
    x, u, *known, row = args
    return x, u, (*row, *known)


class Quadratic(NamedTuple):
    """What is known of `value` at a point."""

    plain: jax.Array
    """Without what penalises constraints."""
    value: jax.Array
    slope: jax.Array
    curvature: jax.Array


def quadratic(
    costs: tuple[Term, ...],
    terms: tuple[Term, ...],
    args: tuple,
    directions: tuple,
    curved: Callable,
    multipliers,
    penalty,
) -> Quadratic:
    """`value`, its slope and its Gauss-Newton curvature along `directions` of what moves of the arguments `args`: all
    but the last; terms get them as `told` puts them. `curved(function)` gives a number of what terms get where nothing
    is known of the step, its slope and its curvature."""
    size, dtype = len(directions[0]), multipliers.dtype
    total, slope, curvature = jnp.zeros((), dtype), jnp.zeros(size, dtype), jnp.zeros((size, size), dtype)

    def add(function: Callable, outer: Callable) -> None:
        nonlocal total, slope, curvature
        along = partial(jax.jvp, lambda *moving: function(told(*moving, args[-1])), args[:-1])
        r, J = jax.vmap(along, out_axes=(None, 1))(directions)
        found, first = jax.value_and_grad(lambda r: jnp.sum(outer(r)))(r)
        bend = jax.jvp(jax.grad(lambda r: jnp.sum(outer(r))), (r,), (jnp.ones_like(r),))[1]  # entry by entry
        total, slope = total + found, slope + product(first, J)
        curvature = curvature + product(J.T, bend[:, None] * J)

    for term in costs:
        if term.kind == "cost":
            found, first, bend = curved(term.value)
            total, slope, curvature = total + found, slope + first, curvature + bend
        else:
            square = term.activation or (lambda r: 0.5 * r * r)
            weigh = lambda r, w=term.weight, a=square: w.astype(r.dtype) * a(r)  # noqa: E731
            add(lambda args, term=term: jnp.ravel(term.found(*args)), weigh)
    plain = total
    if terms:
        add(lambda args: pressed(terms, args, multipliers, penalty), lambda r: 0.5 * penalty * r * r)
    return Quadratic(plain, total, slope, curvature)


def total_cost(problem: Problem, x: jax.Array, u: jax.Array) -> jax.Array:
    """Costs of a trajectory, without what penalises constraints."""
    row, end, axes = problem.known_rows(end=False), problem.known_rows(end=True), problem.known_axes
    stages = jax.vmap(lambda x, u, row: cost_of(problem.costs, (x, u, row)), (0, 0, axes))
    return jnp.sum(stages(x[:-1], u, row)) + cost_of(problem.end_costs, (x[-1], end))


def penalised(problem: Problem, x: jax.Array, u: jax.Array, weight: jax.Array) -> jax.Array:
    """Costs, and half the square of what violates constraints by `weight`."""
    row, end, axes = problem.known_rows(end=False), problem.known_rows(end=True), problem.known_axes

    def knot(terms: tuple[Term, ...], constraints: tuple[Term, ...], args: tuple) -> jax.Array:
        nothing = jnp.zeros(len(one_sided(constraints, args)), x.dtype)
        return value(terms, constraints, args, nothing, weight)

    stages = jax.vmap(lambda *args: knot(problem.costs, problem.constraints, args), (0, 0, axes))
    return jnp.sum(stages(x[:-1], u, row)) + knot(problem.end_costs, problem.end_constraints, (x[-1], end))
