"""How solutions move with their problems: against differences of problems solved anew."""

from __future__ import annotations

import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from optimize.standard import block, cart_pole, panda, panda_reach, pendulum_problem, runge_kutta, single

import dynax as dx
from dynax import optimize as o


def known(result: o.Result) -> dict:
    return {name: getattr(result, name) for name in ("states", "controls", "cost")}


def assert_is_the_derivative(solved, at, step=1e-4, tolerance=1e-5, backward=True):
    """Of the trees of arrays `at`: along each entry, and backward from a sum of each part of the result."""
    flat, unpacked = ravel_pytree(at)

    def both(z):
        result = solved(unpacked(z))
        found = known(result)
        sums = [jnp.sum(jnp.cos(jnp.arange(x.size).reshape(x.shape)) * x) for x in found.values()]
        return (found, jnp.stack(sums)), result.status

    eye = jnp.eye(len(flat))
    points = jnp.concatenate([flat + 0.0 * eye, flat + step * eye, flat - step * eye])
    run = jax.jit(jax.vmap(lambda z, d: jax.jvp(both, (z,), (d,), has_aux=True)))
    (values, _), (rates, rows), status = run(points, jnp.tile(eye, (3, 1)))
    assert np.all(status == o.Status.CONVERGED), status
    for name, rate in rates.items():
        found, (_, up, down) = np.split(np.asarray(rate), 3)[0], np.split(np.asarray(values[name]), 3)
        expected = (up - down) / (2 * step)
        size = np.abs(expected).max(initial=1.0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size, err_msg=name)
    if backward:

        @jax.jit
        def both_ways(z):
            """Of one solution: another program's multipliers are as far from these as the goal may be missed."""
            sums, forward = jax.linearize(lambda z: both(z)[0][1], z)
            (turned,) = jax.vmap(jax.linear_transpose(forward, z))(jnp.eye(len(sums)))
            return jax.vmap(forward, out_axes=1)(eye), turned

        pushed, turned = both_ways(flat)
        np.testing.assert_allclose(pushed, turned, rtol=0, atol=1e-9 * np.abs(pushed).max())
        np.testing.assert_allclose(pushed, rows[: len(flat)].T, rtol=0, atol=1e-7 * np.abs(pushed).max())


def weighed(term: o.Term, factor) -> o.Term:
    return dataclasses.replace(term, weight=factor * term.weight)


@pytest.mark.spec("OC-27")
def test_a_swing_up():
    """With its goal met exactly and its torque at a limit: by start, goal, mass, limits and the weight of a cost."""
    problem, u = pendulum_problem(), jnp.full((50, 1), 0.1)

    def solved(at):
        x0, mass, goal, limit, factor = at
        costs = problem.costs[0], weighed(problem.costs[1], factor)
        limits = jnp.full((50, 1), -limit), jnp.full((50, 1), limit)
        params = {"goal": goal, "mass": mass}
        moved = dataclasses.replace(problem, x0=x0, params=params, costs=costs, limits=limits)
        return o.solve(moved, u, second_order=True, constraint_tolerance=1e-10)

    limit = 2.0
    at = problem.x0, jnp.asarray(1.0), problem.params["goal"], jnp.asarray(limit), jnp.asarray(1.0)
    assert np.sum(np.abs(solved(at).controls) == limit) > 3
    assert_is_the_derivative(solved, at, step=1e-5)


