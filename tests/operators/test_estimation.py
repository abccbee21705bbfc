"""Dynamics as estimation, composite beside articulated bodies, and other velocities for the same motion.

Forces between bodies are a random process that runs inward along the tree: `x(k) = sum of phi x(child) + w(k)`, with
inertias for the covariances of `w`, seen through `T = H x + noise`, with the rotor inertias for those of the noise.
Forward dynamics is the smoother of that process.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from dense import Dense, crf, mul
from trees import build, states, tree

import dynax as dx

NAMES = ("E_phi", "H", "phi", "psi", "K", "M", "R", "P", "P_plus", "D", "G", "W")


@jax.jit
def evaluate(model, q, v, tau):
    operators = dx.spatial_operators(model, q)
    a = dx.forward_dynamics(model, q, v, tau)
    return (
        {name: getattr(operators, name).dense() for name in NAMES},
        a,
        dx.joint_forces(model, q, v, a).reshape(-1),
        dx.mass_matrix(model, q),
        dx.log_determinant(model, q),
    )


@lru_cache
def case(armature, speed=0.0):
    """A branched tree that floats, without gravity, springs, damping and friction."""
    model = tree("screws")
    nothing = {name: 0.0 * getattr(model, name) for name in ("gravity", "stiffness", "damping", "friction_loss")}
    model = model.replace(armature=armature * model.armature, **nothing)
    s = states(model, 1)
    q, v, tau = s.q[0], speed * s.v[0], s.tau[0]
    o, a, f, mass, logdet = jax.tree.map(np.asarray, evaluate(model, q, v, tau))
    return model, q, v, np.asarray(tau), o, a, f, mass, logdet


def close(found, expected, tolerance=1e-11):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))


@pytest.mark.spec("KF-MAP")
@pytest.mark.parametrize("armature", [1.0, 0.0])
def test_forces_between_bodies_are_a_smoothed_estimate(armature):
    model, _, _, tau, o, a, f, mass, logdet = case(armature)
    h, noise = o["H"], np.diag(model.armature)
    state = o["phi"] @ o["M"] @ o["phi"].T
    output = h @ state @ h.T + noise
    close(output, mass)
    # Given all measurements, by conditioning the joint normal distribution: the forces of forward dynamics.
    close(state @ h.T @ np.linalg.solve(output, tau), f)
    # The filter on the way inward, and the smoother on the way back.
    z = o["psi"] @ o["K"] @ tau
    eps = tau - h @ z
    updated = z + o["G"] @ eps
    close(eps, o["W"] @ tau)
    close(o["W"] @ output @ o["W"].T, o["D"])  # innovations are white
    alpha = o["psi"].T @ h.T @ np.linalg.solve(o["D"], eps)
    close(alpha, o["phi"].T @ h.T @ a)
    close(z + o["P"] @ alpha, f)
    # What the filter knows at a body are the joints beyond it, and after the update its own.
    body = model.topology.body_of_velocity
    for k in range(model.num_bodies):
        own = slice(6 * k, 6 * k + 6)
        close(o["R"][own, own], state[own, own])
        beyond = np.array([model.topology.support[b, k] for b in body])
        for known, mean, covariance in ((beyond & (body != k), z, o["P"]), (beyond, updated, o["P_plus"])):
            cross = state[own] @ h[known].T
            gain = np.linalg.solve(output[np.ix_(known, known)], cross.T).T
            close(gain @ tau[known], mean[own])
            close(state[own, own] - gain @ cross.T, covariance[own, own])
    # The likelihood of the measurements, from the innovations.
    square = eps @ np.linalg.solve(o["D"], eps)
    close(square, tau @ np.linalg.solve(mass, tau))
    likelihood = scipy.stats.multivariate_normal.logpdf(tau, np.zeros(model.nv), mass)
    close(square + logdet + model.nv * np.log(2 * np.pi), -2.0 * likelihood)


@pytest.mark.spec("CRB-TABLE")
@pytest.mark.parametrize("speed", [0.0, 1.0])
def test_composite_and_articulated_quantities(speed):
    """Every column of the table, with velocities too: `f = P (alpha - a) + z` has the bias in `z`."""
    model, q, v, tau, o, accelerations, f, _, _ = case(0.0, speed)
    dense = Dense(model, q[None], v[None])
    a = dense.product.reshape(-1)
    b = mul(crf(dense.velocity), dense.stack(mul(dense.inertia, dense.flat(dense.velocity)))).reshape(-1)
    assert (np.abs(a).max() > 1.0) == (speed > 0.0)
    assert (np.abs(b).max() > 1.0) == (speed > 0.0)
    h, e, p, r, g = o["H"], o["E_phi"], o["P"], o["R"], o["G"]
    hinge = h.T @ accelerations
    alpha = o["phi"].T @ (hinge + a)
    above = e.T @ alpha  # of the parent, before the hinge
    close(alpha, above + hinge + a)
    # Articulated bodies: everything beyond the hinge is free.
    z = o["psi"] @ (o["K"] @ tau + p @ a + b)
    nu = np.linalg.solve(o["D"], tau - h @ z)
    z_plus = z + p @ h.T @ nu
    close(nu, g.T @ (alpha - a))
    close(nu, accelerations + g.T @ above)
    close(alpha, o["psi"].T @ (h.T @ nu + a))
    close(f, p @ (alpha - a) + z)
    close(f, o["P_plus"] @ above + z_plus)
    close(z, e @ z_plus + p @ a + b)
    # Composite bodies: everything beyond the hinge is locked.
    y = o["phi"] @ (b + e @ r @ (hinge + a))
    y_plus = y + r @ (hinge + a)
    close(f, r @ alpha + y)
    close(f, r @ above + y_plus)
    close(y, e @ y_plus + b)
    if speed == 0.0:
        propagated = o["phi"] - np.eye(len(alpha))
        close(z, propagated @ p @ h.T @ nu)
        close(z, o["psi"] @ o["K"] @ tau)
        close(y, propagated @ r @ hinge)
        close(alpha, o["psi"].T @ h.T @ nu)


def turn(axis, angle):
    return jnp.asarray(dx.Rotation.exp(angle * np.eye(3)[axis]).matrix)


@pytest.mark.spec("GF-MAP")
def test_rates_of_angles_and_angular_velocity_are_two_views_of_one_motion():
    """gamma = A v gives A^-* M A^-1, A^-* tau, and the bias A^-* b - M_gamma dA/dt v: a gimbal seen as a ball joint."""
    gimbal, ball = (
        build([(-1, dx.Revolute((1, 1, 0))), (0, joint), (1, dx.Revolute((0, 1, 0)))], seed=5, passive=False)
        for joint in (dx.Gimbal("zyx"), dx.Spherical())
    )
    rng = np.random.default_rng(1)
    q, v, tau = (jnp.asarray(rng.normal(size=5)) for _ in range(3))

    def view(q):
        y, x = turn(1, q[2]), turn(0, q[3])
        columns = [(y @ x).T @ jnp.array([0.0, 0, 1]), x.T @ jnp.array([0.0, 1, 0]), jnp.array([1.0, 0, 0])]
        return jnp.eye(5).at[1:4, 1:4].set(jnp.stack(columns, 1))

    A, rate = (np.asarray(x) for x in jax.jvp(view, (q,), (v,)))
    quaternion = dx.Rotation(turn(2, q[1]) @ turn(1, q[2]) @ turn(0, q[3])).quaternion()
    other = jnp.concatenate([q[:1], quaternion, q[4:]])
    gamma = jnp.asarray(A @ v)
    np.testing.assert_allclose(dx.body_velocities(ball, other, gamma), dx.body_velocities(gimbal, q, v), atol=1e-13)
    mass = np.linalg.solve(A.T, np.linalg.solve(A.T, np.asarray(dx.mass_matrix(gimbal, q))).T)
    np.testing.assert_allclose(dx.mass_matrix(ball, other), mass, atol=1e-12)
    force = jnp.asarray(np.linalg.solve(A.T, tau))
    np.testing.assert_allclose(force @ gamma, tau @ v, atol=1e-13)
    bias = np.linalg.solve(A.T, dx.bias_force(gimbal, q, v)) - mass @ rate @ v
    np.testing.assert_allclose(dx.bias_force(ball, other, gamma), bias, atol=1e-12)
    a = np.asarray(dx.forward_dynamics(gimbal, q, v, tau))
    np.testing.assert_allclose(dx.forward_dynamics(ball, other, gamma, force), A @ a + rate @ v, atol=1e-11)


@pytest.mark.spec("GF-MAP")
def test_any_invertible_change_of_velocities():
    """The equation of motion in `gamma = A(q) v` holds for the rate of `gamma` along the motion, found by
    differences."""
    model = tree("arm")
    s = states(model, 1)
    q, v, tau = s.q[0], s.v[0], s.tau[0]
    weights = np.random.default_rng(2).normal(size=(model.nv,) * 3)

    def view(q):
        return jnp.eye(model.nv) + 0.1 * jnp.sin(jnp.einsum("ijk,k->ij", weights, q))

    mass, bias = dx.mass_matrix(model, q), dx.bias_force(model, q, v)
    a = dx.forward_dynamics(model, q, v, tau)
    A, rate = (np.asarray(x) for x in jax.jvp(view, (q,), (v,)))
    assert np.linalg.cond(A) < 100
    gamma, force = A @ v, np.linalg.solve(A.T, tau)
    mass_gamma = np.linalg.solve(A.T, np.linalg.solve(A.T, np.asarray(mass)).T)
    bias_gamma = np.linalg.solve(A.T, bias) - mass_gamma @ rate @ v
    h = 1e-5
    ahead, behind = (view(q + t * v + 0.5 * t * t * a) @ (v + t * a) for t in (h, -h))
    np.testing.assert_allclose(mass_gamma @ (ahead - behind) / (2 * h) + bias_gamma, force, atol=1e-7)
    np.testing.assert_allclose(force @ gamma, tau @ v, atol=1e-12)
    np.testing.assert_allclose(gamma @ mass_gamma @ gamma, v @ mass @ v, rtol=1e-12)
