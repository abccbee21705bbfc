"""Least time and least fuel, whose controls jump between their limits, against published optima.

Where controls jump, no polynomial fits, and errors fall as slowly as the knots come closer; the rule of the midpoint
has constant controls and nothing that rings. Equations are written out, so that each compiles in seconds, and compared
with dynax's own before anything is made of them.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from optimize.standard import converged, near, runge_kutta, single

import dynax as dx
from dynax import optimize as o


def assert_moves_as(model: dx.Model, rate, x, u, actuation=None) -> None:
    """`rate(x, u, None)` is the velocity and the acceleration of the model."""
    v = x[model.nq :]
    force = u if actuation is None else actuation @ u
    near(rate(x, u, None), jnp.concatenate([v, dx.forward_dynamics(model, x[: model.nq], v, force)]), 1e-12)


def duration(problem: o.Problem, result: o.Result) -> float:
    return float(o.nodes(problem, result).time[-1])


def arm(x: jax.Array, u: jax.Array, _) -> jax.Array:
    """Two rods of mass and length one with a load of one at the end, in a plane without gravity, driven at the joints
    (Luus 2000; PSOPT, `twolinkarm`); coordinates are those of the joints."""
    a, b, s, c = x[2], x[2] + x[3], jnp.sin(x[1]), jnp.cos(x[1])
    first, second = u[0] - u[1] + 1.5 * s * b * b, u[1] - 1.5 * s * a * a
    determinant = 28 / 9 - 2.25 * c * c
    upper = (4 / 3 * first - 1.5 * c * second) / determinant
    lower = (7 / 3 * second - 1.5 * c * first) / determinant
    return jnp.stack([x[2], x[3], upper, lower - upper])


@pytest.mark.slow
@pytest.mark.spec("OC-17")
def test_two_links_in_least_time(rng):
    rod = dx.SpatialInertia(1.0, (0.5, 0.0, 0.0), np.diag([0.0, 1 / 12, 1 / 12]))
    loaded = dx.SpatialInertia(2.0, (0.75, 0.0, 0.0), np.diag([0.0, 5 / 24, 5 / 24]))
    builder = dx.ModelBuilder(gravity=(0, 0, 0)).body("upper", joint=dx.Revolute((0, 0, 1)), inertia=rod)
    there = dx.Transform.from_translation((1.0, 0.0, 0.0))
    builder.body("lower", parent="upper", joint=dx.Revolute((0, 0, 1)), placement=there, inertia=loaded)
    assert_moves_as(builder.build(), arm, jnp.asarray(rng.normal(size=4)), jnp.asarray(rng.normal(size=2)))

    N, start, goal = 200, jnp.array([0.0, 0.5, 0.0, 0.0]), jnp.array([0.522, 0.5, 0.0, 0.0])
    problem = o.collocation(
        o.plant(arm, states=4, controls=2),
        start,
        jnp.full(N, 3.0 / N),
        method="midpoint",
        costs=[o.cost(lambda x, u, p: jnp.ones(()))],
        end_constraints=[o.equality(lambda x, p: x - goal)],
        lower=-1.0,
        upper=1.0,
        free_time=(0.5, 2.0),
    )
    line = np.linspace(start, goal, N + 1) + np.array([0.0, 0.0, 0.174, 0.0])
    guess = o.guess(problem, line, np.zeros((N + 1, 2)))
    result = converged(o.solve(problem, *guess, second_order=True, penalty=100.0, max_iterations=600))
    near(duration(problem, result), 2.98228, 1e-4)
    controls = np.sign(np.asarray(result.controls[1:, :2]))
    assert np.sum(np.diff(controls, axis=0) != 0, axis=0).tolist() == [1, 2]


@pytest.mark.slow
@pytest.mark.spec("OC-14")
def test_half_a_turn_in_least_time(rng):
    """Of a ball, each torque within one: sooner than about its own axis, in 2 sqrt(pi) (Bilimoria & Wie 1993)."""
    N, model = 120, single(dx.Spherical(), (1.0, 1.0, 1.0))
    rest = dx.neutral(model)

    def rate(x, u, p):
        return jnp.concatenate([x[4:], u])

    q, v, torque = dx.random_configuration(model, jax.random.key(0)), *jnp.asarray(rng.normal(size=(2, 3)))
    near(dx.forward_dynamics(model, q, v, torque), torque, 1e-12)
    goal = dx.integrate(model, rest, jnp.array([0.0, 0.0, np.pi]))
    problem = o.collocation(
        o.plant(
            rate,
            states=7,
            controls=3,
            tangents=6,
            integrate=lambda x, d: jnp.concatenate([dx.integrate(model, x[:4], d[:3]), x[4:] + d[3:]]),
            difference=lambda x, y: jnp.concatenate([dx.difference(model, x[:4], y[:4]), y[4:] - x[4:]]),
        ),
        jnp.concatenate([rest, jnp.zeros(3)]),
        jnp.full(N, 3.3 / N),
        method="midpoint",
        costs=[o.cost(lambda x, u, p: jnp.ones(()))],
        end_constraints=[o.equality(lambda x, p: jnp.concatenate([dx.difference(model, goal, x[:4]), x[4:]]))],
        lower=-1.0,
        upper=1.0,
        free_time=(0.5, 2.0),
    )
    t = jnp.linspace(0.0, 1.0, N + 1)
    # About its axis it would be a saddle: it is tilted on the way.
    tilt = 0.4 * jnp.stack([jnp.sin(np.pi * t), -jnp.sin(np.pi * t), np.pi * t / 0.4], axis=1)
    turned = jax.vmap(lambda d: dx.integrate(model, rest, d))(tilt)
    states = jnp.concatenate([turned, jnp.broadcast_to(jnp.array([0.0, 0.0, np.pi / 3.3]), (N + 1, 3))], axis=1)
    guess = o.guess(problem, states, np.zeros((N + 1, 3)))
    result = converged(o.solve(problem, *guess, second_order=True, penalty=100.0, max_iterations=600))
    near(duration(problem, result), 3.2431, 1e-3)


# A robot that floats in a plane, with two pairs of jets (Sakawa 1999; Betts 2010, section 6.13) --------------------

START, DURATION = jnp.array([-10.0, -10.0, np.pi / 2, 0.0, 0.0, 0.0]), 12.0
PUBLISHED = (
    ["0110", "0010", "0000", "1000", "0000", "0100", "0000", "0001", "1001"],
    (0.6, 0.5, 1.5, 2.3, 2.3, 2.3, 1.5, 0.5, 0.6),
)
"""Which of the four jets burn one after the other, and for about how long [s]."""
BETTER = (
    ["0110", "0010", "0000", "0001", "1000", "0000", "0100", "0101", "0000"],
    (0.2, 1.6, 3.6, 0.4, 3.1, 1.2, 1.4, 0.5, 0.0),
)


def with_jets(x: jax.Array, u: jax.Array, _) -> jax.Array:
    left, right = u[0] - u[1], u[2] - u[3]
    push = (left + right) * jnp.stack([jnp.cos(x[2]), jnp.sin(x[2])])
    return jnp.concatenate([x[3:], push, 0.2 * (left - right)[None]])


def flown(x: jax.Array, jets: jax.Array, length: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The state after an arc, and those before each of its steps."""
    step = runge_kutta(with_jets, length / 20, 4)
    return jax.lax.scan(lambda x, _: (step(x, jets, None), x), x, None, length=20)


