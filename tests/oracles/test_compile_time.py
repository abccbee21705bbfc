"""Compiling: bounded, the same for any length of a chain, and never again for other values of the parameters."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import OPTIMISED
from oracles.robots import chain, example_robots

import dynax as dx
from dynax.compile.one_kernel import equations

SECONDS = 6.0  # about five, and a margin for a machine that others use as well
CHAINS = (8, 1000)
HUMANOID = "talos_data/robots/talos_reduced.urdf"


def seconds(action: Callable[[], object]) -> float:
    """How long it takes: by the clock or in processor time, whichever is less on a machine others use as well."""
    clock, processor = time.perf_counter(), time.process_time()
    action()
    return min(time.perf_counter() - clock, time.process_time() - processor)


def compile_seconds(model: dx.Model) -> float:
    """Tracing, lowering and compiling forward dynamics of one state, nothing of it done before; the better of two."""
    zeros = jnp.zeros(model.nv)

    def once() -> float:
        jax.clear_caches()
        return seconds(
            lambda: jax.jit(dx.forward_dynamics).lower(model, dx.neutral(model), zeros, zeros).compile(OPTIMISED)
        )

    return min(once(), once())


@lru_cache(maxsize=1)
def chain_seconds() -> dict[int, float]:
    return {links: compile_seconds(chain(links)) for links in CHAINS}


@pytest.mark.usefixtures("optimised")
def test_compiling_a_chain_takes_bounded_time():
    assert max(chain_seconds().values()) <= SECONDS, chain_seconds()


@pytest.mark.usefixtures("optimised")
def test_compile_time_does_not_grow_with_the_chain():
    times = chain_seconds()
    assert times[1000] < 1.5 * times[8] + 1.0, times


@pytest.mark.usefixtures("optimised")
@pytest.mark.skipif(HUMANOID not in example_robots(), reason="example-robot-data is not installed")
def test_compiling_a_humanoid_takes_bounded_time():
    model = dx.load(example_robots()[HUMANOID], root="free")
    assert model.nv == 38
    taken = compile_seconds(model)
    assert taken <= SECONDS, taken


HIT = """
import jax
import jax.numpy as jnp
import numpy as np
import dynax as dx
from dynax import contact

jax.config.update("jax_enable_x64", True)
block = dx.SpatialInertia.box((0.3, 0.2, 0.2), mass=0.5)
builder = dx.ModelBuilder(gravity=(0, 0, 0))
builder.body("base", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.4, 0.3, 0.2), mass=5.0))
place, parent = dx.Transform.from_translation((0.2, 0.0, -0.1)), "base"
for k, axis in enumerate([(0, 0, 1), (0, 1, 0), (0, 1, 0), (0, 1, 0)]):
    builder.body(f"leg{k}", parent=parent, joint=dx.Revolute(axis), placement=place, inertia=block)
    parent = f"leg{k}"
