"""Accelerations of closed mechanisms by every method, redundant and inconsistent conditions (sections 3.2 and 8.5)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.facts import Facts, admissible, close, facts, null_space, solution
from constraints.mechanisms import four_bar, stewart_gough

import dynax as dx
from dynax.constraints.dynamics import METHODS
from dynax.constraints.explicit import choose_independent, explicit_constraints
from dynax.constraints.independent import Independent
from dynax.linear.orthogonal import decompose


def moving(mechanism, rng):
    """An assembled state that moves, everything known about it, and joint forces."""
    model = mechanism.model
    q = np.asarray(dx.assemble(model, mechanism.q).q)
    f = facts(model, q, rng.normal(size=model.nv))
    v = admissible(f.k, rng.normal(size=model.nv))
    return model, q, v, facts(model, q, v), rng.normal(size=model.nv)


@pytest.fixture(scope="module")
def linkage():
    """A four-bar of hinges: three of its five conditions repeat others."""
    return moving(four_bar(), np.random.default_rng(1))


@partial(jax.jit, static_argnames="method")
def _solved(model, q, force, matrices, rights, *, method):
    def one(k, wanted):
        found = decompose(k, jnp.asarray(1e-13))
        conditions = Independent(found.rows, found.solved, found.kept.astype(float), found.pivots)
        return jnp.split(METHODS[method](model, q, force, conditions, wanted), [model.nv])

    return jax.vmap(one)(matrices, rights)


def solved(model, q, force, matrices, rights, method):
    return [np.asarray(x) for x in _solved(model, q, force, jnp.asarray(matrices), jnp.asarray(rights), method=method)]


@pytest.mark.spec("RBDA-8.5-M1", "RBDA-8.5-M2", "RBDA-8.5-M3", "RBDA-8.5-LSQ", "RBDA-8.5-PRUNE", "RBDA-3.2-KKT")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_on_every_kind_of_rows(linkage, method, rng):
    """Overconstrained, pruned to independent rows, with a row twice, and perturbed off `range(K)`: one `a`."""
    model, q, _, f, tau = linkage
    assert np.linalg.matrix_rank(f.k, tol=1e-9) == 2
    a, push = solution(f, tau)
    kept = list(choose_independent(f.k).blocks[0].rows)
    assert len(kept) == 2
    pruned = np.zeros_like(f.k)
    pruned[kept] = f.k[kept]
    double, right = f.k.copy(), f.bias.copy()
    double[0], right[0] = double[kept[0]], right[kept[0]]  # in the place of one that is always met
    outside = rng.normal(size=5)
    outside -= f.k @ np.linalg.pinv(f.k, rcond=1e-10) @ outside  # no acceleration comes near it
    cases = [(f.k, f.bias), (pruned, np.where(np.isin(np.arange(5), kept), f.bias, 0.0)), (double, right),
             (f.k, f.bias + 1e-8 * outside)]  # fmt: skip
    found, multipliers = solved(model, q, tau - f.c, [c[0] for c in cases], [c[1] for c in cases], method)
    for k, (matrix, _) in enumerate(cases):
        close(found[k], a, 1e-10 if k < 3 else 1e-7)
        close(matrix.T @ multipliers[k], push, 1e-10 if k < 3 else 1e-6)
    # Multipliers are the smallest, and what is added from the null space of `K^T` changes nothing.
    close(multipliers[0], np.linalg.pinv(f.k.T, rcond=1e-10) @ push, 1e-9)
    idle = rng.normal(size=5)
    idle -= np.linalg.pinv(f.k.T, rcond=1e-10) @ f.k.T @ idle
    assert np.linalg.norm(idle) > 0.1
    close(f.k.T @ (multipliers[0] + idle), push, 1e-9)


@pytest.mark.slow
@pytest.mark.spec("RBDA-8.5-M1", "RBDA-8.5-M2", "RBDA-8.5-M3")
def test_stewart_gough_platform(rng):
    """Eighteen conditions on twenty-four freedoms, none redundant."""
    model, q, _, f, tau = moving(stewart_gough(), rng)
    assert np.linalg.matrix_rank(f.k, tol=1e-9) == 18
    a, push = solution(f, tau)
    right = np.linalg.lstsq(f.k.T, push, rcond=None)[0]
    for method in METHODS:
        found, multipliers = solved(model, q, tau - f.c, f.k[None], f.bias[None], method)
        close(found[0], a, 1e-10)
        close(multipliers[0], right, 1e-9)


def test_conditions_that_leave_no_freedom(linkage, rng):
    """With rank `n` the conditions alone decide: `a = K^+ k` (section 8.5)."""
    model, q, _, f, tau = linkage
    matrix, a = rng.normal(size=(5, 3)), rng.normal(size=3)
    for method in METHODS:
        close(solved(model, q, tau - f.c, matrix[None], (matrix @ a)[None], method)[0][0], a, 1e-10)


@pytest.mark.spec("RBDA-3.2-JOURDAIN", "RBDA-3.2-KKT", "RBDA-8.1-EOM")
def test_constrained_dynamics(linkage):
    """The public function: `M a + bias = tau + K^T lambda`, `K a = k`, and no power on what the loops allow."""
    model, q, v, f, tau = linkage
    found = dx.constrained_dynamics(model, q, v, tau)
    a, push = solution(f, tau)
    close(found.a, a)
    close(found.force, push)
    close(f.h @ found.a + f.c - tau, found.force)
    close(f.k.T @ found.multipliers, found.force)
    close(f.k @ found.a, f.bias)
    g = null_space(f.k)
    close(g.T @ (f.h @ np.asarray(found.a) + f.c - tau), 0.0)
    close(v @ np.asarray(found.force), 0.0)
    assert int(found.rank) == 2
    close(found.residual, 0.0, 1e-13)
    close(found.rate, 0.0, 1e-12)
    with pytest.raises(ValueError, match="unknown method"):
        dx.constrained_dynamics(model, q, v, tau, method="guess")


@pytest.mark.spec("RBDA-3.2-EXPL", "RBDA-3.2-CONSTR", "RBDA-3.2-JOURDAIN")
def test_explicit_elimination(linkage):
    """Three blocks (eq. 3.18), their dual (3.19) and the reduced equation (3.21) give the same independent motion."""
    _, _, v, f, tau = linkage
    found = explicit_constraints(f.k, f.bias)
    g, offset = np.asarray(found.matrix), np.asarray(found.offset)
    close(f.k @ g, 0.0, 1e-12)
    close(f.k @ offset, f.bias, 1e-12)
    n, m = g.shape
    none = np.zeros
    h_g = g.T @ f.h @ g
    assert np.linalg.eigvalsh(h_g).min() > 0.0
    reduced = np.linalg.solve(h_g, g.T @ (tau - f.c - f.h @ offset))
    one = np.eye(n)
    blocks = np.block([[f.h, -one, none((n, m))], [-one, none((n, n)), g], [none((m, n)), g.T, none((m, m))]])
    whole = np.linalg.solve(blocks, np.concatenate([tau - f.c, -offset, none(m)]))
    inverse = np.linalg.inv(f.h)
    dual = np.linalg.solve(np.block([[-inverse, g], [g.T, none((m, m))]]),
                           np.concatenate([inverse @ (tau - f.c) - offset, none(m)]))  # fmt: skip
    close(whole[-m:], reduced)
    close(dual[-m:], reduced)
    a, push = solution(f, tau)
    close(whole[:n], a)
    close(whole[n : 2 * n], push)
    close(g.T @ push, 0.0)
    # The independent velocities: energy and power are the same in them.
    rate = np.linalg.lstsq(g, v, rcond=None)[0]
    close(g @ rate, v, 1e-12)
    close(rate @ h_g @ rate, v @ f.h @ v)
    close((g.T @ tau) @ rate, tau @ v)


@pytest.mark.spec("RBDA-8.10-OVER")
def test_a_looser_joint_leaves_the_motion_as_it_is(linkage):
    """A ball in a slot in the place of the last hinge: the same motion, and forces that are unique."""
    _, q, v, f, tau = linkage
    slot = facts(four_bar(joint=dx.SphereInCylinder((0.0, 0.0, 1.0))).model, q, v)
    assert slot.k.shape == (2, 3)
    assert np.linalg.matrix_rank(slot.k) == 2
    a, push = solution(slot, tau)
    expected, expected_push = solution(f, tau)
    close(a, expected)
    close(push, expected_push)


def planar(rng) -> Facts:
    """A system of the shape of a mechanism's, in the plane of numbers."""
    root = rng.normal(size=(6, 6))
    still = np.zeros(3)
    return Facts(still, rng.normal(size=(3, 6)), still, rng.normal(size=3), root @ root.T, rng.normal(size=6))


