"""Muscles as MuJoCo defines them (MuJoCo's documentation, "Muscle actuators"; Millard et al. 2013 for activation)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dynax.actuate.lag import Lag, Limits, within
from dynax.actuate.law import AbstractActuator
from dynax.operators.pytree import pytree_dataclass


@pytree_dataclass()
class MuscleForce(AbstractActuator):
    """`-peak (activation FL(L) FV(V) + FP(L))`, with the length `L` and velocity `V` scaled so that the muscle is
    strongest at `L = 1`, and shortens without force at `V = -1`. A muscle pulls: its force is negative."""

    peak: Any
    """The active force at the optimal length at rest [N]."""
    length_range: Any
    """Lengths of the transmission at the ends of its range, shape `(2,)` or `(2, k)`."""
    operating_range: Any = (0.75, 1.05)
    """The scaled lengths there."""
    l_min: Any = 0.5
    l_max: Any = 1.6
    v_max: Any = 1.5
    """Optimal lengths per second."""
    passive: Any = 1.3
    """The passive force at `l_max`, in peaks."""
    eccentric: Any = 1.2
    """The active force while it is stretched fast, in peaks at rest."""

    def __call__(self, state, command, length, velocity):
        (at0, at1), (l0, l1) = jnp.asarray(self.length_range), jnp.asarray(self.operating_range)
        optimal = (at1 - at0) / (l1 - l0)
        scaled = l0 + (length - at0) / optimal
        speed = velocity / (optimal * self.v_max)
        active = self.strength(scaled) * self.at_speed(speed)
        return -self.peak * (command * active + self.stretched(scaled)), ()

    def strength(self, x: jax.Array) -> jax.Array:
        """Force and length: four parabolas from nothing at `l_min` by one at 1 to nothing at `l_max`."""
        a, b = 0.5 * (self.l_min + 1.0), 0.5 * (1.0 + self.l_max)
        rising, upper = (x - self.l_min) / (a - self.l_min), (1.0 - x) / (1.0 - a)
        falling, lower = (x - 1.0) / (b - 1.0), (self.l_max - x) / (self.l_max - b)
        parts = 0.5 * rising**2, 1.0 - 0.5 * upper**2, 1.0 - 0.5 * falling**2, 0.5 * lower**2
        found = jnp.select([x <= a, x <= 1.0, x <= b], parts[:3], parts[3])
        return jnp.where((x >= self.l_min) & (x <= self.l_max), found, 0.0)

    def at_speed(self, v: jax.Array) -> jax.Array:
        """Force and velocity: two parabolas from nothing at -1 by one at 0 to `eccentric`."""
        y = self.eccentric - 1.0
        stretching = self.eccentric - (y - v) ** 2 / y
        return jnp.select([v <= -1.0, v <= 0.0, v <= y], [jnp.zeros_like(v), (v + 1.0) ** 2, stretching], 1.0 + y)

    def stretched(self, x: jax.Array) -> jax.Array:
        """The passive force: none up to 1, a parabola half-way to `l_max`, a line from there on."""
        half = 0.5 * (self.l_max - 1.0)
        beyond = (x - 1.0) / half
        return self.passive * jnp.select([beyond <= 0.0, beyond <= 1.0], [0.0 * x, 0.5 * beyond**2], beyond - 0.5)


@pytree_dataclass()
class MuscleActivated(Lag):
    """Activation follows an excitation in `[0, 1]`, fast up and slowly down, and the slower the more of it there is:

        x' = (command - x) / tau      tau = rise (1/2 + 3/2 x) where it rises, fall / (1/2 + 3/2 x) where it falls

    With a `width` the one goes over into the other while `command - x` crosses about that much.
    """

    law: Any
    rise: Any = 0.01
    fall: Any = 0.04
    width: Any | None = None
    limits: Limits = None

    def rate(self, x, command):
        away = jnp.clip(command, 0.0, 1.0) - x
        factor = 0.5 + 1.5 * jnp.clip(x, 0.0, 1.0)
        up, down = self.rise * factor, self.fall / factor
        if self.width is None:
            return away / jnp.where(away > 0, up, down)
        z = jnp.clip(away / self.width + 0.5, 0.0, 1.0)
        return away / (down + (up - down) * z**3 * (z * (6.0 * z - 15.0) + 10.0))

    def follow(self, x, command, dt):
        return within(self.limits, x + dt * self.rate(x, command))
