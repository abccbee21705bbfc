"""Sensors against what everybody knows, what makes them err, and policies that know nothing else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from actuate.arms import arm, rod

import dynax as dx
from dynax import actuate

IMU = {"gyro": actuate.Gyro("imu"), "felt": actuate.Accelerometer("imu"), "speed": actuate.Velocimeter("imu")}


def floating() -> dx.Model:
    inertia = dx.SpatialInertia(1.3, (0, 0, 0), (0.1, 0.2, 0.3))
    b = dx.ModelBuilder().body("box", joint=dx.Free(), inertia=inertia)
    return b.frame(
        "imu", body="box", placement=dx.Transform(dx.Rotation.exp([0.2, 0.1, -0.3]).matrix, [0.1, 0, 0.2])
    ).build()


@pytest.mark.spec("AC-05")
def test_an_imu_at_rest_in_free_fall_and_spun(key):
    model = floating()
    q, still = dx.random_configuration(model, key), jnp.zeros(6)
    turn = dx.frame_pose(model, q, "imu").rotation
    rest = actuate.measure(IMU, model, q, still, still)
    np.testing.assert_allclose(turn @ rest["felt"], [0, 0, 9.81], atol=1e-12)
    fall = actuate.measure(IMU, model, q, still, dx.forward_dynamics(model, q, still, still))
    np.testing.assert_allclose(fall["felt"], 0.0, atol=1e-12)
    b = dx.ModelBuilder(gravity=(0, 0, 0)).body(
        "boom", joint=dx.Revolute((0, 0, 1)), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1))
    )
    boom = b.frame("imu", body="boom", placement=dx.Transform.from_translation((0.7, 0.0, 0.1))).build()
    spun = actuate.measure(IMU, boom, jnp.array([0.4]), jnp.array([3.0]), jnp.zeros(1))
    np.testing.assert_allclose(spun["felt"], [-0.7 * 9.0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(spun["gyro"], [0, 0, 3.0], atol=1e-12)
    np.testing.assert_allclose(spun["speed"], [0, 2.1, 0], atol=1e-12)


@pytest.mark.spec("AC-05")
def test_a_flange_carries_the_weight_beyond_it(key):
    model = arm()
    q, still = dx.random_configuration(model, key), jnp.zeros(3)
    sensors = {"joint": actuate.ForceTorque("tip"), "up": actuate.FrameQuaternion("tip")}
    found = actuate.measure(sensors, model, q, still, still)
    pose = dx.frame_pose(model, q, "tip")
    force = pose.rotation @ found["joint"][3:]
    np.testing.assert_allclose(force, [0, 0, 9.81 * float(model.mass[2])], atol=1e-12)
    np.testing.assert_allclose(dx.Rotation.from_quaternion(found["up"]).matrix, pose.rotation, atol=1e-12)


def test_rows_of_a_rollout(rng):
    """Readings belong to the states of their rows; accelerations and actuators' forces to the step before."""
    model = rod(gravity=(0, 0, -9.81), com=(0.1, 0, 0))
    drive = actuate.on_joints(model, ["rod_joint"], actuate.VelocityServo(0.01))
    sensors = {
        "q": actuate.JointPosition(), "v": actuate.JointVelocity(("rod_joint",)), "t": actuate.Clock(),
        "felt": actuate.Accelerometer("rod"), "late": actuate.Late(actuate.JointPosition(), 2),
        "force": actuate.ActuatorForce(), "biased": actuate.Biased(actuate.Gyro("rod"), [0.0, 0.0, 1.0]),
    }  # fmt: skip
    commands = jnp.asarray(rng.normal(size=(6, 1)))
    run = dx.rollout(model, [0.3], [0.1], commands, 0.01, actuators=drive, sensors=sensors)
    said = run.sensors
    np.testing.assert_array_equal(said["q"], run.q)
    np.testing.assert_array_equal(said["v"], run.v)
    np.testing.assert_array_equal(said["t"], run.time)
    np.testing.assert_array_equal(said["late"][2:], run.q[:-2])
    np.testing.assert_array_equal(said["late"][:2], run.q[:1].repeat(2, 0))
    np.testing.assert_allclose(said["force"][1:], 0.01 * (commands - run.v[1:]), atol=1e-14)
    np.testing.assert_allclose(said["biased"][:, 1], run.v[:, 0], atol=1e-14)
    np.testing.assert_allclose(said["biased"][:, 2], 1.0, atol=1e-14)
    np.testing.assert_array_equal(said["felt"].shape, (7, 3))
    kept = dx.rollout(model, [0.3], [0.1], commands, 0.01, actuators=drive, sensors=sensors, every=3)
    np.testing.assert_array_equal(kept.sensors["q"], run.q[::3])


def test_a_falling_imu_in_a_rollout():
    """What is felt is the mean over the step: nothing in free fall, and the support where contact holds it."""
    model = floating()
    q = dx.neutral(model)
    run = dx.rollout(model, q, jnp.zeros(6), jnp.zeros((3, 6)), 0.01, sensors=IMU)
    np.testing.assert_allclose(run.sensors["felt"][1:], 0.0, atol=1e-12)


