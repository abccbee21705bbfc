"""Gears, cams and singular poses of embedded models in closed form; derivatives, types and shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms
from constraints.mechanisms import HINGE, at, rod

import dynax as dx

pytestmark = pytest.mark.slow


@jax.jit
def equations(embedded, q, v):
    return dx.mass_matrix(embedded, q), dx.bias_force(embedded, q, v), dx.forward_dynamics(embedded, q, v, 0.0 * v)


@pytest.mark.spec("EMBED-GEAR")
def test_geared_motor_on_a_fixed_base():
    """`M = J_l + m l^2 + mu^2 J_m`."""
    made = mechanisms.geared_chain(1, ratio=7.0)
    embedded = dx.embed(made.model, made.q, independent=["link0_joint"])
    link, motor = rod(0.4, 1.2), 4e-3
    expected = link.inertia[2, 2] + link.mass * 0.2**2 + 49.0 * motor
    np.testing.assert_allclose(equations(embedded, made.q, np.ones(1))[0], [[expected]], rtol=1e-14)
    np.testing.assert_allclose(dx.embedding_matrix(embedded, made.q), [[7.0], [1.0]], rtol=1e-15)


@pytest.mark.spec("EMBED-GEAR")
def test_geared_motor_on_a_tumbling_base(rng):
    """The spin of the rotor, `mu` times the link's, resists turning of the base: a reflected inertia would not."""
    made = mechanisms.geared_chain(1, moving=True)
    embedded = dx.embed(made.model, made.q, independent=["link0_joint"])
    v = rng.normal(size=7)
    biases = []
    for ratio in (7.0, 0.0):
        q = np.array([*made.q[:7], ratio * made.q[8], made.q[8]])
        biases.append(equations(embedded.replace(coupling_ratio=jnp.array([ratio])), q, v)[1])
    spin = np.array([0.0, 0.0, 4e-3 * 7.0 * v[6]])
    gyroscopic = np.zeros(7)
    gyroscopic[:3] = np.cross(v[:3], spin)
    np.testing.assert_allclose(biases[0] - biases[1], gyroscopic, atol=1e-12)
    assert np.abs(gyroscopic).max() > 1e-3


