"""Diagonalised dynamics, normalised and not: maps, energy, the term that does no work, and the same motion."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import build, states, swing, tree

import dynax as dx

BOTH = {"normalized": True, "unnormalized": False}
STEP = 1e-5


def t(a):
    return np.swapaxes(a, -1, -2)


@lru_cache
def case():
    """Some states, and the mass matrix there and a step before and after along `v`."""
    model = tree("screws")
    s = states(model, 4)

    @jax.jit
    def oracle(q, v):
        masses = [dx.mass_matrix(model, dx.integrate(model, q, h * v)) for h in (0.0, STEP, -STEP)]
        return jnp.stack(masses), dx.coriolis_matrix(model, q, v) @ v

    masses, coriolis = (np.asarray(x) for x in jax.vmap(oracle)(s.q, s.v))
    return model, s, masses, coriolis


@lru_cache
def results(normalized):
    model, s, _, _ = case()

    @jax.jit
    def run(q, v, tau):
        nu = dx.diagonal_velocity(model, q, v, normalized=normalized)
        return {
            "nu": nu,
            "back": dx.velocity_from_diagonal(model, q, nu, normalized=normalized),
            "eps": dx.diagonal_force(model, q, tau, normalized=normalized),
            "coriolis": jax.vmap(lambda x: dx.diagonal_coriolis(model, q, x, normalized=normalized))(
                jnp.stack([nu, 2.0 * nu])
            ),
        }

    return {k: np.asarray(x) for k, x in jax.vmap(run)(s.q, s.v, s.tau).items()}


@lru_cache
def factors(normalized):
    """`L`, or `F` and the inverse of `D`, by dense elimination, there and before and after."""
    model, _, masses, _ = case()
    root = np.linalg.cholesky(masses[..., ::-1, ::-1])[..., ::-1, ::-1]
    if normalized:
        return root, np.broadcast_to(np.eye(model.nv), root.shape)
    body = model.topology.body_of_velocity
    blocks = root * (body[:, None] == body)
    return root @ np.linalg.inv(blocks), blocks @ t(blocks)


@pytest.mark.spec("DIAG")
@pytest.mark.parametrize("normalized", BOTH.values(), ids=BOTH)
def test_maps_energy_and_power(normalized):
    _, s, masses, _ = case()
    found = results(normalized)
    f, d = (x[:, 0] for x in factors(normalized))
    v, tau = np.asarray(s.v), np.asarray(s.tau)
    np.testing.assert_allclose(found["nu"], np.einsum("bji,bj->bi", f, v), atol=1e-12)
    np.testing.assert_allclose(found["eps"], np.linalg.solve(f, tau[..., None])[..., 0], atol=1e-12)
    np.testing.assert_allclose(found["back"], v, atol=1e-13)
    energy = np.einsum("bi,bij,bj->b", found["nu"], d, found["nu"])
    np.testing.assert_allclose(energy, np.einsum("bi,bij,bj->b", v, masses[:, 0], v), rtol=1e-13)
    np.testing.assert_allclose(np.sum(found["eps"] * found["nu"], 1), np.sum(tau * v, 1), atol=1e-12)


@pytest.mark.spec("DIAG")
@pytest.mark.parametrize("normalized", BOTH.values(), ids=BOTH)
def test_velocity_terms(normalized):
    """C = F^-1 C_std - D (dF/dt)* v, quadratic; normalised (D = 1) it does no work, else that of half the rate of
    D."""
    _, s, _, coriolis = case()
    f, d = factors(normalized)
    rate, mass_rate = ((x[:, 1] - x[:, 2]) / (2 * STEP) for x in (f, d))
    nu, (once, twice) = results(normalized)["nu"], np.moveaxis(results(normalized)["coriolis"], 1, 0)
    expected = np.linalg.solve(f[:, 0], coriolis[..., None])[..., 0] - np.einsum("bij,bkj,bk->bi", d[:, 0], rate, s.v)
    np.testing.assert_allclose(once, expected, atol=1e-8)
    np.testing.assert_allclose(twice, 4.0 * once, atol=1e-12)
    work = np.sum(nu * once, 1)
    if normalized:
        assert np.all(np.abs(work) < 1e-12)
        assert np.all(np.linalg.norm(once, axis=1) > 1.0)
    else:
        np.testing.assert_allclose(work, 0.5 * np.einsum("bi,bij,bj->b", nu, mass_rate, nu), atol=1e-8)
        assert np.all(np.abs(work) > 1e-3)


UNLIKE = (
    (-1, dx.Spherical()),
    (0, dx.Reversed(dx.RackAndPinion(0.4))),
    (0, dx.Driven(dx.Revolute((0.0, 1.0, 0.0)), swing)),
    (2, dx.Universal((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))),
)
"""Joints unlike screws: of several freedoms, with columns that move in the body, driven."""


@pytest.mark.slow
@pytest.mark.spec("DIAG")
def test_the_same_motion():
    """Integrated from one state in either velocities and in those of the joints, under forces, springs and gravity."""
    model = build(UNLIKE, seed=3)
    s = states(model, 1)
    q, v, tau, external = s.q[0], s.v[0], s.tau[0], s.external[0]
    steps, dt = 60, 4e-3

    def standard(at, q, v):
        return v, dx.forward_dynamics(at, q, v, tau, external)

    def diagonal(normalized):
        def rates(at, q, nu):
            v = dx.velocity_from_diagonal(at, q, nu, normalized=normalized)
            return v, dx.diagonalized_dynamics(at, q, nu, tau, external, normalized=normalized)

        return rates

    def integrate(rates, state):
        def slope(time, q, x):
            v, dx_dt = rates(model.replace(time=time), q, x)
            return dx.configuration_rate(model, q, v), dx_dt

        def step(carry, _):  # the classical method of order four
            time, state = carry

            def stage(k, fraction_weight):
                fraction, weight = fraction_weight
                moved = jax.tree.map(lambda x, k: x + fraction * dt * k, state, k)
                k = slope(time + fraction * dt, *moved)
                return k, jax.tree.map(lambda k: weight * k, k)

            table = jnp.array([0.0, 0.5, 0.5, 1.0]), jnp.array([1.0, 2.0, 2.0, 1.0]) / 6
            _, parts = jax.lax.scan(stage, jax.tree.map(jnp.zeros_like, state), table)
            return (time + dt, jax.tree.map(lambda x, k: x + dt * k.sum(0), state, parts)), None

        (time, state), _ = jax.lax.scan(step, (model.time, state), length=steps)
        return time, *state

    time, q_end, v_end = jax.jit(lambda: integrate(standard, (q, v)))()
    assert np.abs(q_end - q).max() > 0.2
    late = model.replace(time=time)
    for normalized in BOTH.values():

        @jax.jit
        def run(normalized=normalized):
            start = dx.diagonal_velocity(model, q, v, normalized=normalized)
            work = start @ dx.diagonal_coriolis(model, q, start, normalized=normalized)
            _, q_found, nu = integrate(diagonal(normalized), (q, start))
            return work, q_found, dx.velocity_from_diagonal(late, q_found, nu, normalized=normalized)

        work, *found = run()
        np.testing.assert_allclose(found[0], q_end, atol=1e-8)
        np.testing.assert_allclose(found[1], v_end, atol=1e-8)
        assert (abs(work) < 1e-12) == normalized


@pytest.mark.slow
@pytest.mark.spec("DIAG")
def test_gradients_at_rest():
    model = build([(-1, dx.Revolute((0, 1, 0))), (0, dx.Prismatic((1, 0, 0)))])
    zero = jnp.zeros(2)
    with pytest.raises(ValueError, match=r"`nu` has shape"):
        dx.diagonalized_dynamics(model, zero, jnp.zeros(4), zero)

    @jax.jit
    @jax.jacrev
    def jacobians(x):
        return dx.diagonalized_dynamics(model, *x)

    found = jacobians((zero, zero, zero))
    for jacobian in found:
        assert np.all(np.isfinite(jacobian))
    root = dx.innovations_factor(model, zero)
    np.testing.assert_allclose(found[2], root.solve_root(jnp.eye(2)), atol=1e-14)
