"""Part three: torques that bring the hand to a target, by gradient descent through the rollout."""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

import dynax as dx
from dynax.demo.progress import Progress
from dynax.demo.setting import Setting

KNOTS = 10


@dataclass(frozen=True)
class Reach:
    target: np.ndarray
    distances: np.ndarray
    """From the hand to the target at the end of the motion, after each step of the optimiser [m]."""
    time: np.ndarray
    torques: np.ndarray
    path_before: np.ndarray
    path_after: np.ndarray

    @property
    def reached(self) -> bool:
        return bool(self.distances[-1] < 0.01)


def reach(setting: Setting, steps: int, seconds: float, progress: Progress) -> Reach:
    """Adam on the knots of a piecewise linear torque trajectory, until the hand is within 5 mm or time is up."""
    model, q0, dt = setting.model, setting.posture, setting.dt
    swing = jnp.where(setting.actuated, 0.6 * jnp.cos(jnp.arange(model.nv)), 0.0)
    target = setting.hand_position(dx.integrate(model, q0, swing))
    holding = setting.holding
    # Knots are accelerations: through the mass matrix of the posture all joints are equally easy to move.
    inertia = dx.mass_matrix(model, q0)
    at = np.linspace(0.0, KNOTS - 1.0, steps)
    weights = jnp.asarray(np.maximum(0.0, 1.0 - np.abs(at[:, None] - np.arange(KNOTS))))

    def torques(knots):
        return holding + jnp.where(setting.actuated, weights @ (knots @ inertia), 0.0)

    def motion(knots):
        return dx.rollout(model, q0, jnp.zeros(model.nv), torques(knots), dt)

    def loss(knots):
        path = motion(knots)
        gap = setting.hand_position(path.q[-1]) - target
        rest = jnp.where(setting.actuated, path.v[-1], 0.0)
        return 10.0 * gap @ gap + 1e-3 * rest @ rest + 1e-5 * jnp.mean(knots**2), jnp.sqrt(gap @ gap)

    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))

    def improve(knots, memory):
        (_, distance), slope = jax.value_and_grad(loss, has_aux=True)(knots)
        change, memory = optimiser.update(slope, memory)
        return optax.apply_updates(knots, change), memory, distance

    knots = start = jnp.zeros((KNOTS, model.nv))
    memory, distances = optimiser.init(knots), []
    step = jax.jit(improve).lower(knots, memory).compile()
    progress.start()
    begin = time.perf_counter()
    for _ in range(progress.most):
        best = knots
        knots, memory, distance = step(knots, memory)
        distances.append(float(distance))
        progress.tick(f"hand {1e3 * distances[-1]:.1f} mm from the target")
        if distances[-1] < 0.005 or time.perf_counter() - begin > seconds:
            break
    progress.stop()
    hand = jax.jit(jax.vmap(setting.hand_position))
    before, after = motion(start), motion(best)
    return Reach(
        np.asarray(target),
        np.asarray(distances),
        np.asarray(after.time),
        np.asarray(torques(best)),
        np.asarray(hand(before.q)),
        np.asarray(hand(after.q)),
    )
