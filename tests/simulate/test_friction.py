"""Dry friction in steps: what it can hold stays, what slips is braked by all of it, and nothing shakes."""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import kernels
from oracles.robots import example_robots
from simulate.systems import double_pendulum, solid
from simulate.test_closed_loops import GUESS
from simulate.test_closed_loops import MODEL as FOUR_BAR

import dynax as dx
from dynax.compile import versions

ROBOTS = example_robots()
STICKING = ("semi_implicit", "implicit_midpoint")


def wheel(inertia: float = 0.002, friction: float = 0.5, gravity: float = 0.0) -> dx.Model:
    """About z, its weight across it."""
    builder = dx.ModelBuilder(gravity=(0.0, -gravity, 0.0))
    body = solid(1.0, [0.0, 0.0, 0.0], [inertia] * 3)
    return builder.body("wheel", joint=dx.Revolute((0, 0, 1)), inertia=body, friction_loss=friction).build()


def spun(model: dx.Model, v: float, forces, dt: float, stepper: str = "semi_implicit") -> np.ndarray:
    forces = np.broadcast_to(forces, len(forces))[:, None]
    return np.asarray(dx.rollout(model, [0.0], [v], forces, dt, stepper=stepper).v[:, 0])


@pytest.mark.parametrize("stepper", STICKING)
def test_a_wheel_comes_to_rest_as_in_mujoco(stepper):
    mujoco = pytest.importorskip("mujoco")
    other = mujoco.MjModel.from_xml_string("""
        <mujoco><option timestep="0.005" gravity="0 0 0"/><worldbody><body>
          <joint type="hinge" axis="0 0 1" frictionloss="0.5"/>
          <inertial pos="0 0 0" mass="1" diaginertia="0.002 0.002 0.002"/>
        </body></worldbody></mujoco>""")
    data = mujoco.MjData(other)
    data.qvel[0] = 0.1
    mujoco.mj_step(other, data, nstep=200)
    assert abs(data.qvel[0]) < 1e-9
    # One step would stop 1.25 rad/s: MuJoCo's friction yields as it brakes, this one does not.
    ours = spun(wheel(), 0.1, np.zeros(200), 0.005, stepper)
    assert np.abs(ours[1]) < 1e-9
    assert np.abs(ours[-1]) < 1e-9


