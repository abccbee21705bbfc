"""How a solution moves with the problem: the implicit function theorem at the conditions of optimality.

    L = costs + mu'h + sum_k lambda_k+1'(step(x_k, u_k) - x_k+1)        F(z; P) = dL/dz = 0,   z = (x, u, lambda, mu)
    F_z dz = -F_P dP

`F_z` is symmetric: it is the linear-quadratic problem of `lqr`, with the curvature of the Lagrangian for its costs and
the constraints that press for further rows; so one solution of it serves both directions of differentiation, and the
iterations that led to `z` are not looked at (Fiacco 1983, "Introduction to sensitivity and stability analysis in
nonlinear programming"; Amos et al. 2018, "Differentiable MPC"). What is at rest at its limit moves with it: controls at
their bounds are known, constraints without multiplier are left out. Rows of constraints are solved by a penalty and
refined by what that misses (the method of multipliers, Nocedal & Wright 2006, section 17.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from dynax.compile.zeros import along_moving
from dynax.linear.matrices import product
from dynax.optimize.lqr import LQ, solve_lqr
from dynax.optimize.plant import linearized
from dynax.optimize.problem import Problem, cost_of, one_sided, stacked
from dynax.optimize.result import Result
from dynax.optimize.tangents import curvature, jacobian, slope

# How often a solution is refined: a penalty of the root of rounding gains half of all digits each time.
REFINEMENTS = 2


class Point(NamedTuple):
    """What the conditions of optimality are about, or a change of it (states then by their tangents)."""

    x: jax.Array
    u: jax.Array
    costates: jax.Array
    path: jax.Array
    end: jax.Array


def point_of(result: Result) -> Point:
    """The solution that was found."""
    return Point(result.states, result.controls, result.costates, result.multipliers.path, result.multipliers.end)


class System(NamedTuple):
    """`F_z`: dynamics and curvature, rows of the constraints, and what of `u`, `mu` is free."""

    lq: LQ
    path: jax.Array
    """Shape `(N, nc, n + m)`."""
    end: jax.Array
    """Shape `(ne, n)`."""
    free: jax.Array
    pressing: jax.Array
    end_pressing: jax.Array


class Knot(NamedTuple):
    """What the Lagrangian of a knot is made of, but for its state and controls."""

    after: jax.Array
    row: Any
    dt: jax.Array
    costate: jax.Array
    path: jax.Array


def _stage_costs(problem: Problem, x: jax.Array, u: jax.Array, knot: Knot) -> tuple[jax.Array, jax.Array]:
    """Costs and weighed constraints of a knot, with the constraints."""
    args = x, u, knot.row
    found = stacked(problem.constraints, args)
    return cost_of(problem.costs, args) + jnp.sum(knot.path * found), found


def _stage(problem: Problem, x: jax.Array, u: jax.Array, knot: Knot) -> tuple[jax.Array, tuple]:
    """The Lagrangian of a knot, with its dynamics and constraints."""
    total, found = _stage_costs(problem, x, u, knot)
    ahead = problem.plant.difference(knot.after, problem.plant.step(x, u, knot.row, knot.dt))
    return total + jnp.sum(knot.costate * ahead), (ahead, found)


def _last(problem: Problem, x: jax.Array, p: Point) -> tuple[jax.Array, jax.Array]:
    args = x, problem.known_rows(end=True)
    found = stacked(problem.end_constraints, args)
    return cost_of(problem.end_costs, args) + jnp.sum(p.end * found), found


def _over_knots(problem: Problem, p: Point, function: Callable) -> Any:
    """`function(x, u, knot)` of each."""
    knots = p.x[1:], problem.known_rows(end=False), problem.dt, p.costates[1:], p.path
    each = jax.vmap(lambda x, u, *knot: function(x, u, Knot(*knot)), (0, 0, 0, problem.known_axes, 0, 0, 0))
    return each(p.x[:-1], p.u, *knots)


def conditions(problem: Problem, p: Point) -> Point:
    """`F`: slopes of the Lagrangian by each part of `p`."""
    plant, n = problem.plant, problem.plant.ndx

    def stage(x: jax.Array, u: jax.Array, knot: Knot) -> tuple[jax.Array, tuple]:
        return slope(plant, lambda x, u: _stage(problem, x, u, knot), x, u)

    stages, (gaps, path) = _over_knots(problem, p, stage)
    last, end = slope(plant, lambda x, _: _last(problem, x, p), p.x[-1], p.u[-1, :0])
    first = plant.difference(p.x[0], problem.x0)[None]
    x = jnp.concatenate([stages[:, :n], last[None]]) - p.costates
    return Point(x, stages[:, n:], jnp.concatenate([first, gaps]), path, end)


def lagrangian(problem: Problem, p: Point) -> jax.Array:
    """`L` at a point."""
    stages = _over_knots(problem, p, lambda x, u, knot: _stage(problem, x, u, knot)[0])
    first = jnp.sum(p.costates[0] * problem.plant.difference(p.x[0], problem.x0))
    return first + jnp.sum(stages) + _last(problem, p.x[-1], p)[0]


def held(problem: Problem, u: jax.Array, slopes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which controls press against their lower and upper limits; `slopes`: of the Lagrangian by them."""
    if problem.limits is None:
        nothing = jnp.zeros(u.shape, bool)
        return nothing, nothing
    lower, upper = problem.limits
    return (u <= lower) & (slopes >= 0), (u >= upper) & (slopes <= 0)


