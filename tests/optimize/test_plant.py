"""How robots move between knots: derivatives along the tangent space, and those that every optimiser leans on."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms

import dynax as dx
from dynax import optimize as o
from dynax.optimize.plant import by_directions, linearized


@dataclass(frozen=True)
class PlainEuler(dx.AbstractStepper):
    def step(self, model, q, v, tau, dt):
        v = v + dt * dx.forward_dynamics(model, q, v, tau)
        return dx.integrate(model, q, dt * v), v


def mixed() -> dx.Model:
    """A free body that carries a ball joint, a planar joint and a hinge."""
    builder = dx.ModelBuilder()
    inertia = dx.SpatialInertia(1.5, (0.1, -0.05, 0.2), np.diag([0.3, 0.4, 0.5]))
    reach = dx.Transform(np.eye(3), np.array([0.3, 0.1, -0.2]))
    builder.body("base", parent="world", joint=dx.Free(), inertia=inertia)
    builder.body("ball", parent="base", joint=dx.Spherical(), placement=reach, inertia=inertia)
    builder.body("sled", parent="ball", joint=dx.Planar((0.0, 0.0, 1.0)), placement=reach, inertia=inertia)
    builder.body("hinge", parent="sled", joint=dx.Revolute((0.0, 1.0, 0.0)), placement=reach, inertia=inertia)
    return builder.build()


@pytest.mark.spec("OC-26")
def test_the_closed_form_is_the_derivative(rng):
    """At the identity and at rest, at half a turn, and anywhere; after a step that is long enough to matter."""
    model, dt = mixed(), jnp.asarray(0.05)
    closed, plain = o.plant(model), o.plant(model, stepper=PlainEuler())
    n, m = closed.ndx, closed.nu
    still = dx.neutral(model)
    turned = dx.integrate(model, still, jnp.zeros(model.nv).at[0].set(np.pi).at[7].set(np.pi).at[9].set(np.pi))
    qs = [still, turned, *(dx.random_configuration(model, jax.random.key(k)) for k in range(4))]
    vs = [np.zeros(m), np.zeros(m), *rng.normal(size=(4, m))]
    x, u = jnp.stack([jnp.concatenate(s) for s in zip(qs, vs, strict=True)]), jnp.asarray(rng.normal(size=(6, m)))

    def ahead(plant, x, u, z):
        after = jax.lax.stop_gradient(plant.step(x, u, None, dt))
        return plant.difference(after, plant.step(plant.integrate(x, z[:n]), u + z[n:], None, dt))

    def jacobian(plant):
        return jax.jit(jax.vmap(lambda x, u: jax.jacfwd(lambda z: ahead(plant, x, u, z))(jnp.zeros(n + m))))(x, u)

    found = jacobian(closed)
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found, jacobian(plain), rtol=0, atol=1e-9)
    directions = 1e-5 * np.concatenate([np.eye(n + m), -np.eye(n + m)])
    values = jax.jit(jax.vmap(jax.vmap(lambda x, u, z: ahead(closed, x, u, z), (None, None, 0)), (0, 0, None)))
    up, down = np.split(np.asarray(values(x, u, directions)), 2, axis=1)
    np.testing.assert_allclose(found, ((up - down) / 2e-5).swapaxes(1, 2), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("carried", ["hinge", "ball"])
def test_the_curvature_of_a_step(carried, rng):
    """Against differences of the step's gradient, where the next state is not where the step ends: of a hinge on a free
    body, in closed form, and of a ball, whose dynamics go by directions."""
    inertia = dx.SpatialInertia(1.3, np.array([0.05, -0.02, 0.1]), np.diag([0.2, 0.3, 0.25]))
    builder = dx.ModelBuilder()
    builder.body("base", joint=dx.Free(), inertia=inertia)
    away = dx.Transform(translation=(0.1, 0.2, 0.3))
    joint = {"hinge": dx.Revolute((0.0, 1.0, 1.0)), "ball": dx.Spherical()}[carried]
    builder.body("tip", parent="base", joint=joint, placement=away, inertia=inertia)
    model, dt, h = builder.build(), jnp.asarray(0.05), 1e-5
    plant = o.plant(model)
    n, m, still = plant.ndx, plant.nu, dx.neutral(model)
    half = dx.integrate(model, still, jnp.zeros(m).at[0].set(np.pi))
    qs = [still, half, dx.random_configuration(model, jax.random.key(0))]
    vs = [np.zeros(m), np.zeros(m), rng.normal(size=m)]

    def curvature(x, u, costate, gap):
        after = plant.integrate(plant.step(x, u, None, dt), gap)
        ahead = lambda z: plant.difference(after, plant.step(plant.integrate(x, z[:n]), u + z[n:], None, dt))  # noqa: E731
        slope = jax.grad(lambda z: jnp.sum(costate * ahead(z)))
        expected = jax.vmap(lambda d: (slope(h * d) - slope(-h * d)) / (2 * h))(jnp.eye(n + m))
        return linearized(plant, x, u, after, None, dt, costate)[2], 0.5 * (expected + expected.T)

    x = jnp.stack([jnp.concatenate(s) for s in zip(qs, vs, strict=True)])
    u, costate, gap = (jnp.asarray(rng.normal(size=(3, k))) for k in (m, n, n))
    found, expected = jax.jit(jax.vmap(curvature))(x, u, costate, 0.1 * gap)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.max(np.abs(expected)))


def test_gradients_by_the_model():
    """Through the closed form the leaves of the model keep their derivatives."""
    model = mixed()
    q, v, tau = dx.neutral(model), 0.1 * jnp.arange(model.nv), jnp.ones(model.nv)

    def end(mass, stepper):
        return jnp.sum(dx.step(model.replace(mass=mass), q, v, tau, 0.1, stepper=stepper)[1] ** 2)

    slope = jax.jit(jax.grad(end), static_argnums=1)
    one, other = (slope(model.mass, stepper) for stepper in (o.ClosedFormEuler(), PlainEuler()))
    np.testing.assert_allclose(one, other, rtol=1e-10)


def test_what_does_not_fit_is_named():
    model = mixed()
    with pytest.raises(ValueError, match=r"`actuation` has shape \(3, 2\), expected \(13, controls\)"):
        o.plant(model, actuation=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="`states` and `controls` are missing"):
        o.plant(lambda x, u, p: x)
    with pytest.raises(ValueError, match="`controls` is 0, expected at least 1"):
        o.plant(lambda x, u, p: x, states=1, controls=0)
    with pytest.raises(ValueError, match=r"`actuation` has shape \(13, 0\), expected one column or more"):
        o.plant(model, actuation=np.zeros((13, 0)))
    with pytest.raises(ValueError, match=r"`dt` is 0\.0 at knot 1, expected the length of a step"):
        o.problem(o.plant(model), np.append(dx.neutral(model), np.zeros(13)), [0.1, 0.0])
    with pytest.raises(ValueError, match="model 'welded' has no joint that moves"):
        o.plant(dx.ModelBuilder(name="welded").build())


@pytest.mark.spec("OC-28")
def test_gradients_in_float32(rng):
    """A balanced cart-pole, 200 steps from each of 1000 states: finite, and as in float64."""
    builder = dx.ModelBuilder()
    builder.body(
        "cart",
        parent="world",
        joint=dx.Prismatic((1.0, 0.0, 0.0)),
        inertia=dx.SpatialInertia(1.0, np.zeros(3), np.eye(3)),
    )
    builder.body(
        "pole",
        parent="cart",
        joint=dx.Revolute((0.0, 1.0, 0.0)),
        inertia=dx.SpatialInertia(0.3, (0.0, 0.0, 0.5), 1e-6 * np.eye(3)),
    )
    model = builder.build()
    states = rng.uniform(-0.05, 0.05, (1000, 4))
    states[0] = 0.0

    def cost(controls, x):
        policy = controls @ jnp.array([[1.0, 0.0]], controls.dtype)
        path = dx.rollout(model, x[:2], x[2:], policy, 0.005)
        return jnp.sum(path.q**2) + 0.1 * jnp.sum(path.v**2) + 1e-3 * jnp.sum(controls**2)

    slope = jax.jit(jax.vmap(jax.grad(cost), (None, 0)))
    long = slope(jnp.zeros((200, 1)), jnp.asarray(states))
    short = slope(jnp.zeros((200, 1), np.float32), jnp.asarray(states, np.float32))
    assert short.dtype == np.float32
    assert np.all(np.isfinite(short))
    size = np.abs(long).max(axis=(1, 2), keepdims=True)
    assert np.all(np.abs(np.asarray(short) - long) <= 1e-3 * np.maximum(size, 1e-3))


@pytest.mark.slow
@pytest.mark.spec("OC-26")
def test_a_step_with_a_closed_loop_is_linearized():
    """By the Jacobian of its accelerations, as by derivatives of the step, which closes the loop."""
    bars = mechanisms.four_bar()
    q = dx.assemble(bars.model, bars.q).q
    model = dx.embed(bars.model, q, independent=["crank_joint"])
    plant, dt = o.plant(model, actuation=np.array([[2.0]])), jnp.asarray(0.05)
    x, u = jnp.append(q, 0.7), jnp.array([0.4])
    after = jnp.append(dx.integrate(model, q, jnp.array([0.1])), 0.5)
    (c, J), (c_of_step, J_of_step) = (
        jax.jit(lambda x, u, how=how: how(plant, x, u, after, None, dt, None)[:2])(x, u)
        for how in (linearized, by_directions)
    )
    np.testing.assert_allclose(c, c_of_step, rtol=0, atol=1e-12)
    np.testing.assert_allclose(J, J_of_step, rtol=0, atol=1e-10)