@pytest.mark.parametrize("stepper", STICKING)
def test_coulombs_law(stepper):
    """All of the friction against the slip, to the step in which it stops; then whatever force is below it."""
    slowed = 0.005 * 0.5 / 0.002
    v = spun(wheel(), 3.0, np.zeros(5), 0.005, stepper)
    np.testing.assert_allclose(v, [3.0, 3.0 - slowed, 3.0 - 2 * slowed, 0.0, 0.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(spun(wheel(), 0.0, np.full(50, 0.499), 0.005, stepper), 0.0, atol=1e-9)
    pushed = spun(wheel(), 0.0, np.full(50, -0.7), 0.005, stepper)
    np.testing.assert_allclose(pushed, -0.2 / 0.002 * 0.005 * np.arange(51), atol=1e-9)


def test_float32_sticks():
    model = jax.tree.map(lambda x: x.astype(jnp.float32), wheel())
    v = dx.rollout(model, *jnp.zeros((2, 1), jnp.float32), jnp.full((50, 1), 0.499, jnp.float32), 0.005).v
    assert v.dtype == jnp.float32
    assert float(jnp.abs(v).max()) < 1e-5


def arm(friction) -> dx.Model:
    return double_pendulum(damping=0.3).replace(friction_loss=jnp.asarray(friction))


def test_a_step_of_the_midpoint_rule_is_one_kernel():
    """What sticks, and the Newton steps of all samples; of one, and of a batch."""
    if not (versions.available() and jax.default_backend() == "cpu"):
        pytest.skip("nothing is one kernel here")
    step = partial(dx.step, wheel(), stepper="implicit_midpoint")
    for batch, function in (((), step), ((3,), jax.vmap(step, (0, 0, 0, None)))):
        state = (jnp.zeros((*batch, 1)),) * 3
        assert kernels(jax.jit(function).lower(*state, 0.01).as_text()) == 1


@pytest.mark.parametrize("stepper", STICKING)
def test_who_sticks_is_right_where_joints_push_each_other(stepper, key):
    """The complementarity problem, in its terms: the friction that a step has used obeys the law in every joint."""
    model, dt, many = arm([0.8, 0.5]), 5e-3, 400

    @jax.jit
    @jax.vmap
    def used(q, v, tau):
        _, v1 = dx.step(model, q, v, tau, dt, stepper=stepper)
        smooth = model.replace(friction_loss=jnp.zeros(2), damping=jnp.zeros(2))
        at_middle = q if stepper == "semi_implicit" else dx.integrate(model, q, 0.25 * dt * (v + v1))
        needed = dx.inverse_dynamics(smooth, at_middle, 0.5 * (v + v1), (v1 - v) / dt)
        damped = model.damping * (v1 if stepper == "semi_implicit" else 0.5 * (v + v1))
        return v1, tau - needed - damped

    q, v, tau = jnp.array([1.0, 0.05, 3.0])[:, None, None] * jax.random.normal(key, (3, many, 2))
    v1, friction = used(q, v, tau)
    loss = np.broadcast_to(model.friction_loss, v1.shape)
    slips = np.abs(v1) > 1e-9
    assert 50 < slips.sum() < 2 * many - 50
    assert (slips[:, 0] != slips[:, 1]).any()
    np.testing.assert_allclose(friction[slips], (np.sign(v1) * loss)[slips], atol=1e-5)
    assert (np.abs(friction) <= loss + 1e-5)[~slips].all()


def test_gradients_are_those_of_the_step(rng):
    """By friction too: of an arm that slips, stops and breaks loose."""
    forces = 8.0 * jnp.sin(0.2 * jnp.arange(80.0)).reshape(40, 2)
    inputs = {"friction": jnp.array([6.0, 3.0]), "v": jnp.array([1.0, -0.2]), "tau": forces}

    @jax.jit
    def run(x):
        return dx.rollout(arm(x["friction"]), [0.3, -0.8], x["v"], x["tau"], 5e-3)

    def loss(x):
        return (run(x).q[-1] * jnp.array([1.0, 2.0])).sum()

    stuck = np.abs(run(inputs).v) < 1e-9
    assert 3 < stuck.sum() < 70
    gradient = jax.jit(jax.grad(loss))(inputs)
    for name in inputs:
        direction = {k: jnp.zeros_like(x) for k, x in inputs.items()}
        direction[name] = jnp.asarray(rng.normal(size=inputs[name].shape))
        ends = [loss(jax.tree.map(lambda x, d, h=h: x + h * d, inputs, direction)) for h in (-1e-6, 1e-6)]
        along = float(jnp.vdot(gradient[name], direction[name]))
        assert along == pytest.approx(float(ends[1] - ends[0]) / 2e-6, rel=1e-6), name


@pytest.mark.parametrize(
    ("name", "stepper"),
    [
        ("tree", "semi_implicit"),
        ("tree", "implicit_midpoint"),
        ("embedded", "semi_implicit"),
        pytest.param("embedded", "implicit_midpoint", marks=pytest.mark.slow),
        pytest.param("loops", "semi_implicit", marks=pytest.mark.slow),
    ],
)
def test_derivatives_by_friction_where_there_is_none(name, stepper):
    """From rest, and where a joint turns round in a step: what the first bit of friction does, on that side."""
    model, q, speeds = arm([0.0, 0.0]), jnp.array([0.5, 0.2]), jnp.array([[0.0, 0.0], [0.1, -0.5]])
    if name == "embedded":
        follower, leader = model.joint_names[::-1]
        model = dx.embed(dx.to_builder(model).gear(follower, (leader,), ratio=0.4).build(), q)
        speeds = jnp.zeros((1, 1))
    elif name == "loops":
        model, q = FOUR_BAR, dx.assemble(FOUR_BAR, GUESS, hold=["crank_joint"]).q
        speeds = jnp.zeros((1, 3))

    @jax.jit
    def end(friction, v):
        run = dx.rollout(model.replace(friction_loss=friction), q, v, jnp.zeros((3, model.nv)), 0.02, stepper=stepper)
        return run.v[-1] @ jnp.arange(1.0, model.nv + 1)

    none, h = jnp.zeros(len(q)), 1e-5
    for v in speeds:
        slope = jax.grad(end)(none, v)
        for k, some in enumerate(h * jnp.eye(len(none))):
            ahead = (4.0 * end(some, v) - end(2.0 * some, v) - 3.0 * end(none, v)) / (2.0 * h)
            assert float(slope[k]) == pytest.approx(float(ahead), rel=1e-6, abs=1e-8)


@pytest.mark.slow
def test_closed_loops_stick_embedded_or_not():
    """A four-bar of which one dependent joint rubs: held against its weight, let go, the same motion either way."""
    model = FOUR_BAR.replace(friction_loss=jnp.array([0.0, 0.0, 2.0]))
    q = dx.assemble(model, GUESS, hold=["crank_joint"]).q
    embedded, free = dx.embed(model, q, independent=["crank_joint"]), jnp.zeros(3)
    load = dx.gravity_force(embedded, q)

    def run(push, dt, steps):
        whole = dx.rollout(model, q, free, jnp.zeros((steps, 3)).at[:, 0].set(push), dt)
        return whole, dx.rollout(embedded, q, free[:1], jnp.full((steps, 1), push), dt)

    for trajectory in run(load[0] + 0.5, 2e-3, 50):
        np.testing.assert_allclose(trajectory.v, 0.0, atol=1e-8)
    coarse, fine = (run(load[0] + 30.0, 0.1 / steps, steps) for steps in (50, 100))
    assert float(jnp.abs(fine[0].v[-1]).max()) > 0.1
    apart = [float(jnp.abs(whole.q[-1] - part.q[-1]).max()) for whole, part in (coarse, fine)]
    assert apart[0] / apart[1] == pytest.approx(2.0, abs=0.3)


WITH_FRICTION = [name for name, path in sorted(ROBOTS.items()) if re.search(r'friction="[0.]*[1-9]', path.read_text())]
HAND = "allegro_hand_description/urdf/allegro_left_hand.urdf"


def held(name: str) -> tuple:
    """A robot held against its weight and nudged, 200 steps of 1 ms: largest speeds at the start, middle and end."""
    try:
        model = dx.load(ROBOTS[name])
    except dx.ModelError as error:
        pytest.skip(str(error))
    q = dx.assemble(model, dx.neutral(model)).q if model.constrained else dx.neutral(model)
    nudge = 1e-3 * jnp.cos(jnp.arange(model.nv))
    v = dx.admissible_velocity(model, q, nudge) if model.constrained else nudge
    run = dx.rollout(model, q, v, jnp.tile(dx.gravity_force(model, q), (200, 1)), 1e-3)
    rubs = np.asarray(model.friction_loss > 0)
    return model, np.abs(run.v).max(axis=1), np.abs(run.v)[:, rubs].max(axis=1)


@pytest.mark.skipif(HAND not in ROBOTS, reason="needs the wheel example-robot-data")
def test_a_hand_is_still():
    model, _, speeds = held(HAND)
    assert model.friction_loss.min() > 0
    assert speeds[1:].max() < 1e-9
    q, hold = dx.neutral(model), dx.gravity_force(model, dx.neutral(model))
    weak = model.replace(friction_loss=1e-3 * model.friction_loss)

    @jax.jit
    def loss(v, friction):
        run = dx.rollout(weak.replace(friction_loss=friction), q, v, jnp.tile(hold, (20, 1)), 1e-3)
        return (run.q[-1] * jnp.arange(1.0, 17.0)).sum()

    by_speed, by_friction = jax.jit(jax.grad(loss, argnums=(0, 1)))(jnp.full(16, 2.0), weak.friction_loss)
    for argument, gradient in ((0, by_speed), (1, by_friction)):
        at_ = [jnp.full(16, 2.0), weak.friction_loss]
        direction = jnp.cos(jnp.arange(16.0)) * at_[argument]
        ends = []
        for h in (-1e-7, 1e-7):
            moved = list(at_)
            moved[argument] = at_[argument] + h * direction
            ends.append(float(loss(*moved)))
        assert float(gradient @ direction) == pytest.approx((ends[1] - ends[0]) / 2e-7, rel=1e-5)
    # Held by friction, where it ends does not depend on a nudge.
    nudged = jax.jit(jax.grad(loss))(jnp.full(16, 1e-3), model.friction_loss)
    assert float(jnp.abs(nudged).max()) < 1e-6


@pytest.mark.slow
@pytest.mark.skipif(not ROBOTS, reason="needs the wheel example-robot-data")
@pytest.mark.parametrize("name", WITH_FRICTION)
def test_robots_with_friction_are_still(name):
    _, speeds, rubbing = held(name)
    assert np.isfinite(speeds).all()
    assert rubbing[-1] <= 2e-3  # the nudge; those without friction may swing
    assert speeds[-1] <= 0.05