def least_fuel(jets: jax.Array, lengths: jax.Array) -> tuple[o.Result, jax.Array]:
    """With these arcs, whose lengths are chosen; and by how much Pontryagin's principle is missed, by which a jet burns
    where its switching function is negative."""

    def arc(x, u, p):
        return jnp.append(flown(x[:6], p[1], u[0])[0], x[6] + u[0])

    problem = o.problem(
        o.plant(arc, states=7, controls=1),
        jnp.append(START, 0.0),
        1.0,
        knots=len(jets),
        costs=[o.cost(lambda x, u, p: u[0] * jnp.sum(p[1]))],
        end_constraints=[o.equality(lambda x, p: x - jnp.append(jnp.zeros(6), DURATION))],
        lower=0.0,
        per_knot=jnp.concatenate([jets, jets[-1:]]),
    )
    u = lengths[:, None]
    result = o.solve(problem, u, o.rollout(problem, u), second_order=True, penalty=1e3)

    def within(x, u, jets, costate):
        _, xs = flown(x[:6], jets, u[0])
        step = runge_kutta(with_jets, u[0] / len(xs), 4)

        def back(after, x):
            before = jax.vjp(lambda x: step(x, jets, None), x)[1](after)[0]
            return before, before

        _, costates = jax.lax.scan(back, costate[:6], xs, reverse=True)
        slopes = jax.vmap(lambda x, l: jax.vjp(lambda u: with_jets(x, u, None), jets)[1](l)[0])(xs, costates)
        return jnp.max(jnp.where(jets > 0, 1.0, -1.0) * (1.0 + slopes))

    missed = jax.vmap(within)(result.states[:-1], result.controls, jets, result.costates[1:])
    return result, jnp.max(jnp.where(result.controls[:, 0] > 0, missed, 0.0))


