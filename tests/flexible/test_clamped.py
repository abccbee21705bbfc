"""Bodies that bend and are welded to the world."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.systems import RIGID, TUBE, at

import dynax as dx

close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)


def clamped(*, on_a_hinge: bool, level: Any = None, more: bool = False) -> Any:
    """A boom on the world or on a heavy hinge; with a rigid arm, a second boom on that, and a third one that floats."""
    boom = partial(dx.flexible_beam, TUBE, level=level, damping_ratio=0.01)
    builder = dx.ModelBuilder(gravity=(0.3, -0.2, -9.81))
    if on_a_hinge:
        builder.body("base", joint=dx.Revolute((0, 0, 1)), inertia=RIGID)
    parent = "base" if on_a_hinge else "world"
    builder.body("boom", parent=parent, placement=at(0.1, 0.0, 0.2), inertia=boom(1.5, modes=3))
    if more:
        builder.body("arm", parent="boom/tip", joint=dx.Revolute((0, 1, 0)), inertia=RIGID)
        builder.body("second", parent="arm", inertia=boom(1.0, modes=2))
        builder.body("bus", joint=dx.Free(), inertia=RIGID)
        builder.body("third", parent="bus", inertia=boom(2.0, modes=1))
    return builder.build()


@pytest.mark.spec("FLEX-ABA", "FLEX-CRB", "FLEX-ID")
@pytest.mark.parametrize(("level", "more"), [(None, False), ("ruthless", True), ("full", True)])
def test_a_boom_on_the_world_is_one_on_a_hinge_that_is_held(level, more, rng):
    model, other = (clamped(on_a_hinge=hinge, level=level, more=more) for hinge in (False, True))
    q = dx.integrate(model, dx.neutral(model), 0.05 * rng.normal(size=model.nv))
    v, a = rng.normal(size=(2, model.nv))
    external = rng.normal(size=(model.num_bodies, 6))

    @jax.jit
    def of_one(q, v, a, external):
        tau = dx.inverse_dynamics(model, q, v, a, external)
        mass = dx.mass_matrix(model, q)
        return {
            "tau": tau,
            "a": dx.forward_dynamics(model, q, v, tau, external),
            "mass": mass,
            "inverse": dx.inverse_mass_matrix(model, q) @ mass,
            "energy": dx.kinetic_energy(model, q, v),
            "determinant": dx.log_determinant(model, q),
        }

    @jax.jit
    def of_other(q, v, a, external):
        return {"tau": dx.inverse_dynamics(other, q, v, a, external), "mass": dx.mass_matrix(other, q)}

    none = np.zeros(1)
    one = of_one(q, v, a, external)
    held = of_other(*(np.concatenate([none, x]) for x in (q, v, a)), np.concatenate([np.zeros((1, 6)), external]))
    close(one["a"], a)
    close(one["tau"], held["tau"][1:])
    close(one["mass"], held["mass"][1:, 1:])
    close(one["inverse"], np.eye(model.nv))
    close(one["energy"], 0.5 * v @ one["mass"] @ v)
    close(one["determinant"], np.linalg.slogdet(one["mass"])[1])


def test_a_cantilever_that_is_let_go_and_its_slopes():
    """It sways at its first frequency, and its acceleration is differentiated as it is."""
    boom = dx.flexible_beam(TUBE, 1.5, modes=3)
    model = dx.ModelBuilder(gravity=(0, 0, 0)).body("boom", inertia=boom).build()
    linear = dx.linearize(model, *[jnp.zeros(3)] * 3)
    found = np.sort(np.abs(np.linalg.eigvals(linear.A).imag))[::2]
    close(found, np.sort(np.sqrt(np.diag(boom.stiffness))), rtol=1e-6)
    q, v, h = jnp.array([0.02, -0.01, 0.01]), jnp.array([0.3, 0.2, -0.1]), 1e-6
    fall = jax.jit(jax.vmap(lambda q: dx.forward_dynamics(model, q, v, jnp.zeros(3))))
    slope = jax.jit(jax.jacfwd(lambda q: dx.forward_dynamics(model, q, v, jnp.zeros(3))))(q)
    close(slope, ((fall(q + h * np.eye(3)) - fall(q - h * np.eye(3))) / (2 * h)).T, rtol=1e-6)
