"""What a rollout takes and returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulate.systems import double_pendulum, solid

import dynax as dx
from dynax.simulate.checkpoint import ONE_LEVEL, checkpointed_scan, run_length

MODEL = double_pendulum()
ARM = files("dynax.models") / "arm7.urdf"
Q, V = jnp.array([0.3, -0.8]), jnp.array([0.5, 0.1])
FORCES = 0.3 * jnp.sin(jnp.arange(60.0)).reshape(30, 2)


def test_rows_and_times():
    run = dx.rollout(MODEL.at_time(2.0), Q, V, FORCES, 0.01)
    assert (run.time.shape, run.q.shape, run.v.shape) == ((31,), (31, 2), (31, 2))
    np.testing.assert_allclose(run.time, 2.0 + 0.01 * np.arange(31), atol=1e-15)
    np.testing.assert_array_equal(run.q[0], Q)
    np.testing.assert_array_equal(run.v[0], V)
    one = dx.step(MODEL, Q, V, FORCES[0], 0.01)
    np.testing.assert_allclose((run.q[1], run.v[1]), one, atol=1e-15)
    assert dx.rollout(MODEL, Q, V, FORCES[:0], 0.01).q.shape == (1, 2)


def test_semi_implicit_euler_by_hand():
    dt, tau = 0.01, FORCES[1]
    mass, smooth = dx.mass_matrix(MODEL, Q) + dt * jnp.diag(MODEL.damping), MODEL.replace(damping=jnp.zeros(2))
    v, missed = V, []
    for evaluations in (1, 2, 3):
        force = tau - MODEL.damping * V - dx.bias_force(smooth, Q, 0.5 * (V + v))
        v = V + dt * np.linalg.solve(mass, force)
        found = dx.step(MODEL, Q, V, tau, dt, stepper=dx.SemiImplicitEuler(evaluations))
        np.testing.assert_allclose(found, (Q + dt * v, v), atol=1e-14)
        # Nearer each time to the equation: Coriolis forces of the mean velocity, damping of the last.
        needed = dx.inverse_dynamics(smooth, Q, 0.5 * (V + v), (v - V) / dt) + MODEL.damping * v
        missed.append(float(jnp.abs(needed - tau).max()))
    np.testing.assert_array_equal(dx.step(MODEL, Q, V, tau, dt), found)
    assert missed[1] < 0.02 * missed[0]
    assert missed[2] < 0.02 * missed[1]


def test_strong_damping_is_stable():
    stiff = MODEL.replace(damping=jnp.full(2, 1e6))
    for stepper in ("semi_implicit", "implicit_midpoint"):
        run = dx.rollout(stiff, Q, V, FORCES, 0.01, stepper=stepper)
        assert jnp.abs(run.v).max() <= 0.5


def test_policy_is_asked_once_a_step():
    def policy(t, q, v):
        return jnp.sin(t) - 2.0 * q - 0.5 * v

    free = dx.rollout(MODEL, Q, V, policy, 0.01, steps=30, stepper="heun")
    answers = jax.vmap(policy)(free.time, free.q, free.v)[:-1]
    forced = dx.rollout(MODEL, Q, V, answers, 0.01, stepper="heun")
    np.testing.assert_allclose(free.q, forced.q, atol=1e-13)


def test_every_third_state():
    every, all_ = (dx.rollout(MODEL, Q, V, FORCES, 0.01, every=k) for k in (3, 1))
    for some, whole in zip(every, all_, strict=True):
        np.testing.assert_allclose(some, whole[::3], atol=1e-13)


def test_policy_with_memory():
    """The integral of an error, the number of the step, and noise from a key of its own."""

    def policy(t, q, v, memory):
        total, k, key = memory
        key, own = jax.random.split(key)
        tau = -5.0 * q - 2.0 * total + 0.1 * jax.random.normal(own, (2,))
        return tau, (total + 0.01 * q, k + 1, key)

    start = jnp.zeros(2), 0, jax.random.key(0)
    run, (total, k, _) = dx.rollout(MODEL, Q, V, policy, 0.01, steps=30, memory=start)
    assert int(k) == 30
    np.testing.assert_allclose(total, 0.01 * run.q[:-1].sum(axis=0), atol=1e-13)
    memory, forces = start, []
    for t, q, v in zip(*(x[:-1] for x in run), strict=True):
        tau, memory = policy(t, q, v, memory)
        forces.append(tau)
    np.testing.assert_allclose(dx.rollout(MODEL, Q, V, jnp.stack(forces), 0.01).q, run.q, atol=1e-13)


def test_a_policy_is_compiled_once_and_never_out_of_date():
    compiled = []

    def listen(event: str, duration: float, **_) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    gain, mutable = jnp.array(2.0), np.array(2.0)

    def policy(t, q, v):
        return -gain * q

    def spring(gain, t, q, v):
        return -gain * q

    def with_mutable(t, q, v):
        return -jnp.asarray(mutable) * q

    def end(policy):
        return np.asarray(dx.rollout(MODEL, Q, V, policy, 0.01, steps=30).q[-1])

    soft, partially = end(policy), end(jax.tree_util.Partial(spring, gain))
    np.testing.assert_array_equal(end(with_mutable), soft)
    harder = jnp.array(3.0)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        np.testing.assert_array_equal(end(policy), soft)
        stiff = end(jax.tree_util.Partial(spring, harder))
        assert not compiled
        gain, mutable[...] = harder, 3.0
        found = end(policy)
        assert compiled  # the listener works
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    np.testing.assert_allclose(partially, soft, atol=1e-14)
    np.testing.assert_allclose(found, stiff, atol=1e-14)
    np.testing.assert_allclose(end(with_mutable), stiff, atol=1e-14)
    assert np.abs(stiff - soft).max() > 1e-3
    slope = jax.grad(lambda gain: dx.rollout(MODEL, Q, V, lambda t, q, v: -gain * q, 0.01, steps=3).q[-1, 0])(2.0)
    assert float(slope) < 0.0


def test_own_stepper():
    @dataclass(frozen=True)
    class Glide(dx.AbstractStepper):
        def step(self, model, q, v, tau, dt):
            return dx.integrate(model, q, dt * v), v

    run = dx.rollout(MODEL, Q, V, FORCES, 0.1, stepper=Glide())
    np.testing.assert_allclose(run.q[-1], Q + 3.0 * V, atol=1e-12)


def test_a_known_step_may_be_an_array_inside_of_jit():
    dt = jnp.asarray(0.1)
    found = jax.jit(lambda q: dx.step(MODEL, q, V, FORCES[0], dt))(Q)
    np.testing.assert_allclose(found[0], dx.step(MODEL, Q, V, FORCES[0], 0.1)[0], atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((Q, V, FORCES[0], 0.1), {}, r"`controls` has shape \(2,\), expected \(T, 2\)"),
        ((Q, V, FORCES[:, :1], 0.1), {}, r"expected \(T, 2\)"),
        ((Q[:1], V, FORCES, 0.1), {}, r"`q` has shape \(1,\), expected \(2,\)"),
        ((Q, V, FORCES, jnp.ones(30)), {}, r"`dt` has shape \(30,\), expected a scalar"),
        ((Q, V, FORCES, 0.1), {"steps": 29}, "`steps` is 29, but `controls` has 30 rows"),
        ((Q, V, FORCES, 0.1), {"stepper": "euler"}, "'semi_implicit', 'explicit', 'heun', 'rk4', 'implicit_midpoint'"),
        ((Q, V, FORCES, 0.0), {}, r"`dt` is 0.0, expected the length of a step \[s\], positive"),
        ((Q, V, FORCES, -0.1), {}, "`dt` is -0.1"),
        ((Q, V, FORCES, jnp.nan), {}, "`dt` is nan"),
        ((Q, V, None, 0.1), {}, r"`controls` is None, expected joint forces; for none give jnp.zeros\(\(T, 2\)\)"),
        ((Q, V, FORCES, 0.1), {"every": 7}, "`every` is 7, but 30 steps are no multiple"),
        ((Q, V, FORCES, 0.1), {"every": 0}, "`every` is 0, expected one or more"),
        ((Q, V, FORCES, 0.1), {"memory": 0.0}, "`controls` is no function"),
        ((Q, V, lambda t, q, v, m: v, 0.1), {"steps": 3, "memory": 0.0}, r"must return \(tau, memory\)"),
        ((Q, V, lambda t, q, v, m: (v, q), 0.1), {"steps": 3, "memory": 0.0}, r"a memory of shapes \[\(2,\)\]"),
        ((Q, V, lambda t, q, v: v, 0.1), {}, "`steps` is missing"),
        ((Q, V, lambda t, q, v: v, 0.1), {"steps": 2.5}, "`steps` is 2.5, expected a number"),
        ((Q, V, lambda t, q, v: v, 0.1), {"steps": -1}, "zero or more"),
        ((Q, V, lambda t, q, v: v[:1], 0.1), {"steps": 3}, r"the policy returned shape \(1,\), expected \(2,\)"),
    ],
)
def test_errors_name_the_argument(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        dx.rollout(MODEL, *arguments, **options)


@pytest.mark.parametrize("evaluations", [0, 2.5])
def test_a_stepper_without_evaluations_is_refused(evaluations):
    with pytest.raises(ValueError, match=f"`evaluations` is {evaluations}, expected a whole number"):
        dx.SemiImplicitEuler(evaluations=evaluations)


def test_vmap_over_states_forces_and_masses():
    forces = jnp.stack([FORCES, -FORCES, 0.5 * FORCES])
    q, scale = Q + jnp.arange(3.0)[:, None], jnp.array([1.0, 1.5, 0.7])

    def last(q, forces, scale):
        return dx.rollout(MODEL.replace(mass=scale * MODEL.mass), q, V, forces, 0.01).q[-1]

    many = jax.jit(jax.vmap(last))(q, forces, scale)
    np.testing.assert_allclose(many, [last(*x) for x in zip(q, forces, scale, strict=True)], atol=1e-12)


def test_float32_stays_float32():
    model = jax.tree.map(lambda x: x.astype(jnp.float32), MODEL)
    exact = dx.rollout(MODEL, Q, V, FORCES, 0.01)
    q, v, forces = (x.astype(jnp.float32) for x in (Q, V, FORCES))
    for name in ("semi_implicit", "rk4", "implicit_midpoint"):
        run = dx.rollout(model, q, v, forces, 0.01, stepper=name)
        assert {x.dtype for x in run} == {jnp.dtype("float32")}
        np.testing.assert_allclose(run.q, exact.q, atol=0.05)


def test_a_pendulum_on_a_fast_shaker_stands_on_its_head():
    """Kapitza: `l th'' = (g + z'') sin th` is stable at the top when `(a w)^2 > 2 g l`."""
    size, rate, length = 0.05, 120.0, 0.5

    def shaker(t):
        return size * jnp.cos(rate * t)

    b = dx.ModelBuilder()
    b.body("base", joint=dx.Driven(dx.Prismatic((0, 0, 1)), shaker))
    b.body("rod", parent="base", joint=dx.Revolute((0, 1, 0)), inertia=solid(1.0, [0, 0, length], [0, 0, 0]))
    model = b.build()
    dt, steps = 5e-4, 2000
    run = dx.rollout(model, [0.1], [0.0], jnp.zeros((steps, 1)), dt, stepper="rk4")
    assert jnp.abs(run.q).max() < 0.25

    def field(t, y):
        return np.array([y[1], (9.81 - size * rate**2 * np.cos(rate * t)) * np.sin(y[0]) / length])

    y, states = np.array([0.1, 0.0]), []
    for k in range(steps):
        t = k * dt
        k1 = field(t, y)
        k2 = field(t + dt / 2, y + dt / 2 * k1)
        k3 = field(t + dt / 2, y + dt / 2 * k2)
        k4 = field(t + dt, y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        states.append(y)
    np.testing.assert_allclose(run.q[1:, 0], np.array(states)[:, 0], atol=1e-9)
    # A rollout goes on where another ended: the model knows the time.
    k = steps // 2
    again = dx.rollout(model.at_time(run.time[k]), run.q[k], run.v[k], jnp.zeros((steps, 1)), dt, stepper="rk4")
    np.testing.assert_allclose(again.q[steps - k], run.q[-1], atol=1e-9)


@pytest.mark.parametrize("length", [0, 1, 7, 131, 1024, 1025, 1031, 1600, 2063])
def test_checkpointed_scan_is_a_scan(length):
    """For any length: divided evenly, with a remainder, short."""

    def step(carry, x):
        carry = jnp.sin(carry + x)
        return carry, {"y": carry, "twice": 2.0 * carry}

    xs = jnp.linspace(0.0, 1.0, length)
    plain = jax.lax.scan(step, 0.3, xs)
    ours = checkpointed_scan(step, jnp.asarray(0.3), xs, length)
    jax.tree.map(np.testing.assert_array_equal, ours, plain)
    assert length <= ONE_LEVEL or run_length(length) ** 2 <= 4 * length


@pytest.mark.usefixtures("optimised")
def test_checkpoints_change_memory_and_nothing_else():
    def made(steps, checkpoint):
        def loss(q, forces):
            # Without checkpoints four evaluations keep thirty numbers of a step: the default keeps fewer.
            run = dx.rollout(MODEL, q, V, forces, 0.005, stepper="rk4", checkpoint=checkpoint)
            return (run.q[-1] ** 2).sum()

        forces = jnp.tile(FORCES, (80, 1))[:steps]
        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(Q, forces).compile(), forces

    results, grown = {}, {}
    for checkpoint in (True, False):
        # 33 runs of 33, and 22 steps; 47 runs of 47. What a program holds whatever its length is in both.
        (short, forces), (long, _) = made(1111, checkpoint), made(2209, checkpoint)
        results[checkpoint] = short(Q, forces)
        grown[checkpoint] = np.subtract(*(x.memory_analysis().temp_size_in_bytes for x in (long, short)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), results[True], results[False])
    assert grown[True] < 0.1 * grown[False]


def test_scratch_memory_of_the_gradient_of_long_rollouts():
    """4096 steps of 256 arms, compiled and not run: beside one array as large as the forces, which both hold, by tiles
    below 2 % of what a plain scan takes."""
    model = dx.load(ARM)
    shapes = [(256, model.nq), (256, model.nv), (256, 4096, model.nv)]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]

    def scratch(batch, checkpoint):
        def loss(model, q, v, forces):
            run = dx.rollout(model, q, v, forces, 0.005, stepper="explicit", checkpoint=checkpoint)
            return (run.q[-1] ** 2).sum()

        compiled = jax.jit(batch(jax.grad(loss, argnums=(1, 2, 3)))).lower(model, *arrays).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    whole = scratch(lambda f: jax.vmap(f, in_axes=(None, 0, 0, 0)), False)
    forces = 4 * 256 * 4096 * model.nv
    assert scratch(partial(dx.batch, tile=64), True) - forces < 0.02 * (whole - forces)