def left_over(problem: Problem, u: jax.Array, costates: jax.Array, by_x: jax.Array, by_u: jax.Array) -> jax.Array:
    """The largest slope of the Lagrangian that is left, as a part of the largest costate or slope of a control."""
    low, high = held(problem, u, by_u)
    size = jnp.maximum(jnp.max(jnp.abs(costates)), jnp.max(jnp.abs(by_u), initial=0.0))
    left = jnp.maximum(jnp.max(jnp.abs(by_x)), jnp.max(jnp.where(low | high, 0.0, jnp.abs(by_u)), initial=0.0))
    return left / jnp.where(size > 0, size, 1.0)


def sides(problem: Problem, p: Point) -> tuple[jax.Array, jax.Array]:
    """Which constraints are inequalities, along the path and at the end."""
    rows, end = problem.known_rows(end=False), problem.known_rows(end=True)
    row = rows if problem.per_knot is None else (rows[0], jax.tree.map(lambda x: x[0], rows[1]))
    return one_sided(problem.constraints, (p.x[0], p.u[0], row)), one_sided(problem.end_constraints, (p.x[-1], end))


def system_of(problem: Problem, p: Point, held: jax.Array) -> System:
    """`F_z` at a point, where those controls stay that are `held`."""
    plant, n, m, dtype = problem.plant, problem.plant.ndx, p.u.shape[-1], p.x.dtype

    def stage(x: jax.Array, u: jax.Array, knot: Knot) -> tuple:
        _, J, bend = linearized(plant, x, u, knot.after, knot.row, knot.dt, knot.costate)
        # The dynamics in the closed form that iterations use, the rest direction by direction.
        H: Any = curvature(plant, lambda x, u: _stage_costs(problem, x, u, knot)[0], x, u)[2]
        _, path = jacobian(plant, lambda x, u: stacked(problem.constraints, (x, u, knot.row)), x, u)
        return J, path, H + bend

    J, path, H = _over_knots(problem, p, stage)
    at_end = p.x[-1], p.u[-1, :0]
    _, end = jacobian(plant, lambda x, _: _last(problem, x, p)[1], *at_end)
    _, _, last = curvature(plant, lambda x, _: _last(problem, x, p)[0], *at_end)
    free = 1.0 - held.astype(dtype)
    Q, S, R, B = jnp.concatenate([H[:, :n, :n], last[None]]), H[:, :n, n:], H[:, n:, n:], J[:, :, n:]
    if problem.limits is not None:
        path = path * jnp.concatenate([jnp.ones((len(free), n), dtype), free], axis=1)[:, None]
        R = free[:, :, None] * R * free[:, None] + (1.0 - free)[:, :, None] * jnp.eye(m, dtype=dtype)
        S, B = S * free[:, None], B * free[:, None]
    nothing = jnp.zeros((len(Q), n), dtype)
    lq = LQ(J[:, :, :n], B, nothing[1:], Q, S, R, nothing, jnp.zeros_like(free))
    pressing = (
        jnp.where(side & (own <= 0), 0.0, 1.0).astype(dtype)
        for side, own in zip(sides(problem, p), (p.path, p.end), strict=True)
    )
    return System(lq, path, end, free, *pressing)


def _applied(s: System, v: Point) -> Point:
    """`F_z v`."""
    lq, along = s.lq, lambda a, b: product(a, b[..., None])[..., 0]
    turned = lambda a, b: along(jnp.swapaxes(a, -1, -2), b)  # noqa: E731
    n = v.x.shape[-1]
    both, after = jnp.concatenate([v.x[:-1], v.u], axis=-1), v.costates[1:]
    pushed, last = turned(s.path, s.pressing * v.path), turned(s.end, s.end_pressing * v.end)
    x = along(lq.Q, v.x) - v.costates
    x = x.at[:-1].add(along(lq.S, v.u) + turned(lq.A, after) + pushed[:, :n]).at[-1].add(last)
    u = turned(lq.S, v.x[:-1]) + along(lq.R, v.u) + turned(lq.B, after) + pushed[:, n:]
    gaps = along(lq.A, v.x[:-1]) + along(lq.B, v.u) - v.x[1:]
    path = s.pressing * along(s.path, both) - (1.0 - s.pressing) * v.path
    end = s.end_pressing * along(s.end, v.x[-1]) - (1.0 - s.end_pressing) * v.end
    return Point(x, u, jnp.concatenate([-v.x[:1], gaps]), path, end)


