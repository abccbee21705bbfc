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


WRIST = """<ros2_control name="arm" type="system"><hardware><plugin>own/Arm</plugin></hardware>
  <joint name="j0"><command_interface name="position"><param name="min">-0.5</param><param name="max">.25</param>
    </command_interface><command_interface name="velocity"/><state_interface name="position"/></joint>
  <joint name="j1"><command_interface name="effort"><param name="min">-3</param><param name="max">2e3</param>
    </command_interface><state_interface name="velocity"/><state_interface name="effort"/></joint>
  <joint name="j2"><command_interface name="effort"><limits enable="false"/><param name="max">1</param>
    </command_interface></joint>
  <transmission name="w"><plugin>transmission_interface/{kind}</plugin>
    <actuator name="m2" role="actuator2"><mechanical_reduction>5</mechanical_reduction></actuator>
    <actuator name="m1" role="actuator1"><mechanical_reduction>2</mechanical_reduction></actuator>
    <joint name="j2" role="joint2"><mechanical_reduction>-3</mechanical_reduction><offset>0.1</offset></joint>
    <joint name="j1" role="joint1"><mechanical_reduction>1.5</mechanical_reduction></joint></transmission>
  <sensor name="hand"><state_interface name="force.x"/><state_interface name="torque.z"/>
    <param name="frame_id">l2</param></sensor>
  <sensor name="imu"><state_interface name="orientation.x"/><state_interface name="angular_velocity.x"/>
    <state_interface name="linear_acceleration.x"/><param name="frame_id">l1</param></sensor>
</ros2_control>"""


def forces(text, model, commands, q=(0.0, 0.0, 0.0), v=(0.0, 0.0, 0.0), **options):
    drives = dx.load_actuators(text, model, **options)
    command = jnp.array([commands[name] for name in drives.names])
    return actuate.actuation(drives, model, jnp.array(q), jnp.array(v), drives.initial(), command).tau


@pytest.mark.parametrize("kind", ["DifferentialTransmission", "FourBarLinkageTransmission"])
def test_ros2_control(kind):
    """Positions of actuators as `transmission_interface` has them, forces of equal power, limits of interfaces."""
    text = urdf(WRIST.format(kind=kind))
    model = dx.load(text)
    if kind == "DifferentialTransmission":
        turns = lambda a, b: (2 * (1.5 * a - 3 * b), 5 * (1.5 * a + 3 * b))  # noqa: E731
    else:
        turns = lambda a, b: (2 * 1.5 * a, 5 * (a - 3 * b))  # noqa: E731
    gear = np.array([turns(1.0, 0.0), turns(0.0, 1.0)])
    commands = {"m1": 0.1, "m2": -0.3, "j0": 0.7}
    for told in ((0.1, -0.3), (1.0, 2.0), (99.0, 99.0), (-99.0, -9.0)):
        tau = np.clip([0.7, *(gear @ told)], [-10.0, -3.0, -12.0], [10.0, 11.0, 12.0])
        found = forces(text, model, commands | dict(zip(("m1", "m2"), told, strict=True)))
        np.testing.assert_allclose(found, tau, atol=1e-13)
    # The servo is told positions of the joint, and these are limited.
    servo = {"position": actuate.PositionServo(4.0, 0.5)}
    for told, held in ((0.1, 0.1), (9.0, 0.25), (-9.0, -0.5)):
        found = forces(text, model, commands | {"j0": told}, q=(0.2, 0.0, 0.0), v=(1.0, 0.0, 0.0), laws=servo)
        assert found[0] == pytest.approx(4.0 * (held - 0.2) - 0.5)
    drag = {"velocity": actuate.VelocityServo(3.0), **servo}
    assert forces(text, model, commands, v=(1.0, 0.0, 0.0), laws=drag)[0] == pytest.approx(3.0 * (0.7 - 1.0))


def test_what_ros2_control_measures():
    text = urdf(WRIST.format(kind="DifferentialTransmission"))
    sensors, model = dx.load_sensors(text), dx.load(text)
    q, v, a = jnp.array([0.1, 0.2, 0.3]), jnp.array([1.0, 2.0, 3.0]), jnp.zeros(3)
    said = actuate.measure(sensors, model, q, v, a)
    assert said["j0/position"] == 0.1
    assert said["j1/velocity"] == 2.0
    assert list(sensors) == ["j0/position", "j1/velocity", "hand", "imu/orientation", "imu/angular_velocity",
                             "imu/linear_acceleration"]  # fmt: skip
    np.testing.assert_allclose(said["hand"], dx.joint_forces(model, q, v, a)[2], atol=1e-12)
    np.testing.assert_allclose(said["imu/angular_velocity"], dx.body_velocities(model, q, v)[1, :3], atol=1e-14)
    left = [(f.element, f.message) for f in model.report]
    assert ("joint 'j1'", "its state interface 'effort' is left out") in left
    assert any(e == "joint 'j0'" and "commands of position or velocity, and no gains" in m for e, m in left)


def test_what_of_ros2_control_cannot_be_read_is_named():
    odd = """<ros2_control name="odd" type="system"><joint name="j9"/><gpio name="lamp"/><sensor name="far">
      <param name="frame_id">tool</param></sensor><sensor name="nowhere"/>
      <joint name="j0"><command_interface name="acceleration"/><command_interface name="effort">
        <param name="min">-inf</param></command_interface></joint>
      <transmission name="inner"><plugin>transmission_interface/SimpleTransmission</plugin><joint name="j0"/>
      </transmission></ros2_control>"""
    model = dx.load(text := urdf(odd, SIMPLE))
    found = {f.element: f.message for f in model.report}
    assert "no joint 'j9' has one freedom" in found["joint 'j9'"]
    assert "<gpio> of <ros2_control>" in found["gpio 'lamp'"]
    assert "there is no link 'tool'" in found["sensor 'far'"]
    assert "'frame_id' is missing" in found["sensor 'nowhere'"]
    assert "command interface 'acceleration' is left out" in found["joint 'j0'"]
    assert "has a transmission of its joint" in found["transmission 't'"]
    assert dx.load_actuators(text, model).names == ("j0",)
    with pytest.raises(dx.ModelError, match="min, 2, is above its max, 1"):
        dx.load(text.replace('name="min">-inf<', 'name="min">2</param><param name="max">1<'))
    with pytest.raises(dx.ModelError, match="'ten' is not a number"):
        dx.load(text.replace(">-inf<", ">ten<"))
    with pytest.raises(dx.ModelError, match="a reduction of zero"):
        dx.load(urdf(SIMPLE.replace("50", "0")))
    with pytest.raises(ValueError, match="`laws` has 'effort'"):
        dx.load_actuators(text, model, laws={"effort": actuate.Direct()})


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


@pytest.mark.parametrize("name", ["talos_full_v2", "pr2", "ur5_robot", "tiago_pro", "xarm7"])
def test_robots(name):
    path = next((path for key, path in example_robots().items() if key.endswith(f"{name}.urdf")), None)
    if path is None:
        pytest.skip("example-robot-data is not installed")
    motors = dx.load_actuators(path, dx.load(path))
    assert motors.size == {"talos_full_v2": 30, "pr2": 14, "ur5_robot": 6, "tiago_pro": 23, "xarm7": 7}[name]
