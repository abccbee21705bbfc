"""The last digits of a solution: Newton's steps in all conditions of optimality at once, with those kept that press.

An augmented Lagrangian comes to its constraints by factors, and a solver stops where a step promises nothing more: half
of all digits are then right. From there `F_z dz = -F` of `implicit` doubles them with every step (the projected Newton
step of Howell, Jackson & Manchester 2019, "ALTRO"; here multipliers move with the rest).
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from dynax.optimize.implicit import Point, conditions, held, left_over, masked, point_of, sides, solved, system_of
from dynax.optimize.problem import Problem, total_cost
from dynax.optimize.result import Result
from dynax.sweep.scan import settled

STEPS = 3


@jax.jit
def polish(problem: Problem, result: Result) -> Result:
    """A converged result with its last digits: gaps, constraints and slopes met to rounding where `F_z` allows it.

    Of a few steps of Newton the best point is kept, be it the first, so that nothing gets worse; each costs the
    curvature of the Lagrangian, as `second_order` does. Gains, history and derivatives stay those of `solve`.
    """
    fixed, first = lax.stop_gradient((problem, point_of(result)))

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        now, best, least = carry
        new, miss = _newton(fixed, now)
        better = miss < least
        return (new, jax.tree.map(partial(jnp.where, better), now, best), jnp.where(better, miss, least)), None

    start = settled(lambda carry: step(carry, None)[0], (first, first, jnp.asarray(jnp.inf, first.x.dtype)))
    (_, best, _), _ = lax.scan(step, start, None, length=STEPS + 1)
    # As changes, so that what comes of `result` keeps its derivatives.
    change = jax.vmap(problem.plant.difference)(first.x, best.x)
    states = jax.vmap(problem.plant.integrate)(result.states, change)
    slopes, (path, end) = conditions(fixed, best), sides(fixed, best)
    rows = (slopes.path, path), (slopes.end, end)
    misses = jnp.concatenate([jnp.zeros(1), *(jnp.ravel(jnp.where(s, jnp.maximum(x, 0), jnp.abs(x))) for x, s in rows)])
    controls = result.controls + (best.u - first.u)
    multipliers = result.multipliers
    return dataclasses.replace(
        result,
        states=states,
        controls=controls,
        costates=result.costates + (best.costates - first.costates),
        multipliers=multipliers._replace(
            path=multipliers.path + (best.path - first.path), end=multipliers.end + (best.end - first.end)
        ),
        cost=total_cost(problem, states, controls),
        gap=jnp.max(jnp.abs(slopes.costates)),
        violation=jnp.max(misses),
        residual=left_over(fixed, best.u, best.costates, slopes.x, slopes.u),
    )


def _newton(problem: Problem, p: Point) -> tuple[Point, jax.Array]:
    """The point after a step, and the largest miss before it, of dynamics, constraints and slopes."""
    slopes = conditions(problem, p)
    low, high = held(problem, p.u, slopes.u)
    system = system_of(problem, p, low | high)
    push = masked(system, slopes)
    miss = jnp.max(jnp.concatenate([jnp.ravel(jnp.abs(x)) for x in (push.costates, push.path, push.end)]))
    step = solved(system, jax.tree.map(jnp.negative, push))
    u = p.u + step.u if problem.limits is None else jnp.clip(p.u + step.u, *problem.limits)
    new = Point(
        jax.vmap(problem.plant.integrate)(p.x, step.x), u,
        p.costates + step.costates, p.path + step.path, p.end + step.end,
    )  # fmt: skip
    return new, jnp.maximum(miss, left_over(problem, p.u, p.costates, slopes.x, slopes.u))
