"""Phases and the jumps between them against closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from optimize.standard import converged, near, single

import dynax as dx
from dynax import optimize as o


def bounce(e: float, c: float) -> tuple[np.ndarray, float]:
    """Durations `T` of both phases and velocity at the wall, and the cost.

    A unit mass moves from `x = 1`, at rest, to a wall at 0, where `v` becomes `-e v`, and back to rest at 1, for the
    least `c T + integral of u^2`. Between two points the motion is a cubic, with the integral `4 (A^2 + A B + B^2) / T`
    of what its end velocities differ from the mean one.
    """

    def cost(y):
        (first, second), v = y[:2], y[2]
        ways = (first, 1.0 / first, v + 1.0 / first), (second, -e * v - 1.0 / second, -1.0 / second)
        return c * (first + second) + sum(4.0 / T * (A * A + A * B + B * B) for T, A, B in ways)

    search = {"method": "Nelder-Mead", "options": {"fatol": 1e-14, "xatol": 1e-9, "maxiter": 4000}}
    found = scipy.optimize.minimize(cost, [1.5, 1.5, -1.0], **search)
    return found.x, float(found.fun)


def least_squares(e: float, N: int, h: float) -> tuple[np.ndarray, float]:
    """Controls and cost of the throw below, by dense linear algebra: one drive to the wall, two on the way back."""
    A, B = np.array([[1.0, h], [0.0, 1.0]]), np.array([[h * h], [h]])
    drives = [B] * N + [B @ np.array([[1.0, -0.5]])] * N
    sizes = [d.shape[1] for d in drives]
    free, by_u, wall = np.array([1.0, 0.0]), np.zeros((2, sum(sizes))), (0.0, np.zeros(0))
    for k, (drive, place) in enumerate(zip(drives, np.cumsum([0, *sizes]), strict=False)):
        if k == N:
            wall = free[0], by_u[0].copy()
            free, by_u = np.diag([1.0, -e]) @ free, np.diag([1.0, -e]) @ by_u
        free, by_u = A @ free, A @ by_u
        by_u[:, place : place + drive.shape[1]] += drive
    rows, wanted = np.vstack([wall[1], by_u]), np.array([-wall[0], *(np.array([1.0, 0.0]) - free)])
    u = np.linalg.pinv(rows) @ wanted
    return u, float(h * (u @ u))


@pytest.mark.parametrize("robot", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_throw_at_a_wall(robot):
    """Dynamics, controls and constraints differ by phase: one drive until the wall, then two. The solution is that of
    least squares; where the first phase is a robot's slide, also how it moves with the coefficient of restitution."""
    N, h = 6, 0.2

    def moved(x, force):
        v = x[1] + h * force
        return jnp.stack([x[0] + h * v, v])

    there = o.plant(lambda x, u, p: moved(x, u[0]), states=2, controls=1)
    there = o.plant(single(dx.Prismatic((1, 0, 0)), (1.0, 1.0, 1.0))) if robot else there
    back = o.plant(lambda x, u, p: moved(x, u[0] - 0.5 * u[1]), states=2, controls=2)

    effort = [o.residual(lambda x, u, p: u, 2.0 * h)]
    wall, home = o.equality(lambda x, p: x[:1]), o.equality(lambda x, p: x - jnp.array([1.0, 0.0]))

    def ways(e):
        first = o.problem(there, jnp.array([1.0, 0.0]), h, knots=N, costs=effort, end_constraints=[wall], params=e)
        return first, o.problem(
            back, jnp.zeros(2), h, knots=N, costs=effort, end_constraints=[home],
            constraints=[o.inequality(lambda x, u, p: x[:1] - 5.0)], upper=50.0,
        )  # fmt: skip

    guesses = [(jnp.zeros((N, m)), jnp.zeros((N + 1, 2))) for m in (1, 2)]

    def solved(e):
        parts = ways(e)
        return o.solve(o.phases(parts, [lambda x, e: jnp.stack([x[0], -e * x[1]])]), *o.joined(parts, guesses))

    u, cost = least_squares(0.6, N, h)
    if robot:
        result, rate = jax.jit(lambda e: jax.jvp(solved, (e,), (jnp.ones_like(e),)))(0.6)
        above, below = (least_squares(0.6 + d, N, h) for d in (1e-5, -1e-5))
        near(rate.cost, (above[1] - below[1]) / 2e-5, 1e-6)
        rates = [rate.controls[:N, :1], rate.controls[N + 1 :]]
        near(np.concatenate([np.ravel(own) for own in rates]), (above[0] - below[0]) / 2e-5, 1e-5)
    else:
        result = solved(0.6)
    near(converged(result).cost, cost, 1e-7)
    parts = ways(0.6)
    results = o.parted(parts, result)
    near(np.concatenate([np.ravel(own.controls) for own in results]), u, 1e-6)
    near(results[1].states[0], results[0].states[-1] * np.array([1.0, -0.6]), 1e-9)
    near(result.controls[N], 0.0, 1e-12)
    near(results[0].cost + results[1].cost, result.cost, 1e-12)
    sizes = [(own.multipliers.path.shape, own.multipliers.end.shape) for own in results]
    assert sizes == [((N, 0), (1,)), ((N, 1), (2,))]
    assert np.all(np.abs(results[0].multipliers.end) > 0.1)  # the price of the wall