def solved(s: System, b: Point) -> Point:
    """`F_z^-1 b`; not finite where there is no such, since the point is no minimum or rows contradict each other."""
    n, eps = b.x.shape[-1], float(jnp.finfo(b.x.dtype).eps)
    rows, last = s.pressing[..., None] * s.path, s.end_pressing[:, None] * s.end
    curvature = jnp.maximum(jnp.max(jnp.abs(s.lq.Q)), jnp.max(jnp.abs(s.lq.R)))
    steep = jnp.maximum(jnp.max(jnp.abs(rows), initial=0.0), jnp.max(jnp.abs(last), initial=0.0))
    weight = eps**-0.5 * curvature / jnp.where(steep > 0, steep, 1.0) ** 2
    lq = s.lq
    if rows.size:  # to add what is zero takes a tenth of all
        square = weight * product(jnp.swapaxes(rows, -1, -2), rows)
        Q = lq.Q.at[:-1].add(square[:, :n, :n])
        lq = lq._replace(Q=Q, S=lq.S + square[:, :n, n:], R=lq.R + square[:, n:, n:])
    if last.size:
        lq = lq._replace(Q=lq.Q.at[-1].add(weight * product(last.T, last)))

    def once(b: Point) -> Point:
        push, end = weight * jnp.sum(rows * b.path[..., None], axis=-2), weight * jnp.sum(last * b.end[:, None], axis=0)
        q = (-b.x).at[:-1].add(-push[:, :n]).at[-1].add(-end)
        found = solve_lqr(lq._replace(c=-b.costates[1:], q=q, r=-b.u - push[:, n:]), -b.costates[0])
        both = jnp.concatenate([found.x[:-1], found.u], axis=-1)
        path = weight * (jnp.sum(rows * both[:, None], axis=-1) - s.pressing * b.path) - (1.0 - s.pressing) * b.path
        end = weight * (jnp.sum(last * found.x[-1], axis=-1) - s.end_pressing * b.end) - (1.0 - s.end_pressing) * b.end
        return Point(found.x, found.u, found.multipliers, path, end)

    def missed(v: Point) -> Point:
        return jax.tree.map(jnp.subtract, b, _applied(s, v))

    found = once(b)
    for _ in range(REFINEMENTS if b.path.size + b.end.size else 0):
        found = jax.tree.map(jnp.add, found, once(missed(found)))
    size, left = (jnp.max(jnp.concatenate([jnp.ravel(jnp.abs(x)) for x in t])) for t in (b, missed(found)))
    good = left <= eps**0.25 * size
    return jax.tree.map(lambda x: jnp.where(good, x, jnp.nan), found)


def masked(s: System, push: Point) -> Point:
    """Without what is at rest: controls at their limits, multipliers of constraints that do not press."""
    one = jnp.ones((), push.x.dtype)
    return jax.tree.map(jnp.multiply, push, Point(one, s.free, one, s.pressing, s.end_pressing))


def rate(problem: Problem, p: Point, change: Problem, good: jax.Array) -> tuple[Point, jax.Array]:
    """The change of the solution `p`, and of the least cost, with that of the problem, which may have symbols for zero;
    NaN unless `good`.

    The cost changes as the Lagrangian does where nothing else moves, since there its slopes are zero: the theorem of
    the envelope, for which no system is solved."""
    low, high = held(problem, p.u, conditions(problem, p).u)
    system = system_of(problem, p, low | high)

    def moved(new: Problem) -> tuple[tuple[Point, jax.Array], jax.Array]:
        u = p.u
        if new.limits is not None:
            u = jnp.where(low, new.limits[0], jnp.where(high, new.limits[1], u))
        return (conditions(new, p._replace(u=u)), u), lagrangian(new, p._replace(u=u))

    (push, bounds), cost = along_moving(moved, (problem,), (change,))[1]
    right = jax.tree.map(jnp.negative, masked(system, push))
    # One array: the transpose refuses a right side of which a part is known.
    rows, unpacked = ravel_pytree(right)
    found = unpacked(
        lax.custom_linear_solve(
            lambda v: ravel_pytree(_applied(system, unpacked(v)))[0],
            rows,
            lambda _, b: ravel_pytree(solved(system, unpacked(b)))[0],
            symmetric=True,
        )
    )
    # A product, since the transpose of a choice would be zero where it refuses.
    refuse = jnp.where(good, 1.0, jnp.nan).astype(p.x.dtype)
    return jax.tree.map(lambda x: refuse * x, (found._replace(u=found.u + bounds), cost))


def no_change(x: jax.Array) -> Any:
    """The tangent zero."""
    return jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.inexact) else np.zeros(x.shape, jax.dtypes.float0)
