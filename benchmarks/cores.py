"""What the second core brings: one batch by dx.batch on one CPU device and on all, and Pinocchio on as many threads.

    python -m benchmarks.cores             panda and talos, float32 and float64; some five minutes
    python -m benchmarks.cores --quick     to see that it works

Each number of cores has a process of its own, which is pinned to them before JAX starts; the processes take turns. Wall
time, so the machine must be idle: what else runs takes a core away from the one that needs both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

ROBOTS, DTYPES, BATCH, STEPS = ("panda", "talos"), ("float32", "float64"), 16384, 20
Timed = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one robot, one type of numbers, short repetitions")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(**options.worker)
        return 0
    cores, load = sorted(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{len(cores)} cores, load average at the start {load:.2f}" + (": NOT IDLE" if load > 0.5 else ""))
    print("| robot | type | of | one core [us] | all [us] | times as fast | Pinocchio one [us] | all [us] | over it |")
    for robot in ROBOTS[: 1 if options.quick else None]:
        for dtype in DTYPES[: 1 if options.quick else None]:
            for line in _compared(robot, dtype, cores, 3 if options.quick else 15):
                print(line, flush=True)
    return 0


def _compared(robot: str, dtype: str, cores: list[int], rounds: int) -> Iterator[str]:
    workers = [_Worker(robot=robot, dtype=dtype, cores=own) for own in (cores[-1:], cores)]
    try:
        samples = [[worker.round() for worker in workers] for _ in range(rounds)]
    finally:
        for worker in workers:
            worker.close()
    one, every = ({key: median(s[k][key] for s in samples) for key in samples[0][k]} for k in (0, 1))
    gain = {key: median(s[0][key] / s[1][key] for s in samples) for key in one}
    for of in ("forward dynamics", "gradient of a rollout"):
        theirs = f"{one['pinocchio']:.2f} | {every['pinocchio']:.2f}" if of == "forward dynamics" else "- | -"
        over = f"{one['pinocchio'] / one[of]:.2f}, {every['pinocchio'] / every[of]:.2f}" if theirs[0] != "-" else "-"
        yield f"| {robot} | {dtype} | {of} | {one[of]:.2f} | {every[of]:.2f} | {gain[of]:.2f} | {theirs} | {over} |"


class _Worker:
    """A process that measures one round whenever it is asked."""

    def __init__(self, **what: Any):
        command = [sys.executable, "-m", "benchmarks.cores", "--worker", json.dumps(what)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()  # compiled

    def round(self) -> Timed:
        assert self._process.stdin is not None
        print("round", file=self._process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        self._process.communicate()

    def _read(self) -> Timed:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a worker stopped: see above")
        return json.loads(line)


def _work(robot: str, dtype: str, cores: list[int]) -> None:
    os.sched_setaffinity(0, cores)
    import jax

    jax.config.update("jax_num_cpu_devices", len(cores))
    import jax.numpy as jnp
    import numpy as np
    import pinocchio as pin
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import dynax as dx
    from benchmarks.case import Case
    from benchmarks.jax_calls import as_type, use_precision
    from benchmarks.peers.pinocchio import pin_state
    from benchmarks.robots import robot as robot_of
    from benchmarks.robots import states

    which = robot_of(robot)
    batch = states(which, Case("fd", robot, dtype, BATCH))
    state = pin_state(which)
    arrays = [np.asfortranarray(x.T) for x in state.to(batch)]
    out, pool = np.zeros_like(arrays[1], order="F"), pin.ModelPool(state.model, len(cores))
    use_precision(dtype == "float64")
    model = as_type(which.model, dtype)
    q, v, tau = (jnp.asarray(x, dtype) for x in (batch.q, batch.v, batch.tau))
    some = BATCH // 16
    controls = jnp.zeros((some, STEPS, model.nv), dtype)
    # Where they are computed with, as in a loop: what lies on one device is brought to the others in every call.
    over_cores = Mesh(np.array(jax.devices()), ("core",))
    model = jax.device_put(model, NamedSharding(over_cores, PartitionSpec()))
    q, v, tau, controls = jax.device_put((q, v, tau, controls), NamedSharding(over_cores, PartitionSpec("core")))
    q_some, v_some = jax.device_put((q[:some], v[:some]), NamedSharding(over_cores, PartitionSpec("core")))

    def loss(model, q, v, controls):
        return jnp.sum(dx.rollout(model, q, v, controls, 0.002).q[-1] ** 2)

    forward = jax.jit(dx.batch(dx.forward_dynamics))
    gradient = jax.jit(dx.batch(jax.grad(loss, argnums=(1, 2, 3))))
    calls: dict[str, tuple[Callable, int]] = {
        "forward dynamics": (lambda: jax.block_until_ready(forward(model, q, v, tau)), BATCH),
        "gradient of a rollout": (lambda: jax.block_until_ready(gradient(model, q_some, v_some, controls)), some),
        "pinocchio": (lambda: pin.abaInParallel(len(cores), pool, *arrays, out), BATCH),
    }
    for call, _ in calls.values():
        call()
    print("{}", flush=True)
    for _ in sys.stdin:
        print(json.dumps({key: _once(call) * 1e6 / count for key, (call, count) in calls.items()}), flush=True)


def _once(call: Callable) -> float:
    """Wall seconds of a call, after one that fills the caches."""
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
