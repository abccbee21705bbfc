"""Sensitivities of the operators: against automatic differentiation, differences, and the formulas of the source."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operators.varied import varied
from trees import states, tree

import dynax as dx
from dynax.spatial.plucker import crm

pytestmark = pytest.mark.slow

NAMES = ("E_phi", "H", "phi", "mass_matrix", "P", "D", "G", "F", "W", "inverse_mass_matrix")


def matrices(operators):
    return {name: getattr(operators, name).dense() for name in NAMES}


@jax.jit
def rates(model, qs, dqs):
    return jax.vmap(lambda q, dq: matrices(dx.sensitivities(model, q, dq)))(qs, dqs)


@jax.jit
def values(model, qs):
    return jax.vmap(lambda q: matrices(dx.spatial_operators(model, q)))(qs)


def close(found, expected, tolerance):
    np.testing.assert_allclose(found, expected, atol=tolerance * max(1.0, np.abs(expected).max()))


@pytest.mark.spec("SENS-PHI", "SENS-M", "SENS-P", "SENS-D", "SENS-F", "SENS-FINV", "SENS-MINV")
def test_every_joint_against_automatic_differentiation():
    """Floating, of several freedoms, with moving columns, not holonomic, driven; with armature; at rest too."""
    model = varied()
    s = states(model, 3)
    q = jnp.concatenate([s.q[:2], dx.neutral(model)[None]])

    def moved(q, dq):
        along = dx.configuration_rate(model, q, dq)
        return jax.jvp(lambda q: matrices(dx.spatial_operators(model, q)), (q,), (along,))[1]

    found, expected = rates(model, q, s.v), jax.jit(jax.vmap(moved))(q, s.v)
    for name in NAMES:
        close(found[name], expected[name], 1e-12)
        assert np.abs(expected[name]).max() > 0.1


@lru_cache
def hinges():
    """An arm along each of its coordinates: the model, `q`, the operators and their rates, leading axis the
    coordinate."""
    model = tree("arm")
    q = states(model, 1).q[0]
    units = jnp.eye(model.nv)
    found = rates(model, jnp.broadcast_to(q, (model.nv, model.nq)), units)
    return model, q, units, {k: np.asarray(x) for k, x in found.items()}


@pytest.mark.spec("SENS-PHI", "SENS-M", "SENS-P", "SENS-D", "SENS-F", "SENS-FINV", "SENS-MINV")
def test_hinges_against_central_differences():
    model, q, units, found = hinges()
    step = 1e-5
    ahead, behind = values(model, q + step * units), values(model, q - step * units)
    for name in NAMES:
        close(found[name], (ahead[name] - behind[name]) / (2 * step), 1e-9)


@pytest.mark.spec("SENS-PHI", "SENS-M", "SENS-P", "SENS-D", "SENS-F", "SENS-FINV", "SENS-MINV")
def test_hinges_against_the_formulas_of_the_source():
    """Matrices, one coordinate at a time, with `T` the cross product of its axis in the block of its body."""
    model, q, units, found = hinges()
    o = {k: np.asarray(x[0]) for k, x in values(model, q[None]).items()}
    more = dx.sensitivities(model, q, units[0]).operators
    o |= {name: np.asarray(getattr(more, name).dense()) for name in ("M", "P_plus", "tau_bar", "E_psi", "psi")}
    h, phi, p, e, d_inverse = o["H"], o["phi"], o["P"], o["E_phi"], np.linalg.inv(o["D"])
    phi_t, support = phi - np.eye(len(phi)), model.topology.support
    for i in range(model.nv):
        t = np.zeros_like(phi)
        block = slice(6 * i, 6 * i + 6)
        t[block, block] = crm(h[i, block])
        close(found["phi"][i], -phi_t @ t.T @ phi, 1e-13)
        half = h @ phi_t @ t.T @ phi @ o["M"] @ phi.T @ h.T
        close(found["mass_matrix"][i], -(half + half.T), 1e-13)
        # Riccati's equation along the coordinate; on a tree it is the diagonal that it speaks of.
        change = found["P"][i]
        jump = t.T @ o["P_plus"] + o["P_plus"] @ t
        whole = o["E_psi"] @ change @ o["E_psi"].T - e @ jump @ e.T
        for k in range(model.num_bodies):
            own = slice(6 * k, 6 * k + 6)
            close(change[own, own], whole[own, own], 1e-12)
            carries = support[i, k] and k != i
            assert carries or not np.any(change[own, own])
        close(found["D"][i], h @ change @ h.T, 1e-13)
        inner = -t.T @ phi @ p + o["tau_bar"] @ change
        close(found["F"][i], h @ phi_t @ inner @ h.T @ d_inverse, 1e-12)
        close(found["W"][i], -h @ o["psi"] @ e @ inner @ h.T @ d_inverse @ o["W"], 1e-12)
        inverse = o["inverse_mass_matrix"]
        close(found["inverse_mass_matrix"][i], -inverse @ found["mass_matrix"][i] @ inverse, 1e-12)
    # The trace of M^-1 dM, by coordinate, is the gradient of the log-determinant.
    gradient = np.einsum("ij,kji->k", inverse, found["mass_matrix"])
    close(dx.fixman_torque(model, q, 2.0), -gradient, 1e-12)


@pytest.mark.spec("SENS-M", "SENS-F")
def test_they_are_linear_operators():
    model, q, _, found = hinges()
    rng = np.random.default_rng(0)
    dq, x, y = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(3))

    @jax.jit
    def products(dq, x, y):
        d = dx.sensitivities(model, q, dq)
        forward = {name: (getattr(d, name) @ x, getattr(d, name).T @ y) for name in ("mass_matrix", "F", "W")}
        return forward, jax.grad(lambda x: y @ (d.F @ x))(x)

    found_products, pulled = products(dq, x, y)
    for name, (ahead, back) in found_products.items():
        matrix = np.einsum("k,kij->ij", dq, found[name])
        close(ahead, matrix @ x, 1e-13)
        close(back, matrix.T @ y, 1e-13)
    close(pulled, found_products["F"][1], 1e-13)
