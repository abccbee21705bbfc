"""Cart-poles that swing up side by side, on one core: how long 64 of them take until all are there.

    python -m benchmarks.swing_ups [--lanes 64] [--rounds 5]

ALTRO's cart-pole (Howell, Jackson & Manchester 2019): Runge and Kutta's rule of third order, 100 controls held for
50 ms each within 3 N, and upright at rest as an equality. Each begins at another place; the first at rest below the
goal, whose least cost is known. There is who violates its goal by at most 1e-6 and whose cost is within 1e-6 of the one
that iterations from there on to rounding come to.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from statistics import median

KNOTS, DT, MOST, KNOWN = 100, 0.05, 3.0, 1.49587391
NEAR = 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    # Before JAX is imported: it makes as many threads as it finds cores.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import jax
    import jax.numpy as jnp
    import numpy as np

    import dynax as dx
    from dynax import optimize as o

    jax.config.update("jax_enable_x64", True)
    goal = jnp.array([0.0, jnp.pi, 0.0, 0.0])

    def rate(x, u):
        """Cart of 1 kg, pole of 0.2 kg at 0.5 m; the angle is that from hanging."""
        mc, mp, l, g = 1.0, 0.2, 0.5, 9.81
        s, c = jnp.sin(x[1]), jnp.cos(x[1])
        push = (u[0] + mp * s * (l * x[3] ** 2 + g * c)) / (mc + mp * s * s)
        return jnp.stack([x[2], x[3], push, -(g * s + c * push) / l])

    def step(x, u, _):
        k1 = DT * rate(x, u)
        k2 = DT * rate(x + k1 / 2, u)
        k3 = DT * rate(x - k1 + 2 * k2, u)
        return x + (k1 + 4 * k2 + k3) / 6

    problem = o.problem(
        o.plant(step, states=4, controls=1),
        jnp.zeros(4),
        DT,
        knots=KNOTS,
        costs=[o.residual(lambda x, u, _: x - goal, 1e-2 * DT), o.residual(lambda x, u, _: u, 1e-1 * DT)],
        end_costs=[o.residual(lambda x, _: x - goal, 100.0)],
        end_constraints=[o.equality(lambda x, _: x - goal)],
        lower=-MOST,
        upper=MOST,
    )
    guess = jnp.full((KNOTS, 1), 0.01)

    def solve(start, tolerance, known=None):
        """With the curvature of the dynamics: without it the last digits take hundreds of iterations."""
        moved = replace(problem, x0=start)
        guesses = (guess, o.rollout(moved, guess)) if known is None else (known.controls, known.states)
        multipliers = None if known is None else known.multipliers
        how = {"second_order": True, "constraint_tolerance": tolerance, "multipliers": multipliers}
        return o.solve(moved, *guesses, max_iterations=400, **how)

    spread = jnp.array([0.3, 0.3, 0.3, 0.3]) * jax.random.uniform(jax.random.key(0), (options.lanes, 4), minval=-1.0)
    starts = spread.at[0].set(0.0)
    begin = time.process_time()
    # Some at a time: the others need not wait for the slowest.
    compiled = jax.jit(dx.batch(lambda x: solve(x, NEAR), tile=16)).lower(starts).compile()
    compiling, times = time.process_time() - begin, []
    for _ in range(options.rounds):
        begin = time.process_time()
        found = jax.block_until_ready(compiled(starts))
        times.append(time.process_time() - begin)
    best = jax.jit(jax.vmap(lambda x, known: solve(x, 1e-10, known)))(starts, found)
    off = np.abs(found.cost - best.cost) / best.cost
    there = (found.status == o.Status.CONVERGED) & (found.violation <= NEAR) & (off <= NEAR)
    print(f"{options.lanes} swing-ups: {median(times):.2f} s of one core, compiled in {compiling:.1f} s")
    print(f"  there: {int(there.sum())}; worst violation {found.violation.max():.1e}, cost off by {off.max():.1e}")
    print(f"  iterations {int(jnp.median(found.iterations))}, at most {int(found.iterations.max())}")
    print(f"  the first costs {found.cost[0]:.8f}, known {KNOWN}", flush=True)


if __name__ == "__main__":
    main()