def test_a_pointer_on_a_circle():
    """States `[cos, sin, rate]` of two freedoms, its goal an angle: derivatives are those along the circle."""
    N, h = 10, 0.1

    def turned(x, d):
        c, s = jnp.cos(d[0]), jnp.sin(d[0])
        return jnp.stack([c * x[0] - s * x[1], s * x[0] + c * x[1], x[2] + d[1]])

    def between(x, y):
        return jnp.stack([jnp.arctan2(x[0] * y[1] - x[1] * y[0], x[0] * y[0] + x[1] * y[1]), y[2] - x[2]])

    def step(x, u, p):
        rate = x[2] + h * (u[0] + p["pull"] * x[1])
        return turned(x, jnp.stack([h * rate, rate - x[2]]))

    problem = o.problem(
        o.plant(step, states=3, controls=1, tangents=2, integrate=turned, difference=between),
        jnp.array([1.0, 0.0, 0.0]),
        h,
        knots=N,
        costs=[o.residual(lambda x, u, p: u, h)],
        end_constraints=[o.equality(lambda x, p: between(turned(jnp.array([1.0, 0.0, 0.0]), p["goal"]), x))],
        params={"pull": 0.7, "goal": jnp.array([1.5, 0.2])},
    )

    def solved(at):
        params, start = at
        moved = dataclasses.replace(problem, params=params, x0=turned(problem.x0, start))
        return o.solve(moved, jnp.zeros((N, 1)), constraint_tolerance=1e-10)

    assert_is_the_derivative(solved, (problem.params, jnp.array([0.1, 0.3])))


@pytest.mark.slow
def test_a_turn_of_a_body():
    """On the rotations: by the leaves of the model, the goal (along its tangent) and the start."""
    N, model = 8, single(dx.Spherical(), (1.0, 2.0, 3.0))
    start = dx.neutral(model)
    end = dx.integrate(model, start, jnp.array([0.9, -0.4, 0.5]))
    problem = o.problem(
        o.plant(model),
        jnp.concatenate([start, jnp.zeros(3)]),
        1.0 / N,
        knots=N,
        costs=[o.residual(lambda x, u, p: u, 2.0 / N)],
        end_costs=[o.residual(lambda x, p: jnp.concatenate([dx.difference(model, p, x[:4]), x[4:]]), 50.0)],
        params=end,
    )

    def solved(at):
        inertia, goal, x0 = at
        plant = dataclasses.replace(problem.plant, model=model.replace(inertia=inertia))
        params = dx.integrate(model, end, goal)
        moved = dataclasses.replace(problem, plant=plant, params=params, x0=plant.integrate(problem.x0, x0))
        return o.solve(moved, jnp.zeros((N, 3)))

    assert_is_the_derivative(solved, (model.inertia, jnp.zeros(3), jnp.zeros(6)), tolerance=2e-5, backward=False)


def test_second_derivatives():
    """Of the least cost 12 N^2 / (N^2 - 1) goal^2 of a block."""
    N, problem = 6, block(6)

    def cost(goal):
        moved = dataclasses.replace(problem, params=jnp.stack([goal, 0.0 * goal]))
        return o.solve(moved, jnp.zeros((N, 1)), constraint_tolerance=1e-11).cost

    np.testing.assert_allclose(jax.jit(jax.hessian(cost))(1.0), 24 * N**2 / (N**2 - 1), rtol=1e-8)


def closing_over(part: str, goal):
    """The cost of two steps along a line, of which one part reads `goal` without being given it."""
    shift = goal if part == "the plant's step" else 0.0
    plant = o.plant(lambda x, u, p: x + u + shift, states=1, controls=1)
    to_goal = o.residual(
        lambda x, u, p: x - (goal if part == "`costs[1]`" else 1.0),
        activation=(lambda r: goal * r * r) if "activation" in part else None,
    )
    problem = o.problem(plant, jnp.zeros(1), 0.1, knots=2, costs=[o.residual(lambda x, u, p: u), to_goal])
    return o.solve(problem, jnp.zeros((2, 1))).cost


@pytest.mark.parametrize("part", ["`costs[1]`", "the activation of `costs[1]`", "the plant's step"])
def test_what_is_not_given_has_no_gradient(part):
    """It was zero under `jit`; elsewhere JAX had no handler for a constant."""
    cost, goal = partial(closing_over, part), jnp.array(1.0)
    plain = cost(goal)
    assert plain > 0
    np.testing.assert_allclose(jax.jit(cost)(goal), plain)
    for slope in (jax.grad(cost), jax.jit(jax.grad(cost)), jax.grad(jax.jit(cost)), jax.jacfwd(jax.jit(cost))):
        with pytest.raises(ValueError, match=rf"by what {re.escape(part)} takes from elsewhere.*`params`"):
            slope(goal)


