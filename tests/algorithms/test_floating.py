"""Floating bases: the forms with the base eliminated agree with the joint of six freedoms."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import routes
import trees
from dense import Dense

import dynax as dx


@jax.jit
def forms(model, q, v, a, external):
    def one(q, v, a, external):
        return {
            "equations": dx.floating_equations(model, q, v, external)._asdict(),
            "mass": dx.floating_mass_matrix(model, q),
            "bias": dx.floating_bias_force(model, q, v, external),
            "inverse": dx.floating_inverse_dynamics(model, q, v, a[6:], external),
            "jacobian": dx.floating_jacobian(model, q, "b3", frame="body"),
        }

    return jax.vmap(one)(q, v, a, external)


@lru_cache
def case():
    """The tree with its base free of friction, springs and armature, as a base is."""
    _, s, _ = routes.case("screws")
    model = trees.tree("screws")
    return model, s, routes.dynamics("screws", model, *s), routes.numpy(forms(model, s.q, s.v, s.a, s.external))


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, atol=tolerance * max(1.0, np.abs(b).max()))


@pytest.mark.spec("RBDA-9.3-EOM", "RBDA-9.3-CONVERT", "RBDA-9.4-RNEACRBA", "RBDA-X-FLOAT", "RBDA-4.1-FLOAT")
def test_blocks():
    _, _, y, f = case()
    e = f["equations"]
    close(e["base_inertia"], y["mass"][:, :6, :6])
    close(e["coupling"], y["mass"][:, :6, 6:])
    close(e["joint_inertia"], y["mass"][:, 6:, 6:])
    close(np.concatenate([e["base_bias"], e["joint_bias"]], 1), y["bias"])


@pytest.mark.spec("RBDA-9.3-EX92", "RBDA-9.4-RNEACRBA", "RBDA-X-FLOAT")
def test_reduced_form():
    model, s, _, f = case()
    tau = np.array(s.tau)
    tau[:, :6] = 0.0
    a = routes.dynamics("screws", model, s.q, s.v, s.a, jnp.asarray(tau), s.external)["fd"]
    reduced = np.linalg.solve(f["mass"], (tau[:, 6:] - f["bias"])[..., None])[..., 0]
    close(reduced, a[:, 6:])
    assert np.linalg.eigvalsh(f["mass"]).min() > 0
    close(f["mass"], np.swapaxes(f["mass"], 1, 2), 1e-12)
    assert np.all(np.abs(f["mass"]) > 0)  # dense: the base joins what the tree keeps apart


@pytest.mark.spec("RBDA-9.4-ABA")
def test_gravity_moves_base_and_joints_alike():
    model, s, y, _ = case()
    # What holds the base in the file's axes turns with it: in world axes it is one acceleration for all.
    other = routes.dynamics("screws", model.replace(gravity=jnp.asarray([4.0, -1.0, 2.0])), *s)
    close(other["fd"][:, 6:], y["fd"][:, 6:])
    turned = np.einsum(
        "bji,j->bi", routes.moving("screws")["rotation"][:, 0], jnp.asarray([4.0, -1.0, 2.0]) - model.gravity
    )
    close(other["fd"][:, 3:6] - y["fd"][:, 3:6], turned)
    close(other["fd"][:, :3], y["fd"][:, :3])


@pytest.mark.spec("RBDA-9.5-ID", "RBDA-X-FLOAT")
def test_inverse_dynamics():
    model, s, _, f = case()
    base, tau = f["inverse"]
    full = np.concatenate([np.zeros((len(tau), 6)), tau], 1)
    a = routes.dynamics("screws", model, s.q, s.v, s.a, jnp.asarray(full), s.external)["fd"]
    close(a, np.concatenate([base, s.a[:, 6:]], 1))


@pytest.mark.spec("RBDA-9.5-JFL")
def test_jacobian():
    model, s, y, f = case()
    dense = Dense(model, s.q, s.v)
    j = dense.jacobians[:, 18:24]
    # An impulse between the bodies: forces at the joints alone, no velocity, no weight.
    impulse = np.zeros((len(s.q), model.nv))
    impulse[:, 6:] = np.asarray(s.tau)[:, 6:]
    change = np.linalg.solve(y["mass"], impulse[..., None])
    close(f["jacobian"] @ change[:, 6:], j @ change)
    # a_i = J^fl a + Jdot v - J_0 (I_0^c)^-1 p_0^c, with all of forward dynamics on the left.
    tau = np.concatenate([np.zeros((len(s.q), 6)), np.asarray(s.tau)[:, 6:]], 1)
    a = routes.dynamics("screws", model, s.q, s.v, s.a, jnp.asarray(tau), s.external)["fd"]
    e = f["equations"]
    still = -j[:, :, :6] @ np.linalg.solve(e["base_inertia"], e["base_bias"][..., None])
    body = dense.acceleration(a, gravity=False)[:, 3]
    bias = dense.acceleration(0 * a, gravity=False)[:, 3]
    close(body, (f["jacobian"] @ a[:, 6:, None] + still)[..., 0] + bias)


def test_other_models_are_refused():
    model = trees.tree("arm")
    q = dx.neutral(model)
    for call in (
        lambda: dx.floating_mass_matrix(model, q),
        lambda: dx.floating_equations(model, q, jnp.zeros(model.nv)),
        lambda: dx.floating_jacobian(trees.tree("mixed"), dx.neutral(trees.tree("mixed")), "b3", frame="body"),
    ):
        with pytest.raises(ValueError, match="free joint"):
            call()
    m = trees.tree("screws")
    with pytest.raises(ValueError, match="without the base"):
        dx.floating_inverse_dynamics(m, dx.neutral(m), jnp.zeros(m.nv), jnp.zeros(m.nv))
