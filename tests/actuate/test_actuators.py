"""Laws, transmissions and limits against closed forms, and in rollouts."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from actuate.arms import arm, rod
from constraints import mechanisms

import dynax as dx
from dynax import actuate
from dynax.actuate.actuators import stepped

mujoco = pytest.importorskip("mujoco")
STIFF = actuate.PositionServo(stiffness=1e4, damping=10.0)
SERVO = '<position joint="j" kp="1e4" kv="10"/>'


def their_motion(actuator: str, integrator: str, command: float, steps: int, dt: float = 0.01) -> np.ndarray:
    try:
        model = mujoco.MjModel.from_xml_string(f"""
            <mujoco><option timestep="{dt}" integrator="{integrator}" gravity="0 0 0"/><worldbody><body>
              <joint name="j" type="hinge" axis="0 1 0"/><inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/>
            </body></worldbody><actuator>{actuator}</actuator></mujoco>""")
    except ValueError:
        pytest.skip(f"this MuJoCo has no integrator {integrator!r}")
    data, found = mujoco.MjData(model), []
    data.ctrl[:] = command
    for _ in range(steps):
        mujoco.mj_step(model, data)
        found.append([data.qpos[0], data.qvel[0]])
    return np.array(found)


def our_motion(law, command: float, steps: int, **options) -> np.ndarray:
    model = rod()
    drive = actuate.on_joints(model, ["rod_joint"], law)
    run = dx.rollout(model, [0.0], [0.0], jnp.full((steps, 1), command), 0.01, actuators=drive, **options)
    return np.concatenate([run.q, run.v], 1)[1:]


@pytest.mark.spec("AC-02")
def test_a_stiff_servo_is_implicit():
    """Stiffness 1e4, damping 10, inertia 0.01, steps of 0.01: stable, where an explicit step and MuJoCo's
    `implicitfast` diverge; MuJoCo's `discrete`, which takes the stiffness implicitly too, moves the same."""
    ours = our_motion(STIFF, 0.3, 1000)
    np.testing.assert_allclose(ours[-1], [0.3, 0.0], atol=1e-12)
    with np.errstate(over="ignore", invalid="ignore"):
        explicit = our_motion(STIFF, 0.3, 1000, stepper="explicit")
    assert not np.all(np.abs(explicit) < 1e6)
    theirs = their_motion(SERVO, "discrete", 0.3, 1000)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)


def split_servo(steps: int, dt: float) -> np.ndarray:
    """The same servo with its damping alone taken implicitly: the pull of its spring is a law of its own."""
    model = rod()
    spring = actuate.Learned(jax.tree_util.Partial(lambda k, u, x, v: k * (u - x), 1e4))
    pull = actuate.on_joints(model, ["rod_joint"], spring, names=["spring"])
    drive = actuate.together(pull, actuate.on_joints(model, ["rod_joint"], actuate.VelocityServo(10.0)))
    run = dx.rollout(model, [0.0], [0.0], jnp.tile(jnp.array([0.3, 0.0]), (steps, 1)), dt, actuators=drive)
    return np.concatenate([run.q, run.v], 1)[1:]


@pytest.mark.spec("AC-02")
def test_what_implicitfast_makes_of_the_servo():
    """It takes the damping implicitly and the stiffness not: at steps of 0.01 each is `[[1 - 100/11, 1/11], [-100/11,
    1/11]]` of `(q, h v)` about the target, which grows by 7.99, step for step as here; at 0.001 it is stable, and 1000
    steps are the same."""
    growth = np.abs(np.linalg.eigvals(np.array([[11.0 - 100.0, 1.0], [-100.0, 1.0]]) / 11.0)).max()
    assert growth == pytest.approx(7.99, abs=0.01)
    theirs, ours = their_motion(SERVO, "implicitfast", 0.3, 5), split_servo(5, 0.01)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert theirs[4, 0] / theirs[3, 0] == pytest.approx(-growth, abs=0.01)
    theirs, ours = their_motion(SERVO, "implicitfast", 0.3, 1000, 0.001), split_servo(1000, 0.001)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)
    np.testing.assert_allclose(ours[-1], [0.3, 0.0], atol=1e-8)


@pytest.mark.spec("AC-02")
def test_a_stiff_damper_is_that_of_implicitfast():
    theirs = their_motion('<velocity joint="j" kv="10"/>', "implicitfast", 2.0, 1000)
    np.testing.assert_allclose(our_motion(actuate.VelocityServo(10.0), 2.0, 1000), theirs, rtol=0, atol=1e-8)