def test_what_has_not_converged_has_no_gradient():
    """In a batch the others have theirs."""
    problem, u = pendulum_problem(), jnp.full((50, 1), 0.1)

    def cost(goal):
        moved = dataclasses.replace(problem, params={**problem.params, "goal": goal})
        result = o.solve(moved, u, max_iterations=30)
        return result.cost, result

    goals = jnp.array([[0.5, 0.0], [np.pi, 0.0], [0.7, 0.0]])
    slopes, results = jax.jit(jax.vmap(jax.grad(cost, has_aux=True)))(goals)
    assert [o.Status(int(s)).name for s in results.status] == ["CONVERGED", "ITERATIONS", "CONVERGED"]
    assert np.all(np.isfinite(slopes), axis=1).tolist() == [True, False, True]
    assert np.all(np.isnan(slopes[1]))
    assert max(results.residual[0], results.residual[2]) < 1e-6
    assert results.residual[1] > 1e-6


@pytest.mark.slow
@pytest.mark.spec("OC-27")
@pytest.mark.parametrize("which", ["kelly", "altro"])
def test_cart_poles(which):
    """OC-04 by held forces, with its goal met; OC-07 with its limit. By target, mass of the pole and weight."""
    (masses, duration, order, bound), N = (
        {
            "kelly": ((1.0, 0.3), 2.0, 4, 20.0),
            "altro": ((1.0, 0.2), 5.0, 3, 3.0),
        }[which],
        100,
    )
    h, costly = duration / N, which == "altro"

    def solved(at):
        goal, mass, factor = at
        problem = o.problem(
            o.plant(runge_kutta(cart_pole, h, order), states=4, controls=1),
            jnp.zeros(4),
            h,
            knots=N,
            costs=[
                o.residual(lambda x, u, p: x - p["goal"], 1e-2 * h * costly),
                weighed(o.residual(lambda x, u, p: u, 0.1 * h if costly else 2.0 * h), factor),
            ],
            end_costs=[o.residual(lambda x, p: x - p["goal"], 100.0 * costly)],
            end_constraints=[o.equality(lambda x, p: x - p["goal"])],
            lower=-bound,
            upper=bound,
            params={"goal": goal, "masses": jnp.stack([jnp.asarray(masses[0]), mass])},
        )
        guess = jnp.full((N, 1), 0.01)
        line = jnp.linspace(0.0, 1.0, N + 1)[:, None] * goal
        states = o.rollout(problem, guess) if costly else line
        return o.solve(problem, guess, states, second_order=True, constraint_tolerance=1e-10)

    goal = jnp.array([0.0 if costly else 1.0, jnp.pi, 0.0, 0.0])
    assert_is_the_derivative(solved, (goal, jnp.asarray(masses[1]), jnp.asarray(1.0)), step=1e-5)


@pytest.mark.slow
@pytest.mark.spec("OC-27")
def test_panda():
    """OC-21, with the curvature of its dynamics in the derivative though not in the iterations."""
    model = panda()
    problem, hold = panda_reach(model)

    def solved(at):
        target, mass, factor = at
        plant = dataclasses.replace(problem.plant, model=model.replace(mass=model.mass.at[6].add(mass)))
        costs = problem.costs[0], weighed(problem.costs[1], factor)
        moved = dataclasses.replace(problem, plant=plant, params=target, costs=costs)
        return o.solve(moved, hold, second_order=True)

    assert_is_the_derivative(solved, (problem.params, jnp.asarray(0.0), jnp.asarray(1.0)), step=1e-4)
