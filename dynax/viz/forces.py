"""The forces of contacts along a motion."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.contact.motion import contacts
from dynax.contact.scene import Scene
from dynax.simulate.touching import Touching
from dynax.simulate.trajectory import Trajectory


def contact_forces(scene: Scene, motion: Trajectory, controls: ArrayLike, stepper: Touching | None = None) -> jax.Array:
    """What presses in each step of a rollout, for `forces=` of `dx.view` and `dx.render`.

    **Arguments:** `motion`: of `dx.rollout(scene, q, v, controls, dt)`, with a row for every step; `controls`: its
    joint forces, shape `(T, nv)`; `stepper`: that of the rollout, default `Touching()`.

    Returns points and forces on the second shape of each pair, world axes, shape `(2, T + 1, k, 3)` [m, N], in the
    order of `scene.candidates`; in the last row, which no step follows, the forces of the row before.
    """
    tau, dt, how = jnp.asarray(controls), motion.time[1:] - motion.time[:-1], stepper or Touching()
    if tau.shape != (len(motion.time) - 1, scene.nv):
        raise ValueError(f"`controls` has shape {tau.shape}, expected {(len(motion.time) - 1, scene.nv)}")

    def force(q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> Any:
        return how.touched(scene, q, v, tau, dt).impulses / dt

    points = jax.jit(jax.vmap(lambda q: contacts(scene, q).point))(motion.q)
    forces = jax.jit(jax.vmap(force))(motion.q[:-1], motion.v[:-1], tau, dt)
    return jnp.stack([points, jnp.concatenate([forces, forces[-1:]])])