def test_coupled_servos_are_as_stable(rng):
    """Two stiff servos that pull at sums of joints: they come to rest where an explicit step diverges, and their step
    is the linearly implicit one to first order."""
    model = arm((0, 0, 0))
    matrix = np.array([[1.0, 1.0, 0.0], [0.0, -1.0, 2.0], [0.5, 0.0, -1.0]])
    drive = actuate.coupled(model, ["j0", "j1", "j2"], matrix, STIFF, names=["a", "b", "c"])
    target = 0.2 * rng.normal(size=3)
    run = dx.rollout(model, np.zeros(3), np.zeros(3), jnp.tile(matrix @ target, (400, 1)), 0.01, actuators=drive)
    away = np.linalg.norm(run.q - target, axis=1) / np.linalg.norm(target)
    assert np.all(away < 3.0)
    assert np.all(away[300:] < 0.01)
    q, v, dt = jnp.zeros(3), jnp.asarray(rng.normal(size=3)), 1e-6
    c = 10.0 + dt * 1e4
    mass = np.asarray(dx.mass_matrix(model, q)) + dt * matrix.T @ (c * matrix)
    force = matrix.T @ (1e4 * (matrix @ target) - c * (matrix @ v)) - dx.bias_force(model, q, v)
    exact = dt * np.linalg.solve(mass, force)
    stiff, tau, _ = stepped(drive, model, q, v, drive.initial(), jnp.asarray(matrix @ target), jnp.asarray(dt))
    ours = dx.step(stiff, q, v, tau, dt)[1] - v
    np.testing.assert_allclose(ours, exact, atol=2e-3 * np.abs(exact).max())


@pytest.mark.spec("AC-03")
def test_dc_motor():
    motor, full = actuate.DCMotor(stall_torque=12.0, no_load_speed=30.0), jnp.ones(1)

    def torque(speed, law=motor, command=full):
        return law((), command, jnp.zeros(1), jnp.atleast_1d(speed))[0][0]

    assert torque(0.0) == pytest.approx(12.0, abs=1e-12)
    assert torque(30.0) == pytest.approx(0.0, abs=1e-12)
    assert jax.grad(lambda w: w * torque(w))(15.0) == pytest.approx(0.0, abs=1e-12)
    assert 15.0 * torque(15.0) == pytest.approx(12.0 * 30.0 / 4.0, abs=1e-12)
    speeds = jnp.linspace(-60.0, 60.0, 121)
    wanted = 9.0
    for softness in (None, 0.1):
        law = actuate.TorqueSpeedLimited(actuate.Direct(), 12.0, 30.0, peak=15.0, softness=softness)
        found = jax.vmap(lambda w, law=law: torque(w, law, jnp.full(1, wanted)))(speeds)
        low, high = (np.clip(12.0 * (sign - speeds / 30.0), -15.0, 15.0) for sign in (-1.0, 1.0))
        expected = np.clip(wanted, low, high)
        if softness is None:
            np.testing.assert_allclose(found, expected, atol=1e-12)
        else:
            np.testing.assert_allclose(found, expected, atol=0.1 * np.log(2) + 1e-12)
            assert np.all((found <= high + 1e-12) & (found >= low - 1e-12))
            slope = jax.vmap(jax.grad(lambda u, w, law=law: torque(w, law, jnp.full(1, u))), (0, None))
            at_corner = slope(jnp.linspace(11.0, 13.0, 41), 0.0)
            assert np.all((at_corner > 0) & (at_corner < 1))
            assert at_corner[20] == pytest.approx(0.5, abs=1e-6)
    run = dx.rollout(
        rod(),
        [0.0],
        [0.0],
        jnp.ones((400, 1)),
        0.01,
        actuators=actuate.on_joints(rod(), ["rod_joint"], motor, gear=2.0),
    )
    assert run.v[-1, 0] == pytest.approx(15.0, abs=1e-9)


@pytest.mark.spec("AC-06")
def test_gravity_compensation_holds_any_pose(key):
    model = arm()
    idle = actuate.on_joints(model, model.joint_names, actuate.Direct())
    hold = idle.with_gravity_compensation(1.0)
    q = dx.random_configuration(model, key)
    run = dx.rollout(model, q, jnp.zeros(3), jnp.zeros((50, 3)), 0.01, actuators=hold)
    np.testing.assert_allclose(run.q[-1], q, atol=1e-13)
    part = jnp.array([0.0, 0.5, 1.0])
    weights = [dx.gravity_force(model.replace(mass=model.mass * jnp.eye(3)[k]), q) for k in range(3)]
    tau = actuate.actuation(idle.with_gravity_compensation(part), model, q, 0 * q, idle.initial(), jnp.zeros(3)).tau
    np.testing.assert_allclose(tau, sum(p * w for p, w in zip(part, weights, strict=True)), atol=1e-12)


