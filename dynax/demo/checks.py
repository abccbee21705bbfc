"""Part one: does the engine agree with itself on this robot?"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax.demo.setting import Setting


@dataclass(frozen=True)
class Checks:
    inverse_of_forward: float
    """Largest relative error of inverse dynamics undoing forward dynamics, over random states."""
    energy_drift: float
    """Change of energy over the free motion, relative to the energy exchanged."""
    time: np.ndarray
    kinetic: np.ndarray
    energy: np.ndarray
    """Kinetic and potential together [J]."""


def check(setting: Setting, steps: int) -> Checks:
    """Random states for the algorithms; an unforced, frictionless motion for the energy."""
    model = setting.model
    keys = jax.random.split(jax.random.key(0), 16)
    qs = jax.vmap(lambda k: dx.random_configuration(model, k))(keys)
    vs, taus = jax.random.normal(jax.random.key(1), (2, 16, model.nv))

    def undone(q, v, tau):
        return dx.inverse_dynamics(model, q, v, dx.forward_dynamics(model, q, v, tau)) - tau

    error = jax.vmap(undone)(qs, vs, taus)
    free = model.replace(damping=0.0 * model.damping, friction_loss=0.0 * model.friction_loss)
    start = 0.3 * jnp.asarray([(-1.0) ** k for k in range(model.nv)])
    path = dx.rollout(free, setting.posture, start, jnp.zeros((steps, model.nv)), 1e-3, stepper="rk4")
    kinetic = jax.vmap(lambda q, v: dx.kinetic_energy(free, q, v))(path.q, path.v)
    potential = jax.vmap(lambda q: dx.potential_energy(free, q))(path.q)
    energy = kinetic + potential
    drift = jnp.max(jnp.abs(energy - energy[0])) / (jnp.ptp(kinetic) + jnp.ptp(potential) + kinetic[0])
    return Checks(
        float(jnp.max(jnp.abs(error))), float(drift), np.asarray(path.time), np.asarray(kinetic), np.asarray(energy)
    )
