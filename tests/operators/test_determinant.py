"""The log-determinant, its gradient in closed form, and Fixman's potential."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dense import Dense, crm
from operators.varied import varied
from trees import build, states, tree

import dynax as dx

KT = 0.7


@jax.jit
def torques(model, qs):
    return jax.vmap(lambda q: dx.fixman_torque(model, q, KT))(qs)


@jax.jit
def log_determinants(model, qs):
    return jax.vmap(lambda q: dx.log_determinant(model, q))(qs)


def slogdets(model, qs):
    return np.linalg.slogdet(jax.jit(jax.vmap(lambda q: dx.mass_matrix(model, q)))(qs))[1]


@pytest.mark.spec("SOA-LOGDET")
def test_log_determinant():
    model = build([(-1, dx.Free()), (0, dx.Universal((0, 0, 1), (0, 1, 0))), (-1, dx.Revolute()), (2, dx.Prismatic())])
    q = states(model, 4).q
    np.testing.assert_allclose(log_determinants(model, q), slogdets(model, q), rtol=1e-12)
    nothing = dx.ModelBuilder().build()
    assert dx.log_determinant(nothing, jnp.zeros(0)) == 0.0


@pytest.mark.spec("LOGDET-GRAD", "FIXMAN")
def test_every_joint_against_automatic_differentiation():
    model = varied()
    q = jnp.concatenate([states(model, 3).q, dx.neutral(model)[None]])  # rest is an ordinary input

    def potential(q, dq):
        return dx.fixman_potential(model, dx.integrate(model, q, dq), KT)

    gradient = jax.jit(jax.vmap(jax.grad(potential, 1)))(q, jnp.zeros((4, model.nv)))
    torque = torques(model, q)
    np.testing.assert_allclose(torque, -gradient, atol=1e-12)
    # A free root feels nothing; all that hangs on something that can move does, and what moves its own axes.
    felt = np.abs(torque).max(0)
    assert np.all(felt[:6] == 0.0)
    assert np.all(felt[6:] > 1e-3)


@pytest.mark.spec("ERR-10", "LOGDET-GRAD")
@pytest.mark.parametrize("armature", [1.0, 0.0])
def test_closed_form_of_hinges_with_its_sign(armature):
    """-2 tr(P Upsilon (s x)*), with P and Upsilon from dense matrices; the printed sign is wrong."""
    model = tree("arm")
    model = model.replace(armature=armature * model.armature)
    state = states(model, 3)
    dense = Dense(model, state.q, state.v)
    p, _ = dense.articulated(model.armature)
    upsilon, expected = np.zeros_like(p), np.zeros((3, model.nv))
    for k, parent in enumerate(model.parents):
        s = dense.columns[k]
        d = (np.swapaxes(s, 1, 2) @ p[:, k] @ s)[:, 0, 0] + float(model.armature[k])
        through = np.eye(6) - p[:, k] @ s @ np.swapaxes(s, 1, 2) / d[:, None, None]
        upsilon[:, k] = s @ np.swapaxes(s, 1, 2) / d[:, None, None]
        if parent >= 0:
            psi = np.swapaxes(dense.transform[:, k], 1, 2) @ through
            upsilon[:, k] += np.swapaxes(psi, 1, 2) @ upsilon[:, parent] @ psi
        expected[:, k] = -2.0 * np.einsum("bij,bjk,bik->b", p[:, k], upsilon[:, k], crm(s[:, :, 0]))
    gradient = np.asarray(torques(model, state.q)) / (-0.5 * KT)
    np.testing.assert_allclose(gradient, expected, atol=1e-11)
    assert np.all(np.abs(expected[:, 0]) < 1e-13)  # the first hinge only turns the whole
    step = 1e-5 * np.concatenate([np.eye(model.nv), -np.eye(model.nv)])
    moved = slogdets(model, (state.q[:, None] + step).reshape(-1, model.nq)).reshape(3, 2, model.nv)
    np.testing.assert_allclose(gradient, (moved[:, 0] - moved[:, 1]) / 2e-5, atol=1e-8)
    assert np.abs(gradient).max() > 0.1


def particles(*positions):
    """Unit masses at points, as one body."""
    at = np.array(positions, dtype=float)
    com = at.mean(0)
    r = at - com
    return dx.SpatialInertia(len(at), com, np.sum(r * r) * np.eye(3) - r.T @ r)


def add_trimer(builder, name, base):
    """Three unit masses on rigid bonds of unit length: two on the base, the third on a hinge at the second."""
    builder.body(name, joint=base, inertia=particles((-1, 0, 0), (0, 0, 0)))
    builder.body(f"{name}_third", parent=name, joint=dx.Revolute((0, 0, 1)), inertia=particles((1, 0, 0)))


@pytest.mark.spec("FIXMAN", "LOGDET-GRAD")
def test_closed_forms_of_two_links_and_three_atoms():
    """det M is 1 + sin^2 for a double pendulum, 4 - cos^2 for a planar trimer that floats, and sin^2 (4 - cos^2) for
    one that floats in space (unit masses and lengths).

    So rigid bonds weight the angle of the last by sin(phi) sqrt(4 - cos^2 phi): the first is the measure of the angle
    between two bonds, the second what Fixman's potential is there to remove.
    """
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    tip = particles((1.0, 0.0, 0.0))
    builder.body("upper", joint=dx.Revolute((0, 0, 1)), inertia=tip)
    place = dx.Transform(translation=np.array([1.0, 0.0, 0.0]))
    builder.body("lower", parent="upper", joint=dx.Revolute((0, 0, 1)), placement=place, inertia=tip)
    add_trimer(builder, "planar", dx.Planar())
    add_trimer(builder, "free", dx.Free())
    model = builder.build()
    angles = jnp.linspace(0.1, 3.0, 30)
    hinges = np.array([model.q_slice(f"{name}_joint").start for name in ("lower", "planar_third", "free_third")])
    q = jax.vmap(lambda angle: dx.neutral(model).at[hinges].set(angle))(angles)
    s, c = np.sin(angles), np.cos(angles)
    floating = 2 * np.log(4 - c**2) + 2 * np.log(s)
    np.testing.assert_allclose(log_determinants(model, q), np.log1p(s**2) + floating, atol=1e-12)
    slopes = {
        "lower": 2 * s * c / (1 + s**2),
        "planar_third": 2 * s * c / (4 - c**2),
        "free_third": 2 * s * c / (4 - c**2) + 2 * c / s,
    }
    expected = np.zeros((30, model.nv))
    for name, slope in slopes.items():
        expected[:, model.v_slice(f"{name}_joint")] = -0.5 * KT * slope[:, None]
    np.testing.assert_allclose(torques(model, q), expected, atol=1e-12)


@pytest.mark.spec("FIXMAN")
def test_the_torque_evens_out_the_angle_in_thermal_motion():
    """At equilibrium no mean changes: with velocities of covariance kT M^-1, the mean of d^2 f(phi) / dt^2 vanishes for
    the density of the angle that stays as it is, sqrt(4 - cos^2 phi) on rigid bonds, constant with Fixman's torque.

    The second derivative is quadratic in the velocity, so its mean follows from a pair of velocities for each column of
    a root of the covariance, and the mean over the angle is one of a smooth periodic function: both are exact.
    """
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    add_trimer(builder, "pair", dx.Planar())
    model = builder.build()

    def second_derivative(angle, temperature):
        q = jnp.zeros(4).at[3].set(angle)
        torque = dx.fixman_torque(model, q, temperature)

        def along(v):
            a = dx.forward_dynamics(model, q, v, torque)
            return -4.0 * jnp.cos(2 * angle) * v[3] ** 2 - 2.0 * jnp.sin(2 * angle) * a[3]

        root = dx.innovations_factor(model, q).solve_root_transpose(jnp.sqrt(KT) * jnp.eye(4))
        at_rest = along(jnp.zeros(4))
        pairs = jax.vmap(along)(root.T) + jax.vmap(along)(-root.T) - 2.0 * at_rest
        return at_rest + 0.5 * jnp.sum(pairs)

    angles = jnp.arange(64) * 2 * jnp.pi / 64
    change = jax.jit(jax.vmap(jax.vmap(second_derivative, (0, None)), (None, 0)))(angles, jnp.array([KT, 0.0]))
    density = jnp.stack([jnp.ones(64), jnp.sqrt(4 - jnp.cos(angles) ** 2)])
    means = np.asarray(change @ density.T) / 64
    np.testing.assert_allclose(np.diag(means), 0.0, atol=1e-13)
    assert np.all(np.abs(means[[0, 1], [1, 0]]) > 0.05)


@pytest.mark.spec("SOA-LOGDET", "LOGDET-GRAD")
def test_transformations_types_and_special_points():
    model = build([(-1, dx.Universal((0, 0, 1), (0, 1, 0))), (0, dx.Revolute((1, 0, 0)))])
    rest = dx.neutral(model)
    # A second derivative through the closed form: symmetric, since it is that of a potential.
    curvature = jax.jit(jax.jacfwd(lambda q: dx.fixman_torque(model, q, KT)))(rest)
    assert np.abs(curvature).max() > 1e-3
    np.testing.assert_allclose(curvature, curvature.T, atol=1e-13)
    for function in (dx.log_determinant, dx.fixman_torque):
        arguments = (rest.astype(jnp.float32), KT)[: 2 if function is dx.fixman_torque else 1]
        assert jax.eval_shape(partial(function, model), *arguments).dtype == jnp.float32
    with pytest.raises(ValueError, match=r"`q` has shape"):
        dx.log_determinant(model, jnp.zeros(4))
