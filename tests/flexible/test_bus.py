"""A bus that bends and floats, with nine appendages on hinges of 22 freedoms, three of which bend: FLEX-BUS."""

from __future__ import annotations

from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.systems import at
from scipy.linalg import block_diag, eigh

import dynax as dx

SECTION = dx.BeamSection(EA=400.0, EIy=30.0, EIz=50.0, GJ=20.0, mass_per_length=5.0, inertia_per_length=(0.3, 0.1, 0.2))
THIN = dx.BeamSection(EA=100.0, EIy=2.0, EIz=3.0, GJ=1.0, mass_per_length=0.5, inertia_per_length=(0.01, 0.01, 0.01))
BUS = dx.beam_elements(SECTION, 4.0, elements=2, stations={"a": 0.0, "b": 2.0, "c": 4.0})
BOOM = dx.beam_elements(THIN, 2.0, elements=1, direction=(0.0, 1.0, 0.0))
BENDING = BOOM.select({"tip": "1346"})  # stretch and twist are left out
RIGID = dx.SpatialInertia(2.0, (0.1, -0.2, 0.3), ((0.5, 0.05, 0.0), (0.05, 0.4, 0.02), (0.0, 0.02, 0.6)))
X, Y, Z = (1, 0, 0), (0, 1, 0), (0, 0, 1)
APPENDAGES = {
    "a": {"boom1": dx.Universal(X, Y), "wheel1": dx.Spherical(), "arm1": dx.Universal(Z, X)},
    "b": {"boom2": dx.Universal(Z, X), "wheel2": dx.Spherical(), "wheel3": dx.Spherical()},
    "c": {"boom3": dx.Universal(Y, X), "wheel4": dx.Spherical(), "arm2": dx.Universal(X, Z)},
}
HINGES = tuple(f"{name}_joint" for own in APPENDAGES.values() for name in own)


def spacecraft() -> dx.FlexibleModel:
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    builder.body("bus", joint=dx.Free(), inertia=BUS.body(BUS.modes(12)))
    boom = BOOM.body(BOOM.modes(4, held={"base": "123456", "tip": "25"}))
    for node, own in APPENDAGES.items():
        for k, (name, joint) in enumerate(own.items()):
            inertia = boom if name.startswith("boom") else RIGID
            builder.body(name, parent=f"bus/{node}", joint=joint, placement=at(0.1, 0.3 * k, -0.2), inertia=inertia)
    return cast(dx.FlexibleModel, builder.build())


def rates(rotation: np.ndarray, arm: np.ndarray) -> np.ndarray:
    """From a node's `[shift; turn]` to `[turn; shift]` of a body with some axes, its origin at an arm from the node."""
    turn = np.hstack([np.zeros((3, 3)), np.eye(3)])
    shift = np.hstack([np.eye(3), -np.cross(np.eye(3), arm)])
    return block_diag(rotation.T, rotation.T) @ np.vstack([turn, shift])


def assembled(model: dx.FlexibleModel, poses) -> tuple[np.ndarray, np.ndarray]:
    """One finite-element model: of the bus all 18 freedoms, of each boom the four that bend, its root on a node."""
    size = 18 + 4 * 3
    mass, stiffness = np.zeros((size, size)), np.zeros((size, size))
    mass[:18, :18], stiffness[:18, :18] = BUS.mass, BUS.stiffness
    inner = 18
    for node, own in APPENDAGES.items():
        rows = 6 * BUS.node_names[node] + np.arange(6)
        for name in own:
            k = model.body_index(name)
            rotation = poses.rotation[k]
            to_body = rates(rotation, poses.translation[k] - BUS.position[BUS.node_names[node]])
            if name.startswith("boom"):
                moved = np.zeros((12, size))
                moved[:, rows] = BOOM.rigid_motions @ to_body
                moved[BENDING, inner + np.arange(4)] = 1.0
                inner += 4
                mass += moved.T @ BOOM.mass @ moved
                stiffness += moved.T @ BOOM.stiffness @ moved
            else:
                c, m = np.asarray(RIGID.com), float(RIGID.mass)
                about = np.hstack([-np.cross(np.eye(3), c), np.eye(3)]) @ to_body  # velocity of the centre
                turn = to_body[:3]
                mass[np.ix_(rows, rows)] += m * about.T @ about + turn.T @ np.asarray(RIGID.inertia) @ turn
    return mass, stiffness


@pytest.mark.slow
@pytest.mark.spec("FLEX-BUS")
def test_a_bus_with_nine_appendages(rng):
    model = spacecraft()
    hinges = sum(model.v_slice(name).stop - model.v_slice(name).start for name in HINGES)
    assert (len(HINGES), hinges, model.nv) == (9, 22, 6 + 12 + 22 + 12)
    scale = np.ones(model.nv)
    for member in model.members:  # four modes of one element turn its end by up to nine times their amplitude
        scale[model.v_slice(f"{member.name}/modes")] = 0.01
    q = dx.integrate(model, dx.neutral(model), scale * rng.normal(size=model.nv))
    v, tau = scale * rng.normal(size=model.nv), rng.normal(size=model.nv)

    @jax.jit
    def found(q, v, tau):
        a = dx.forward_dynamics(model, q, v, tau)
        along = dx.configuration_rate(model, q, v), a
        internal = jax.jvp(partial(dx.momentum, model), (q, v), along)
        return a, dx.mass_matrix(model, q), dx.inverse_dynamics(model, q, v, jnp.zeros_like(v)), internal

    inside = np.ones(model.nv)
    inside[model.v_slice("bus_joint")] = 0.0
    a, mass, bias, (momentum, force) = found(q, v, inside * tau)
    np.testing.assert_allclose(a, np.linalg.solve(mass, inside * tau - bias), rtol=1e-10, atol=1e-10 * np.abs(a).max())
    np.testing.assert_allclose(force, 0.0, atol=1e-11 * np.abs(momentum).max())


@pytest.mark.spec("FLEX-BUS", "FLEX-LIN")
def test_frequencies_with_locked_hinges(rng):
    """About a posture of the hinges, undeformed: those of one assembly of the same elements and lumps."""
    model = spacecraft()
    posture = np.zeros(model.nv)
    for name in HINGES:
        posture[model.v_slice(name)] = rng.normal(size=model.v_slice(name).stop - model.v_slice(name).start)
    q = dx.integrate(model, dx.neutral(model), posture)

    @jax.jit
    def linear(q):
        """Mass, and the force that holds a unit of each freedom: without gravity linear in the modes."""
        zero = jnp.zeros(model.nv)
        held = jax.vmap(lambda d: dx.inverse_dynamics(model, dx.integrate(model, q, d), zero, zero), out_axes=1)
        return dx.mass_matrix(model, q), held(jnp.eye(model.nv)), dx.forward_kinematics(model, q)

    mass, stiffness, poses = linear(q)
    free = np.ones(model.nv, bool)
    for name in HINGES:
        free[model.v_slice(name)] = False
    whole = np.ix_(free, free)
    ours = eigh(stiffness[whole], mass[whole], eigvals_only=True)
    theirs = eigh(*assembled(model, poses)[::-1], eigvals_only=True)
    assert np.abs(ours[:6]).max() < 1e-9 * ours[6]
    np.testing.assert_allclose(np.sqrt(ours[6:]), np.sqrt(theirs[6:]), rtol=1e-8)