@pytest.mark.spec("AC-06")
def test_a_delay_is_of_so_many_steps(rng):
    steps, model, commands = 3, rod(), jnp.asarray(rng.normal(size=(10, 1)))

    def end(commands, law):
        drive = actuate.on_joints(model, ["rod_joint"], law)
        return dx.rollout(model, [0.0], [0.0], commands, 0.01, actuators=drive).v

    late = end(commands, actuate.Delayed(actuate.Direct(), steps))
    shifted = jnp.concatenate([jnp.zeros((steps, 1)), commands[:-steps]])
    np.testing.assert_array_equal(late, end(shifted, actuate.Direct()))
    slope = jax.grad(lambda u: end(u, actuate.Delayed(actuate.Direct(), steps))[-1, 0])(commands)
    np.testing.assert_allclose(slope[:-steps], 0.01 / 0.01, atol=1e-12)
    np.testing.assert_array_equal(slope[-steps:], 0.0)


def test_lags_follow_their_equations():
    model, u = rod(), 1.7
    cases = {
        "filter": (actuate.Filtered(actuate.Direct(), 0.2), lambda t: u * (1 - np.exp(-t / 0.2))),
        "integral": (actuate.Integrated(actuate.Direct(), limits=(-1.0, 1.0)), lambda t: np.minimum(u * t, 1.0)),
        "slew": (actuate.SlewLimited(actuate.Direct(), 3.0), lambda t: np.minimum(3.0 * t, u)),
    }
    for law, exact in cases.values():
        drive = actuate.on_joints(model, ["rod_joint"], law)
        run = dx.rollout(model, [0.0], [0.0], jnp.full((100, 1), u), 0.01, actuators=drive)
        ((x, _),) = run.actuators
        np.testing.assert_allclose(x[:, 0], exact(np.asarray(run.time)), atol=1e-12)
        half = dx.rollout(model, [0.0], [0.0], jnp.full((50, 1), u), 0.01, actuators=drive)
        state = jax.tree.map(lambda x: x[-1], half.actuators)
        rest = dx.rollout(model, half.q[-1], half.v[-1], jnp.full((50, 1), u), 0.01, actuators=drive.starting(state))
        np.testing.assert_allclose(rest.v[-1], run.v[-1], atol=1e-12)
    smooth = actuate.SlewLimited(actuate.Direct(), 3.0, softness=0.1)
    assert jax.grad(lambda u: smooth.advance((jnp.zeros(1), ()), u, u, u, 0.01)[0][0])(jnp.array([0.05]))[0] > 0.1


def test_effort_limits_of_law_and_joint():
    model = rod(effort_limit=2.0)
    force = actuate.ForceLimited(actuate.PositionServo(1e3, 80.0), -1.5, 1.5)
    two = actuate.together(
        actuate.on_joints(model, ["rod_joint"], force), actuate.on_joints(model, ["rod_joint"], force, names=["second"])
    )
    run = dx.rollout(model, [0.0], [0.0], jnp.full((1, 2), 1.0), 0.01, actuators=two)
    assert run.v[1, 0] == pytest.approx(3.0, abs=1e-12)
    limited = two.with_effort_limits(model.effort_limits)
    run = dx.rollout(model, [0.0], [0.0], jnp.full((300, 2), 1.0), 0.01, actuators=limited)
    assert run.v[1, 0] == pytest.approx(2.0, abs=1e-12)
    assert np.all(np.abs(np.diff(run.v[:, 0])) <= 2.0 + 1e-9)
    np.testing.assert_allclose(run.q[-1], 1.0, atol=1e-4)


