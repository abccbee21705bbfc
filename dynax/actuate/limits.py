"""What a drive cannot do: limits of its force, of its force at a speed, and of its command. Each wraps a law."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dynax.actuate.law import AbstractActuator
from dynax.operators.pytree import pytree_dataclass


def clipped(x: jax.Array, low: Any, high: Any, softness: Any | None) -> jax.Array:
    """`x` between two limits; with a softness its corners are round, over about that much of `x`.

    `low + s log(1 + e^((x - low) / s)) - s log(1 + e^((x - high) / s))`: `x` between the limits and far from them, and
    never beyond. Limits that are infinite stay sharp.
    """
    if softness is None:
        return jnp.clip(x, low, high)
    low, high = (jnp.broadcast_to(jnp.asarray(bound, x.dtype), x.shape) for bound in (low, high))
    bounded_low, bounded_high = jnp.isfinite(low), jnp.isfinite(high)
    low, high = jnp.where(bounded_low, low, 0.0), jnp.where(bounded_high, high, 0.0)
    over_low = low + softness * jax.nn.softplus((x - low) / softness)
    over_high = softness * jax.nn.softplus((x - high) / softness)
    return jnp.where(bounded_low, over_low, x) - jnp.where(bounded_high, over_high, 0.0)


class Wrapper(AbstractActuator):
    """A law around another: what it does not say is the other's."""

    law: AbstractActuator

    def initial(self, size, dtype):
        return self.law.initial(size, dtype)

    def advance(self, state, command, length, velocity, dt):
        return self.law.advance(state, command, length, velocity, dt)

    def slopes(self, state, command, length, velocity, dt):
        straight = copy(self)
        object.__setattr__(straight, "law", _Straight(self.law, length, velocity, dt))
        return AbstractActuator.slopes(straight, state, command, length, velocity, dt)


@dataclass
class _Straight(AbstractActuator):
    """A law as a step takes it, made linear about a length and a velocity: laws that know their slopes better than
    their derivatives say are heard through what wraps them."""

    law: AbstractActuator
    length: jax.Array
    velocity: jax.Array
    dt: jax.Array

    def __call__(self, state, command, length, velocity):
        force, stiffness, damping = self.law.slopes(state, command, self.length, self.velocity, self.dt)
        return force - stiffness * (length - self.length) - damping * (velocity - self.velocity), ()


@pytree_dataclass()
class ForceLimited(Wrapper):
    """No force beyond `low` and `high`; `softness` [N m, N] rounds the corners, for derivatives that never vanish."""

    law: AbstractActuator
    low: Any
    high: Any
    softness: Any | None = None

    def __call__(self, state, command, length, velocity):
        force, rate = self.law(state, command, length, velocity)
        return clipped(force, self.low, self.high, self.softness), rate


@pytree_dataclass()
class TorqueSpeedLimited(Wrapper):
    """No force that a DC motor at full voltage could not give: between `stall_torque (-1 - velocity / no_load_speed)`
    and `stall_torque (1 - velocity / no_load_speed)`, and, if given, no more than `peak` (of the current)."""

    law: AbstractActuator
    stall_torque: Any
    no_load_speed: Any
    peak: Any = jnp.inf
    softness: Any | None = None

    def __call__(self, state, command, length, velocity):
        force, rate = self.law(state, command, length, velocity)
        speed = velocity / self.no_load_speed
        low, high = (jnp.clip(self.stall_torque * (s - speed), -self.peak, self.peak) for s in (-1.0, 1.0))
        return clipped(force, low, high, self.softness), rate


@pytree_dataclass()
class CommandLimited(Wrapper):
    """Commands beyond `low` and `high` are taken for these."""

    law: AbstractActuator
    low: Any
    high: Any
    softness: Any | None = None

    def __call__(self, state, command, length, velocity):
        return self.law(state, clipped(command, self.low, self.high, self.softness), length, velocity)

    def advance(self, state, command, length, velocity, dt):
        command = clipped(command, self.low, self.high, self.softness)
        return self.law.advance(state, command, length, velocity, dt)
