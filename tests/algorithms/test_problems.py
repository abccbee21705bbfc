"""Closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

import dynax as dx


@pytest.mark.spec("RBDA-5.3-RNEA", "RBDA-1.1-EOM", "RBDA-6.1-FD")
@pytest.mark.parametrize("name", ["pendulum", "physical_pendulum", "double_pendulum", "spring_mass", "cart_pole"])
def test_equations_of_motion(name, rng):
    model, mass, bias = getattr(problems, name)()
    q, v, tau = rng.normal(size=(3, model.nv))

    @jax.jit
    def routes(q, v, tau):
        return dx.mass_matrix(model, q), dx.bias_force(model, q, v), dx.forward_dynamics(model, q, v, tau)

    m, b, a = routes(q, v, tau)
    np.testing.assert_allclose(m, mass(q), rtol=1e-12)
    np.testing.assert_allclose(b, bias(q, v), atol=1e-12)
    np.testing.assert_allclose(a, np.linalg.solve(mass(q), tau - bias(q, v)), rtol=1e-11)


def test_a_free_body_falls_and_spins():
    moments = np.array([0.2, 0.5, 0.4])
    model = problems.free_body(tuple(moments))
    q = dx.random_configuration(model, jax.random.key(3))
    v = jnp.array([0.3, -1.0, 0.6, 1.0, 2.0, -0.5])
    a = np.asarray(dx.forward_dynamics(model, q, v, jnp.zeros(6)))
    w = np.asarray(v[:3])
    np.testing.assert_allclose(a[:3], -np.cross(w, moments * w) / moments, atol=1e-13)  # Euler's equations
    rotation = np.asarray(dx.Rotation.from_quaternion(q[3:]).matrix)
    np.testing.assert_allclose(a[3:] + np.cross(w, v[3:]), rotation.T @ np.asarray(model.gravity), atol=1e-12)
    # A symmetric top turns its angular velocity about its axis at a constant rate.
    top = problems.free_body((0.2, 0.2, 0.4))
    a = np.asarray(dx.forward_dynamics(top, q, v, jnp.zeros(6)))
    rate = (0.4 - 0.2) / 0.2 * w[2]
    np.testing.assert_allclose(a[:3], [-rate * w[1], rate * w[0], 0.0], atol=1e-13)


@pytest.mark.spec("RBDA-10.2-ZIGZAG", "RBDA-10.2-COND")
def test_zigzag():
    model, q = problems.zigzag()
    ones, zero = jnp.ones(6), jnp.zeros(6)
    tau = np.asarray(dx.inverse_dynamics(model, q, zero, ones))
    np.testing.assert_allclose(tau, problems.ZIGZAG_TORQUE, atol=1e-4)  # digits cut off, not rounded
    a = np.asarray(dx.forward_dynamics(model, q, zero, jnp.asarray(problems.ZIGZAG_ROUNDED)))
    np.testing.assert_allclose(a, problems.ZIGZAG_ACCELERATION, atol=6e-5)
    mass = dx.mass_matrix(model, q)
    np.testing.assert_allclose(np.linalg.cond(mass), 725.39, atol=6e-3)
    np.testing.assert_allclose(np.linalg.cond(dx.mass_matrix(model, zero)), 5685, atol=0.6)
    ten = problems.planar_chain(10)
    np.testing.assert_allclose(np.linalg.cond(dx.mass_matrix(ten, jnp.zeros(10))), 43523, atol=0.6)


@pytest.mark.spec("B-TOP", "RBDA-3.1-STATE")
def test_heavy_top():
    """Digits of the benchmark, by the midpoint rule in the tangent of the ball joint."""
    model = problems.heavy_top()
    dt = 2e-5

    def step(state, _):
        q, v = state
        half = dx.integrate(model, q, 0.5 * dt * v), v + 0.5 * dt * dx.forward_dynamics(model, q, v, jnp.zeros(3))
        a = dx.forward_dynamics(model, *half, jnp.zeros(3))
        return (dx.integrate(model, q, dt * half[1]), v + dt * a), None

    fifth = jax.jit(lambda s: jax.lax.scan(step, s, None, length=round(0.2 / dt))[0])
    state = fifth((dx.neutral(model), jnp.array([0.0, 150.0, -4.61538])))
    expected = np.array([-0.70827915, 0.43878109, 0.5457284, 0.08939975])
    q = np.asarray(state[0])
    np.testing.assert_allclose(q * np.sign(q[0] * expected[0]), expected, atol=2e-5)
    np.testing.assert_allclose(dx.center_of_mass(model, state[0]), [0.60555056, 0.59895768, -0.52398303], atol=2e-5)
    for _ in range(4):
        state = fifth(state)
    np.testing.assert_allclose(dx.center_of_mass(model, state[0]), [0.17334396, 0.64008859, -0.74849079], atol=2e-4)


@pytest.mark.spec("QV", "RBDA-3.1-ALPHA")
def test_euler_angles_move_as_a_ball_joint_does():
    inertia = dx.SpatialInertia(1.2, (0.1, 0.4, -0.2), (0.3, 0.2, 0.4))
    ball, gimbal = (
        dx.ModelBuilder().body("top", joint=joint, inertia=inertia).build()
        for joint in (dx.Spherical(), dx.Gimbal("zyx"))
    )
    angles, rates = jnp.array([0.4, -0.7, 1.1]), jnp.array([1.0, -2.0, 0.5])
    w = dx.body_velocities(gimbal, angles, rates)[0, :3]
    turn = dx.forward_kinematics(gimbal, angles).rotation[0]
    q = dx.Rotation(turn).quaternion()
    by_ball = dx.forward_dynamics(ball, q, w, jnp.zeros(3))
    by_angles = dx.forward_dynamics(gimbal, angles, rates, jnp.zeros(3))
    np.testing.assert_allclose(dx.body_accelerations(gimbal, angles, rates, by_angles)[0, :3], by_ball, rtol=1e-9)