def test_what_does_not_fit_is_named():
    slide = o.plant(lambda x, u, p: x, states=2, controls=1)
    one, other = (
        o.problem(plant, jnp.zeros(plant.nx), 0.1, knots=3)
        for plant in (slide, o.plant(lambda x, u, p: x, states=3, controls=1))
    )
    with pytest.raises(ValueError, match=r"2 `parts` and 2 `jumps`, expected two parts or more"):
        o.phases([one, one], [None, None])
    with pytest.raises(ValueError, match=r"`parts\[1\]` has states of 3 numbers and 3 freedoms, expected states of 2"):
        o.phases([one, other], [None])
    smooth = o.collocation(slide, jnp.zeros(2), jnp.ones(3))
    with pytest.raises(ValueError, match=r"`parts\[1\]` has nodes of a collocation without `free_time`, of 3 numbers"):
        o.phases([one, smooth], [None])
    bowl = o.residual(lambda x, u, p: u, 1.0, lambda r: jnp.cosh(r))
    rounded = o.problem(slide, jnp.zeros(2), 0.1, knots=3, costs=[bowl])
    with pytest.raises(ValueError, match=r"`activation` of `costs\[0\]` of `parts\[1\]` is 1.0 at zero, expected 0"):
        o.phases([one, rounded], [None])
    with pytest.raises(ValueError, match=r"`jumps\[0\]` gives shape \(3,\), expected \(2,\)"):
        o.phases([one, one], [lambda x, p: jnp.append(x, 0.0)])
    with pytest.raises(ValueError, match=r"states of `guesses\[1\]` have shape \(3, 2\), expected \(4, 2\)"):
        o.joined([one, one], [(jnp.zeros((3, 1)), jnp.zeros((4, 2))), (jnp.zeros((3, 1)), jnp.zeros((3, 2)))])


@pytest.mark.slow
def test_a_bounce():
    """To a wall and back, with the times of both ways chosen: a collocation's cubics have the closed form's digits."""
    c, N = 2.25, 4
    rate = o.plant(lambda x, u, p: jnp.stack([x[1], u[0]]), states=2, controls=1)
    same = {
        "costs": [o.residual(lambda x, u, p: u, 2.0), o.cost(lambda x, u, p: c)],
        "free_time": (0.3, 10.0),
    }
    t = np.linspace(0.0, 1.0, N + 1)[:, None]
    there = np.concatenate([1.0 - t * t, -2.0 * t], axis=1)
    back = np.concatenate([t * (2.0 - t), 2.0 - 2.0 * t], axis=1)
    still = np.zeros((N + 1, 1))

    def ways(e):
        steps = jnp.full(N, 1.0 / N)
        wall, home = o.equality(lambda x, p: x[:1]), o.equality(lambda x, p: x - jnp.array([1.0, 0.0]))
        first = o.collocation(rate, jnp.array([1.0, 0.0]), steps, params=e, end_constraints=[wall], **same)
        return first, o.collocation(rate, jnp.zeros(2), steps, end_constraints=[home], **same)

    def solved(e):
        parts = ways(e)
        whole = o.phases(parts, [lambda x, e: jnp.stack([x[0], -e * x[1]])])
        guesses = [o.guess(part, x, still, 1.5) for part, x in zip(parts, (there, back), strict=True)]
        result = o.solve(whole, *o.joined(parts, guesses), second_order=True, penalty=1e3)
        return result

    result = jax.jit(solved)(0.6)
    (*durations, v), cost = bounce(0.6, c)
    near(converged(result).cost, cost, 1e-7)
    parts = ways(0.6)
    results = o.parted(parts, result)
    nodes = [o.nodes(part, own) for part, own in zip(parts, results, strict=True)]
    near([own.time[-1] for own in nodes], durations, 1e-5)
    near([nodes[0].states[-1, 1], nodes[1].states[0, 1]], [v, -0.6 * v], 1e-5)
    near(results[0].cost + results[1].cost, result.cost, 1e-12)
