"""Trajectory optimisation beside Crocoddyl: the same problems, guesses and core, in turns.

    python -m benchmarks.optimal_control [--only panda,quadrotor,talos] [--batch 256] [--rounds 3]

Crocoddyl lives in an environment of its own (`benchmarks.peers.environment`). Times are processor time of one core, the
median of some rounds; a batch is one program for all, and its time that of a problem and an iteration. How soon a
solver is there is counted in iterations until the cost is within 1e-9 of the least, as a part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

NEAR = 1e-9
PROBLEMS: dict[str, dict[str, Any]] = {
    "panda": {
        "kind": "reach", "frame": "panda_hand", "knots": 100, "dt": 0.01, "target": [0.3, 0.4, 0.6],
        "q0": [0.0, -0.7853981633974483, 0.0, -2.356194490192345, 0.0, 1.5707963267948966, 0.7853981633974483],
        "state": 0.1, "control": 1e-3, "hand": 1e3, "speed": 10.0,
        "tile": 16,  # what one part of an iteration leaves behind is still in the cache for the next
    },
    "quadrotor": {
        "kind": "quadrotor", "knots": 33, "dt": 0.03, "mass": 1.477, "inertia": [0.01152, 0.01152, 0.0218],
        "arm": 0.1525, "drag": 1e-6 / 6.6e-5, "goal": [1.0, 0.0, 1.0], "tile": 16,
    },
    "talos": {
        "kind": "reach", "robot": "talos_reduced", "frame": "arm_right_7_link", "knots": 100, "dt": 0.01,
        "target": [0.3, -0.4, 0.3], "q0": 32 * [0.0], "state": 0.1, "control": 1e-3, "hand": 1e3, "speed": 10.0,
        "tile": 1,  # one after the other: side by side each takes longer, and 256 do not fit into 24 GB
    },
}  # fmt: skip


def reach(p: dict[str, Any]) -> tuple[Any, Any]:
    """A hand goes to a place in a second and comes to rest; nothing damps the joints."""
    import jax.numpy as jnp

    import dynax as dx
    from dynax import optimize as o

    model = dx.load(p["file"])
    model = dx.fix_joints(model, {name: 0.0 for name in model.joint_names if "finger" in name})
    nothing = jnp.zeros(model.nv)
    model = model.replace(damping=nothing, friction_loss=nothing, armature=nothing)
    n, dt = model.nq, p["dt"]
    q0 = jnp.asarray(p["q0"])
    x0 = jnp.concatenate([q0, jnp.zeros(model.nv)])
    problem = o.problem(
        o.plant(model),
        x0,
        dt,
        knots=p["knots"],
        costs=[
            o.residual(lambda x, u, _: x - x0, dt * p["state"]),
            o.residual(lambda x, u, _: u, dt * p["control"]),
        ],
        end_costs=[
            o.residual(lambda x, at: dx.frame_pose(model, x[:n], p["frame"]).translation - at, p["hand"]),
            o.residual(lambda x, _: x[n:], p["speed"]),
        ],
        params=jnp.asarray(p["target"]),
    )
    return problem, jnp.broadcast_to(dx.gravity_force(model, q0), (p["knots"], model.nv))


def quadrotor(p: dict[str, Any]) -> tuple[Any, Any]:
    """Crocoddyl's example: to a place and upright, from rest without thrust."""
    import jax.numpy as jnp
    import numpy as np

    import dynax as dx
    from dynax import optimize as o

    builder = dx.ModelBuilder(name="quadrotor")
    builder.body("body", joint=dx.Free(), inertia=dx.SpatialInertia(p["mass"], np.zeros(3), np.diag(p["inertia"])))
    model, d, drag, dt = builder.build(), p["arm"], p["drag"], p["dt"]
    mixing = np.zeros((6, 4))
    mixing[0], mixing[1], mixing[2], mixing[5] = (0, d, 0, -d), (-d, 0, d, 0), (-drag, drag, -drag, drag), 1.0
    start = dx.neutral(model)
    weights = jnp.array([1e3] * 3 + [0.1] * 3 + [1e3] * 6)

    def away(x, place):
        return dx.difference(model, jnp.concatenate([place, start[3:]]), x[:7])

    problem = o.problem(
        o.plant(model, actuation=mixing),
        jnp.concatenate([start, jnp.zeros(6)]),
        dt,
        knots=p["knots"],
        costs=[
            o.residual(
                lambda x, u, _: jnp.concatenate([dx.difference(model, start, x[:7]), x[7:]]), 1e-6 * dt * weights
            ),
            o.residual(lambda x, u, _: u, 1e-6 * dt),
            o.residual(lambda x, u, place: away(x, place), 1e-2 * dt),
        ],
        end_costs=[o.residual(away, 3.0)],
        params=jnp.asarray(p["goal"]),
    )
    return problem, jnp.zeros((p["knots"], 4))


