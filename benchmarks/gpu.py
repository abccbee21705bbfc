"""On a GPU: forward dynamics, rollouts and their gradients, and steps with contact, beside MJX.

    python -m benchmarks.gpu                              all
    python -m benchmarks.gpu --only arm-steps,mjx-arm-steps --batch 65536

float32. An arm of 7 freedoms (the Panda of `example-robot-data`) under constant torques, 50 steps of 1 ms; a humanoid
of 38; and the quadruped on the ground of `benchmarks.touching`, 50 steps of 2 ms. Wall time of the median call, with
results ready; compilation apart. Engines integrate by their own defaults.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from benchmarks import touching
from benchmarks.case import Case
from benchmarks.jax_calls import as_type, use_precision
from benchmarks.robots import Robot, robot, states
from benchmarks.touching_robots import ROBOTS

BATCHES, STEPS, DT = (4096, 65536), 50, 0.001


def read(name: str, batch: int) -> tuple[Robot, dx.Model, list[jax.Array]]:
    """The robot, its model, and random states of it."""
    own = robot(name)
    found = states(own, Case("rollout", name, "float32", batch))
    use_precision(False)
    return own, as_type(own.model, "float32"), [jnp.asarray(x, jnp.float32) for x in (found.q, found.v, found.tau)]


def ours(name: str, what: str, batch: int) -> tuple[Callable, list]:
    _, model, given = read(name, batch)

    def dynamics(q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        return dx.forward_dynamics(model, q, v, tau)

    def steps(q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        return jnp.sum(dx.rollout(model, q, v, jnp.tile(tau, (STEPS, 1)), DT).q[-1])

    functions = {"dynamics": dynamics, "steps": steps, "gradient": jax.grad(steps, argnums=(1, 2))}
    return jax.vmap(functions[what]), given


def mjx_steps(name: str, batch: int) -> tuple[Callable, list]:
    from mujoco import mjx

    from benchmarks.peers.mujoco_model import mujoco_model

    own, _, given = read(name, batch)
    compiled = mujoco_model(own.bodies, DT)
    there, data = mjx.put_model(compiled), mjx.make_data(compiled)

    def one(q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
        start = data.replace(qpos=q, qvel=v, qfrc_applied=tau)
        return jnp.sum(jax.lax.scan(lambda d, _: (mjx.step(there, d), None), start, None, length=STEPS)[0].qpos)

    return jax.vmap(one), given


def on_the_ground(mjx: bool, gradient: bool, batch: int) -> tuple[Callable, list]:
    use_precision(False)
    own = ROBOTS["quadruped"]
    given = touching.of_mujoco_states(own, batch) if mjx else own.states(batch)
    return (touching.of_mjx if mjx else touching.of_steps)(own, gradient), [jnp.asarray(x, jnp.float32) for x in given]


CASES: dict[str, tuple[int, Callable[[int], tuple[Callable, list]]]] = {
    "arm-dynamics": (1, lambda batch: ours("panda", "dynamics", batch)),
    "arm-steps": (STEPS, lambda batch: ours("panda", "steps", batch)),
    "arm-gradient": (STEPS, lambda batch: ours("panda", "gradient", batch)),
    "humanoid-dynamics": (1, lambda batch: ours("talos", "dynamics", batch)),
    "quadruped-steps": (touching.STEPS, lambda batch: on_the_ground(False, False, batch)),
    "quadruped-gradient": (touching.STEPS, lambda batch: on_the_ground(False, True, batch)),
    "mjx-arm-steps": (STEPS, lambda batch: mjx_steps("panda", batch)),
    "mjx-quadruped-steps": (touching.STEPS, lambda batch: on_the_ground(True, False, batch)),
    "mjx-quadruped-gradient": (touching.STEPS, lambda batch: on_the_ground(True, True, batch)),
}


def measure(name: str, batch: int, repeats: int) -> None:
    each, made = CASES[name]
    function, arguments = made(batch)
    begin = time.perf_counter()
    run = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(run(*arguments))
    ready = time.perf_counter() - begin
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        found = jax.block_until_ready(run(*arguments))
        times.append(time.perf_counter() - begin)
    took = float(np.median(times))
    finite = all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(found))
    print(
        f"{name:24s} {batch:8d} {1e3 * took:10.3f} ms {batch * each / took:10.3g} /s"
        f"   first call {ready:5.1f} s{'' if finite else '   NOT FINITE'}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--batch", type=int, nargs="*", default=BATCHES)
    parser.add_argument("--repeats", type=int, default=5)
    own = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}; {dx.compile_report()}", flush=True)
    for name in own.only.split(","):
        for batch in own.batch:
            measure(name, batch, own.repeats)


if __name__ == "__main__":
    main()
