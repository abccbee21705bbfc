"""What solvers come to in float32, beside float64: problems and measures, for a test and for `docs/accuracy.md`.

A problem is solved by every solver in both types, from the same guess. What counts is the status, how far the cost is
off that of float64, and where the controls lead when they are followed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optimize.standard import cart_pole, panda, panda_reach, pendulum, runge_kutta, single

import dynax as dx
from dynax import optimize as o


class Case(NamedTuple):
    """A problem without limits and goal, and what makes others of it."""

    free: o.Problem
    guess: jax.Array
    limits: tuple[Any, Any]
    goal: o.Term
    """An equality at the end."""
    collocated: Callable[[], tuple[o.Problem, tuple]]


class Row(NamedTuple):
    """One solver in one type."""

    solver: str
    result: o.Result
    problem: o.Problem


def swing(rate: Callable, order: int, n: int, h: float, N: int, end: float, effort: float, most: float, params) -> Case:
    """Hand-written dynamics to an upright goal, by Runge and Kutta's rule, or collocated."""
    h = jnp.asarray(h).item()

    def step(x, u, p):
        return runge_kutta(rate, h, order)(x, u, p)

    def off(x, *args):
        return x - args[-1]["goal"]

    goal, start = params["goal"], jnp.zeros(n)
    free = o.problem(
        o.plant(step, states=n, controls=1), start, h, knots=N, params=params, end_costs=[o.residual(off, end)],
        costs=[o.residual(off, (1e-3 if n == 2 else 1e-2) * h), o.residual(lambda x, u, p: u, effort * h)],
    )  # fmt: skip

    def collocated() -> tuple[o.Problem, tuple]:
        M = 20
        found = o.collocation(
            o.plant(rate, states=n, controls=1), start, jnp.full(M, N * h / M), params=params,
            costs=[o.residual(lambda x, u, p: u, effort)], end_constraints=[o.equality(off)],
        )  # fmt: skip
        return found, o.guess(found, jnp.linspace(start, goal, M + 1), jnp.zeros((M + 1, 1)))

    return Case(free, jnp.full((N, 1), 0.1), (-most, most), o.equality(off), collocated)


def pendulum_case() -> Case:
    params = {"goal": jnp.array([jnp.pi, 0.0]), "mass": jnp.asarray(1.0)}
    return swing(pendulum, 4, 2, 0.06, 50, 1.0, 1e-3, 3.0, params)


def cart_pole_case() -> Case:
    params = {"goal": jnp.array([0.0, jnp.pi, 0.0, 0.0]), "masses": jnp.array([1.0, 0.2])}
    return swing(cart_pole, 3, 4, 0.05, 100, 100.0, 1e-1, 3.0, params)


def panda_case() -> Case:
    model = panda()
    free, hold = panda_reach(model)

    def arrived(x, p):
        return jnp.concatenate([dx.frame_pose(model, x[:7], "panda_hand").translation - p, x[7:]])

    def collocated() -> tuple[o.Problem, tuple]:
        M = 10
        found = o.collocation(
            o.plant(model), free.x0, jnp.full(M, 1.0 / M), params=free.params,
            costs=[o.residual(lambda x, u, p: x[:14] - free.x0.astype(x.dtype), 0.1),
                   o.residual(lambda x, u, p: u, 1e-3)],
            end_constraints=[o.equality(lambda x, p: arrived(x[:14], p))],
        )  # fmt: skip
        return found, o.guess(found, jnp.broadcast_to(free.x0, (M + 1, 14)), jnp.broadcast_to(hold[0], (M + 1, 7)))

    most = jnp.array([10.0, 40.0, 10.0, 25.0, 5.0, 5.0, 2.0])
    return Case(free, hold, (-most, most), o.equality(arrived), collocated)


MIXING = np.zeros((6, 4))
MIXING[0], MIXING[1] = (0, 0.1525, 0, -0.1525), (-0.1525, 0, 0.1525, 0)
MIXING[2], MIXING[5] = 1e-6 / 6.6e-5 * np.array([-1.0, 1.0, -1.0, 1.0]), 1.0


