"""What every part of the demonstration starts from: a robot, a posture, its hand."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx


@dataclass(frozen=True)
class Setting:
    """A robot in a posture. `actuated` marks freedoms that have a motor: all but those of a free base."""

    model: dx.Model
    posture: jax.Array
    hand: int
    actuated: np.ndarray
    dt: float = 0.01

    @property
    def holding(self) -> jax.Array:
        """The joint forces that hold the posture, shape `(nv,)`."""
        return jnp.where(self.actuated, dx.gravity_force(self.model, self.posture), 0.0)

    def hand_position(self, q: jax.Array) -> jax.Array:
        return dx.forward_kinematics(self.model, q).translation[self.hand]


def prepare(model: dx.Model) -> Setting:
    """The middle of the joints' ranges; gravity is switched off for a robot that would only fall."""
    if len(model.topology.free_roots):
        model = model.replace(gravity=jnp.zeros(3))
        print("  the base floats freely: gravity is switched off, as in orbit")
    lower, upper = model.position_limits[:, 0], model.position_limits[:, 1]
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
    # Off the neutral configuration by a little, so that no limb is stretched out.
    bent = dx.integrate(model, dx.neutral(model), 0.3 * jnp.asarray([(-1.0) ** k for k in range(model.nv)]))
    posture = dx.normalize(model, jnp.where(bounded, 0.5 * (lower + upper), bent))
    actuated = np.ones(model.nv, dtype=bool)
    for body in model.topology.free_roots:
        actuated[model.v_slice(model.joint_names[body])] = False
    return Setting(model, posture, int(np.argmax(model.topology.depths)), actuated)