@pytest.mark.spec("EMBED-DIRECT")
def test_cam_against_its_lagrangian(rng):
    """A double pendulum whose second angle is `0.3 sin x + x^2 / 4`, written in the first angle alone."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="cam")
    first, second = rod(0.8, 1.3), rod(0.6, 0.7)
    builder.body("one", joint=HINGE, inertia=first)
    builder.body("two", parent="one", joint=HINGE, placement=at(0.8), inertia=second)
    builder.gear("two_joint", "one_joint", function=lambda x: 0.3 * jnp.sin(x) + 0.25 * x**2)
    model = builder.build()

    def led(x):
        return 0.3 * jnp.sin(x) + 0.25 * x**2

    def lagrangian(x, rate):
        turn, turning = x + led(x), rate * (1.0 + jax.grad(led)(x))
        tip = jnp.array(
            [
                -0.8 * jnp.sin(x) * rate - 0.3 * jnp.sin(turn) * turning,
                0.8 * jnp.cos(x) * rate + 0.3 * jnp.cos(turn) * turning,
            ]
        )
        kinetic = 0.5 * (first.inertia[2, 2] + 1.3 * 0.16) * rate**2 + 0.5 * 0.7 * tip @ tip
        kinetic += 0.5 * second.inertia[2, 2] * turning**2
        height = 1.3 * 0.4 * jnp.sin(x) + 0.7 * (0.8 * jnp.sin(x) + 0.3 * jnp.sin(turn))
        return kinetic - 9.81 * height

    embedded = dx.embed(model, [0.7, float(led(0.7))], independent=["one_joint"])
    x, rate = 1.1, 1.7
    mass, bias, a = equations(embedded, np.array([x, float(led(x))]), np.array([rate]))
    expected = jax.grad(jax.grad(lagrangian, 1), 1)(x, rate)
    rest = jax.grad(jax.grad(lagrangian, 1), 0)(x, rate) * rate - jax.grad(lagrangian, 0)(x, rate)
    np.testing.assert_allclose(mass, [[expected]], rtol=1e-12)
    np.testing.assert_allclose(bias, [rest], rtol=1e-12)
    np.testing.assert_allclose(a, [-rest / expected], rtol=1e-12)


@pytest.mark.spec("EMBED-RANK", "ERR-18")
def test_what_becomes_singular():
    """At a dead centre the choice of coordinates fails, at the horizontal of the N-four-bar the mechanism itself."""
    made = mechanisms.four_bar((1.0, 2.0, 2.0, 2.0))
    model, q = dx.attach(made.model, mechanisms.n_four_bar(2).model, prefix="n_"), np.concatenate([made.q, np.zeros(5)])
    embedded = dx.embed(model, q, independent=["rocker_joint", "n_upright0_joint"])
    program = jax.jit(jax.vmap(lambda q: dx.embedding_quality(embedded, q)))

    def pose(crank, fall):
        third, fourth = mechanisms.four_bar_angles((1.0, 2.0, 2.0, 2.0), crank)
        return np.array([crank, third - crank, fourth, fall, fall, fall, -fall, -fall])

    # Crank and coupler in line: the ground, their sum and the rocker make a triangle.
    dead = np.arccos((9.0 + 4.0 - 4.0) / 12.0)
    quality = program(
        np.stack([pose(c, f) for c, f in ((1.0, 0.3), (dead, np.pi / 2), (dead + 1e-6, np.pi / 2 - 1e-6))])
    )
    single, squares = quality.dependent.T
    mechanism, mobility = quality.conditions.T
    assert np.all(single[1:] < 1e-5)
    assert np.all(mechanism > 0.1)
    assert np.all(mobility[1:] < 1e-5)
    assert np.all(squares[1:] < 1e-5)
    assert min(single[0], squares[0], mobility[0]) > 0.1
    assert np.all(quality.error < 1e-8)


@pytest.mark.slow
@pytest.mark.spec("EMBED-LOOP", "EMBED-ABA")
def test_derivatives(rng):
    """In reverse, by state, forces and parameters, against central differences; finite at rest."""
    made = mechanisms.slider_crank()
    model = made.model.replace(damping=jnp.array([0.1, 0.05, 0.2]), armature=jnp.array([0.01, 0.0, 0.02]))
    embedded = dx.embed(model, made.q)
    q = dx.normalize(embedded, made.q)

    def a(x):
        d, v, tau, length, masses = x[:1], x[1:2], x[2:3], x[3], x[4:]
        ends = model.loop_predecessors
        moved = embedded.replace(
            loop_predecessors=dx.Transform(ends.rotation, ends.translation * (1.0 + length)),
            mass=model.mass * (1.0 + masses),
        )
        # The loop is closed again with the longer rod.
        return dx.forward_dynamics(moved, dx.integrate(moved, q, d), v, tau)[0]

    points = np.stack([np.zeros(7), np.array([0.1, 1.0, 1.0, 0.05, 0.1, 0.1, 0.1]) * rng.normal(size=7)])
    found = np.asarray(jax.jit(jax.vmap(jax.grad(a)))(points))
    assert np.all(np.isfinite(found))
    step = 1e-5
    near = points[:, None, None] + step * np.array([1.0, -1.0])[:, None, None] * np.eye(7)
    values = np.asarray(jax.jit(jax.vmap(a))(near.reshape(-1, 7))).reshape(2, 2, 7)
    np.testing.assert_allclose(found, (values[:, 0] - values[:, 1]) / (2 * step), rtol=1e-6, atol=1e-6)


def test_types_and_batches(rng):
    """Single precision in, single out; a batch of states under one model, and of models under one state."""
    made = mechanisms.leg_linkage()
    embedded = dx.embed(made.model, made.q)
    q, (v, tau) = dx.normalize(embedded, made.q), rng.normal(size=(2, 2))
    expected = dx.forward_dynamics(embedded, q, v, tau)
    single = dx.forward_dynamics(embedded, *(np.asarray(y, np.float32) for y in (q, v, tau)))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, expected, rtol=1e-3)
    heavier = jax.vmap(lambda s: dx.forward_dynamics(embedded.replace(mass=made.model.mass * s), q, v, tau))(
        jnp.ones(2)
    )
    np.testing.assert_allclose(heavier, np.stack([expected] * 2), rtol=1e-12)
    twice = jax.vmap(jax.vmap(lambda v: dx.forward_dynamics(embedded, q, v, tau)))(np.broadcast_to(v, (2, 3, 2)))
    np.testing.assert_allclose(twice, np.broadcast_to(expected, (2, 3, 2)), rtol=1e-12)