builder.body("ball", joint=dx.Free(), inertia=dx.SpatialInertia.sphere(0.1, mass=1.0))
model = builder.build()
scene = contact.scene(model, [contact.Collider(name, contact.Sphere(0.1)) for name in ("base", "ball")])
q, v = dx.neutral(model).at[-7].set(0.25), jnp.zeros(model.nv).at[-3].set(-1.0)
run = jax.jit(lambda q, v: dx.rollout(scene, q, v, jnp.zeros((20, model.nv)), 0.005))(q, v)
assert np.abs(run.v[-1, :6]).max() > 0.01
before, after = dx.momentum(model, q, v), dx.momentum(model, run.q[-1], run.v[-1])
np.testing.assert_allclose(after[3:], before[3:], atol=1e-5)  # the leg swings, to the order of the steps
"""


@pytest.mark.spec("RBDA-11.7-TWOBODY")
def test_a_legged_robot_that_a_ball_hits_is_compiled():
    """As for users, one motion alone. It was not, in any time: of the ball's precession, a long formula that stood in a
    loop over all velocities, LLVM asked each operand of each operand what it is (JAX 0.10)."""
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-c", HIT], env=environment, check=True, timeout=200)


LEAVES = [
    "gravity", "time", "placements", "hinges", "mass", "com", "first_moment", "inertia", "armature", "damping",
    "friction_loss", "friction_velocity", "stiffness", "spring_reference", "position_limits", "velocity_limits",
    "effort_limits", "frames",
]  # fmt: skip


@pytest.mark.spec("RBDA-1.1-FDID")
def test_other_parameter_values_compile_nothing_anew():
    model, traces = chain(5), []

    @jax.jit
    def there_and_back(model: dx.Model, q, v, tau):
        traces.append(model.name)
        a = dx.forward_dynamics(model, q, v, tau)
        return a, dx.inverse_dynamics(model, q, v, a)

    rng = np.random.default_rng(0)
    q, v, tau = rng.normal(size=(3, model.nv))
    variants = [model, chain(5)]
    for name in LEAVES:
        leaf = jax.tree.map(lambda a: 1.01 * a + 0.001, getattr(model, name))
        variants.append(model.replace(**{name: leaf}))
    accelerations = []
    for variant in variants:
        a, back = there_and_back(variant, q, v, tau)
        np.testing.assert_allclose(back, tau, rtol=1e-9, atol=1e-9)
        accelerations.append(np.asarray(a))
    assert traces == [model.name]
    assert np.array_equal(accelerations[0], accelerations[1])
    changed = {name: bool(np.any(a != accelerations[0])) for name, a in zip(LEAVES, accelerations[2:], strict=True)}
    no_effect = {"time", "position_limits", "velocity_limits", "effort_limits", "frames"}
    # Without friction loss its velocity means nothing, without stiffness neither does the reference.
    assert changed == {name: name not in no_effect | {"friction_velocity", "spring_reference"} for name in LEAVES}


def test_public_functions_compile_once_for_all_values():
    model, compiled = chain(6), []

    def listen(event: str, duration: float, **_) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    q = np.linspace(-1.0, 1.0, model.nv)
    dx.forward_dynamics(model, q, q, q)
    heavier = model.replace(mass=2.0 * model.mass)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        dx.forward_dynamics(heavier, q, q, q)
        dx.forward_dynamics(heavier, 2.0 * q, q, 0.0 * q)
        assert not compiled
        dx.forward_dynamics(chain(7), np.zeros(7), np.zeros(7), np.zeros(7))
        assert compiled  # the listener works
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_a_gradient_traces_nothing_for_second_derivatives():
    """Of the linear system that the tangent solves only the way back is traced, and that when it is compiled."""
    model = chain(6)
    q = np.linspace(-1.0, 1.0, model.nv)

    def total(q, v, tau):
        return jnp.sum(dx.forward_dynamics(model, q, v, tau))

    traced = jax.make_jaxpr(jax.grad(total, argnums=(0, 1, 2)))(q, q, q)
    names = [equation.primitive.name for equation in equations(traced.jaxpr)]
    assert "custom_linear_solve" not in names
    assert names.count("dynax_batch_last") == 2  # there, with what the derivatives need, and back
    assert len(names) < 100, len(names)  # packing aside; the recursion itself has thousands


@pytest.mark.spec("RBDA-7.3-ABA")
def test_forward_dynamics_of_a_thousand_links_is_exact_to_round_off():
    # Judged by the residual: the condition number of the mass matrix grows with the fourth power of the length.
    model = chain(1000)
    rng = np.random.default_rng(0)
    q, v, tau = rng.uniform(-0.5, 0.5, 1000), 0.1 * rng.normal(size=1000), rng.normal(size=1000)
    a = dx.forward_dynamics(model, q, v, tau)
    size = np.max(np.abs(dx.bias_force(model, q, v)))
    assert np.max(np.abs(dx.inverse_dynamics(model, q, v, a) - tau)) < 1e-9 * size


def test_a_chain_of_five_thousand_links():
    links = 5000
    model = chain(links, axes=((0.0, 1.0, 0.0),))
    assert model.num_bodies == links
    q = np.random.default_rng(1).uniform(-0.3, 0.3, links)
    poses = dx.forward_kinematics(model, q)
    angle = np.cumsum(q)  # all turn about y, which takes x to -z
    along = np.stack([np.cos(angle), np.zeros(links), -np.sin(angle)], axis=1)
    hinges = np.concatenate([np.zeros((1, 3)), np.cumsum(0.5 * along, axis=0)[:-1]])
    np.testing.assert_allclose(poses.rotation[:, :, 0], along, atol=1e-10)
    np.testing.assert_allclose(poses.translation, hinges, atol=1e-8)

    zeros = np.zeros(links)
    tau = np.asarray(dx.inverse_dynamics(model, q, zeros, zeros))
    # The moment about each hinge of the weight beyond it; a weight at positive x turns towards positive y.
    x, g = (hinges + 0.25 * along)[:, 0], 9.81
    beyond, count = np.cumsum(x[::-1])[::-1], np.arange(links, 0, -1)
    np.testing.assert_allclose(tau, -g * (beyond - count * hinges[:, 0]), atol=1e-9 * np.max(np.abs(tau)))
