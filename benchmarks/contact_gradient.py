"""The gradient of one step with contact: of an arm of 7 freedoms that presses on a table, of a humanoid of 36 on its
feet.

    taskset -c 0 python -m benchmarks.contact_gradient                       both, float32
    taskset -c 0 python -m benchmarks.contact_gradient --only arm --float64

The aim is what Simple (Le Lidec et al., arXiv 2409.07107) published of its derivatives of a step, 5 us for 7 freedoms
and 95 us for 36, on its authors' machine. Here the step is dynax's default, dt 2 ms, and what is timed is

    step        q+, v+
    gradient    of 0.5 |v+|^2 + sum(q+) by q, v and tau, backwards
    jacobian    of v+ by q, v and tau, all 3 nv columns, backwards, a row at a time

Each with everything it needs, the step itself too. Processor time of the fastest of `--repeats`, by state; one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from importlib import resources

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import contact

DT = 0.002
AIMS = {"arm": 5.0, "humanoid": 95.0}
"""Simple's, by state [us]."""
PRESSED = 0.001
"""How deep the feet may begin below what they touch [m]."""
BEFORE = 20
"""Steps before the one that is measured, so that states are some that a robot comes to."""


def arm() -> tuple[contact.Scene, np.ndarray]:
    """Seven joints and a ball at the tool on a table; and a pose."""
    model = dx.load(resources.files("dynax").joinpath("models/arm7.urdf").read_text())
    q = np.array([0.2, 0.6, -0.3, -1.5, 0.1, 0.9, 0.4])
    tool = dx.forward_kinematics(model, jnp.asarray(q))
    last = model.body_names[-1]
    table = dx.Transform.from_translation((0, 0, float(tool.translation[-1, 2]) - 0.05))
    floor = contact.Collider("world", contact.Plane(), table)
    return contact.scene(model, [floor, contact.Collider(last, contact.Sphere(0.05))], limits=False), q


LIMB = {
    "leg": (("001", 0.0), ("100", 0.0), ("010", 0.0), ("010", -0.4), ("010", -0.4), ("100", 0.0)),
    "arm": (("010", 0.0), ("100", 0.0), ("001", -0.15), ("010", -0.15), ("001", -0.12), ("010", -0.12), ("100", 0.0)),
    "trunk": (("001", 0.1), ("010", 0.1)),
    "neck": (("001", 0.2), ("010", 0.05)),
}
"""Of each limb the axes of its joints, and how far along z each is from the one before [m]."""


def humanoid() -> tuple[contact.Scene, np.ndarray]:
    """A free base, legs of 6 joints, arms of 7, trunk and neck of 2; four balls under each foot."""
    builder = dx.ModelBuilder(name="humanoid")
    builder.body("pelvis", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.2, 0.3, 0.2), mass=12.0))
    ends = {"trunk": "pelvis"}
    limbs = [("trunk", "pelvis", (0, 0, 0)), ("neck", "trunk", (0, 0, 0))]
    for side, y in (("left", 0.1), ("right", -0.1)):
        limbs += [(f"{side} leg", "pelvis", (0, y, 0)), (f"{side} arm", "trunk", (0, 2 * y, 0.15))]
    for name, begin, place in limbs:
        parent = ends.get(begin, begin)
        for k, (axis, z) in enumerate(LIMB[name.split()[-1]]):
            offset = np.array(place if k == 0 else (0, 0, 0)) + np.array([0, 0, z])
            builder.body(
                f"{name} {k}",
                parent=parent,
                joint=dx.Revolute(tuple(map(int, axis))),
                placement=dx.Transform.from_translation(offset),
                inertia=dx.SpatialInertia.box((0.08, 0.08, 0.15), mass=1.5),
                armature=0.01,
            )
            parent = f"{name} {k}"
        ends[name] = parent
    model = builder.build()
    balls = [
        contact.Collider(
            ends[f"{side} leg"],
            contact.Sphere(0.01),
            dx.Transform.from_translation((x, y, -0.05)),
            contact.Material(friction=0.8),
        )
        for side in ("left", "right")
        for x in (-0.08, 0.12)
        for y in (-0.04, 0.04)
    ]
    scene = contact.scene(model, [contact.Collider("world", contact.Plane()), *balls], limits=False)
    q = np.array(dx.neutral(model))
    q[2] = 0.86
    return scene, q