def test_a_policy_with_sensors_and_a_carry(key):
    """An integral controller that sees a noisy joint: the same as one that is told the noise."""
    model = rod(damping=0.1)
    drive = actuate.on_joints(model, ["rod_joint"], actuate.Filtered(actuate.Direct(), 0.02))
    sensors = {"angle": actuate.Noisy(actuate.JointPosition(), 0.01), "speed": actuate.JointVelocity()}

    def policy(carry, seen, key):
        error = 1.0 - seen["angle"]
        carry = carry + 0.01 * error
        return carry, 0.3 * error - 0.05 * seen["speed"] + 0.5 * carry + 1e-3 * jax.random.normal(key, (1,))

    def run(key):
        options = {"steps": 400, "memory": jnp.zeros(1), "actuators": drive, "sensors": sensors, "key": key}
        return dx.rollout(model, [0.0], [0.0], policy, 0.01, **options)

    (first, carry), (again, _) = run(key), run(key)
    assert abs(first.q[-1, 0] - 1.0) < 0.05
    np.testing.assert_array_equal(first.q, again.q)
    noise = first.sensors["angle"] - first.q
    assert 0.008 < np.std(noise) < 0.012
    np.testing.assert_allclose(carry, 0.01 * jnp.sum(1.0 - first.sensors["angle"][:-1]), atol=1e-12)
    assert not np.array_equal(run(jax.random.fold_in(key, 1))[0].q, first.q)
    slope = jax.grad(lambda dt: dx.rollout(
        model, [0.0], [0.0], policy, dt, steps=5, memory=jnp.zeros(1), actuators=drive, sensors=sensors, key=key
    )[0].q[-1, 0])(0.01)  # fmt: skip
    assert np.isfinite(slope)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_types_are_those_of_the_state(dtype, key):
    """Nothing is mixed, whatever numbers the actuators and sensors were given as."""
    model = jax.tree.map(lambda x: x.astype(dtype), arm())
    law = actuate.Delayed(actuate.Filtered(actuate.PositionServo([60, 50], 4), 0.05), 2)
    law = actuate.ForceLimited(actuate.SlewLimited(law, 2), -20, 20.0, softness=1)
    speedy = actuate.TorqueSpeedLimited(actuate.CommandLimited(actuate.VelocityServo(3), -1, 1), 5, 6.0)
    drive = actuate.together(
        actuate.on_joints(model, ["j0", "j1"], law, gear=[2, 3]),
        actuate.coupled(model, ["j0", "j2"], [[1, -1]], speedy, names=["differential"]),
        actuate.on_frames(model, ["tip"], actuate.DCMotor(3, 4.0), wrench=[0, 0, 1, 0, 0, 2]),
        actuate.coupled(
            model, ["j1"], np.eye(1), actuate.MuscleActivated(actuate.MuscleForce(9, [-1, 1])), names=["muscle"]
        ),
    ).with_effort_limits([10, 10, 9]).with_gravity_compensation(1)  # fmt: skip
    sensors = {
        "joints": actuate.Noisy(actuate.Late(actuate.JointPosition(), 1), 0.1), "force": actuate.ActuatorForce(),
        "felt": actuate.Biased(actuate.Accelerometer("tip"), [1, 2, 3]), "wrench": actuate.ForceTorque("tip"),
        "pose": actuate.FrameQuaternion("tip", "link0"), "velocity": actuate.FrameVelocity("tip", "link1"),
        "acceleration": actuate.FrameAcceleration("tip", felt=True), "axis": actuate.FrameAxis("tip", 1),
    }  # fmt: skip

    def run(q, v, commands):
        return dx.rollout(model, q, v, commands, 0.01, actuators=drive, sensors=sensors, key=key)

    with jax.numpy_dtype_promotion("strict"):
        found = jax.eval_shape(run, *(jnp.zeros(shape, dtype) for shape in (3, 3, (4, drive.size))))
    assert {x.dtype for x in jax.tree.leaves(found)} == {jnp.dtype(dtype)}


def test_mistakes_are_named():
    model = rod()
    drive = actuate.on_joints(model, ["rod_joint"], actuate.Direct())
    noisy = {"angle": actuate.Noisy(actuate.JointPosition(), 0.01)}
    still = jnp.zeros(1)
    with pytest.raises(ValueError, match="give `key`"):
        dx.rollout(model, still, still, jnp.zeros((3, 1)), 0.01, sensors=noisy)
    with pytest.raises(ValueError, match="give `a`"):
        actuate.measure({"imu": actuate.Accelerometer("rod")}, model, still, still)
    with pytest.raises(ValueError, match=r"`joints` is 'rod_joint': give a list"):
        actuate.JointPosition("rod_joint")
    assert actuate.ActuatorForce(["rod_joint"]).actuators == ("rod_joint",)
    with pytest.raises(ValueError, match="there are none"):
        actuate.measure({"force": actuate.ActuatorForce()}, model, still, still)
    with pytest.raises(ValueError, match=r"must return \(carry, command\)"):
        dx.rollout(
            model, still, still, lambda c, o, k: o["angle"], 0.01, steps=1, sensors={"angle": actuate.JointPosition()}
        )
    with pytest.raises(ValueError, match=r"expected \(1,\)"):
        dx.rollout(model, still, still, lambda t, q, v: jnp.zeros(2), 0.01, steps=1, actuators=drive)
