"""A quadruped on the ground beside MuJoCo C and MJX: a step, and the gradient of 50 steps.

    taskset -c 0 python -m benchmarks.quadruped                    all
    taskset -c 0 python -m benchmarks.quadruped --only steps,mujoco

18 freedoms, 4 feet that are balls, 12 limits of joints, under gravity and small torques; dt 2 ms, float32 (MuJoCo C
knows float64 alone), one thread. Processor time of the fastest of `--repeats`, by state and step; engines take turns in
one process. MJX takes 4 iterations, as its authors do for such robots; with more than one its gradient cannot be had
backwards, so that is with 1.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import dynax as dx
from benchmarks.jax_calls import without_fusion_emitters

BATCH, STEPS, DT = 1024, 50, 0.002
LEG = """<body name="{n}_hip" pos="{x} {y} 0"><joint name="{n}_1" axis="1 0 0" range="-1 1"/>
  <inertial pos="0 0 0" mass="0.68" diaginertia="0.0005 0.0006 0.0005"/>
  <body name="{n}_thigh" pos="0 {side} 0"><joint name="{n}_2" axis="0 1 0" range="-1.5 3.4"/>
    <inertial pos="0 0 -0.03" mass="1.15" diaginertia="0.006 0.006 0.001"/>
    <body name="{n}_calf" pos="0 0 -0.213"><joint name="{n}_3" axis="0 1 0" range="-2.7 -0.8"/>
      <inertial pos="0 0 -0.1" mass="0.24" diaginertia="0.002 0.002 0.00004"/>
      <geom name="{n}" type="sphere" size="0.022" pos="0 0 -0.213" friction="0.8"/>
    </body></body></body>"""
ROBOT = """<mujoco><compiler angle="radian"/>
<option timestep="{dt}" iterations="{iterations}" ls_iterations="8" cone="pyramidal"/>
<default><joint type="hinge" limited="true" damping="0.1" armature="0.01"/><geom condim="3"/></default><worldbody>
<geom name="floor" type="plane" size="10 10 1" friction="0.8"/><body name="trunk" pos="0 0 0.32"><freejoint/>
<inertial pos="0.02 0 0" mass="6.9" diaginertia="0.025 0.1 0.11"/>{legs}</body></worldbody></mujoco>"""
STAND = np.array([0.0, 0.9, -1.8] * 4)


def robot(iterations: int = 4) -> str:
    legs = [
        LEG.format(n=n, x=x, y=y, side=side)
        for n, x, y, side in (
            ("FL", 0.19, 0.047, 0.0955),
            ("FR", 0.19, -0.047, -0.0955),
            ("RL", -0.19, 0.047, 0.0955),
            ("RR", -0.19, -0.047, -0.0955),
        )
    ]
    return ROBOT.format(dt=DT, iterations=iterations, legs="".join(legs))


def states(batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standing, some a little above the ground, some a little lower, moving a little; and torques."""
    rng = np.random.default_rng(0)
    q = np.tile(np.concatenate([[0, 0, 0.287, 1, 0, 0, 0], STAND]), (batch, 1))
    q[:, 2] += rng.uniform(-0.002, 0.01, size=batch)
    q[:, 7:] += 0.05 * rng.normal(size=(batch, 12))
    tau = np.concatenate([np.zeros((batch, 6)), rng.normal(size=(batch, 12))], axis=1)
    return q, 0.1 * rng.normal(size=(batch, 18)), tau


def of_steps(gradient: bool) -> Callable:
    scene = dx.load_scene(robot())

    def one(q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        return jnp.sum(dx.rollout(scene, q, v, jnp.tile(tau, (STEPS, 1)), DT).q[-1])

    return jax.vmap(jax.grad(one, argnums=(1, 2)) if gradient else one)


def of_mjx(gradient: bool) -> Callable:
    from mujoco import mjx

    own = mujoco.MjModel.from_xml_string(robot(1 if gradient else 4))
    model, data = mjx.put_model(own), mjx.make_data(own)

    def one(q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        def step(d: Any, _: None) -> tuple[Any, None]:
            return mjx.step(model, d), None

        step = jax.checkpoint(step) if gradient else step
        start = data.replace(qpos=q, qvel=v, qfrc_applied=tau)
        return jnp.sum(jax.lax.scan(step, start, None, length=STEPS)[0].qpos)

    return jax.vmap(jax.grad(one, argnums=(1, 2)) if gradient else one)


def compiled(fn: Callable, batch: int, options: dict[str, Any] | None = None) -> Callable[[], Any]:
    args = [jnp.asarray(x, jnp.float32) for x in states(batch)]
    begin = time.process_time()
    traced = jax.jit(fn).lower(*args)
    middle = time.process_time()
    run = traced.compile(compiler_options=options)
    print(f"    tracing {middle - begin:.1f}, compiling {time.process_time() - middle:.1f} CPU s", flush=True)
    return lambda: jax.block_until_ready(run(*args))


def of_mujoco(batch: int) -> Callable[[], Any]:
    model = mujoco.MjModel.from_xml_string(robot(100))
    data, (q, v, tau) = mujoco.MjData(model), states(batch)

    def run() -> None:
        for k in range(batch):
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q[k], v[k], tau[k]
            mujoco.mj_step(model, data, STEPS)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="steps,gradient,mujoco,mjx,mjx-gradient")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--repeats", type=int, default=5)
    own = parser.parse_args()
    makers: dict[str, Callable[[], Callable]] = {
        "steps": lambda: compiled(of_steps(False), own.batch),
        "gradient": lambda: compiled(of_steps(True), own.batch),
        "mujoco": lambda: of_mujoco(own.batch),
        "mjx": lambda: compiled(of_mjx(False), own.batch, without_fusion_emitters()),
        "mjx-gradient": lambda: compiled(of_mjx(True), own.batch, without_fusion_emitters()),
    }
    runs: dict[str, Callable] = {}
    for name in own.only.split(","):
        print(name, flush=True)
        runs[name] = makers[name]()
        runs[name]()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(own.repeats):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            times[name].append(time.process_time() - begin)
    print(f"batch of {own.batch}, load {os.getloadavg()[0]:.1f}; MuJoCo {mujoco.__version__}, JAX {jax.__version__}")
    for name, own_times in times.items():
        print(f"  {name:13} {1e6 * min(own_times) / own.batch / STEPS:8.2f} us by state and step", flush=True)


if __name__ == "__main__":
    main()
