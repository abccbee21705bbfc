"""The solvers against optima in closed form and of other programs; each test states its cost, guess and step."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import (
    block,
    cart_pole,
    converged,
    near,
    panda,
    panda_reach,
    pendulum_problem,
    runge_kutta,
    single,
)

import dynax as dx
from dynax import optimize as o

# Exact optima ------------------------------------------------------------------------------------------------------


def test_block_move():
    N = 10
    result = converged(o.solve(block(N), jnp.zeros((N, 1)), constraint_tolerance=1e-11))
    near(result.cost, 12 * N**2 / (N**2 - 1), 1e-9)


@pytest.mark.spec("OC-31")
def test_goal_and_friction_cone():
    """A block that is pushed by `f` along a floor on which it is pressed by `n`: |f| <= n / 2, cost (f^2 + n^2) / 2.
    The cone is active throughout, so n = 2 |f|, and its multiplier balances the cost of n: dt n / mu."""
    N, mu = 20, 0.5
    h = 1.0 / N

    def step(x, u, params):
        v = x[1] + h * u[0]
        return jnp.stack([x[0] + h * v, v])

    problem = o.problem(
        o.plant(step, states=2, controls=2),
        jnp.zeros(2),
        h,
        knots=N,
        costs=[o.residual(lambda x, u, p: u, h)],
        constraints=[o.inequality(lambda x, u, p: jnp.stack([u[0], -u[0]]) - mu * u[1])],
        end_constraints=[o.equality(lambda x, p: x - p)],
        params=jnp.array([1.0, 0.0]),
    )
    result = converged(o.solve(problem, jnp.ones((N, 2)), constraint_tolerance=1e-9))
    # The discrete optimum without cone: f falls linearly, with the two conditions at the end.
    rows = np.stack([h * h * np.arange(N, 0, -1), np.full(N, h)])
    f = rows.T @ np.linalg.solve(rows @ rows.T, [1.0, 0.0])
    assert result.violation < 1e-6
    near(result.controls[:, 0], f, 1e-5)
    near(result.controls[:, 1], np.abs(f) / mu, 1e-5)
    active = np.where(f > 0, result.multipliers.path[:, 0], result.multipliers.path[:, 1])
    near(active, h * np.abs(f) / mu**2, 1e-5)
    goal = np.linalg.solve(h * (1 + 1 / mu**2) ** -1 * rows @ rows.T / h**2, -np.array([1.0, 0.0]))
    near(result.multipliers.end, goal, 1e-5 * np.abs(goal).max())


@pytest.mark.spec("OC-02")
def test_linear_quadratic_problems_take_one_step(rng):
    A, B, c = rng.normal(size=(4, 4)) / 2, rng.normal(size=(4, 2)), rng.normal(size=4)

    problem = o.problem(
        o.plant(lambda x, u, p: p["A"] @ x + p["B"] @ u + p["c"], states=4, controls=2),
        rng.normal(size=4),
        1.0,
        knots=12,
        costs=[o.residual(lambda x, u, p: jnp.concatenate([x + 1.0, u + 0.1 * x[:2]]))],
        end_costs=[o.cost(lambda x, p: 3.0 * jnp.sum((x - 1.0) ** 2))],
        params={"A": A, "B": B, "c": c},
    )
    result = converged(o.solve(problem, rng.normal(size=(12, 2))))
    assert np.sum(np.asarray(result.history.step) > 0) == 1
    slope = jax.grad(lambda u: total(problem, u))(result.controls)
    near(slope, 0.0, 1e-9)


def total(problem: o.Problem, u) -> jax.Array:
    x = o.rollout(problem, u)
    stages = jax.vmap(lambda x, u: sum(t.value(x, u, problem.params) for t in problem.costs))(x[:-1], u)
    return jnp.sum(stages) + sum(t.value(x[-1], problem.params) for t in problem.end_costs)


def test_what_is_known_per_knot():
    """A row for each knot, in a pair with what is the same for all."""
    N = 6
    rows = jnp.arange(N + 1.0)
    problem = o.problem(
        o.plant(lambda x, u, p: x + p[0]["gain"] * u, states=1, controls=1),
        jnp.zeros(1),
        0.1,
        knots=N,
        costs=[o.residual(lambda x, u, p: x - p[1]["goal"])],
        end_costs=[o.residual(lambda x, p: x - p[1]["goal"])],
        constraints=[o.inequality(lambda x, u, p: u - 10.0 - p[1]["goal"])],
        params={"gain": 2.0},
        per_knot={"goal": rows},
    )
    result = converged(o.solve(problem, jnp.ones((N, 1)), o.rollout(problem, jnp.ones((N, 1)))))
    near(result.states[:, 0], rows, 1e-7)
    near(result.controls, 0.5, 1e-7)


# Swing-ups of ALTRO ------------------------------------------------------------------------------------------------


@pytest.mark.spec("OC-08")
@pytest.mark.parametrize("second_order", [False, True])
def test_pendulum(second_order):
    """From the rollout and from a straight line."""
    problem, u = pendulum_problem(), jnp.full((50, 1), 0.1)
    solve = jax.jit(jax.vmap(lambda x: o.solve(problem, u, x, second_order=second_order)))
    line = jnp.linspace(0.0, 1.0, 51)[:, None] * jnp.array([jnp.pi, 0.0])
    result = converged(solve(jnp.stack([o.rollout(problem, u), line])))
    near(result.cost, 0.018404626151, 1e-8)
    assert np.max(np.abs(result.controls)) <= 3.0
    near(result.states[:, -1], [np.pi, 0.0], 1e-7)


@pytest.mark.parametrize("at_once", [3, 16])
def test_step_sizes_side_by_side(at_once):
    """The same choice among the same sizes: a number that does not divide that of all, and more than that."""
    problem, u = pendulum_problem(), jnp.full((50, 1), 0.1)
    solve = jax.jit(lambda at_once: o.solve(problem, u, o.rollout(problem, u), at_once=at_once), static_argnums=0)
    result, each = converged(solve(at_once)), solve(1)
    assert np.nanmin(each.history.step) < 0.2
    assert result.iterations == each.iterations
    assert np.array_equal(result.history.step, each.history.step, equal_nan=True)
    near(result.states, each.states, 1e-9)


@pytest.mark.spec("OC-07")
def test_cart_pole():
    """With the curvature of the dynamics; without it the last digits take hundreds of iterations."""
    h, goal, N = 5.0 / 100, jnp.array([0.0, jnp.pi, 0.0, 0.0]), 100
    plant = o.plant(runge_kutta(cart_pole, h, 3), states=4, controls=1)
    costs = [o.residual(lambda x, u, p: x - goal, 1e-2 * h), o.residual(lambda x, u, p: u, 1e-1 * h)]
    end = [o.residual(lambda x, p: x - goal, 100.0)]
    free = o.problem(plant, jnp.zeros(4), h, knots=N, costs=costs, end_costs=end)
    u = jnp.full((N, 1), 0.01)
    result = converged(o.solve(free, u, o.rollout(free, u), second_order=True))
    near(result.cost, 1.41840914, 1e-6)
    bound = o.problem(
        plant, jnp.zeros(4), h, knots=N, costs=costs, end_costs=end, lower=-3.0, upper=3.0,
        end_constraints=[o.equality(lambda x, p: x - goal)],
    )  # fmt: skip
    result = converged(o.solve(bound, u, o.rollout(bound, u), second_order=True))
    near(result.cost, 1.49587391, 1e-6)
    assert result.violation < 1e-6


# Robots ------------------------------------------------------------------------------------------------------------


def test_slew():
    """A ball turned by a right angle about a slanted axis, rest to rest: the block's problem on the rotations."""
    N, angle = 20, np.pi / 2
    model = single(dx.Spherical(), (1.0, 1.0, 1.0))
    start = dx.neutral(model)
    end = dx.integrate(model, start, jnp.full(3, angle / np.sqrt(3.0)))
    problem = o.problem(
        o.plant(model),
        jnp.concatenate([start, jnp.zeros(3)]),
        1.0 / N,
        knots=N,
        costs=[o.residual(lambda x, u, p: u, 2.0 / N)],
        end_constraints=[o.equality(lambda x, p: jnp.concatenate([dx.difference(model, p, x[:4]), x[4:]]))],
        params=end,
    )
    result = converged(o.solve(problem, jnp.zeros((N, 3)), constraint_tolerance=1e-10))
    near(result.cost, 12 * angle**2 * N**2 / (N**2 - 1), 1e-6)
    found = dx.rollout(model, start, jnp.zeros(3), result.controls, 1.0 / N, stepper=o.ClosedFormEuler())
    near(found.q, result.states[:, :4], 1e-9)


