"""Sensors of contact."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import actuate
from dynax.actuate import FrictionState
from dynax.simulate import Compliant

G = 9.81
TOUCH = """<mujoco><option timestep="0.002" cone="elliptic"/><worldbody><geom name="floor" type="plane" size="2 2 1"
    friction="0.5"/>
  <body name="block" pos="0 0 0.1"><freejoint/>
    <geom name="block" type="box" size="0.2 0.3 0.1" mass="3" friction="0.5"/>
    <site name="all" type="box" size="0.25 0.35 0.15"/>
    <site name="left" type="box" pos="-0.2 0 -0.1" size="0.05 1 0.05"/>
    <site name="away" type="sphere" pos="0 0 0.5" size="0.1"/></body></worldbody>
  <sensor><touch name="all" site="all"/><touch name="left" site="left"/><touch name="away" site="away"/></sensor>
</mujoco>"""


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


@pytest.mark.parametrize(("stepper", "dt"), [("semi_implicit", 0.002), (Compliant(), 0.0005)])
def test_block_on_the_floor(stepper, dt):
    """MuJoCo's touch sensors, and the forces of a pair: all its weight, half of it to each side; pushed, it first
    sticks and then slides."""
    mujoco = pytest.importorskip("mujoco")
    scene = dx.load_scene(TOUCH)
    sensors = dict(dx.load_sensors(TOUCH))
    assert set(sensors) == {"all", "left", "away"}
    sensors |= {"force": actuate.ContactForce("floor", "block"), "rubs": actuate.Friction("floor", "block")}
    q = dx.neutral(scene.model).at[2].set(0.1)
    steps = round(0.6 / dt)
    half = steps // 2
    push = jnp.zeros((steps, 6)).at[:half, 3].set(0.3 * 3 * G).at[half:, 3].set(0.7 * 3 * G)
    run = dx.rollout(scene, q, jnp.zeros(6), push, dt, sensors=sensors, stepper=stepper)
    assert run.sensors is not None
    close(run.sensors["force"][0], 0.0, 0.0)
    close(run.sensors["rubs"][0], FrictionState.APART, 0.0)
    close(run.sensors["force"][half], [-0.3 * 3 * G, 0, 3 * G], 0.05)
    close(run.sensors["rubs"][half], FrictionState.STICKING, 0.0)
    close(run.sensors["force"][-1], [-0.5 * 3 * G, 0, 3 * G], 0.05)
    close(run.sensors["rubs"][-1], FrictionState.SLIDING, 0.0)
    m = mujoco.MjModel.from_xml_string(TOUCH)
    data = mujoco.MjData(m)
    mujoco.mj_step(m, data, 500)
    rest = dx.rollout(scene, q, jnp.zeros(6), jnp.zeros((steps, 6)), dt, sensors=sensors, stepper=stepper)
    assert rest.sensors is not None
    close([rest.sensors[name][-1, 0] for name in ("all", "left", "away")], data.sensordata, 0.05)


def test_pure_functions():
    """The other way round the force is the other way; without forces a sensor says what it misses."""
    scene = dx.load_scene(TOUCH)
    q, v = dx.neutral(scene.model).at[2].set(0.1), jnp.zeros(6)
    forces = jnp.zeros((len(scene.candidates), 3)).at[0].set(jnp.array([1.0, 2.0, 3.0]))
    both = {"up": actuate.ContactForce("floor", "block"), "down": actuate.ContactForce("block", "floor")}
    said = actuate.measure(both, scene, q, v, forces=forces)
    close(said["up"], [1, 2, 3], 0)
    close(said["down"], [-1, -2, -3], 0)
    touch = actuate.TouchForce("block")
    close(jax.grad(lambda f: actuate.measure({"t": touch}, scene, q, v, forces=f)["t"][0])(forces)[:, 2], 1.0, 1e-12)
    with pytest.raises(ValueError, match="a sensor feels contact"):
        actuate.measure(both, scene, q, v)
    with pytest.raises(ValueError, match="no collider is called 'wall'"):
        actuate.measure({"a": actuate.ContactForce("wall", "block")}, scene, q, v, forces=forces)
