"""Part three: torques that bring the hand to a target, by `dynax.optimize`."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import optimize
from dynax.demo.progress import Progress
from dynax.demo.setting import Setting

TOLERANCE = 1e-6
"""A step that promises less than this part of the cost is the last: what follows is not seen in a figure."""


@dataclass(frozen=True)
class Reach:
    target: np.ndarray
    costs: np.ndarray
    """Of the trajectory before the first iteration and after each."""
    time: np.ndarray
    torques: np.ndarray
    path_before: np.ndarray
    """Where the hand is as the posture is held, shape `(steps + 1, 3)`."""
    path_after: np.ndarray
    status: str

    def away(self, path: np.ndarray) -> float:
        """From the hand to the target at the end of the motion [m]."""
        return float(np.linalg.norm(path[-1] - self.target))

    @property
    def reached(self) -> bool:
        return self.away(self.path_after) < 0.01


def reach(setting: Setting, steps: int, iterations: int, progress: Progress) -> Reach:
    """The least effort that brings the hand there and to rest. Effort is what the posture's inertia makes of joint
    forces, an acceleration, so that all joints are equally easy to move."""
    model, q0, dt = setting.model, setting.posture, setting.dt
    swing = jnp.where(setting.actuated, 0.6 * jnp.cos(jnp.arange(model.nv)), 0.0)
    target = setting.hand_position(dx.integrate(model, q0, swing))
    motors = np.flatnonzero(setting.actuated)
    holding = setting.holding[motors]
    mobility = jnp.linalg.inv(dx.mass_matrix(model, q0)[np.ix_(motors, motors)])
    rest = jnp.concatenate([q0, jnp.zeros(model.nv)])

    def hand(x: jax.Array) -> jax.Array:
        return setting.hand_position(x[: model.nq])

    problem = optimize.problem(
        optimize.plant(model, stepper="semi_implicit", actuation=jnp.eye(model.nv)[:, motors]),
        rest,
        dt,
        knots=steps,
        costs=[optimize.residual(lambda x, u, _: mobility @ (u - holding), 1e-3 * dt)],
        end_costs=[
            optimize.residual(lambda x, _: hand(x) - target, 1e3),
            optimize.residual(lambda x, _: x[model.nq :][motors], 1.0),
        ],
    )
    held = jnp.tile(holding, (steps, 1))
    still = optimize.rollout(problem, held)

    @jax.jit
    def solve(held: jax.Array, still: jax.Array) -> optimize.Result:
        return optimize.solve(problem, held, still, max_iterations=iterations, tolerance=TOLERANCE)

    progress.stage("compiling the search for torques")
    search = solve.lower(held, still).compile()
    progress.stage("searching for torques")
    found = search(held, still)
    costs = np.asarray(found.history.cost)
    hands = jax.jit(jax.vmap(hand))
    return Reach(
        np.asarray(target),
        costs[np.isfinite(costs)],
        dt * np.arange(steps),
        np.asarray(found.controls),
        np.asarray(hands(still)),
        np.asarray(hands(found.states)),
        optimize.Status(int(found.status)).name,
    )
