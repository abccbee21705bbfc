"""Embedded four-bars: closed forms, digits, both cuts, and every choice of the independent joint."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms
from constraints.test_embedding import forest

import dynax as dx

LENGTHS = ((0.096, 0.031, 0.096, 0.031), (1.0, 1.0, 1.0, 1.0), (5.0, 12.0, 12.0, 10.0))
CUTS = ("internal", "terminal")
JOINTS = ("crank", "coupler", "rocker")
GROUNDS = (0.0, 0.5, 1.0, 2.0, 0.0, 0.0)


@jax.jit
def facts(embedded, q, v):
    tree, x, still = embedded.tree, dx.embedding_matrix(embedded, q), jnp.zeros_like(v)
    a = dx.forward_dynamics(embedded, q, v, still)
    return {
        "x": x,
        "k": dx.constraint_jacobian(tree, q),
        "k_bias": dx.constraint_bias(tree, q, x @ v),
        "residual": dx.constraint_residual(tree, q),
        "a": a,
        "bodies": dx.body_accelerations(embedded, q, v, a),
        "steady": dx.body_accelerations(embedded, q, v, still),
        "kkt": dx.constrained_dynamics(tree, q, x @ v, jnp.zeros(tree.nv), method="kkt").a,
        "mass": jnp.diag(dx.mass_matrix(embedded, q)),
    }


@pytest.mark.slow
@pytest.mark.spec("EMBED-4BAR-T", "EMBED-4BAR-I", "EMBED-COORD")
def test_four_bars():
    """Three sets of lengths, both cuts, turned by up to 2 rad, each joint independent: the same motion."""
    parts, choice = {}, []
    for k in range(6):
        for joint in JOINTS:
            parts[f"{k}{joint}"] = mechanisms.four_bar(LENGTHS[k // 2], cut=CUTS[k % 2], ground=GROUNDS[k])
            choice.append(f"{k}{joint}_{joint}_joint")
    model, q = forest(parts, (0.0, -9.81, 0.0))
    embedded = dx.embed(model, q, independent=choice)
    assert embedded.independent_joints == tuple(choice)
    # Cranks turn at 1 rad/s: rates of all joints in closed form.
    rates = []
    for k in range(6):
        a, b, c, _ = LENGTHS[k // 2]
        t3, t4 = mechanisms.four_bar_angles(LENGTHS[k // 2], np.pi / 3)
        w3 = a / b * np.sin(t4 - np.pi / 3) / np.sin(t3 - t4)
        w4 = a / c * np.sin(t3 - np.pi / 3) / np.sin(t3 - t4)
        rates.append([1.0, w3 - 1.0, w4 if CUTS[k % 2] == "internal" else w4 - w3])
    rates = np.array(rates)
    f = jax.tree.map(np.asarray, facts(embedded, q, rates.reshape(-1)))
    whole = f["x"] @ rates.reshape(-1)
    assert np.abs(f["residual"]).max() < 1e-12
    assert np.abs(f["k"] @ f["x"]).max() < 1e-12
    np.testing.assert_allclose(whole.reshape(6, 3, 3), np.broadcast_to(rates[:, None], (6, 3, 3)), atol=1e-12)
    # The digits of the reference: velocities, angles, and accelerations at a constant speed of the crank.
    np.testing.assert_allclose(rates[4], [1.0, -1.2233835258, 0.2233835258], atol=1e-10)
    np.testing.assert_allclose(rates[5], [1.0, -1.2233835258, 0.4467670516], atol=1e-10)
    angles = mechanisms.four_bar_angles(LENGTHS[2], np.pi / 3)
    np.testing.assert_allclose(angles, [0.6780249323, 1.4163701701], atol=1e-10)
    steady = f["steady"].reshape(6, 3, 3, 6)
    np.testing.assert_allclose(steady[4:, 0, 1:, 2], [[0.55804, 0.59666]] * 2, atol=5e-6)
    # Neither the independent joint nor the cut changes the accelerations; the mass is that of one freedom.
    bodies = f["bodies"].reshape(6, 3, 3, 6)
    scale = np.abs(bodies).max(axis=(1, 2, 3), keepdims=True)
    assert np.abs((bodies - bodies[:, :1]) / scale).max() < 1e-9
    np.testing.assert_allclose(bodies[4, :, :, 2], bodies[5, :, :, 2], rtol=1e-9)
    np.testing.assert_allclose(f["a"], f["kkt"][list(embedded.independent)], rtol=1e-9)
    energy = f["mass"].reshape(6, 3) * rates**2
    np.testing.assert_allclose(energy, np.broadcast_to(energy[:, :1], energy.shape), rtol=1e-10)
    np.testing.assert_allclose(energy[4], energy[5], rtol=1e-10)
