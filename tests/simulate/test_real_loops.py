"""Robots from files whose joints mimic others or whose bodies are tied: ten seconds of motion, closed throughout."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from oracles.robots import example_robots

import dynax as dx

ROBOTS = example_robots()
TIED = Path(mujoco.__file__).parent / "mjx" / "test_data" / "constraints.xml"


def moved(model: dx.Model, seconds: float, dt: float):
    """Dropped from a configuration that closes; states ten times a second."""
    q = dx.assemble(model, dx.neutral(model), iterations=20)
    assert float(q.error) < 1e-10
    every = round(0.1 / dt)

    @jax.jit
    def run(q):
        def stretch(state, _):
            state = jax.lax.fori_loop(0, every, lambda _, s: dx.step(model, *s, jnp.zeros(model.nv), dt), state)
            return state, state

        return jax.lax.scan(stretch, (q, jnp.zeros(model.nv)), length=round(10.0 * seconds))[1]

    return run(q.q)


def check(model: dx.Model, qs, vs):
    assert np.isfinite(qs).all()
    assert np.isfinite(vs).all()
    assert float(jnp.max(jnp.abs(vs))) > 0.1  # it moved
    assert float(jnp.max(jnp.abs(jax.jit(jax.vmap(lambda q: dx.constraint_residual(model, q)))(qs)))) < 1e-6


# Limbs with gears; tiago_pro and pr2 have linkages in their grippers, ten mimic joints each.
FAST = ["panda_description/urdf/panda.urdf"]
SLOW = [
    "baxter_description/urdf/baxter.urdf",
    "tiago_pro_description/robots/tiago_pro.urdf",
    "pr2_description/urdf/pr2.urdf",
]


@pytest.mark.skipif(not ROBOTS, reason="needs the wheel example-robot-data")
@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_mimic_joints(name):
    model = dx.load(ROBOTS[name])
    assert model.couplings
    # Held softly at all joints: limits are not enforced, and a finger on a slide would fly off the swinging hand.
    model = model.replace(stiffness=model.stiffness + 20.0, damping=model.damping + 0.5)
    qs, vs = moved(model, 10.0, 2e-3)
    check(model, qs, vs)
    (follower, source), ratio, offset = model.couplings[0], model.coupling_ratio[0], model.coupling_offset[0]
    followed = ratio * qs[:, model.q_slice(source)] + offset
    np.testing.assert_allclose(qs[:, model.q_slice(follower)], followed, atol=1e-9)


@pytest.mark.slow
def test_connects_welds_and_a_polynomial_of_mujoco():
    """Its own file, less the tendon that this version refuses: bodies tied to the world and joints to one another."""
    model = dx.load(TIED.read_text().replace('<joint joint="joint5" coef="-.4"/>', ""))
    assert len(model.loop_names) == 4
    check(model, *moved(model, 10.0, 5e-3))