@pytest.mark.slow
@pytest.mark.spec("OC-24")
def test_quadrotor():
    """Crocoddyl's, from rest with no thrust; its costs are by `[linear; angular]`, ours by `[angular; linear]`."""
    model, dt, N = single(dx.Free(), (0.01152, 0.01152, 0.0218), mass=1.477), 0.03, 33
    d, drag = 0.1525, 1e-6 / 6.6e-5
    mixing = np.zeros((6, 4))
    mixing[0], mixing[1], mixing[2], mixing[5] = (0, d, 0, -d), (-d, 0, d, 0), (-drag, drag, -drag, drag), 1.0
    start, goal = dx.neutral(model), jnp.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    weight = jnp.array([1e3] * 3 + [0.1] * 3 + [1e3] * 6)

    def away(x, p):
        return dx.difference(model, goal, x[:7])

    def drift(x, u, p):
        return jnp.concatenate([dx.difference(model, start, x[:7]), x[7:]])

    def problem(**limits):
        return o.problem(
            o.plant(model, actuation=mixing),
            jnp.concatenate([start, jnp.zeros(6)]),
            dt,
            knots=N,
            costs=[
                o.residual(
                    lambda x, u, p: jnp.concatenate([dx.difference(model, start, x[:7]), x[7:]]), 1e-6 * dt * weight
                ),
                o.residual(lambda x, u, p: u, 1e-6 * dt),
                o.residual(lambda x, u, p: away(x, p), 1e-2 * dt),
            ],
            end_costs=[o.residual(away, 3.0)],
            **limits,
        )

    result = converged(o.solve(problem(), jnp.zeros((N, 4)), max_iterations=500))
    near(result.cost, 0.005208640922, 1e-7)
    result = converged(o.solve(problem(lower=0.1, upper=5.0), jnp.zeros((N, 4)), max_iterations=500))
    near(result.cost, 0.00648114311, 1e-7)


