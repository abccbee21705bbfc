"""Part two: a thousand robots at once."""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax.demo.setting import Setting


@dataclass(frozen=True)
class Throughput:
    robots: int
    steps: int
    compile_seconds: float
    seconds: float
    hands: np.ndarray
    """Where the hands are after the motion, shape `(robots, 3)`."""

    @property
    def steps_per_second(self) -> float:
        return self.robots * self.steps / self.seconds


def run_batch(setting: Setting, robots: int, steps: int) -> Throughput:
    """Roll out `robots` copies in float32 from one posture, each pushed by constant random torques of its own."""
    single = jax.tree.map(lambda a: a.astype(jnp.float32), setting.model)
    q, holding = setting.posture.astype(jnp.float32), setting.holding.astype(jnp.float32)
    scale = jnp.sqrt(jnp.diagonal(dx.mass_matrix(single, q)))

    @jax.jit
    def pushed(noise):
        tau = holding + jnp.where(setting.actuated, noise * scale, 0.0)
        path = dx.rollout(single, q, jnp.zeros(single.nv, q.dtype), jnp.tile(tau, (steps, 1)), setting.dt)
        return dx.forward_kinematics(single, path.q[-1]).translation[setting.hand]

    noise = jax.random.normal(jax.random.key(2), (robots, single.nv), jnp.float32)
    start = time.perf_counter()
    many = jax.jit(jax.vmap(pushed)).lower(noise).compile()
    compiled = time.perf_counter()
    jax.block_until_ready(many(noise))
    warm = time.perf_counter()
    hands = jax.block_until_ready(many(noise))
    return Throughput(robots, steps, compiled - start, time.perf_counter() - warm, np.asarray(hands))