@pytest.mark.spec("OC-16")
def test_jets_burn_as_published():
    """Betts' optimum to his digits, as the least fuel by when jets are lit and put out, which no mesh blurs; and one
    that turns further and takes less, so that his is a local one.

    Of his the switching functions have the right signs but for 4e-4 beside two switches, where they are flat. That of
    the better one has the wrong sign where it would burn one jet by parts, for which IPOPT finds 7.6886."""
    arcs = np.array([[[float(jet) for jet in arc] for arc in names] for names, _ in (PUBLISHED, BETTER)])
    lengths = np.array([PUBLISHED[1], BETTER[1]])
    result, missed = jax.jit(jax.vmap(least_fuel))(arcs, lengths)
    converged(result)
    near(result.cost[0], 7.9101, 2e-4)
    near(result.cost, [7.91014874, 7.69044], 5e-6)
    near(result.states[:, -1], np.append(np.zeros(6), DURATION), 1e-7)
    assert missed[0] < 1e-3
    assert missed[1] < 2e-2


@pytest.mark.slow
@pytest.mark.spec("OC-16")
def test_jets_by_collocation():
    """Fuel is what thrust costs, so that jets jump; a square that fades with each solution lets them bend at first.
    From a line that turns to and fro it comes to the published arcs, from the straight one to the better optimum."""
    N = 60
    problem = o.collocation(
        o.plant(with_jets, states=6, controls=4),
        START,
        jnp.full(N, DURATION / N),
        costs=[o.cost(lambda x, u, p: jnp.sum(u) + p * jnp.sum(u * u))],
        end_constraints=[o.equality(lambda x, p: x)],
        lower=0.0,
        upper=1.0,
        params=1.0,
    )

    @jax.jit
    def solve(weight, guess):
        faded = dataclasses.replace(problem, params=weight)
        return o.solve(faded, *guess, second_order=True, penalty=1e3, max_iterations=300)

    def fuel_and_jets(bend: float) -> tuple[float, np.ndarray]:
        line = np.linspace(START, 0.0 * START, N + 1)
        line[:, 2] += bend * np.sin(2 * np.pi * np.linspace(0.0, 1.0, N + 1))
        line[:, 3:5] = 10.0 / DURATION
        guess = o.guess(problem, line, np.zeros((N + 1, 4)))
        iterations = 0
        for weight in (1.0, 0.3, 0.1):
            result = converged(solve(weight, guess))
            guess = result.controls, result.states
            iterations += int(result.iterations)
        assert iterations <= 250  # 366 and 354 with limits looked at knot by knot only
        jets, (_, _, ends, middles) = np.asarray(result.controls[1:, :4]), o.nodes(problem, result)
        assert np.max(np.sum(jets.reshape(N, 2, 2), axis=2)) <= 1.0
        near(middles, jets, 1e-12)
        return float(jnp.sum(ends[:-1] + 4.0 * middles + ends[1:])) * DURATION / (6 * N), jets

    fuel, jets = fuel_and_jets(-0.5)
    near(fuel, 7.931, 1e-3)  # that of the published arcs is 7.910
    burns = jets > 0.5
    first = np.flatnonzero(np.append(True, np.any(burns[1:] != burns[:-1], axis=1)))
    assert ["".join(str(int(jet)) for jet in row) for row in burns[first]] == PUBLISHED[0]
    near(np.diff(np.append(first, N)) * DURATION / N, PUBLISHED[1], DURATION / N)
    near(fuel_and_jets(0.0)[0], 7.704, 1e-3)


# Costs that are linear in the controls, without a square that fades ------------------------------------------------


def pushed(steps: int, distance: jax.Array) -> o.Problem:
    """A unit mass, to and fro with at most one, rest to rest over a distance in three seconds, with the least fuel."""
    h = 3.0 / steps

    def step(x, u, p):
        v = x[1] + h * (u[0] - u[1])
        return jnp.stack([x[0] + h * v, v])

    return o.problem(
        o.plant(step, states=2, controls=2),
        jnp.zeros(2),
        h,
        knots=steps,
        costs=[o.cost(lambda x, u, p: h * jnp.sum(u))],
        end_constraints=[o.equality(lambda x, p: x - jnp.stack([p, 0.0]))],
        lower=0.0,
        upper=1.0,
        params=distance,
    )


def test_least_fuel_of_a_mass():
    """It burns for `t` at each end, `t (T - t)` the distance: where switches fall on knots the optimum is that of
    continuous time. Between knots it is that of the linear program."""
    steps, push = 30, jnp.zeros((30, 2))
    h = 3.0 / steps
    solve = jax.jit(lambda distance: o.solve(pushed(steps, distance), push, penalty=100.0))
    result = converged(solve(0.4 * 2.6))
    near(result.cost, 0.8, 1e-8)
    force = np.concatenate([np.ones(4), np.zeros(22), -np.ones(4)])
    near(result.controls[:, 0] - result.controls[:, 1], force, 1e-6)
    assert result.iterations <= 60

    distance = 1.0
    moves = h * h * np.arange(steps, 0, -1)
    rows = np.stack([np.concatenate([moves, -moves]), np.concatenate([np.full(steps, h), np.full(steps, -h)])])
    known = scipy.optimize.linprog(np.full(2 * steps, h), A_eq=rows, b_eq=[distance, 0.0], bounds=(0.0, 1.0))
    result = converged(solve(distance))
    near(result.cost, known.fun, 1e-7)
    near(result.cost, 3.0 - np.sqrt(9.0 - 4.0 * distance), 2e-3)
    assert result.iterations <= 60


