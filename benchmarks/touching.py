"""Robots that touch beside MuJoCo C and MJX: a step, and the gradient of 50 steps.

    taskset -c 0 python -m benchmarks.touching --robot quadruped            all of one
    taskset -c 0 python -m benchmarks.touching --robot panda --only steps,mujoco

The robots are those of `benchmarks.touching_robots`, under gravity and small torques; dt 2 ms, float32 (MuJoCo C knows
float64 alone), one thread. Processor time of the fastest of `--repeats`, by state and step; engines take turns in one
process. MJX takes as many iterations as its authors do for such robots; with more than one its gradient cannot be had
backwards, so that is with 1. At the end, how far apart the engines' last configurations are.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import dynax as dx
from benchmarks.jax_calls import without_fusion_emitters
from benchmarks.touching_robots import DT, ROBOTS, Robot
from dynax.io import MujocoConverter

BATCH, STEPS = 1024, 50


@lru_cache(maxsize=1)
def of_mujoco_states(robot: Robot, batch: int) -> tuple[np.ndarray, ...]:
    """The robot's states as MuJoCo has them."""
    theirs = MujocoConverter(robot.scene().model, robot.mujoco(1))
    q, v, tau = robot.states(batch)
    found = jax.jit(jax.vmap(lambda q, v, tau: theirs.to(q, v, tau=tau)))(q, v, tau)
    return tuple(map(np.array, (found.q, found.v, found.tau)))


def of_steps(robot: Robot, gradient: bool) -> Callable:
    scene = robot.scene()

    def last(q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        return dx.rollout(scene, q, v, jnp.tile(tau, (STEPS, 1)), DT).q[-1]

    return jax.vmap(slopes(last) if gradient else last)


def of_mjx(robot: Robot, gradient: bool) -> Callable:
    from mujoco import mjx

    own = robot.mujoco(1 if gradient else robot.iterations)
    model, data = mjx.put_model(own), mjx.make_data(own)

    def last(q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        def step(d: Any, _: None) -> tuple[Any, None]:
            return mjx.step(model, d), None

        step = jax.checkpoint(step) if gradient else step
        start = data.replace(qpos=q, qvel=v, qfrc_applied=tau)
        return jax.lax.scan(step, start, None, length=STEPS)[0].qpos

    return jax.vmap(slopes(last) if gradient else last)


def slopes(last: Callable) -> Callable:
    return jax.grad(lambda *x: jnp.sum(last(*x)), argnums=(1, 2))


def compiled(fn: Callable, states: tuple[np.ndarray, ...], options: dict[str, Any] | None = None) -> Callable[[], Any]:
    args = [jnp.asarray(x, jnp.float32) for x in states]
    begin = time.process_time()
    traced = jax.jit(fn).lower(*args)
    middle = time.process_time()
    run = traced.compile(compiler_options=options)
    print(f"    tracing {middle - begin:.1f}, compiling {time.process_time() - middle:.1f} CPU s", flush=True)
    return lambda: jax.block_until_ready(run(*args))


def of_mujoco(robot: Robot, states: tuple[np.ndarray, ...]) -> Callable[[], Any]:
    model = robot.mujoco(100)
    data, (q, v, tau) = mujoco.MjData(model), states
    last = np.zeros_like(q)

    def run() -> np.ndarray:
        for k in range(len(q)):
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q[k], v[k], tau[k]
            mujoco.mj_step(model, data, STEPS)
            last[k] = data.qpos
        return last

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", choices=tuple(ROBOTS), required=True)
    parser.add_argument("--only", default="steps,gradient,mujoco,mjx,mjx-gradient")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--repeats", type=int, default=5)
    own = parser.parse_args()
    robot = ROBOTS[own.robot]
    ours, theirs = robot.states(own.batch), of_mujoco_states(robot, own.batch)
    makers: dict[str, Callable[[], Callable]] = {
        "steps": lambda: compiled(of_steps(robot, False), ours),
        "gradient": lambda: compiled(of_steps(robot, True), ours),
        "mujoco": lambda: of_mujoco(robot, theirs),
        "mjx": lambda: compiled(of_mjx(robot, False), theirs, without_fusion_emitters()),
        "mjx-gradient": lambda: compiled(of_mjx(robot, True), theirs, without_fusion_emitters()),
    }
    runs: dict[str, Callable] = {}
    last: dict[str, np.ndarray] = {}
    for name in own.only.split(","):
        print(name, flush=True)
        runs[name] = makers[name]()
        found = runs[name]()
        if not name.endswith("gradient"):
            last[name] = np.array(found)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(own.repeats):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            times[name].append(time.process_time() - begin)
    print(f"{own.robot}, {robot.what}; batch of {own.batch}, load {os.getloadavg()[0]:.1f}")
    print(f"MuJoCo {mujoco.__version__}, JAX {jax.__version__}")
    for name, own_times in times.items():
        print(f"  {name:13} {1e6 * min(own_times) / own.batch / STEPS:8.2f} us by state and step", flush=True)
    apart(robot, last, theirs[0])


def apart(robot: Robot, last: dict[str, np.ndarray], begin: np.ndarray) -> None:
    """Of the configurations after all steps, the median and the largest difference of a coordinate."""
    if "steps" in last:
        to = MujocoConverter(robot.scene().model, robot.mujoco(1)).to
        last = {**last, "steps": np.array(jax.jit(jax.vmap(lambda q: to(q).q))(last["steps"]))}
    own = last.get("steps", begin)
    for name, q in {"begin": begin, **last}.items():
        away = np.abs(q - own)
        print(f"  steps and {name:7} apart by {np.median(away.max(1)):.4f}, at most {away.max():.4f}")


if __name__ == "__main__":
    main()
