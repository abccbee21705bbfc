"""One constrained body, solved three ways with plain matrices, against the engine (RBDA sections 3.2 to 3.6)."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import dynax as dx
from dynax.spatial import plucker

COLUMNS = {
    "revolute": (dx.Revolute((0, 0, 1)), np.eye(6)[:, [2]]),
    "cylindrical": (dx.Cylindrical((0, 0, 1)), np.eye(6)[:, [2, 5]]),
    "spherical": (dx.Spherical(), np.eye(6)[:, :3]),
}


def body(rng) -> dx.SpatialInertia:
    a = 0.3 * rng.standard_normal((3, 3))
    return dx.SpatialInertia(1.0 + rng.random(), 0.3 * rng.standard_normal(3), a @ a.T + 0.2 * np.eye(3))


def complement(s: np.ndarray) -> np.ndarray:
    """A basis of the forces that do no work on `s`: it lives in the dual space, `T^T s = 0`."""
    return np.linalg.svd(s)[0][:, s.shape[1] :]


@pytest.mark.spec("RBDA-3.3-SUBSP")
def test_subspaces_and_their_duals(rng):
    s = rng.standard_normal((6, 2))
    t = complement(s)
    np.testing.assert_allclose(t.T @ s, 0.0, atol=1e-12)
    assert s.shape[1] + t.shape[1] == 6
    # A change of basis and of units leaves the subspace, and the relation, as they are.
    units = np.diag([1.0, 1.0, 1.0, 1e3, 1e3, 1e3])  # lengths in millimetres
    mixed = units @ s @ rng.standard_normal((2, 2))
    np.testing.assert_allclose((np.linalg.inv(units).T @ t).T @ mixed, 0.0, atol=1e-9)
    # Read as motions, the same numbers are a Euclidean complement: it does not survive the units, so it means nothing.
    assert np.abs((units @ t).T @ (units @ s)).max() > 1e-3
    # Any motion splits uniquely over a direct sum.
    other = rng.standard_normal((6, 4))
    v = rng.standard_normal(6)
    alpha = np.linalg.solve(np.concatenate([s, other], 1), v)
    np.testing.assert_allclose(s @ alpha[:2] + other @ alpha[2:], v, atol=1e-12)


@pytest.mark.spec("RBDA-3.3-EX31")
def test_a_force_splits_into_accelerating_and_opposed_parts(rng):
    inertia, s, f = body(rng).matrix, rng.standard_normal((6, 3)), rng.standard_normal(6)

    def accelerating(s):
        return inertia @ s @ np.linalg.solve(s.T @ inertia @ s, s.T @ f)

    part = accelerating(s)
    np.testing.assert_allclose(s.T @ (f - part), 0.0, atol=1e-12)
    np.testing.assert_allclose(accelerating(s @ rng.standard_normal((3, 3))), part, atol=1e-10)
    # A body at rest, free along s, accelerates as if the part alone acted on it without constraint.
    free = s @ np.linalg.solve(s.T @ inertia @ s, s.T @ f)
    np.testing.assert_allclose(np.linalg.solve(inertia, part), free, atol=1e-11)


@pytest.mark.spec("RBDA-3.6-M1", "RBDA-3.6-M2", "RBDA-3.6-M3")
@pytest.mark.parametrize("kind", COLUMNS)
def test_three_methods_and_the_engine_agree(rng, kind):
    joint, s = COLUMNS[kind]
    own = body(rng)
    model = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0)).body("b", joint=joint, inertia=own).build()
    inertia, t = own.matrix, complement(s)
    q = dx.random_configuration(model, jax.random.key(0))
    rates, f = rng.standard_normal(model.nv), rng.standard_normal(6)
    v = s @ rates
    p = np.asarray(plucker.crf(v)) @ inertia @ v
    rate = np.asarray(plucker.crm(v)) @ s  # true rate of a column fixed in the body
    # S method (eqs. 3.47 to 3.55).
    h = s.T @ inertia @ s
    m1 = np.linalg.solve(h, s.T @ (f - inertia @ rate @ rates - p))
    phi = s @ np.linalg.solve(h, s.T)
    b = rate @ rates - phi @ (inertia @ rate @ rates + p)
    assert np.linalg.matrix_rank(phi) == s.shape[1]
    np.testing.assert_allclose(phi @ t, 0.0, atol=1e-12)
    np.testing.assert_allclose(s @ m1 + rate @ rates, phi @ f + b, atol=1e-11)
    # T method (eqs. 3.56 to 3.60): the rate of T follows from T^T S = 0.
    count = t.shape[1]
    system = np.block([[inertia, t], [t.T, np.zeros((count, count))]])
    solution = np.linalg.solve(system, np.concatenate([f - p, t.T @ (rate @ rates)]))
    np.testing.assert_allclose(solution[:6], s @ m1 + rate @ rates, atol=1e-10)
    constraint = -t @ solution[6:]
    np.testing.assert_allclose(inertia @ solution[:6] + p, f + constraint, atol=1e-10)
    # Generalised form (eqs. 3.61 to 3.64), and the engine.
    np.testing.assert_allclose(h, dx.mass_matrix(model, q), atol=1e-12)
    bias = s.T @ (inertia @ rate @ rates + p)
    np.testing.assert_allclose(bias, dx.bias_force(model, q, rates), atol=1e-11)
    np.testing.assert_allclose(np.linalg.solve(h, s.T @ f - bias), m1, atol=1e-11)
    np.testing.assert_allclose(dx.forward_dynamics(model, q, rates, np.zeros(model.nv), f[None]), m1, atol=1e-10)
    carried = dx.joint_forces(model, q, rates, m1, f[None])[0]
    np.testing.assert_allclose(carried, constraint, atol=1e-10)


@pytest.mark.spec("RBDA-3.5-TA")
def test_a_motor_gear_changes_the_bearing_load_and_not_the_motion(rng):
    """Torque through a pinion of radius r: `T_a = (0, 0, 1, 0, -1/r, 0)` instead of `e_3` (example 3.2)."""
    s, inertia, tau = np.eye(6)[:, 2], body(rng).matrix, 0.7
    t = np.eye(6)[:, [0, 1, 3, 4, 5]]

    def solve(active):
        system = np.block([[inertia, -t], [t.T, np.zeros((5, 5))]])
        solution = np.linalg.solve(system, np.concatenate([active * tau, np.zeros(5)]))
        return solution[:6], t @ solution[6:]

    direct, load = solve(s)
    for radius in (0.05, 0.2):
        active = np.array([0.0, 0.0, 1.0, 0.0, -1.0 / radius, 0.0])
        assert active @ s == 1.0
        geared, geared_load = solve(active)
        np.testing.assert_allclose(geared, direct, atol=1e-11)
        # The bearing takes the tooth force as well: the difference is exactly what the gear adds along y.
        np.testing.assert_allclose(geared_load - load, [0, 0, 0, 0, tau / radius, 0], atol=1e-9)


@pytest.mark.spec("RBDA-3.2-COLLECT")
def test_uncoupled_systems_stack(rng):
    """Two mechanisms in one model move as each alone: single bodies and generalised systems mix."""
    bodies = [body(rng) for _ in range(3)]
    alone = dx.ModelBuilder().body("free", joint=dx.Free(), inertia=bodies[0]).build()
    arm = dx.ModelBuilder().body("upper", joint=dx.Revolute((0, 1, 0)), inertia=bodies[1])
    arm = arm.body("lower", parent="upper", joint=dx.Prismatic((1, 0, 0)), inertia=bodies[2]).build()
    both = dx.attach(alone, arm)
    q1, q2 = dx.random_configuration(alone, jax.random.key(1)), np.array([0.3, -0.2])
    v1, v2, tau1, tau2 = (rng.standard_normal(k) for k in (6, 2, 6, 2))
    stacked = dx.forward_dynamics(both, np.r_[q1, q2], np.r_[v1, v2], np.r_[tau1, tau2])
    each = [dx.forward_dynamics(alone, q1, v1, tau1), dx.forward_dynamics(arm, q2, v2, tau2)]
    np.testing.assert_allclose(stacked, np.concatenate(each), rtol=1e-11)
    mass = np.asarray(dx.mass_matrix(both, np.r_[q1, q2]))
    assert not mass[:6, 6:].any()
    assert not mass[6:, :6].any()


def test_units_of_mass_cost_no_digits():
    """What weighs a million tons, or a microgram, falls and turns in float32 as what weighs a kilogram."""

    @jax.jit
    @jax.vmap
    def accelerations(scale):
        one = dx.ModelBuilder()
        one.body("body", joint=dx.Free(), inertia=dx.SpatialInertia(1.0, (0.1, 0.2, -0.1), (0.02, 0.03, 0.04)))
        model = one.build()
        heavy = model.replace(mass=scale * model.mass, inertia=scale * model.inertia)
        force = scale * np.arange(1, 7, dtype=np.float32)
        state = dx.neutral(model).astype(scale.dtype), 0.1 * np.arange(6, dtype=np.float32)
        return dx.forward_dynamics(heavy, *state, force)

    found = np.asarray(accelerations(10.0 ** np.array([0, -9, -3, 3, 6, 9], np.float32)))
    np.testing.assert_allclose(found, np.broadcast_to(found[0], found.shape), rtol=0, atol=2e-6 * np.abs(found).max())