def quadrotor_case() -> Case:
    """Crocoddyl's (OC-24), from hovering."""
    model, dt, N = single(dx.Free(), (0.01152, 0.01152, 0.0218), mass=1.477), 0.03, 33
    start, weight = dx.neutral(model), jnp.array([1e3] * 3 + [0.1] * 3 + [1e3] * 6)
    x0, target = jnp.concatenate([start, jnp.zeros(6)]), start.at[:3].set(jnp.array([1.0, 0.0, 1.0]))

    def away(x, p):
        return dx.difference(model, p, x[:7])

    def drift(x, u, p):
        return jnp.concatenate([dx.difference(model, start.astype(x.dtype), x[:7]), x[7:13]])

    plant = o.plant(model, actuation=MIXING)
    free = o.problem(
        plant, x0, dt, knots=N, params=target, end_costs=[o.residual(away, 3.0)],
        costs=[o.residual(drift, 1e-6 * dt * weight), o.residual(lambda x, u, p: u, 1e-6 * dt),
               o.residual(lambda x, u, p: away(x, p), 1e-2 * dt)],
    )  # fmt: skip

    def arrived(x, p):
        return jnp.concatenate([away(x, p), x[7:13]])

    def collocated() -> tuple[o.Problem, tuple]:
        M = 10
        found = o.collocation(
            plant, x0, jnp.full(M, N * dt / M), params=target,
            costs=[o.residual(lambda x, u, p: u, 1e-2)], end_constraints=[o.equality(arrived)],
        )  # fmt: skip
        return found, o.guess(found, jnp.broadcast_to(x0, (M + 1, 13)), jnp.full((M + 1, 4), 1.477 * 9.81 / 4))

    return Case(free, jnp.full((N, 4), 1.477 * 9.81 / 4), (0.1, 5.0), o.equality(arrived), collocated)


CASES = {
    "pendulum": pendulum_case,
    "cart-pole": cart_pole_case,
    "quadrotor": quadrotor_case,
    "panda reach": panda_case,
}


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


PARTS = ("first", "second", "goal", "collocation")


def solved(case: Case, dtype: Any, parts: tuple[str, ...] = PARTS) -> Iterator[Row]:
    """Every solver; those that differ in guess and limits alone are lanes of one program."""
    free, guess = cast((case.free, case.guess), dtype)
    N, nu = guess.shape
    wide = jnp.full((N, nu), jnp.inf, dtype)
    low, high = (jnp.broadcast_to(jnp.asarray(side, dtype), (N, nu)) for side in case.limits)
    rest, rolled = jnp.broadcast_to(free.x0, (N + 1, len(free.x0))), o.rollout(free, guess)
    starts = jnp.stack([rest, rolled, rolled])
    limits = tuple(jnp.stack([side, side, own]) for side, own in ((-wide, low), (wide, high)))
    names = {
        "first": ("multiple shooting (FDDP)", "single shooting (iLQR)", "within limits (box-FDDP)"),
        "second": ("multiple shooting, second order (SQP)", "single shooting, second order (DDP)", "box-DDP"),
    }
    for part, solvers in names.items():
        if part not in parts:
            continue

        def lane(x, low, high, second=part == "second"):
            return o.solve(replace(free, limits=(low, high)), guess, x, second_order=second, max_iterations=400)

        found = jax.jit(jax.vmap(lane))(starts, *limits)
        for k, name in enumerate(solvers):
            yield Row(name, jax.tree.map(lambda x, k=k: x[k], found), free)
    if "goal" in parts:
        bound = replace(free, limits=(low, high), end_constraints=(case.goal,))
        yield Row("goal and limits (augmented Lagrangian)", o.solve(bound, guess, rolled, max_iterations=400), bound)
    if "collocation" in parts:
        problem, begun = cast(case.collocated(), dtype)
        found = jax.jit(lambda p, g: o.solve(p, *g, second_order=True, max_iterations=400))(problem, begun)
        yield Row("collocation (Hermite and Simpson)", found, problem)


def tolerances(dtype: Any) -> tuple[float, float]:
    """Of gaps and of constraints, by default."""
    eps = float(jnp.finfo(dtype).eps)
    return (30 * eps) ** 0.5, eps**0.5


def leads_off(row: Row) -> float:
    """How far the last state of float32 is from where its controls lead in float64: in its largest coordinate."""
    problem = cast(row.problem, jnp.float64)
    x = o.rollout(problem, row.result.controls.astype(jnp.float64))
    return float(jnp.max(jnp.abs(problem.plant.difference(row.result.states[-1].astype(jnp.float64), x[-1]))))