@pytest.mark.slow
@pytest.mark.spec("OC-21")
def test_panda_reach():
    model = panda()
    problem, hold = panda_reach(model)
    # At rest with the torques that hold it and with none, and as the former move it (DDP, single shooting).
    for guess, states in ((hold, None), (0.0 * hold, None), (hold, o.rollout(problem, hold))):
        result = converged(o.solve(problem, guess, states))
        near(result.cost, 0.362218199399, 1e-9)
    hand = dx.frame_pose(model, result.states[-1, :7], "panda_hand").translation
    near(hand, [0.29953104, 0.39930778, 0.60009964], 1e-7)
    near(np.max(np.abs(result.controls), axis=0), [4.77, 19.24, 18.80, 27.82, 1.17, 3.07, 0.14], 6e-3)
    limit = jnp.array([10.0, 40.0, 10.0, 25.0, 5.0, 5.0, 2.0])
    result = converged(o.solve(panda_reach(model, lower=-limit, upper=limit)[0], hold))
    near(result.cost, 0.367270537597, 1e-8)


# Batches and what goes wrong ---------------------------------------------------------------------------------------


@pytest.mark.spec("OC-29")
def test_lanes_do_not_know_each_other(rng):
    problem = pendulum_problem()
    goals = jnp.asarray(np.stack([rng.uniform(0.3, 1.2, 64), np.zeros(64)], axis=1))
    u = jnp.full((50, 1), 0.1)

    def solved(goal):
        return o.solve(dataclasses.replace(problem, params={**problem.params, "goal": goal}), u)

    solve = jax.jit(jax.vmap(solved))
    batch, alone = converged(solve(goals)), jax.jit(solved)
    for k in range(0, 64, 8):
        near(batch.controls[k], np.asarray(alone(goals[k]).controls), 1e-10)
    broken = solve(goals.at[5].set(jnp.nan).at[9].set(jnp.array([0.5, 80.0])))
    assert broken.status[5] == o.Status.NOT_FINITE
    assert broken.status[9] != o.Status.CONVERGED
    others = np.delete(np.arange(64), [5, 9])
    for one, other in zip(jax.tree.leaves(batch), jax.tree.leaves(broken), strict=True):
        assert np.array_equal(np.asarray(one)[others], np.asarray(other)[others], equal_nan=True)
    assert "64 trajectories: 62 converged" in str(broken)


def test_what_cannot_be_is_said():
    problem = block(10, lower=-1.0, upper=1.0)  # it would take a force of 4
    result = o.solve(problem, jnp.zeros((10, 1)))
    assert result.status == o.Status.INFEASIBLE
    assert "infeasible" in str(result)
    with pytest.raises(ValueError, match=r"`lower` is not below `upper` for control 0 of knot 0"):
        block(10, lower=1.0, upper=-1.0)
    upper = jnp.array([-11.0, 10.0, jnp.nan])
    result = jax.vmap(lambda upper: o.solve(block(10, lower=-10.0, upper=upper), jnp.zeros((10, 1))))(upper)
    assert result.status.tolist() == [o.Status.INFEASIBLE, o.Status.CONVERGED, o.Status.INFEASIBLE]
    problem = dataclasses.replace(block(3), costs=(o.cost(lambda x, u, p: jnp.abs(u[0]) ** 1.5),))  # its curvature at 0
    assert o.solve(problem, jnp.zeros((3, 1))).status == o.Status.NOT_FINITE