@pytest.mark.spec("RBDA-3.2-KKT")
def test_rank_of_the_augmented_system(rng):
    """`n + rank K`, whatever the number of rows."""
    f = planar(rng)
    k = np.vstack([f.k, f.k[0], f.k[1] + f.k[2]])
    system = np.block([[f.h, k.T], [k, np.zeros((5, 5))]])
    assert np.linalg.matrix_rank(system) == 6 + 3


@pytest.fixture(scope="module")
def scaled(linkage):
    """Accelerations for a scale of the forces and masses, and two of each."""
    model, q, v, _, tau = linkage

    def found(scale, mass, method="recursive"):
        return dx.constrained_dynamics(model.replace(mass=mass), q, v, scale * tau, method=method).a

    return found, jnp.array([1.0, 2.0]), jnp.stack([model.mass, 2.0 * model.mass])


def test_batches_of_states_and_of_models(scaled):
    """What is the same for all in a batch, and what differs, forces and masses in turn; a batch of one too."""
    found, scales, masses = scaled
    by_force = jax.vmap(found, (0, None))(scales, masses[0])
    by_mass = jax.vmap(found, (None, 0))(1.0, masses)
    one = jax.vmap(found, (0, None))(scales[1:], masses[0])
    for batch, k, scale, mass in ((by_force, 1, 2.0, 0), (by_mass, 1, 1.0, 1), (one, 0, 2.0, 0)):
        np.testing.assert_allclose(batch[k], found(scale, masses[mass]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"recursive"}))
def test_batches_by_the_other_methods(scaled, method):
    found, scales, masses = scaled
    batch = jax.vmap(lambda scale, mass: found(scale, mass, method))(scales, masses)
    for k, both in enumerate(zip(scales, masses, strict=True)):
        np.testing.assert_allclose(batch[k], found(*both), rtol=1e-9, atol=1e-9)