class Ours:
    """Compiled once for all targets."""

    def __init__(self, p: dict[str, Any], batch: int, iterations: int):
        import jax

        import dynax as dx
        from dynax import optimize as o

        self.problem, self.guess = {"reach": reach, "quadrotor": quadrotor}[p["kind"]](p)

        def solve(target, tolerance, most):
            moved = replace(self.problem, params=target)
            return o.solve(moved, self.guess, max_iterations=most, tolerance=tolerance)

        begin = time.process_time()
        self._one = jax.jit(lambda target: solve(target, None, iterations)).lower(self.problem.params).compile()
        self.compiling = time.process_time() - begin
        spread = 0.1 * jax.random.uniform(jax.random.key(0), (batch, 3), minval=-1.0)
        self._targets = self.problem.params + spread
        # Tolerance zero: every lane takes all its iterations.
        ten, tile = lambda target: solve(target, 0.0, 10), p.get("tile")
        many = jax.jit(jax.vmap(ten) if tile is None else dx.batch(ten, tile=tile))
        self._many = many.lower(self._targets).compile()

    def alone(self) -> tuple[float, Any]:
        """Seconds of an iteration, and the result."""
        import jax

        begin = time.process_time()
        result = jax.block_until_ready(self._one(self.problem.params))
        return (time.process_time() - begin) / int(result.iterations), result

    def together(self) -> float:
        """Seconds of an iteration of a problem of the batch."""
        import jax
        import jax.numpy as jnp

        begin = time.process_time()
        result = jax.block_until_ready(self._many(self._targets))
        return (time.process_time() - begin) / int(jnp.sum(result.iterations))


def needed(costs: Any, least: float) -> int:
    """After how many iterations the cost was there."""
    return next(k for k, cost in enumerate(costs) if cost - least <= NEAR * abs(least))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PROBLEMS))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    # Before JAX is imported: it makes as many threads as it finds cores.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import jax
    import numpy as np

    import dynax as dx
    from benchmarks.peers.environment import python_of

    jax.config.update("jax_enable_x64", True)
    script = Path(__file__).parent / "peers" / "crocoddyl.py"
    # Without the script's folder on the path (-P): modules there have the names of libraries.
    command = [str(python_of("crocoddyl")), "-P", str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin
        assert peer.stdout
        for name in options.only.split(","):
            p = {"repeats": 3, "stop": 1e-12, "iterations": 200, **PROBLEMS[name]}
            if p["kind"] == "reach":
                p["file"] = str(dx.installed_robots()[p.get("robot", name)])
            ours, own, batch, theirs = Ours(p, options.batch, p["iterations"]), [], [], []
            for _ in range(options.rounds):
                seconds, result = ours.alone()
                own.append(seconds)
                batch.append(ours.together())
                peer.stdin.write(json.dumps(p) + "\n")
                peer.stdin.flush()
                theirs.append(json.loads(peer.stdout.readline()))
            cost, other = float(result.cost), theirs[-1]["cost"]
            least = min(cost, other)
            history = np.append(np.asarray(result.history.cost)[: int(result.iterations)], cost)
            steps = needed(history, least), needed([*theirs[-1]["costs"], other], least)
            mine, his = median(own), median(s for row in theirs for s in row["seconds"])
            print(f"{name}: crocoddyl {theirs[-1]['version']}, pinocchio {theirs[-1]['pinocchio']}")
            print(f"  cost {cost:.10g} and {other:.10g}, there after {steps[0]} and {steps[1]} iterations")
            print(f"  an iteration: {1e3 * mine:.2f} and {1e3 * his:.2f} ms, ratio {mine / his:.2f}")
            each = median(batch)
            print(f"  of a problem in a batch of {options.batch}: {1e3 * each:.2f} ms, ratio {each / his:.2f}")
            print(f"  until it is there: {1e3 * steps[0] * mine:.0f} and {1e3 * steps[1] * his:.0f} ms")
            print(f"  compiled in {ours.compiling:.1f} s", flush=True)
        peer.stdin.close()


if __name__ == "__main__":
    main()
