"""Model-predictive control: a trajectory that is made anew at every tick, from what it was at the last.

    plan_0 = start(problem, result)      plan_t+1 = replan(problem, plan_t, x_t)      u(x) = command(problem, plan_t, x)

A tick is one step of time of the problem. What is known moves up by a knot: states, controls, gains, multipliers; the
last control is repeated with its feedback. From there the solver takes a fixed number of iterations with the measured
state as the first: mostly one, the real-time iteration of Diehl, Bock & Schloeder 2005, since what is left over is done
at the next tick. Where that gives nothing finite, the plan stands as it was moved up, and its gains still answer. All
is pure functions of pytrees: a closed loop is a `lax.scan`, a batch of them `jax.vmap`, and every tick one program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.linear.matrices import product
from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.problem import Multipliers, Problem
from dynax.optimize.result import Result, Status
from dynax.optimize.shooting import Options, iterated


@pytree_dataclass()
class Plan:
    """A trajectory to follow from now on; `print` it."""

    states: jax.Array
    """Shape `(N + 1, nx)`."""
    controls: jax.Array
    """Shape `(N, nu)`."""
    gains: jax.Array
    """Shape `(N, nu, ndx)`."""
    costates: jax.Array
    multipliers: Multipliers
    status: jax.Array
    """A `Status`, that of the last tick: mostly `ITERATIONS`, as it is given no time to converge."""
    missed: jax.Array
    """Ticks since there was something finite; 0 if it is that of the last."""

    def __str__(self) -> str:
        names = [Status(int(s)).name.lower().replace("_", " ") for s in jnp.unique(self.status)]
        return f"plan of {self.controls.shape[-2]} knots: {', '.join(names)}, missed ticks {int(jnp.max(self.missed))}"

    __repr__ = __str__


def start(result: Result) -> Plan:
    """The plan that follows a solution found at leisure."""
    return Plan(
        result.states, result.controls, result.gains, result.costates, result.multipliers, result.status,
        jnp.zeros_like(result.status),
    )  # fmt: skip


def moved_up(problem: Problem, plan: Plan) -> Plan:
    """The same plan a knot later."""

    def later(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x[1:], x[-1:]])

    x, plant = plan.states, problem.plant
    last = plan.controls[-1] + product(plan.gains[-1], plant.difference(x[-2], x[-1]))
    last = last if problem.limits is None else jnp.clip(last, problem.limits[0][-1], problem.limits[1][-1])
    row = problem.params
    if problem.per_knot is not None:
        row = row, jax.tree.map(lambda rows: rows[-1], problem.per_knot)
    return Plan(
        states=jnp.concatenate([x[1:], plant.step(x[-1], last, row, problem.dt[-1])[None]]),
        controls=jnp.concatenate([plan.controls[1:], last[None]]),
        gains=later(plan.gains),
        costates=later(plan.costates),
        multipliers=plan.multipliers._replace(path=later(plan.multipliers.path)),
        status=plan.status,
        missed=plan.missed + 1,
    )


def replan(problem: Problem, plan: Plan, x: ArrayLike, *, iterations: int = 1) -> Plan:
    """The plan one step of time later, from where the robot is then.

    **Arguments:** `problem`: with steps of equal length; its targets, weights and rows of `per_knot` may be others at
    every tick, its first state is not looked at; `plan`: of the last tick; `x`: the measured state, shape `(nx,)`;
    `iterations`: at most so many.

    **Returns:** a `Plan`. `missed` counts ticks of which nothing was finite, `x` perhaps.
    """
    old, measured = moved_up(problem, plan), jnp.asarray(x, plan.states.dtype)
    if measured.shape != plan.states.shape[1:]:
        raise ValueError(f"`x` has shape {measured.shape}, expected {plan.states.shape[1:]}; for a batch use jax.vmap")
    if iterations < 1:
        raise ValueError(f"`iterations` is {iterations}, expected at least 1")
    eps = float(jnp.finfo(measured.dtype).eps)
    found = iterated(
        dataclasses.replace(problem, x0=measured), old.states, old.controls, old.multipliers, old.costates,
        jnp.asarray(30 * eps, measured.dtype), jnp.asarray(eps**0.5, measured.dtype), Options(False, iterations, 10),
    )  # fmt: skip
    new = start(found)
    parts = new.states, new.controls, new.gains, new.costates, new.multipliers
    good = found.status != Status.NOT_FINITE
    for part in jax.tree.leaves(parts):
        good = good & jnp.all(jnp.isfinite(part))
    kept: Any = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)
    return Plan(kept.states, kept.controls, kept.gains, kept.costates, kept.multipliers, new.status, kept.missed)


def command(problem: Problem, plan: Plan, x: ArrayLike, part: ArrayLike = 0.0) -> jax.Array:
    """The control at a measured state, within the limits: `u + K difference(planned, x)`, shape `(nu,)`; without
    feedback where the state is not finite.

    `part`: of the tick that has passed, from 0 to 1, where it is asked for more often than there are ticks; the planned
    state is between those of two knots.
    """
    plant, (now, after) = problem.plant, plan.states[:2]
    planned = plant.integrate(now, jnp.asarray(part, now.dtype) * plant.difference(now, after))
    away = plant.difference(planned, jnp.asarray(x, now.dtype))
    away = jnp.where(jnp.all(jnp.isfinite(away)), away, 0.0)
    u = plan.controls[0] + product(plan.gains[0], away)
    return u if problem.limits is None else jnp.clip(u, problem.limits[0][0], problem.limits[1][0])
