"""Linear systems near states: against the motion itself, closed forms, and the same loops embedded."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms
from flexible.systems import arm, nodal_data, random_state
from optimize.test_plant import mixed

import dynax as dx

ZERO = jnp.zeros(1)


def pendulum(length=0.7) -> dx.Model:
    builder = dx.ModelBuilder()
    rod = dx.SpatialInertia(2.0, (0.0, 0.0, -length), np.zeros((3, 3)))
    return builder.body("bob", joint=dx.Revolute((0, 1, 0)), inertia=rod, damping=0.3).build()


def test_states_nearby(rng):
    """Joints of every kind of manifold, moving: the rates are those at which short motions part."""
    model = mixed()
    q = dx.random_configuration(model, jax.random.key(0))
    v, u, matrix = rng.normal(size=model.nv), rng.normal(size=2), rng.normal(size=(model.nv, 2))
    found = dx.linearize(model, q, v, u, actuation=matrix)

    def steps(h):
        return dx.linearize(model, q, v, u, actuation=matrix, stepper="rk4", dt=h)

    h = 1e-3
    assert found.drift is not None
    near = jax.vmap(steps)(jnp.array([h, -h, h / 2, -h / 2]))
    for name in ("A", "B", "drift"):
        ahead, back, half_ahead, half_back = getattr(near, name)
        slope = (4 * (half_ahead - half_back) / h - (ahead - back) / (2 * h)) / 3
        np.testing.assert_allclose(getattr(found, name), slope, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.drift[: model.nv], v)
    assert np.max(np.abs(found.A[: model.nv, : model.nv])) > 0.1


def test_a_pendulum_and_its_derivatives():
    """Batches, and slopes of the linear system by the model: all in closed form."""
    model, q, u = pendulum(), jnp.linspace(-3.0, 3.0, 5)[:, None], jnp.array([0.5])
    system = jax.jit(jax.vmap(lambda q: dx.linearize(model, q, jnp.zeros(1), u)))(q)
    g, l, m = 9.81, 0.7, 2.0
    np.testing.assert_allclose(system.A[:, 1, 0], -g / l * np.cos(q[:, 0]), atol=1e-12)
    np.testing.assert_allclose(system.A[:, 1, 1], -0.3 / (m * l**2), atol=1e-12)
    np.testing.assert_allclose(system.B[:, :, 0], [[0.0, 1 / (m * l**2)]] * 5, atol=1e-12)
    slope = jax.jacrev(lambda q, mass: dx.linearize(model.replace(mass=mass), q, jnp.zeros(1), u).A, argnums=(0, 1))
    by_q, by_mass = slope(q[1], model.mass)
    np.testing.assert_allclose(by_q[1, 0, 0], g / l * np.sin(q[1, 0]), atol=1e-12)
    np.testing.assert_allclose(by_mass[1, 1, 0], 0.3 / (m * l) ** 2, atol=1e-12)

    modes = dx.eigenmodes(jax.tree.map(lambda x: x[2], system))  # hanging
    np.testing.assert_allclose(modes.frequencies, np.sqrt(g / l), atol=1e-12)
    np.testing.assert_allclose(modes.damping, 0.3 / (m * l**2) / 2 / np.sqrt(g / l), atol=1e-12)
    steps = dx.eigenmodes(dx.linearize(model, ZERO, ZERO, ZERO, stepper="rk4", dt=1e-3))
    np.testing.assert_allclose(steps.values, modes.values, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "error"),
    [({}, 1e-9), pytest.param({"stepper": "rk4", "dt": 0.005}, 1e-7, marks=pytest.mark.slow)],
    ids=str,
)
def test_loops_and_loops_embedded(rng, options, error):
    """A four-bar that moves: on the motions that its loop leaves, the same system as its crank's own; over a step up to
    the error of the steps, which are not the same."""
    bars = mechanisms.four_bar()
    q = dx.assemble(bars.model, bars.q).q
    model = dx.embed(bars.model, q, independent=["crank_joint"])
    v = dx.admissible_velocity(bars.model, q, jnp.array([1.0, 0.0, 0.0]), hold=["crank_joint"])
    whole = dx.linearize(bars.model, q, v, jnp.array([3.0, 0.0, 0.0]), **options)
    own = dx.linearize(model, q, v[:1], jnp.array([3.0]), **options)
    assert whole.projection is not None
    np.testing.assert_allclose(whole.projection @ whole.projection, whole.projection, atol=1e-12)
    x = whole.projection @ rng.normal(size=6)
    np.testing.assert_allclose((whole.A @ x)[::3], own.A @ x[::3], rtol=error)
    np.testing.assert_allclose(whole.B[::3, 0], own.B[:, 0], rtol=error, atol=1e-12)
    # No motion nearby opens the loop: to first order its rate, too, stays zero.
    rate = jax.jacfwd(lambda z: dx.constraint_rate(bars.model, dx.integrate(bars.model, q, z[:3]), v + z[3:]))
    np.testing.assert_allclose(rate(jnp.zeros(6)) @ whole.projection, 0.0, atol=1e-9)


def test_bodies_that_bend(rng):
    model = arm(nodal_data(rng, 3), nodal_data(rng, 2))
    q, v, u, _ = random_state(model, rng)
    found = dx.linearize(model, q, v, u)

    @jax.vmap
    def acceleration(z):
        n = model.nv
        return dx.forward_dynamics(model, dx.integrate(model, q, z[:n]), v + z[n : 2 * n], u + z[2 * n :])

    aside = 1e-5 * np.eye(3 * model.nv)
    slopes = (acceleration(aside) - acceleration(-aside)).T / 2e-5
    np.testing.assert_allclose(np.hstack([found.A, found.B])[model.nv :], slopes, rtol=0, atol=2e-7)


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"`actuation` has shape \(2, 2\), expected \(1, controls\)"):
        dx.linearize(pendulum(), ZERO, ZERO, ZERO, actuation=np.eye(2))
    with pytest.raises(ValueError, match=r"`u` has shape \(2,\), expected \(1,\)"):
        dx.linearize(pendulum(), ZERO, ZERO, jnp.zeros(2))
    with pytest.raises(ValueError, match="`stepper` is 'euler'"):
        dx.linearize(pendulum(), ZERO, ZERO, ZERO, stepper="euler", dt=0.1)
