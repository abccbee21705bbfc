"""Phases: problems one after the other, with a jump from the end of each to the start of the next.

    x_0 of the next = jump(x_N, params)       an impact, a stage that falls off, other dynamics, costs, constraints

The whole is one problem again: a stage for each phase and one knot for each jump, where the end costs and end
constraints of the phase before it count. Which stage a knot belongs to is a number of its row, by which the step
switches; what belongs to other stages is zero there. So the schedule is fixed, and the durations of phases that are
collocations with `free_time` are chosen with the motion (hybrid optimal control with a known sequence: Betts 2010,
section 4.11; Howell, Jackson & Manchester 2019).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.typing import ArrayLike

from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.interval import CollocatedPlant
from dynax.optimize.plant import FunctionPlant, Linearized, linearized
from dynax.optimize.problem import Problem, Term, stacked, total_cost
from dynax.optimize.problem import problem as make_problem
from dynax.optimize.result import Result


@pytree_dataclass("jumps")
class PhasedPlant:
    """Made by `phases`: the plants of the phases; what they are given is `(params of each, (stage, rows of each))`."""

    plants: tuple
    jumps: tuple[Callable | None, ...]

    @property
    def nx(self) -> int:
        return self.plants[0].nx

    @property
    def ndx(self) -> int:
        return self.plants[0].ndx

    @property
    def nu(self) -> int:
        return max(plant.nu for plant in self.plants)

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        return self.plants[0].integrate(x, dx)

    @property
    def pulled(self) -> Callable | None:
        return getattr(self.plants[0], "pulled", None)

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        return self.plants[0].difference(x0, x1)

    @property
    def stages(self) -> list:
        """Phases and jumps as plants, in their order; a jump has no controls."""
        found = [self.plants[0]]
        for k, after in enumerate(self.plants[1:]):
            jump = FunctionPlant(self._jump(k), self.nx, 0, self.ndx, self.integrate, self.difference)
            found += [jump, after]
        return found

    def _jump(self, k: int) -> Callable:
        jump, (before, after) = self.jumps[k], self.plants[k : k + 2]
        if jump is None:
            jump = lambda x, params: x  # noqa: E731
        if not isinstance(after, CollocatedPlant):
            return lambda x, u, known: jump(x, known)
        # A collocation's first interval, of no length, chooses what follows the state.
        n, rest = before.base.nx, np.array([0.0] * after.base.nu + [1.0] * after.free)

        def enter(x: jax.Array, u: jax.Array, known: Any) -> jax.Array:
            return jnp.concatenate([jnp.asarray(jump(x[:n], known[0])).astype(x.dtype), rest.astype(x.dtype)])

        return enter

    def _switched(self, function: Callable, u: jax.Array, known: tuple) -> Any:
        """`function(plant, u, known)` of the stage."""

        def of(s: int, plant: Any) -> Callable:
            return lambda u, known: function(plant, u[: plant.nu], seen(known, s // 2))

        return lax.switch(known[1][0], [of(s, plant) for s, plant in enumerate(self.stages)], u, known)

    def step(self, x: jax.Array, u: jax.Array, params: tuple, dt: jax.Array) -> jax.Array:
        return self._switched(lambda plant, u, known: plant.step(x, u, known, dt), u, params)

    def linearized(self, x, u, after, params, dt, costate) -> Linearized:
        """As `plant.linearized`, each stage in its own way."""

        def own(plant: Any, u: jax.Array, known: Any) -> tuple:
            c, J, H = linearized(plant, x, u, after, known, dt, costate)
            idle = self.nu - plant.nu
            return c, jnp.pad(J, ((0, 0), (0, idle))), None if H is None else jnp.pad(H, (0, idle))

        return self._switched(own, u, params)


def seen(known: tuple, k: int) -> Any:
    """What functions of phase `k` get as `params`."""
    (params, (_, rows)) = known
    return params[k] if rows[k] is None else (params[k], rows[k])


def phases(parts: Sequence[Problem], jumps: Sequence[Callable | None]) -> Problem:
    """Phases one after the other as one problem.

    **Arguments:**

    - `parts`: the phases, by `o.problem` or `o.collocation`, with states on one manifold; where controls are fewer the
      rest is idle. The first state of all but the first is not looked at. Of collocations with `free_time` each
      chooses its own.
    - `jumps`: from each phase to the next, one less: `jump(x, params)` gives the first state, with the `params` of the
      phase before it as its end costs get them; `None` where states go on.

    **Returns:** a `Problem` of all their knots and one for each jump; `o.joined` makes its guess of theirs, and
    `o.parted` gives their results. Its `params` and `per_knot` are those of the phases, in a tuple. Under `vmap`, and
    so over the knots of a solver, the steps of all phases are taken and one is chosen: two phases cost twice as much.

    `ValueError` where phases do not fit, with the part's name.
    """
    parts, jumps = tuple(parts), tuple(jumps)
    if len(parts) < 2 or len(jumps) != len(parts) - 1:
        raise ValueError(
            f"{len(parts)} `parts` and {len(jumps)} `jumps`, expected two parts or more, a jump between two"
        )
    first = parts[0].plant
    for k, part in enumerate(parts):
        if _states(part.plant) != _states(first):
            raise ValueError(f"`parts[{k}]` has {_states(part.plant)}, expected {_states(first)} as in `parts[0]`")
    for k, jump in enumerate(jumps):
        if jump is not None:
            _fits(jump, parts[k], f"`jumps[{k}]`")
    plant, dtype = PhasedPlant(tuple(part.plant for part in parts), jumps), parts[0].x0.dtype
    # Rows of a phase stand at its knots and, for its end, at that of its jump; elsewhere nothing looks at them.
    stage = np.concatenate([np.append(np.full(part.knots, 2 * k), 2 * k + 1) for k, part in enumerate(parts)])
    stage[-1] -= 1
    starts = np.cumsum([0, *(part.knots + 1 for part in parts)])
    rows = tuple(
        jax.tree.map(lambda x, start=start: _spread(x, start, len(stage)), part.per_knot)
        for part, start in zip(parts, starts, strict=False)
    )
    terms, last = {"costs": [_idle(plant)], "constraints": []}, len(parts) - 1
    for name, own in terms.items():
        for k, part in enumerate(parts):
            for i, term in enumerate(getattr(part, name)):
                own.append(_of_stage(term, part, k, f"`{name}[{i}]` of `parts[{k}]`"))
            for i, term in enumerate(getattr(part, f"end_{name}") if k < last else ()):
                own.append(_of_jump(term, k, f"`end_{name}[{i}]` of `parts[{k}]`"))
    lower, upper = _limits(parts, plant.nu)
    return make_problem(
        plant,  # type: ignore[arg-type]
        parts[0].x0,
        jnp.concatenate([jnp.append(part.dt, jnp.zeros(1, dtype)) for part in parts])[:-1],
        **terms,
        end_costs=[_of_end(term, last) for term in parts[-1].end_costs],
        end_constraints=[_of_end(term, last) for term in parts[-1].end_constraints],
        lower=lower,
        upper=upper,
        params=tuple(part.params for part in parts),
        per_knot=(jnp.asarray(stage), rows),
    )


def _states(plant: Any) -> str:
    kind = "states of"
    if isinstance(plant, CollocatedPlant):
        kind = f"nodes of a collocation with{'' if plant.free else 'out'} `free_time`, of"
    return f"{kind} {plant.nx} numbers and {plant.ndx} freedoms"


def _fits(jump: Callable, part: Problem, name: str) -> None:
    n, known = part.plant.nx, part.known_rows(end=True)
    if isinstance(part.plant, CollocatedPlant):
        n, known = part.plant.base.nx, known[0]
    try:
        moved = jax.eval_shape(lambda x: jnp.asarray(jump(x, known)), part.x0[:n])
    except Exception as error:
        error.add_note(f"in {name} of o.phases, which is called with (x, params)")
        raise
    if moved.shape != (n,):
        raise ValueError(f"{name} gives shape {moved.shape}, expected ({n},), that of the state")


def _spread(x: jax.Array, start: int, rows: int) -> jax.Array:
    """The rows of a phase among those of all; what stands elsewhere is not looked at."""
    x = jnp.asarray(x)
    return jnp.pad(x, ((start, rows - start - len(x)), *((0, 0) for _ in x.shape[1:])), mode="edge")


def _limits(parts: tuple[Problem, ...], nu: int) -> tuple[jax.Array | None, jax.Array | None]:
    """Those of the phases; of idle controls and at jumps none."""
    if all(part.limits is None for part in parts):
        return None, None
    sides = []
    for side, none in enumerate((-jnp.inf, jnp.inf)):
        rows = []
        for part in parts:
            own = jnp.full((part.knots, part.plant.nu), none) if part.limits is None else part.limits[side]
            rows.append(jnp.pad(own, ((0, 1), (0, nu - part.plant.nu)), constant_values=none))
        sides.append(jnp.concatenate(rows)[:-1])
    return sides[0], sides[1]


def _idle(plant: PhasedPlant) -> Term:
    """Controls that a stage does not have are zero, so that they are known."""
    idle = np.arange(plant.nu) >= np.array([[stage.nu] for stage in plant.stages])
    return Term(lambda x, u, known: jnp.where(jnp.asarray(idle)[known[1][0]], u, 0.0), jnp.ones(()), None, "residual")


def _of(term: Term, stage: int, name: str, own: Callable) -> Term:
    """`own(term, x, u, known)` at the knots of a stage; elsewhere costs and equalities are zero, inequalities hold."""

    def function(x: jax.Array, u: jax.Array, known: tuple) -> jax.Array:
        there = lambda: own(x, u, known)  # noqa: E731
        elsewhere = jnp.full(jax.eval_shape(there).shape, -1.0 if term.kind == "inequality" else 0.0, x.dtype)
        return lax.cond(known[1][0] == stage, there, lambda: elsewhere)

    if term.activation is not None:
        least = term.activation(jnp.zeros(1))
        if not isinstance(least, Tracer) and np.any(np.asarray(least) != 0):
            raise ValueError(f"the `activation` of {name} is {np.sum(least)} at zero, expected 0, what it is elsewhere")
    return Term(function, term.weight, term.activation, term.kind)


def _of_stage(term: Term, part: Problem, k: int, name: str) -> Term:
    return _of(term, 2 * k, name, lambda x, u, known: term.found(x, u[: part.plant.nu], seen(known, k)))


def _of_jump(term: Term, k: int, name: str) -> Term:
    return _of(term, 2 * k + 1, name, lambda x, u, known: term.found(x, seen(known, k)))


def _of_end(term: Term, k: int) -> Term:
    return Term(lambda x, known: term.found(x, seen(known, k)), term.weight, term.activation, term.kind)


def joined(parts: Sequence[Problem], guesses: Sequence[tuple[ArrayLike, ArrayLike]]) -> tuple[jax.Array, jax.Array]:
    """`controls, states` of the phases as `o.solve` takes them, of those of each part."""
    if len(guesses) != len(parts):
        raise ValueError(f"{len(guesses)} `guesses`, expected {len(parts)}, one of each part")
    nu, us, xs = max(part.plant.nu for part in parts), [], []
    for k, (part, (u, x)) in enumerate(zip(parts, guesses, strict=True)):
        u, x = jnp.asarray(u, part.x0.dtype), jnp.asarray(x, part.x0.dtype)
        N, plant = part.knots, part.plant
        for name, given, shape in (("controls", u, (N, plant.nu)), ("states", x, (N + 1, plant.nx))):
            if given.shape != shape:
                raise ValueError(f"{name} of `guesses[{k}]` have shape {given.shape}, expected {shape}")
        xs.append(x)
        us.append(jnp.pad(u, ((0, 1), (0, nu - plant.nu))))
    return jnp.concatenate(us)[:-1], jnp.concatenate(xs)


def parted(parts: Sequence[Problem], result: Result) -> tuple[Result, ...]:
    """The result of each phase, for `o.nodes` and whatever else reads one; status, history and the like are those of
    all. `parts`: of which the problem was made."""
    found, start, column = [], 0, 0
    path = result.multipliers.path
    for k, part in enumerate(parts):
        stop, plant = start + part.knots, part.plant
        x, u = result.states[start : stop + 1], result.controls[start:stop, : plant.nu]
        row, end = part.known_rows(end=False), part.known_rows(end=True)
        row = row if part.per_knot is None else (row[0], jax.tree.map(lambda x: x[0], row[1]))
        sizes = [
            jax.eval_shape(lambda terms=terms, args=args: stacked(terms, args)).shape[0]
            for terms, args in ((part.constraints, (x[0], u[0], row)), (part.end_constraints, (x[-1], end)))
        ]
        between = column + sizes[0]
        last = result.multipliers.end if k == len(parts) - 1 else path[stop, between : between + sizes[1]]
        found.append(
            dataclasses.replace(
                result,
                states=x,
                controls=u,
                gains=result.gains[start:stop, : plant.nu],
                costates=result.costates[start : stop + 1],
                multipliers=result.multipliers._replace(path=path[start:stop, column:between], end=last),
                cost=total_cost(part, x, u),
            )
        )
        start, column = stop + 1, between + sizes[1]
    return tuple(found)
