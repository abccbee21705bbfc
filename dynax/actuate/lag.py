"""What stands between a command and the law that obeys it: filters, integrators, slew limits, delays."""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp

from dynax.actuate.limits import Wrapper
from dynax.operators.pytree import pytree_dataclass

Limits = tuple[Any, Any] | None


class Lag(Wrapper):
    """The law obeys a number `x` in the place of the command, and `x` follows the command; the state is `(x, that of
    the law)`, and `x` begins at zero. A command reaches the law one step later at the earliest."""

    @abc.abstractmethod
    def rate(self, x: jax.Array, command: jax.Array) -> jax.Array:
        """`x'`."""

    def follow(self, x: jax.Array, command: jax.Array, dt: jax.Array) -> jax.Array:
        """`x` after a step."""
        return x + dt * self.rate(x, command)

    def __call__(self, state, command, length, velocity):
        x, inner = state
        force, rate = self.law(inner, x, length, velocity)
        return force, (self.rate(x, command), rate)

    def initial(self, size, dtype):
        return jnp.zeros(size, dtype), self.law.initial(size, dtype)

    def advance(self, state, command, length, velocity, dt):
        x, inner = state
        return self.follow(x, command, dt), self.law.advance(inner, x, length, velocity, dt)


@pytree_dataclass("exact")
class Filtered(Lag):
    """`time_constant x' = command - x`; over a step exactly, or `exact=False` by Euler's rule, as MuJoCo's `filter`."""

    law: Any
    time_constant: Any
    exact: bool = True
    limits: Limits = None
    """Of `x`."""

    def rate(self, x, command):
        return (command - x) / self.time_constant

    def follow(self, x, command, dt):
        if not self.exact:
            return within(self.limits, x + dt * self.rate(x, command))
        # A constant of zero is no filter; with one in its place, for the sake of derivatives.
        lags = jnp.asarray(self.time_constant) > 0
        part = -jnp.expm1(-dt / jnp.where(lags, self.time_constant, 1.0))
        return within(self.limits, jnp.where(lags, x + part * (command - x), command))


@pytree_dataclass()
class Integrated(Lag):
    """`x' = command`."""

    law: Any
    limits: Limits = None

    def rate(self, x, command):
        return command

    def follow(self, x, command, dt):
        return within(self.limits, x + dt * command)


@pytree_dataclass()
class SlewLimited(Lag):
    """`x` goes to the command no faster than `speed` [per second]. With a `softness`, a distance, it slows down before
    it arrives: `x' = speed tanh((command - x) / softness)`."""

    law: Any
    speed: Any
    softness: Any | None = None

    def rate(self, x, command):
        away = command - x
        return self.speed * (jnp.sign(away) if self.softness is None else jnp.tanh(away / self.softness))

    def follow(self, x, command, dt):
        if self.softness is not None:
            return x + dt * self.rate(x, command)
        return x + jnp.clip(command - x, -self.speed * dt, self.speed * dt)


@pytree_dataclass("steps")
class Delayed(Wrapper):
    """The law obeys the command of `steps` steps ago, before the first the initial value zero.

    The state is `(buffer, that of the law)`, with the oldest command first in the buffer, shape `(steps, k)`.
    """

    law: Any
    steps: int

    def __post_init__(self):
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"`steps` is {self.steps!r}, expected a whole number of steps, one or more")

    def __call__(self, state, command, length, velocity):
        buffer, inner = state
        force, rate = self.law(inner, buffer[0], length, velocity)
        return force, (jnp.zeros_like(buffer), rate)

    def initial(self, size, dtype):
        return jnp.zeros((self.steps, size), dtype), self.law.initial(size, dtype)

    def advance(self, state, command, length, velocity, dt):
        buffer, inner = state
        later = jnp.concatenate([buffer[1:], jnp.broadcast_to(command, buffer[:1].shape)])
        return later, self.law.advance(inner, buffer[0], length, velocity, dt)


def within(limits: Limits, x: jax.Array) -> jax.Array:
    return x if limits is None else jnp.clip(x, *limits)
