"""Least time, whose controls jump between their limits, against published optima.

Where controls jump, no polynomial fits, and errors fall as slowly as the knots come closer; the rule of the midpoint
has constant controls and nothing that rings. Equations are written out, so that each compiles in seconds, and compared
with dynax's own before anything is made of them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import converged, near, single

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
