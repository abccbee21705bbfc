"""Part four: link masses found again from a motion, by gradient through the rollout."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax.demo.progress import Progress
from dynax.demo.setting import Setting

LONGEST_STEP = 0.3


@dataclass(frozen=True)
class Masses:
    names: tuple[str, ...]
    true: np.ndarray
    perturbed: np.ndarray
    recovered: np.ndarray
    visible: np.ndarray
    """Whether the motion depends on the mass at all: the mass of a link that cannot lift or swing leaves no trace."""
    residuals: np.ndarray
    """Root mean square misfit of the motion, after each step."""

    def error(self, masses: np.ndarray) -> float:
        """The largest relative error of the visible masses."""
        return float(np.max(np.abs(masses / self.true - 1.0), where=self.visible, initial=0.0))


def identify(setting: Setting, steps: int, progress: Progress) -> Masses:
    """Gauss-Newton on the logarithms of the masses, damped and by steps of bounded length, since a motion says little
    about the first links of an arm; the Jacobian is exact, through every step of the rollout."""
    model, q0 = setting.model, setting.posture
    bodies = np.flatnonzero(np.asarray(model.mass) > 0.0)
    time = setting.dt * jnp.arange(steps)[:, None]
    phase = jnp.arange(model.nv)
    shake = jnp.where(setting.actuated, jnp.diagonal(dx.mass_matrix(model, q0)), 0.0)
    torques = setting.holding + 10.0 * shake * jnp.sin((3.0 + 0.5 * phase) * time + phase)

    def motion(logs):
        mass = model.mass * jnp.ones_like(model.mass).at[bodies].set(jnp.exp(logs))
        path = dx.rollout(model.replace(mass=mass), q0, jnp.zeros(model.nv), torques, setting.dt)
        return jax.vmap(lambda q: dx.difference(model, q0, q))(path.q[1:]).ravel()

    truth = 0.3 * jax.random.normal(jax.random.key(3), (len(bodies),))
    measured = motion(jnp.zeros(len(bodies)))

    @jax.jit
    def misfit(logs):
        return motion(logs) - measured

    def improve(logs, damping):
        slope = jax.jacfwd(misfit)(logs)
        normal = slope.T @ slope
        step = jnp.linalg.solve(
            normal + damping * jnp.max(jnp.diagonal(normal)) * jnp.eye(len(logs)), slope.T @ misfit(logs)
        )
        return logs - jnp.clip(step, -LONGEST_STEP, LONGEST_STEP), jnp.linalg.norm(slope, axis=0)

    logs, damping = truth, 1e-2
    residuals = [float(jnp.sqrt(jnp.mean(misfit(logs) ** 2)))]
    norms = jnp.ones(len(bodies))
    step = jax.jit(improve).lower(logs, damping).compile()
    progress.start()
    for _ in range(progress.most):
        trial, norms = step(logs, damping)
        residual = float(jnp.sqrt(jnp.mean(misfit(trial) ** 2)))
        better = residual < residuals[-1]
        logs, damping = (trial, damping / 100.0) if better else (logs, damping * 10.0)
        residuals.append(residual if better else residuals[-1])
        progress.tick(f"motion misfit {residuals[-1]:.1e} rad")
        if residuals[-1] < 1e-12:
            break
    progress.stop()
    mass = np.asarray(model.mass)[bodies]
    return Masses(
        tuple(model.body_names[b] for b in bodies),
        mass,
        mass * np.exp(np.asarray(truth)),
        mass * np.exp(np.asarray(logs)),
        np.asarray(norms > 1e-6 * jnp.max(norms)),
        np.asarray(residuals),
    )
