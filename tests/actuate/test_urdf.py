"""Transmissions and effort limits of URDFs."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from oracles.robots import example_robots

import dynax as dx
from dynax import actuate

LINK = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
JOINTS = "".join(
    f'<link name="l{k}">{LINK}</link><joint name="j{k}" type="revolute"><parent link="base"/><child link="l{k}"/>'
    f'<limit lower="-1" upper="1" effort="{10 + k}" velocity="1"/></joint>'
    for k in range(3)
)


def urdf(*transmissions: str) -> str:
    return f'<robot name="r"><link name="base"/>{JOINTS}{"".join(transmissions)}</robot>'


SIMPLE = """<transmission name="t"><type>transmission_interface/SimpleTransmission</type>
  <joint name="j0"><hardwareInterface>EffortJointInterface</hardwareInterface></joint>
  <actuator name="m0"><mechanicalReduction>50</mechanicalReduction></actuator></transmission>"""
DIFFERENTIAL = """<transmission name="d"><type>transmission_interface/DifferentialTransmission</type>
  <actuator name="right"><role>actuator2</role><mechanicalReduction>3</mechanicalReduction></actuator>
  <actuator name="left"><role>actuator1</role><mechanicalReduction>2</mechanicalReduction></actuator>
  <joint name="j1"><role>joint1</role><mechanicalReduction>1.5</mechanicalReduction></joint>
  <joint name="j2"><role>joint2</role></joint></transmission>"""


def test_transmissions_and_effort_limits():
    text = urdf(SIMPLE, DIFFERENTIAL)
    model = dx.load(text)
    motors = dx.load_actuators(text, model)
    assert motors.names == ("m0", "left", "right")
    assert not [f for f in model.report if "transmission" in f.element]
    still = jnp.zeros(3)

    def tau(command):
        return actuate.actuation(motors, model, still, still, motors.initial(), jnp.array(command)).tau

    left, right = 0.7, -0.4
    np.testing.assert_allclose(tau([0.1, left, right]), [5.0, 1.5 * (2 * left + 3 * right), 2 * left - 3 * right])
    np.testing.assert_allclose(tau([1.0, -9.0, -9.0]), [10.0, -11.0, 9.0])


def test_without_transmissions_joints_have_motors():
    text = urdf().replace('effort="11" ', "")
    motors = dx.load_actuators(text, model := dx.load(text))
    assert motors.names == ("j0", "j2")
    np.testing.assert_array_equal(motors.effort_limits[:, 1], model.effort_limits)


def test_what_cannot_be_read_is_named():
    half = SIMPLE.replace("SimpleTransmission", "HalfDifferentialTransmission").replace('"t"', '"half"')
    text = urdf(half, SIMPLE.replace("j0", "nowhere"), '<transmission name="none"><joint name="j0"/></transmission>')
    model = dx.load(text)
    found = {f.element: f.message for f in model.report}
    assert "HalfDifferentialTransmission" in found["transmission 'half'"]
    assert "no joint 'nowhere' has one freedom" in found["transmission 't'"]
    assert "no type" in found["transmission 'none'"]
    assert dx.load_actuators(text, model).size == 0
    with pytest.raises(ValueError, match="a URDF has none"):
        dx.load_actuators(text, model, keyframe="home")
    with pytest.raises(dx.ModelError, match="not a number"):
        dx.load(urdf(SIMPLE.replace("50", "fifty")))


@pytest.mark.parametrize("name", ["talos_full_v2", "pr2", "ur5_robot"])
def test_robots(name):
    path = next((path for key, path in example_robots().items() if key.endswith(f"{name}.urdf")), None)
    if path is None:
        pytest.skip("example-robot-data is not installed")
    motors = dx.load_actuators(path, dx.load(path))
    assert motors.size == {"talos_full_v2": 30, "pr2": 14, "ur5_robot": 6}[name]
