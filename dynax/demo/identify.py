"""Part four: link masses found again from a motion, by the output error of `dynax.identify`."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import identify
from dynax.demo.setting import Setting

LONGEST_STEP = 0.3
SEEN = 1e6
"""How many times the least deviation of a mass, in parts of itself, that of one may be which is in the motion."""


@dataclass(frozen=True)
class Masses:
    names: tuple[str, ...]
    true: np.ndarray
    perturbed: np.ndarray
    recovered: np.ndarray
    visible: np.ndarray
    """Whether the motion depends on the mass at all: the mass of a link that cannot lift or swing leaves no trace."""
    status: str
    iterations: int

    def error(self, masses: np.ndarray) -> float:
        """The largest relative error of the visible masses."""
        return float(np.max(np.abs(masses / self.true - 1.0), where=self.visible, initial=0.0))


def find_masses(setting: Setting, steps: int, iterations: int) -> Masses:
    """The logarithms of the masses by steps of bounded length, since a motion says little about the first links of an
    arm; the Jacobian is exact, through every step of the rollout."""
    model, q0 = setting.model, setting.posture
    bodies = np.flatnonzero(np.asarray(model.mass) > 0.0)
    time = setting.dt * jnp.arange(steps)[:, None]
    phase = jnp.arange(model.nv)
    shake = jnp.where(setting.actuated, jnp.diagonal(dx.mass_matrix(model, q0)), 0.0)
    torques = setting.holding + 10.0 * shake * jnp.sin((3.0 + 0.5 * phase) * time + phase)

    def build(logs: jax.Array) -> dx.Model:
        return model.replace(mass=model.mass * jnp.ones_like(model.mass).at[bodies].set(jnp.exp(logs)))

    motion = dx.rollout(model, q0, jnp.zeros(model.nv), torques, setting.dt)
    log = identify.segments(motion.q, motion.v, torques, steps)
    guess = 0.3 * jax.random.normal(jax.random.key(3), (len(bodies),))
    options = {"free": False, "scale": LONGEST_STEP, "iterations": iterations}
    fit = identify.output_error(build, guess, log, setting.dt, **options)
    mass, deviations = np.asarray(model.mass)[bodies], np.asarray(fit.deviations)
    return Masses(
        tuple(model.body_names[b] for b in bodies),
        mass,
        mass * np.exp(np.asarray(guess)),
        mass * np.exp(np.asarray(fit.params)),
        deviations <= SEEN * np.min(deviations, initial=np.inf),
        identify.Status(int(fit.status)).name,
        int(fit.iterations),
    )