ROBOTS: dict[str, Callable[[], tuple[contact.Scene, np.ndarray]]] = {"arm": arm, "humanoid": humanoid}


def states(name: str, batch: int, dtype: str) -> tuple[contact.Scene, tuple[jax.Array, ...]]:
    """Those that robots come to in `BEFORE` steps from around a pose in which they touch, moving a little."""
    scene, pose = ROBOTS[name]()
    rng = np.random.default_rng(0)
    joints = slice(0, None) if name == "arm" else slice(7, None)
    q = np.tile(pose, (batch, 1))
    q[:, joints] += 0.002 * rng.normal(size=q[:, joints].shape)
    v, tau = 0.1 * rng.normal(size=(batch, scene.nv)), rng.normal(size=(batch, scene.nv))
    if name == "humanoid":
        q[:, 2] += rng.uniform(-PRESSED, PRESSED, size=batch)
        tau[:, :6] = 0.0
    q, v, tau = (jnp.asarray(x, dtype) for x in (q, v, tau))

    def later(q: jax.Array, v: jax.Array, tau: jax.Array) -> tuple[jax.Array, jax.Array]:
        motion = dx.rollout(scene, q, v, jnp.tile(tau, (BEFORE, 1)), DT)
        return motion.q[-1], motion.v[-1]

    return scene, (*jax.jit(jax.vmap(later))(q, v, tau), tau)


def step(scene: contact.Scene, *x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return dx.step(scene, *x, DT)


def gradient(scene: contact.Scene, *x: jax.Array) -> tuple[jax.Array, ...]:
    def value(*x: jax.Array) -> jax.Array:
        q, v = step(scene, *x)
        return 0.5 * v @ v + jnp.sum(q)

    return jax.grad(value, argnums=(0, 1, 2))(*x)


def jacobian(scene: contact.Scene, q: jax.Array, *x: jax.Array) -> tuple[jax.Array, ...]:
    def end(dq: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        return step(scene, dx.integrate(scene.model, q, dq), v, tau)[1]

    return jax.jacrev(end, argnums=(0, 1, 2))(jnp.zeros_like(x[0]), *x)


WHAT: dict[str, Callable] = {"step": step, "gradient": gradient, "jacobian": jacobian}


def measure(name: str, what: str, batch: int, dtype: str, repeats: int) -> float:
    """By state [us]."""
    scene, args = states(name, batch, dtype)
    begin = time.process_time()
    run = jax.jit(jax.vmap(lambda *x: WHAT[what](scene, *x))).lower(*args).compile()
    compiling = time.process_time() - begin
    jax.block_until_ready(run(*args))
    taken = []
    for _ in range(repeats):
        begin = time.process_time()
        jax.block_until_ready(run(*args))
        taken.append(time.process_time() - begin)
    found = 1e6 * min(taken) / batch
    aim = f", aim {AIMS[name]:.0f}" if what != "step" else ""
    print(f"{name:9} {dtype} {what:9} {found:8.2f} us{aim}; compiled in {compiling:.1f} CPU s", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=tuple(ROBOTS))
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=20)
    own = parser.parse_args()
    jax.config.update("jax_enable_x64", own.float64)
    for name in ROBOTS if own.only is None else (own.only,):
        for what in WHAT:
            measure(name, what, own.batch, "float64" if own.float64 else "float32", own.repeats)
    print(f"batch of {own.batch}, load {os.getloadavg()[0]:.1f}, JAX {jax.__version__}")
