"""Closed chains with bodies that bend."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.slider_crank import SPEED, TURNS, published, slider_crank
from flexible.systems import RIGID, at, body_of, nodal_data, random_state

import dynax as dx

close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)


def closed_arm(rng) -> Any:
    """Two bodies that bend on one another, a third one on a ball joint, closed by another ball joint at their tips."""
    builder = dx.ModelBuilder(gravity=(0.3, -0.2, -9.0))
    builder.body("hub", joint=dx.Revolute((0, 1, 0)), inertia=RIGID, armature=0.1)
    builder.body("panel", parent="hub", joint=dx.Universal((1, 0, 0), (0, 1, 0)), placement=at(0.2, 0.1, 0.3),
                 inertia=body_of(nodal_data(rng, 3)), damping=0.2, stiffness=3.0)  # fmt: skip
    builder.body("camera", parent="panel/tip", joint=dx.Spherical(), placement=at(0.1, 0.1, 0.3), inertia=RIGID)
    builder.body("boom", parent="panel/side", joint=dx.Revolute((1, 0, 0)), placement=at(0.1, 0.1, 0.3),
                 inertia=body_of(nodal_data(rng, 2)))  # fmt: skip
    builder.loop("closed", predecessor="boom/tip", successor="camera", joint=dx.Spherical())
    builder.gear("boom_joint", "hub_joint", ratio=0.5)
    builder.condition("bent", lambda model, q: q[3] - 0.1 * q[4] ** 2 - 0.05 * jnp.sin(model.time))
    return builder.build()


@pytest.mark.spec("FLEX-CC")
def test_loops_gears_and_conditions(rng):
    """Rows are derivatives of the residual along the motion; methods solve the equations of motion with them."""
    model = closed_arm(rng)
    q, v, _, tau = random_state(model, rng)

    @jax.jit
    def begun(model, q, v):
        q = dx.assemble(model, q).q
        return q, dx.admissible_velocity(model, q, v)

    @jax.jit
    def found(model, q, v, tau):
        methods = ("recursive", "multipliers")
        motions = {name: dx.constrained_dynamics(model, q, v, tau, method=name) for name in methods}
        matrix, a = dx.constraint_jacobian(model, q), motions["recursive"].a

        def residual(d, t):
            return dx.constraint_residual(model.at_time(t), dx.integrate(model, q, d))

        def rate(q, v, t):
            return dx.constraint_rate(model.at_time(t), q, v)

        still = jnp.zeros_like(v)
        along = dx.configuration_rate(model, q, v), a, 1.0
        known = dx.mass_matrix(model, q) @ a + dx.bias_force(model, q, v) - tau
        return {
            "motions": motions,
            "residual": residual(still, 0.0),
            "rate": (rate(q, v, 0.0), jax.jvp(residual, (still, 0.0), (v, 1.0))[1]),
            "bias": (matrix @ a, dx.constraint_bias(model, q, v)),
            "acceleration": jax.jvp(rate, (q, v, 0.0), along)[1],
            "balance": (known, motions["recursive"].force),
        }

    q, v = begun(model, q, v)
    x = found(model, q, v, tau)
    close(x["residual"], 0.0)
    for name in ("rate", "bias", "balance"):
        close(*x[name])
    close(x["rate"][0], 0.0)
    close(x["acceleration"], 0.0)
    for motion in x["motions"].values():
        close(motion.a, x["motions"]["multipliers"].a)
        close(motion.multipliers, x["motions"]["multipliers"].multipliers)
    assert dx.mobility(model, q).mobility == model.nv - 5


@pytest.mark.spec("FLEX-CC", "B-SC")
def test_a_flexible_slider_crank():
    """Against the published numbers of two starts: accelerations of a rod that is straight at first, and where the
    smooth start leads in 0.1 s."""
    model: Any = slider_crank()
    still = jnp.zeros(7)
    q, v = published(np.array([0, 0, 0.45, 0, 0, 0, 0]), np.array([SPEED, -0.5 * SPEED, 0, 0, 0, 0, 0]))
    motion = dx.constrained_dynamics(model, q, v, still)
    printed = partial(np.testing.assert_allclose, rtol=0.0, atol=5e-7)  # six digits after the point
    printed(motion.a[jnp.array([6, 4, 5])], [-3789.473684, 192.434211, 1273.026316])
    printed(motion.multipliers[0], -286.302316)

    q, v = published(
        np.array([0, 0, 0.450016933, 0, 0, 1.03339863e-5, 1.69327969e-5]),
        np.array([SPEED, -74.99576703969453, -2.68938671997904e-6, 0.444896112581599, 0.00463433931923867,
                  -1.78591076e-6, -2.68938672e-6]),
    )  # fmt: skip
    path = dx.rollout(model, q, v, jnp.zeros((16000, 7)), 0.1 / 16000, stepper="rk4", every=16000)
    q, v = path.q[-1], path.v[-1]
    modes = [1.893192460247178e-4, 2.375751865617931e-5, -5.323907988763734e-6, -8.363283141616840e-6]
    np.testing.assert_allclose(q[2:6], modes, rtol=0.0, atol=1e-8 * 0.17)
    np.testing.assert_allclose(q[0] + q[1] - TURNS @ q[2:6], -0.3311734987910881, rtol=1e-8)
    np.testing.assert_allclose(q[6], 0.1697373326718410, rtol=1e-8)
    np.testing.assert_allclose(v[0] + v[1] - TURNS @ v[2:6], 60.25346682645789, rtol=2e-6)
    np.testing.assert_allclose(v[6], -8.753116989887888, rtol=2e-6)
    force = dx.constrained_dynamics(model.at_time(0.1), q, v, still).multipliers
    np.testing.assert_allclose(force[jnp.array([0, 1, 3])], [163.7910, -62.3289, -25.2985], rtol=2e-5)


@pytest.mark.slow
@pytest.mark.spec("FLEX-CC")
def test_derivatives_of_accelerations_with_gears_and_conditions(rng):
    """By the configuration, along its tangent, against differences."""
    model = closed_arm(rng)
    q, v, _, tau = random_state(model, rng)
    q = dx.assemble(model, q).q
    v = dx.admissible_velocity(model, q, v)
    weights, along = jnp.asarray(rng.normal(size=(2, model.nv)))

    def power(moved):
        return weights @ dx.constrained_dynamics(model, dx.integrate(model, q, moved), v, tau).a

    value, gradient = jax.jit(power), jax.jit(jax.grad(power))(jnp.zeros(model.nv))
    slope = float(value(1e-6 * along) - value(-1e-6 * along)) / 2e-6
    assert float(gradient @ along) == pytest.approx(slope, rel=1e-6)
