"""How sensors err: noise, bias, delay, range. Each wraps a sensor, and wrappers wrap one another."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dynax.actuate.limits import clipped
from dynax.actuate.sensor import AbstractSensor
from dynax.operators.pytree import pytree_dataclass


class Imperfect(AbstractSensor):
    sensor: AbstractSensor

    def value(self, at):
        return self.sensor.value(at)

    @property
    def feels_contact(self) -> bool:
        return self.sensor.feels_contact

    def begin(self, at):
        return self.sensor.begin(at)

    def read(self, at, state, key):
        said, state = self.sensor.read(at, state, key)
        return self.wrong(said), state

    def wrong(self, said: jax.Array) -> jax.Array:
        """What is made of a reading."""
        return said


@pytree_dataclass()
class Biased(Imperfect):
    """A reading and a constant, a number or one for each entry."""

    sensor: AbstractSensor
    bias: Any

    def wrong(self, said):
        return said + self.bias


@pytree_dataclass()
class Saturated(Imperfect):
    """A reading within limits."""

    sensor: AbstractSensor
    low: Any
    high: Any

    def wrong(self, said):
        return clipped(said, self.low, self.high, None)


@pytree_dataclass()
class Noisy(Imperfect):
    """A reading with normal noise, independent from reading to reading; `deviation`: a number or one for each entry."""

    sensor: AbstractSensor
    deviation: Any

    def read(self, at, state, key):
        if key is None:
            raise ValueError("a sensor is noisy: give `key`, such as jax.random.key(0)")
        inner, own = jax.random.split(key)
        said, state = self.sensor.read(at, state, inner)
        return said + self.deviation * jax.random.normal(own, said.shape, said.dtype), state


@pytree_dataclass("steps")
class Late(Imperfect):
    """The reading of `steps` steps ago; before there was one, the value at the beginning."""

    sensor: AbstractSensor
    steps: int

    def __post_init__(self):
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"`steps` is {self.steps!r}, expected a whole number of steps, one or more")

    def begin(self, at):
        first = self.sensor.value(at)
        return jnp.broadcast_to(first, (self.steps, *first.shape)), self.sensor.begin(at)

    def read(self, at, state, key):
        buffer, inner = state
        said, inner = self.sensor.read(at, inner, key)
        return buffer[0], (jnp.concatenate([buffer[1:], said[None]]), inner)