def test_frames_are_pushed_as_by_a_wrench(key, rng):
    model = arm()
    wrench = rng.normal(size=(2, 6))
    thrusters = actuate.on_frames(model, ["tip", "link1"], actuate.Direct(), wrench=wrench)
    q, command = dx.random_configuration(model, key), jnp.array([0.7, -1.3])
    found = actuate.actuation(thrusters, model, q, 0 * q, thrusters.initial(), command).tau
    expected = sum(
        u * dx.jacobian(model, q, name, frame="body").T @ w
        for u, name, w in zip(command, ["tip", "link1"], wrench, strict=True)
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_on_an_embedded_model_power_is_the_same():
    bars = mechanisms.four_bar()
    q = jnp.asarray(bars.q)
    closed = dx.embed(bars.model, q, independent=["crank_joint"])
    servo = actuate.on_joints(closed, [bars.model.joint_names[-1]], actuate.PositionServo(5.0, 0.3))
    v = jnp.array([0.4])
    found = actuate.actuation(servo, closed, q, v, servo.initial(), jnp.array([0.8]))
    np.testing.assert_allclose(found.tau @ v, found.force @ found.velocity, atol=1e-12)
    x = dx.embedding_matrix(closed, q)
    np.testing.assert_allclose(found.tau, x[-1] * found.force, atol=1e-12)
    dt = jnp.asarray(1e-3)
    stiff, tau, _ = stepped(servo, closed, q, v, servo.initial(), jnp.array([0.8]), dt)
    slope = (0.3 + dt * 5.0) * jnp.array([0.0, 0.0, 1.0])
    np.testing.assert_allclose(stiff.damping, closed.damping + slope, atol=1e-14)
    expected = x[-1] * (found.force - dt * 5.0 * found.velocity) + x.T @ (slope * (x @ v))
    np.testing.assert_allclose(tau, expected, atol=1e-12)


def test_gains_have_derivatives_and_lanes(rng):
    """Gradients of a rollout by leaves against differences; lanes against one run after the other."""
    model, q = arm(), jnp.asarray(0.3 * rng.normal(size=3))
    law = actuate.Delayed(actuate.Filtered(actuate.PositionServo(jnp.full(3, 60.0), jnp.full(3, 4.0)), 0.05), 2)
    drive = actuate.on_joints(model, model.joint_names, actuate.ForceLimited(law, -20.0, 20.0, softness=1.0))
    command = jnp.asarray(0.5 * rng.normal(size=(30, 3)))

    def cost(drive):
        run = dx.rollout(model, q, jnp.zeros(3), command, 0.01, actuators=drive)
        return jnp.sum(run.q[-1] ** 2)

    leaves, structure = jax.tree.flatten(drive)
    leaves = [jnp.asarray(x, float) for x in leaves]
    slope = jax.tree.leaves(jax.jit(jax.grad(lambda x: cost(structure.unflatten(x))))(leaves))
    direction = [rng.normal(size=x.shape) for x in leaves]
    along = [
        jnp.stack([x + s * 1e-5 * np.maximum(np.abs(x), 1e-2) * d for s in (1, -1)])
        for x, d in zip(leaves, direction, strict=True)
    ]
    both = jax.vmap(lambda x: cost(structure.unflatten(x)))(along)
    expected = sum(
        np.sum(g * d * np.maximum(np.abs(x), 1e-2)) for g, d, x in zip(slope, direction, leaves, strict=True)
    )
    np.testing.assert_allclose((both[0] - both[1]) / 2e-5, expected, rtol=1e-6)
    np.testing.assert_allclose(both[0], cost(structure.unflatten([x[0] for x in along])), rtol=1e-12)


def test_learned_laws():
    model = rod()
    net = actuate.Learned(
        jax.tree_util.Partial(lambda w, u, x, v: jnp.tanh(w @ jnp.stack([u, x, v])), jnp.array([1.0, -2.0, -0.1]))
    )
    drive = actuate.on_joints(model, ["rod_joint"], net)
    run = dx.rollout(model, [0.0], [0.0], jnp.full((3, 1), 0.5), 0.01, actuators=drive)
    assert run.v[1, 0] == pytest.approx(np.tanh(0.5), abs=1e-12)
    counter = actuate.Learned(lambda state, u, x, v: (state * u, state + 1.0), start=jnp.zeros(1))
    run = dx.rollout(
        model, [0.0], [0.0], jnp.ones((3, 1)), 0.01, actuators=actuate.on_joints(model, ["rod_joint"], counter)
    )
    np.testing.assert_allclose(run.v[:, 0], [0, 0, 1, 3], atol=1e-12)
    np.testing.assert_array_equal(run.actuators[0][:, 0], [0, 1, 2, 3])


def test_mistakes_are_named():
    model = arm()
    with pytest.raises(KeyError, match="did you mean"):
        actuate.on_joints(model, ["j9"], STIFF)
    with pytest.raises(ValueError, match="two actuators 'j0'"):
        actuate.on_joints(model, ["j0", "j0"], STIFF)
    with pytest.raises(ValueError, match=r"`joints` is 'j0': give a list"):
        actuate.on_joints(model, "j0", STIFF)
    with pytest.raises(ValueError, match=r"`frames` is 'j0': give a list"):
        actuate.on_frames(model, "j0", STIFF, wrench=jnp.zeros(6))
    with pytest.raises(ValueError, match=r"`matrix` has shape \(1, 2\)"):
        actuate.coupled(model, ["j0"], [[1.0, 2.0]], STIFF, names=["t"])
    drive = actuate.on_joints(model, ["j0", "j1"], STIFF)
    with pytest.raises(ValueError, match=r"expected \(T, 2\): a row of commands"):
        dx.rollout(model, jnp.zeros(3), jnp.zeros(3), jnp.zeros((4, 3)), 0.01, actuators=drive)
    with pytest.raises(ValueError, match=r"expected \(2,\)"):
        actuate.actuation(drive, model, jnp.zeros(3), jnp.zeros(3), drive.initial(), jnp.zeros(3))
    with pytest.raises(ValueError, match="`steps` is 0"):
        actuate.Delayed(STIFF, 0)
    with pytest.raises(ValueError, match="`state` is"):
        drive.starting(())
    with pytest.raises(KeyError, match="no actuator named"):
        drive.index("j2")
    with pytest.raises(ValueError, match=r"`joints` is 'j0': give a list"):
        actuate.JointPosition("j0")
    with pytest.raises(KeyError, match="no actuator named 'j2'; there are 'j0', 'j1'"):
        dx.rollout(
            model, jnp.zeros(3), jnp.zeros(3), jnp.zeros((4, 2)), 0.01,
            actuators=drive, sensors={"x": actuate.ActuatorForce(("j2",))},
        )  # fmt: skip
    free = dx.ModelBuilder().body("ball", joint=dx.Spherical(), inertia=dx.SpatialInertia.sphere(0.1, mass=1.0)).build()
    with pytest.raises(ValueError, match="more than one freedom"):
        actuate.on_joints(free, ["ball_joint"], STIFF)
    assert dataclasses.replace(drive).size == 2
    assert repr(drive) == "Actuators(2 PositionServo)"


def test_what_does_not_fit_names_the_actuators():
    model, nothing = arm(), jnp.zeros((3, 2))

    def run(drive, controls=nothing, **options):
        return dx.rollout(model, jnp.zeros(3), jnp.zeros(3), controls, 0.01, actuators=drive, **options)

    both = actuate.on_joints(model, ["j0", "j1"], STIFF)
    for law, gear in ((actuate.PositionServo([1.0, 2.0, 3.0]), 1.0), (STIFF, [1.0, 2.0, 3.0])):
        with pytest.raises((TypeError, ValueError)) as raised:
            run(actuate.on_joints(model, ["j0", "j1"], law, gear=gear))
        assert any("of the actuators 'j0', 'j1'" in note for note in raised.value.__notes__)
    for law in (actuate.Direct, lambda *_: 0.0):
        with pytest.raises(ValueError, match="expected an actuator, such as"):
            actuate.on_joints(model, ["j0"], law)
    for make in (run, actuate.together):
        with pytest.raises(ValueError, match="a PositionServo is given for actuators"):
            make(STIFF)
    with pytest.raises(ValueError, match=r"effort limit 1 is from 2 to -2: none is between"):
        both.with_effort_limits([2.0, -2.0])
    for limits, shape in ((5.0, "()"), ([[1.0]], "(1, 1)")):
        with pytest.raises(ValueError, match=re.escape(f"effort limits have shape {shape}, expected (nv,) or (nv, 2)")):
            both.with_effort_limits(limits)
    with pytest.raises(ValueError, match=r"`effort_limits` has shape \(2, 2\), expected \(3, 2\)"):
        run(both.with_effort_limits([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"`fraction` has shape \(2,\)"):
        run(both.with_gravity_compensation([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"`wrench` has shape \(3,\)"):
        actuate.on_frames(model, [model.body_names[0]], STIFF, wrench=[1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="`sensors` is a list"):
        run(both, sensors=[actuate.JointPosition()])
    with pytest.raises(ValueError, match="the policy returned None"):
        run(both, lambda t, q, v: None, steps=3)


def test_a_filter_of_no_time_is_none():
    def later(constants):
        law = actuate.Filtered(STIFF, constants)
        return law.advance((jnp.zeros(2), ()), jnp.ones(2), jnp.zeros(2), jnp.zeros(2), 0.01)[0]

    np.testing.assert_allclose(later(jnp.array([0.0, 0.1])), [1.0, -np.expm1(-0.1)], rtol=1e-12)
    assert np.all(np.isfinite(jax.jacrev(later)(jnp.array([0.0, 0.1]))))
