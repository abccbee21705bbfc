"""Control by plans that are made anew at every tick."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import cart_pole, converged, near, runge_kutta

from dynax import optimize as o

H = 0.05


def push(x, u, p):
    v = x[1] + H * u[0] / p
    return jnp.stack([x[0] + H * v, v])


def test_a_mass_is_brought_to_rest():
    """Whose mass is another than it believes, at a limit of the force on its way; one measurement is lost."""
    N = 30
    problem = o.problem(
        o.plant(push, states=2, controls=1),
        jnp.array([1.0, 0.0]),
        H,
        knots=N,
        costs=[o.residual(lambda x, u, p: x, H), o.residual(lambda x, u, p: u, 0.02 * H)],
        end_costs=[o.residual(lambda x, p: x, 2.0)],
        lower=-1.0,
        upper=1.0,
        params=1.0,
    )
    first = o.start(converged(o.solve(problem, jnp.zeros((N, 1)))))

    def tick(carry, k):
        x, plan = carry
        seen = jnp.where(k == 7, jnp.nan, x)
        plan = o.replan(problem, plan, seen)
        u = o.command(problem, plan, seen)
        return (push(x, u, 1.2), plan), (x, u, plan)

    (x, _), (_, us, plans) = jax.jit(lambda s: jax.lax.scan(tick, s, jnp.arange(200)))((problem.x0, first))
    near(x, 0.0, 1e-3)
    assert np.max(np.abs(us)) == 1.0
    assert plans.missed.tolist() == [0] * 7 + [1] + [0] * 192
    assert plans.status[7] == o.Status.NOT_FINITE
    near(plans.controls[7, :-1], plans.controls[6, 1:], 0.0)  # the last one, moved up
    assert "missed ticks 0" in str(jax.tree.map(lambda p: p[-1], plans))


def test_between_ticks_gains_answer():
    """On the plan the command is planned, off it that of the gains; warm, a solution stays one when it moves up."""
    N = 40
    problem = o.problem(
        o.plant(push, states=2, controls=1),
        jnp.array([1.0, 0.0]),
        H,
        knots=N,
        costs=[o.residual(lambda x, u, p: jnp.concatenate([x, u]), H)],
        end_costs=[o.residual(lambda x, p: x, jnp.array([1.5, 1.0]))],
        params=1.0,
    )
    plan = o.start(converged(o.solve(problem, jnp.zeros((N, 1)))))
    near(o.command(problem, plan, plan.states[0]), plan.controls[0], 0.0)
    middle = 0.5 * (plan.states[0] + plan.states[1])
    near(o.command(problem, plan, middle, part=0.5), plan.controls[0], 1e-15)
    off = o.command(problem, plan, plan.states[0] + jnp.array([0.1, -0.2]))
    near(off - plan.controls[0], plan.gains[0] @ np.array([0.1, -0.2]), 1e-15)
    after = o.replan(problem, plan, plan.states[1])
    anew = o.solve(dataclasses.replace(problem, x0=plan.states[1]), jnp.zeros((N, 1)))
    near(after.controls, anew.controls, 1e-9)  # linear and quadratic: one iteration is all
    with pytest.raises(ValueError, match=r"`x` has shape \(3,\), expected \(2,\)"):
        o.replan(problem, plan, jnp.zeros(3))


@pytest.mark.slow
@pytest.mark.spec("OC-30")
@pytest.mark.usefixtures("optimised")
def test_cart_pole_swings_up_and_stays():
    """100 Hz, an iteration per tick, masses off by up to a fifth and noise on what is measured; 100 of 100 seeds."""
    N, h, seeds = 100, 0.01, 100
    goal = jnp.array([0.0, jnp.pi, 0.0, 0.0])
    step = runge_kutta(cart_pole, h, 4)
    problem = o.problem(
        o.plant(step, states=4, controls=1),
        jnp.zeros(4),
        h,
        knots=N,
        costs=[
            o.residual(lambda x, u, p: x - goal, h * jnp.array([1.0, 3.0, 0.1, 0.1])),
            o.residual(lambda x, u, p: u, 1e-3 * h),
        ],
        end_costs=[o.residual(lambda x, p: x - goal, jnp.array([20.0, 60.0, 2.0, 6.0]))],
        lower=-20.0,
        upper=20.0,
        params={"masses": jnp.array([1.0, 0.2])},
    )
    first = o.start(o.solve(problem, jnp.full((N, 1), 0.1)))

    def closed(key):
        masses, noise = jax.random.split(key)
        params = {"masses": jnp.array([1.0, 0.2]) * jax.random.uniform(masses, (2,), minval=0.8, maxval=1.2)}
        errors = jnp.array([1e-3, 1e-3, 1e-2, 1e-2]) * jax.random.normal(noise, (600, 4))

        def tick(carry, error):
            x, plan = carry
            plan = o.replan(problem, plan, x + error)
            x = step(x, o.command(problem, plan, x + error), params)
            return (x, plan), x

        return jax.lax.scan(tick, (problem.x0, first), errors)[1]

    xs = jax.jit(jax.vmap(closed))(jax.random.split(jax.random.key(0), seeds))
    upright = np.all(np.abs(xs[:, -50:, 1] - np.pi) < 0.1, axis=1)
    assert np.sum(upright) == seeds, np.flatnonzero(~upright)