def test_least_time_of_a_mass():
    """Two seconds over a distance of one: half of them forward, half back."""
    steps = 20
    problem = o.collocation(
        o.plant(lambda x, u, p: jnp.stack([x[1], u[0]]), states=2, controls=1),
        jnp.zeros(2),
        jnp.full(steps, 3.0 / steps),
        method="midpoint",
        costs=[o.cost(lambda x, u, p: jnp.ones(()))],
        end_constraints=[o.equality(lambda x, p: x - jnp.array([1.0, 0.0]))],
        lower=-1.0,
        upper=1.0,
        free_time=(0.2, 2.0),
    )
    line = np.linspace([0.0, 0.3], [1.0, 0.3], steps + 1)
    guess = o.guess(problem, line, np.zeros((steps + 1, 1)))
    result = converged(o.solve(problem, *guess, second_order=True, penalty=100.0))
    near(duration(problem, result), 2.0, 1e-7)
    near(result.controls[1:, 0], np.repeat([1.0, -1.0], steps // 2), 1e-6)


@pytest.mark.slow
def test_least_fuel_of_a_lander():
    """In a plane, one jet below and two that turn it: from two guesses the same, and as Pontryagin's principle has it:
    by the slopes of the Lagrangian of the motion that controls lead to, jets burn, do not, or are at a switch."""
    steps, h, most = 40, 0.1, jnp.array([3.0, 1.0, 1.0])

    def step(x, u, p):
        push = jnp.stack([-u[0] * jnp.sin(x[2]), u[0] * jnp.cos(x[2]) - 1.0, u[1] - u[2]])
        v = x[3:] + h * push
        return jnp.concatenate([x[:3] + h * v, v])

    problem = o.problem(
        o.plant(step, states=6, controls=3),
        jnp.array([2.0, 5.0, 0.3, -0.5, -1.0, 0.0]),
        h,
        knots=steps,
        costs=[o.cost(lambda x, u, p: h * (u[0] + 0.1 * (u[1] + u[2])))],
        end_constraints=[o.equality(lambda x, p: x)],
        lower=0.0,
        upper=most,
    )
    guesses = jnp.stack([jnp.full((steps, 3), 0.1), jnp.tile(jnp.array([1.0, 0.2, 0.2]), (steps, 1))])
    solve = jax.jit(lambda u: o.solve(problem, u, second_order=True, penalty=100.0))

    @jax.grad
    def slopes(u, multipliers):
        fuel = h * jnp.sum(u @ jnp.array([1.0, 0.1, 0.1]))
        return fuel + multipliers @ o.rollout(problem, u)[-1]

    costs = []
    for u in guesses:
        result = converged(solve(u))
        costs.append(result.cost)
        u, slope = np.asarray(result.controls), np.asarray(slopes(result.controls, result.multipliers.end))
        off, full = u == 0.0, u == most
        near(slope[~off & ~full], 0.0, 1e-6)
        assert np.all(slope[off] > -1e-6)
        assert np.all(slope[full] < 1e-6)
        assert np.mean(off | full) > 0.9
    near(costs[0], costs[1], 1e-7)


@pytest.mark.slow
def test_least_fuel_of_a_slew():
    """Of a ball about an axis, as a mass goes; three pairs of jets, the others stay off."""
    steps, model = 30, single(dx.Spherical(), (1.0, 1.0, 1.0))
    rest, h = dx.neutral(model), 0.1
    goal = dx.integrate(model, rest, jnp.array([0.0, 0.0, 0.4 * 2.6]))
    problem = o.problem(
        o.plant(model, actuation=np.hstack([np.eye(3), -np.eye(3)])),
        jnp.concatenate([rest, jnp.zeros(3)]),
        h,
        knots=steps,
        costs=[o.cost(lambda x, u, p: h * jnp.sum(u))],
        end_constraints=[o.equality(lambda x, p: jnp.concatenate([dx.difference(model, goal, x[:4]), x[4:]]))],
        lower=0.0,
        upper=1.0,
    )
    result = converged(o.solve(problem, jnp.full((steps, 6), 0.01), second_order=True, penalty=100.0))
    near(result.cost, 0.8, 1e-6)
    force = np.zeros((steps, 3))
    force[:, 2] = np.concatenate([np.ones(4), np.zeros(22), -np.ones(4)])
    near(result.controls[:, :3] - result.controls[:, 3:], force, 1e-4)
