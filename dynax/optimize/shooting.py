"""Multiple shooting with gaps: differential dynamic programming that may start anywhere.

Around states and controls the problem is linear-quadratic in tangents, and its dynamics miss the states by gaps `c`:

    c_k = difference(x_k+1, step(x_k, u_k))      z = (dx, du):  A, B, Q, S, R, q, r  by vmap over the knots

`lqr` solves that. Then the step: the policy is followed through the dynamics themselves, gaps closed by the part `a`,

    u+ = u + a k + K difference(x, x+)      x+_k+1 = integrate(step(x+, u+), -(1 - a) c)

for `a` of 1, 1/2, 1/4, ..., as long as that lowers the merit `cost + m |c|_1` further, with `m` above the multipliers
(Mastalli et al. 2020, "Crocoddyl", FDDP; Li & Todorov 2004 where there are no gaps; Nocedal & Wright 2006, section
18.3); a whole step that does what it promises is the first and last. What bends the wrong way, or does not go down, is
regularised in states and controls. With constraints, costs are those of an augmented Lagrangian; its multipliers move
when it is nearly at rest, its penalty grows where they do not help (Howell, Jackson & Manchester 2019, "ALTRO").
Limits of the controls are looked at knot by knot (`box`), and where that leads nowhere all together (`interior`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from dynax.compile.zeros import is_zero
from dynax.linear.matrices import product
from dynax.optimize.box import boxed, cut_off
from dynax.optimize.elsewhere import refuse_change
from dynax.optimize.implicit import Point, left_over, no_change, point_of, rate, sides
from dynax.optimize.interior import interior
from dynax.optimize.lqr import LQ, Descent, descended, descent, side_by_side
from dynax.optimize.plant import linearized, passed, passed_linearized
from dynax.optimize.problem import Multipliers, Problem, cost_of, penalty_of, quadratic, stacked, told, value
from dynax.optimize.result import History, Result, Status
from dynax.optimize.tangents import curvature, directions, rates
from dynax.sweep.scan import scan, settled, varying_as

RUNNING = -1
# Regularisation: the least that counts, and the most that is tried.
LEAST, MOST = 1e-8, 1e8
# Sufficient decrease, of what the slope promises.
ARMIJO = 1e-4
# A step that gives this part of what the quadratic model says is taken; else shorter ones are tried while they help.
ENOUGH = 0.5
# After such a step, or none, limits are looked at together if the policy, cut off at them, loses so many times what it
# promised in the model itself. Where it loses less, dynamics bend as well, and a batch would wait for little.
CRAMPED, BROKEN = 1 / 512, 100.0
# How penalties grow, and the most that is tried.
GROWTH, HEAVIEST = 10.0, 1e10


@side_by_side
def _boxed(lq: LQ, limits: tuple[jax.Array, jax.Array]) -> tuple[Descent, jax.Array]:
    """The policy between limits, and what the model costs where it is cut off at them."""
    policy = descended(lq, boxed, limits)
    return policy, cut_off(lq, policy, limits)


class State(NamedTuple):
    """Of the iteration."""

    x: jax.Array
    u: jax.Array
    cost: jax.Array
    """Without what penalises constraints; NaN before the first iteration."""
    gains: jax.Array
    costates: jax.Array
    multipliers: Multipliers
    regularisation: jax.Array
    bent: jax.Array
    """Whether it bent the wrong way with less regularisation, here or no step away that helped."""
    merit: jax.Array
    """The weight of the gaps."""
    violation: jax.Array
    """When the multipliers moved last."""
    residual: jax.Array
    """The slope of the Lagrangian that was left where it was linearised last."""
    count: jax.Array
    status: jax.Array
    history: History


class Tried(NamedTuple):
    """Of the steps along a policy."""

    count: jax.Array
    over: jax.Array
    least: jax.Array
    """The merit after the best step, and its size, zero for none."""
    size: jax.Array
    cost: jax.Array
    x: jax.Array
    u: jax.Array


class Options(NamedTuple):
    second_order: bool
    max_iterations: int
    step_sizes: int
    at_once: int = 1


def rollout(problem: Problem, controls: ArrayLike) -> jax.Array:
    """The states that the controls lead to, shape `(N + 1, nx)`: where single shooting starts."""
    rows = None if problem.per_knot is None else problem.known_rows(end=False)[1]

    def step(x: jax.Array, at: tuple) -> tuple[jax.Array, jax.Array]:
        u, row, dt = at
        x = problem.plant.step(x, u, problem.params if row is None else (problem.params, row), dt)
        return x, x

    at = jnp.asarray(controls, problem.x0.dtype), rows, problem.dt
    _, xs = scan(step, varying_as(problem, problem.x0), at)
    return jnp.concatenate([problem.x0[None], xs])


def solve(
    problem: Problem,
    controls: ArrayLike,
    states: ArrayLike | None = None,
    *,
    second_order: bool = False,
    max_iterations: int = 200,
    tolerance: ArrayLike | None = None,
    constraint_tolerance: ArrayLike | None = None,
    penalty: ArrayLike = 1.0,
    multipliers: Multipliers | None = None,
    step_sizes: int = 10,
    at_once: int = 1,
) -> Result:
    """A trajectory nothing near which is better, by multiple shooting with gaps.

    **Arguments:**

    - `controls`: the first guess, shape `(N, nu)`.
    - `states`: that of the states, shape `(N + 1, nx)`, which need not follow from the controls; by default all rest at
      the first state. Those of `rollout(problem, controls)` make it single shooting (iLQR).
    - `second_order`: with the curvature of the dynamics (DDP) and of residuals: fewer iterations, each of which costs
      more.
    - `tolerance`: it has converged when a step promises less than this part of the cost and gaps are below its root.
    - `constraint_tolerance`: and when constraints are violated by less.
    - `penalty`: with which that of constraints begins; a lighter one lets a trajectory violate them on its way.
    - `multipliers`: those of the constraints to begin with, of the result of a problem nearby, so that it need not
      violate them first; `penalty` stays that of the argument.
    - `step_sizes`: how many of 1, 1/2, 1/4, ... are tried at most; in a batch all wait for the last.
    - `at_once`: how many of them are tried side by side, with the same choice. It pays where a kernel takes longer to
      start than to run, as on an accelerator; on a CPU an iteration with ten at once takes half to twice as long again.

    **Returns:** a `Result`; look at its `status`. Under `jax.vmap` each problem has its own, and those that have ended
    stand still. `ValueError` for shapes that do not fit.

    **Derivatives**, forward and reverse, by all leaves of the problem (of `implicit`): of states, controls, cost,
    costates and multipliers. They are NaN where the status is not `CONVERGED` or `residual` is above the fourth root of
    rounding, and, but for that of the cost, where the point is no strict minimum; those of gains, history and other
    measures are zero. What a function of the problem takes from elsewhere than its arguments cannot be differentiated
    by: `ValueError`.
    """
    N, plant, dtype = problem.knots, problem.plant, problem.x0.dtype
    u = jnp.asarray(controls, dtype)
    if u.shape != (N, plant.nu):
        raise ValueError(f"`controls` has shape {u.shape}, expected ({N}, {plant.nu}); for a batch use jax.vmap")
    x = jnp.broadcast_to(problem.x0, (N + 1, plant.nx)) if states is None else jnp.asarray(states, dtype)
    if x.shape != (N + 1, plant.nx):
        raise ValueError(f"`states` has shape {x.shape}, expected ({N + 1}, {plant.nx}); for a batch use jax.vmap")
    eps = float(jnp.finfo(dtype).eps)
    small = 30 * eps if tolerance is None else tolerance
    tight = eps**0.5 if constraint_tolerance is None else constraint_tolerance
    for name, number in (("max_iterations", max_iterations), ("step_sizes", step_sizes), ("at_once", at_once)):
        if number < 1:
            raise ValueError(f"`{name}` is {number}, expected at least 1")
    if not isinstance(penalty, Tracer) and not np.all(np.asarray(penalty) > 0):
        raise ValueError(f"`penalty` is {penalty}, expected more than zero")
    options = Options(bool(second_order), int(max_iterations), int(step_sizes), int(min(at_once, step_sizes)))
    weight, *tolerances = (jnp.asarray(number, dtype) for number in (penalty, small, tight))
    path, end = jax.eval_shape(_constraints, problem, x, u)
    known = Multipliers(jnp.zeros(path.shape, dtype), jnp.zeros(end.shape, dtype), weight)
    if multipliers is not None:
        known = Multipliers(jnp.asarray(multipliers.path, dtype), jnp.asarray(multipliers.end, dtype), weight)
        for name, given, shape in (("path", known.path, path.shape), ("end", known.end, end.shape)):
            if given.shape != shape:
                raise ValueError(f"`multipliers.{name}` has shape {given.shape}, expected {shape}")
    given = problem, x, u, known, jnp.zeros((N + 1, plant.ndx), dtype), *tolerances
    # What one device knows alone comes to be in all of them.
    return iterated(*varying_as((), given), options)


@partial(jax.custom_jvp, nondiff_argnums=(7,))
def _iterated(problem: Problem, x, u, multipliers: Multipliers, costates, small, tight, options: Options) -> Result:
    """`solve` from all that is known of a solution."""
    N, n, dtype = problem.knots, problem.plant.ndx, x.dtype
    x = x.at[0].set(problem.x0)
    u = u if problem.limits is None else jnp.clip(u, *problem.limits)
    # Between limits that a trace brought here nothing may be left.
    empty = jnp.asarray(False) if problem.limits is None else ~jnp.all(problem.limits[0] <= problem.limits[1])
    zero, none = jnp.zeros((), dtype), jnp.full(options.max_iterations, jnp.nan, dtype)
    start = State(
        x=x,
        u=u,
        cost=jnp.asarray(jnp.nan, dtype),
        gains=jnp.zeros((N, problem.plant.nu, n), dtype),
        costates=costates,
        multipliers=multipliers,
        regularisation=zero,
        bent=jnp.zeros((), bool),
        merit=zero,
        violation=jnp.asarray(jnp.inf, dtype),
        residual=jnp.asarray(jnp.inf, dtype),
        count=jnp.zeros((), int),
        status=jnp.where(empty, int(Status.INFEASIBLE), RUNNING),
        history=History(*[none] * len(History._fields)),
    )

    def iterate(s: State) -> State:
        return _iterate(problem, s, small, tight, options)

    done = jax.lax.while_loop(
        lambda s: (s.status == RUNNING) & (s.count < options.max_iterations), iterate, settled(iterate, start)
    )
    status = jnp.where(done.status == RUNNING, int(Status.ITERATIONS), done.status)
    last = History(*(h[jnp.maximum(done.count - 1, 0)] for h in done.history))
    return Result(
        done.x, done.u, done.gains, done.costates, done.multipliers, done.cost,
        last.gap, last.violation, done.residual, done.count, status, done.history,
    )  # fmt: skip


iterated = jax.jit(_iterated, static_argnums=7)


@partial(_iterated.defjvp, symbolic_zeros=True)
def _iterated_rate(options: Options, primals: tuple, tangents: tuple) -> tuple[Result, Result]:
    """Of the solution by the problem; by guesses and tolerances it is zero."""
    problem, change = primals[0], tangents[0]
    refuse_change(change.elsewhere, "give it to o.problem in `params`, which functions are called with")
    result = iterated(*primals, options)
    still = jax.tree.map(no_change, result)
    if all(is_zero(d) for d in jax.tree.leaves(change, is_leaf=is_zero)):
        return result, still
    good = (result.status == Status.CONVERGED) & (result.residual <= jnp.finfo(result.states.dtype).eps ** 0.25)
    d, cost = rate(problem, point_of(result), change, good)
    zero = jnp.zeros_like(d.x)
    _, states = jax.jvp(jax.vmap(problem.plant.integrate), (result.states, zero), (jnp.zeros_like(result.states), d.x))
    multipliers = still.multipliers._replace(path=d.path, end=d.end)
    return result, dataclasses.replace(
        still, states=states, controls=d.u, costates=d.costates, multipliers=multipliers, cost=cost
    )


def _seen(problem: Problem) -> tuple[Any, Any, Any]:
    """What functions get at the knots and at the end, and the axes of the first."""
    return problem.known_rows(end=False), problem.known_rows(end=True), problem.known_axes


def _constraints(problem: Problem, x, u) -> tuple[jax.Array, jax.Array]:
    row, end, axes = _seen(problem)
    path = jax.vmap(lambda x, u, row: stacked(problem.constraints, (x, u, row)), (0, 0, axes))(x[:-1], u, row)
    return path, stacked(problem.end_constraints, (x[-1], end))


def _costs(problem: Problem, x, u, known: tuple, multipliers: Multipliers) -> tuple[jax.Array, jax.Array]:
    """The cost, and what penalises constraints: together the augmented Lagrangian. `known`: of the steps."""
    row, end, axes = _seen(problem)
    path, last, weight = multipliers

    def both(costs, constraints, args, own) -> tuple[jax.Array, jax.Array]:
        return cost_of(costs, args), penalty_of(constraints, args, own, weight)

    def knot(x, u, known, row, own):
        return both(problem.costs, problem.constraints, told(x, u, *known, row), own)

    stages = jax.vmap(knot, (0, 0, 0, axes, 0))(x[:-1], u, known, row, path)
    ends = both(problem.end_costs, problem.end_constraints, (x[-1], end), last)
    return jax.tree.map(lambda stage, end: jnp.sum(stage) + end, stages, ends)


def _linearized(
    problem: Problem, x, u, multipliers: Multipliers, costates, second_order: bool
) -> tuple[LQ, jax.Array, jax.Array]:
    """The linear-quadratic problem, and the costs at its point, without and with what penalises constraints."""
    plant, (row, end, axes) = problem.plant, _seen(problem)
    n = plant.ndx
    path, last, weight = multipliers

    def knot(x, u, after, row, dt, own, costate):
        def curved(function: Callable) -> Any:
            return curvature(plant, lambda x, u: function(x, u, row), x, u)

        if second_order:
            (c, J, bend), known, along = linearized(plant, x, u, after, row, dt, costate), (), ()
        else:
            c, J, known, along = passed_linearized(plant, x, u, after, row, dt)
            bend = None
        ways = (*directions(plant, x, u), *along)
        found = quadratic(problem.costs, problem.constraints, (x, u, *known, row), ways, curved, own, weight)
        H = found.curvature
        if second_order:
            whole = curved(lambda *args: value(problem.costs, problem.constraints, args, own, weight))
            H = whole[2] + bend
        lq = J[:, :n], J[:, n:], c, H[:n, :n], H[:n, n:], H[n:, n:], found.slope[:n], found.slope[n:]
        return lq, found.plain, found.value

    rows = x[:-1], u, x[1:], row, problem.dt, path, costates[1:]
    (A, B, c, Q, S, R, q, r), plain, total = jax.vmap(knot, (0, 0, 0, axes, 0, 0, 0))(*rows)
    final = quadratic(
        problem.end_costs,
        problem.end_constraints,
        (x[-1], end),
        (rates(plant, x[-1]).T,),
        lambda function: curvature(plant, lambda x, _: function(x, end), x[-1], u[-1, :0]),
        last,
        weight,
    )
    Q, q = jnp.concatenate([Q, final.curvature[None]]), jnp.concatenate([q, final.slope[None]])
    return LQ(A, B, c, Q, S, R, q, r), jnp.sum(plain) + final.plain, jnp.sum(total) + final.value


def _followed(problem: Problem, x, u, policy: Descent, gaps, size) -> tuple[jax.Array, jax.Array, tuple]:
    """States and controls after a step of one size, and what is known of the plant's steps."""
    plant = problem.plant
    rows = None if problem.per_knot is None else problem.known_rows(end=False)[1]

    def step(now: jax.Array, at: tuple) -> tuple[jax.Array, tuple]:
        x, ahead, u, K, k, gap, row, dt, limits = at
        u = u + size * k + product(K, plant.difference(x, now))
        u = u if limits is None else jnp.clip(u, *limits)
        after, known = passed(plant, now, u, ahead, problem.params if row is None else (problem.params, row), dt)
        return plant.integrate(after, (size - 1.0) * gap), (now, u, known)

    at = x[:-1], x[1:], u, policy.K, policy.k, gaps, rows, problem.dt, problem.limits
    end, (xs, us, known) = scan(step, varying_as((problem, size), x[0]), at)
    return jnp.concatenate([xs, end[None]]), us, known