def test_shapes_are_named():
    plant = o.plant(lambda x, u, p: x, states=2, controls=1)
    with pytest.raises(ValueError, match=r"`x0` has shape \(3,\), expected \(2,\)"):
        o.problem(plant, jnp.zeros(3), 0.1, knots=5)
    with pytest.raises(ValueError, match=r"`costs\[0\]` gives shape \(2,\), expected a scalar"):
        o.problem(plant, jnp.zeros(2), 0.1, knots=5, costs=[o.cost(lambda x, u, p: x)])
    with pytest.raises(ValueError, match=r"`end_costs\[0\]`.* expected one made by cost or residual"):
        o.problem(plant, jnp.zeros(2), 0.1, knots=5, end_costs=[o.equality(lambda x, p: x)])
    with pytest.raises(ValueError, match=r"`lower` has shape \(3,\)"):
        o.problem(plant, jnp.zeros(2), 0.1, knots=5, lower=jnp.zeros(3))
    problem = o.problem(plant, jnp.zeros(2), 0.1, knots=5)
    with pytest.raises(ValueError, match=r"`controls` has shape \(4, 1\), expected \(5, 1\)"):
        o.solve(problem, jnp.zeros((4, 1)))


def test_what_is_no_problem_is_named():
    """What a stranger gives: the part is named before anything is compiled."""
    plant = o.plant(lambda x, u, p: (x[0] + u[0], x[1]), states=2, controls=1)  # a tuple will do
    fits = o.residual(lambda x, u, p: [u[0], x[1]])  # so will a list

    def problem(**more):
        return o.problem(plant, **{"x0": [0, 1], "dt": 0.1, "knots": 3, "costs": [fits], **more})

    found = problem()
    assert found.x0.dtype == float
    cases = {
        r"`dt` is not finite at knot 1": lambda: problem(dt=[0.1, np.nan, 0.1]),
        r"`knots` is 0": lambda: problem(knots=0),
        r"`knots` is 3.0, expected a whole number": lambda: problem(knots=3.0),
        r"`knots` is -2, expected a whole number": lambda: problem(knots=-2),
        r"`costs` is one term, expected a list": lambda: problem(costs=fits),
        r"`params`\['a'\] is 'b', expected numbers": lambda: problem(params={"a": "b"}),
        r"`weight` of a residual is -1.0": lambda: o.residual(lambda x, u, p: u, -1.0),
        r"`weight` of a residual is nan": lambda: o.residual(lambda x, u, p: u, np.nan),
        r"`plant` is <ufunc .*, expected one made by o.plant": lambda: o.problem(np.sin, [0.0], 0.1, knots=1),  # type: ignore[arg-type]
        r"`penalty` is 0.0": lambda: o.solve(found, jnp.zeros((3, 1)), penalty=0.0),
        r"`max_iterations` is 0": lambda: o.solve(found, jnp.zeros((3, 1)), max_iterations=0),
        r"`step_sizes` is 0": lambda: o.solve(found, jnp.zeros((3, 1)), step_sizes=0),
    }
    for words, wrong in cases.items():
        with pytest.raises(ValueError, match=words):
            wrong()
    with pytest.raises(TypeError) as raised:
        problem(costs=[fits, o.residual(lambda x, u: u)])
    assert any("in `costs[1]` of o.problem" in note for note in raised.value.__notes__)


def test_a_saddle_is_no_optimum():
    """Between two wells, where no slope tells which way: the solver says so, and at once; from aside it goes down."""
    problem = o.problem(
        o.plant(lambda x, u, p: x + u, states=1, controls=1),
        jnp.zeros(1),
        0.1,
        knots=5,
        costs=[o.residual(lambda x, u, p: u, 1e-2)],
        end_costs=[o.cost(lambda x, p: jnp.sum((x**2 - 1.0) ** 2))],
    )
    guesses = jnp.stack([jnp.zeros((5, 1)), jnp.full((5, 1), 0.1), jnp.full((5, 1), -1e-3)])
    result = jax.vmap(lambda u: o.solve(problem, u, o.rollout(problem, u)))(guesses)
    assert result.status.tolist() == [o.Status.STALLED, o.Status.CONVERGED, o.Status.CONVERGED]
    assert result.iterations[0] < 20
    near(np.abs(result.states[1:, -1, 0]), 0.99975, 1e-4)
    assert np.all(
        np.isnan(jax.grad(lambda x0: o.solve(dataclasses.replace(problem, x0=x0), guesses[0]).cost)(jnp.zeros(1)))
    )