def _iterate(problem: Problem, s: State, small, tight, options: Options) -> State:
    dtype = s.x.dtype
    eps = jnp.finfo(dtype).eps
    lq, plain, cost = _linearized(problem, s.x, s.u, s.multipliers, s.costates, options.second_order)
    n, m = lq.B.shape[1:]
    eased = lq._replace(
        Q=lq.Q + s.regularisation * jnp.eye(n, dtype=dtype), R=lq.R + s.regularisation * jnp.eye(m, dtype=dtype)
    )
    # States are known to rounding, and so are the gaps between them.
    rounding = 8.0 * eps * (1.0 + jnp.max(jnp.abs(s.x)))
    gap, misses = jnp.max(jnp.abs(lq.c)), jnp.sum(jnp.maximum(jnp.abs(lq.c) - rounding, 0.0))
    # A part of the cost, and of one that is met exactly a part of what rounding leaves of it.
    scale = eps**0.5 + jnp.abs(plain)

    if problem.limits is None:
        policy = descent(eased)
    else:
        limits = problem.limits[0] - s.u, problem.limits[1] - s.u
        policy, cut = _boxed(eased, limits)
        slope = -jnp.sum(policy.promise)
        cramped = (s.count > 0) & (s.history.step[jnp.maximum(s.count - 1, 0)] <= CRAMPED) & (cut > BROKEN * slope)
        sloping = jnp.all(policy.convex) & (slope > small * scale)
        policy = interior(eased, limits, policy, cramped & sloping & (gap <= jnp.sqrt(small)))
    costates = jnp.concatenate([policy.first[None], policy.multipliers])
    # Where it comes to rest the point stays, and these slopes are those of the Lagrangian with the new multipliers.
    residual = left_over(problem, s.u, costates, (lq.q - costates).at[:-1].add(policy.by_x), lq.r + policy.by_u)
    steepest = jnp.max(jnp.abs(costates))
    solved = jnp.all(policy.convex) & jnp.isfinite(steepest)

    merit = jnp.where(solved, jnp.maximum(s.merit, 2.0 * steepest), s.merit)
    promised = jnp.sum(policy.promise) - merit * misses
    # Zero times what is not finite is NaN.
    finite = jnp.isfinite(cost + sum(jnp.sum(0.0 * part) for part in lq))

    path, end = _constraints(problem, s.x, s.u)
    violation = _violation(problem, s, path, end)
    rough = 1e-3 * jnp.minimum(violation, 1e-3) * (1.0 + jnp.abs(plain))
    calm = solved & (s.regularisation <= LEAST) & (gap <= jnp.sqrt(small))
    still = calm & (-promised <= jnp.maximum(small * scale, rough))
    rest = calm & (-promised <= small * scale) & (violation <= tight)
    moves = still & ~rest & (violation > tight)
    # No slope, though regularised: either that is not needed, or this is a saddle.
    flat = solved & ~calm & (gap <= jnp.sqrt(small)) & (-promised * jnp.maximum(s.regularisation, 1.0) <= small * scale)

    slack = 8.0 * eps * (jnp.abs(cost) + merit * misses)
    wanted = solved & finite & ~rest & ~moves & ~flat & (s.status == RUNNING)
    begun = cost + merit * misses

    def along(size: jax.Array) -> tuple[jax.Array, ...]:
        x, u, known = _followed(problem, s.x, s.u, policy, lq.c, size)
        plain, penalty = _costs(problem, x, u, known, s.multipliers)
        return size, plain + penalty + merit * (1.0 - size) * misses, plain, x, u

    def judged(tried: Tried, at: tuple[jax.Array, ...]) -> Tried:
        size, trial, *found = at
        good = jnp.isfinite(trial) & (trial <= begun + ARMIJO * size * promised + slack)
        better = good & (trial < tried.least - slack)  # of those that rounding does not tell apart the longest
        better &= ~tried.over & (tried.count < options.step_sizes)
        enough = better & (trial <= begun + ENOUGH * size * (1.0 - 0.5 * size) * promised + slack)
        news, olds = (trial, size, *found), (tried.least, tried.size, tried.cost, tried.x, tried.u)
        over = tried.over | enough | ((tried.size > 0) & ~better)
        return Tried(tried.count + 1, over, *(jnp.where(better, new, old) for new, old in zip(news, olds, strict=True)))

    def attempt(tried: Tried) -> Tried:
        if options.at_once == 1:
            return judged(tried, along(jnp.exp2(-tried.count.astype(dtype))))
        sizes = jnp.exp2(-(tried.count + jnp.arange(options.at_once)).astype(dtype))
        return scan(lambda tried, at: (judged(tried, at), None), tried, jax.vmap(along)(sizes))[0]

    none = Tried(
        jnp.zeros((), int), jnp.zeros((), bool), jnp.asarray(jnp.inf, dtype), jnp.zeros((), dtype), plain, s.x, s.u
    )
    tried = jax.lax.while_loop(
        lambda tried: wanted & ~tried.over & (tried.count < options.step_sizes), attempt, settled(attempt, none)
    )
    size, taken = tried.size, tried.size > 0

    stays = rest | moves
    more = jnp.where(taken, jnp.where(size >= 0.5, 0.1 * s.regularisation, s.regularisation), 10.0 * s.regularisation)
    more = jnp.where(flat, 0.1 * s.regularisation, more)
    more = jnp.where(~taken & ~flat & (more < LEAST), LEAST, jnp.where(more < LEAST, 0.0, more))
    heavier = moves & (violation > 0.1 * s.violation)
    multipliers = jax.tree.map(partial(jnp.where, stays), _moved(problem, s, path, end, heavier), s.multipliers)
    status = jnp.where(rest, int(Status.CONVERGED), RUNNING)
    stuck = jnp.where(violation > tight, int(Status.INFEASIBLE), int(Status.STALLED))
    status = jnp.where(~stays & ~taken & (more > MOST), stuck, status)
    status = jnp.where(flat & s.bent, int(Status.STALLED), status)
    status = jnp.where(moves & (s.multipliers.penalty > HEAVIEST), int(Status.INFEASIBLE), status)
    status = jnp.where(finite, status, int(Status.NOT_FINITE))
    row = History(plain, gap, violation, -promised, size, s.regularisation)
    return State(
        x=tried.x,
        u=tried.u,
        cost=tried.cost,
        gains=jnp.where(solved, policy.K, s.gains),
        costates=jnp.where(solved, costates, s.costates),
        multipliers=multipliers,
        regularisation=jnp.where(stays, s.regularisation, more),
        bent=~solved | (s.bent & ~(taken & (-promised > small * scale))),
        merit=jnp.where(moves, 0.0, merit),
        violation=jnp.where(moves, violation, s.violation),
        residual=residual,
        count=s.count + 1,
        status=status,
        history=jax.tree.map(lambda h, new: h.at[s.count].set(new), s.history, row),
    )


def _point(s: State) -> Point:
    return Point(s.x, s.u, s.costates, s.multipliers.path, s.multipliers.end)


def _violation(problem: Problem, s: State, path, end) -> jax.Array:
    """The largest; of an inequality also what it lacks to zero while its multiplier is not."""
    misses = [jnp.zeros(1, s.x.dtype)]
    own = (path, s.multipliers.path), (end, s.multipliers.end)
    for side, (found, multiplier) in zip(sides(problem, _point(s)), own, strict=True):
        slack = jnp.maximum(found, -multiplier / s.multipliers.penalty)
        misses.append(jnp.ravel(jnp.abs(jnp.where(side, slack, found))))
    return jnp.max(jnp.concatenate(misses))


def _moved(problem: Problem, s: State, path, end, heavier) -> Multipliers:
    """The first-order update."""
    old = s.multipliers
    news = [
        jnp.where(side, jnp.maximum(was + old.penalty * found, 0.0), was + old.penalty * found)
        for side, found, was in zip(sides(problem, _point(s)), (path, end), old[:2], strict=True)
    ]
    return Multipliers(news[0], news[1], jnp.where(heavier, GROWTH, 1.0) * old.penalty)
