"""What a rollout returns."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from dynax.operators.pytree import pytree_dataclass


class RolloutStatus(IntEnum):
    """How a rollout fares of an embedded model or of one with bodies that bend. From `OPEN` on it has stopped: rows
    repeat the last good state; of a model with bodies that bend they hold no numbers."""

    GOOD = 0
    OTHER_COORDINATES = 1
    """The motion goes on in other independent freedoms, since the model's own had become dependent, as those of a crank
    at its dead point. Velocities are of the model's own freedoms all the same, but near there they do not say all."""
    NEARLY_SINGULAR = 2
    """The mobility all but jumps, as where the bars of a square lie in one line: on which branch the motion goes
    on, and with how much of its energy, is up to the length of the step and to rounding."""
    OPEN = 3
    """The loops are open: at the beginning, see `dx.assemble`, or after a step, which was too long."""
    SINGULAR = 4
    """The mechanism has more freedoms there than elsewhere, and no choice of independent ones serves."""
    NOT_FINITE = 5
    """A step gave no numbers: too long, forces that are none, or bodies that bend too far: `dx.check_state` of the row
    before tells."""

    @property
    def stopped(self) -> bool:
        return self >= RolloutStatus.OPEN


class TouchStatus(IntEnum):
    """Of steps with contact."""

    SOLVED = 0
    NOT_SOLVED = 1
    """Not to the last digit: several contacts between sticking and sliding at once. See `unbalanced` for how well; the
    motion is good where that is small, derivatives may not be."""
    CROWDED = 2
    """More overlaps than a step takes, `Touching.most`; the others were left alone."""
    TOO_SOFT = 3
    """A contact gives by more than three tenths of the motion that it should stop, and shapes sink into each other:
    what is light under what is some 1e10 times as heavy, in float32, or 1e13 times, in float64."""
    NOT_FINITE = 4


class TouchReport(NamedTuple):
    """What happened in a step with contact, or in all of those since the row before. Without derivatives."""

    contacts: jax.Array
    """How many candidates and limits of joints pressed, in the last of them."""
    penetration: jax.Array
    """How deep shapes were in each other at the beginning of a step, at most [m]; 0 where they were apart."""
    energy: jax.Array
    """What contacts and limits did to the kinetic energy [J]: less than 0 but where they push apart what overlaps."""
    unbalanced: jax.Array
    """Of the momentum, as a part of what there is: 1e-9 where a step was solved, in float32 1e-3."""
    status: jax.Array
    """A `TouchStatus`, the worst of them."""

    @classmethod
    def none(cls, dtype: jnp.dtype) -> TouchReport:
        """Of no step."""
        zero, count = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
        return cls(count, zero, zero, zero, count)

    def since(self) -> TouchReport:
        """One for all of its rows."""
        worst = (jnp.max(x, axis=0) for x in (self.unbalanced, self.status))
        return TouchReport(self.contacts[-1], jnp.max(self.penetration), jnp.sum(self.energy), *worst)


@pytree_dataclass()
class Trajectory:
    """A motion, sampled; a row for every time, the initial state first. It unpacks to `time, q, v`."""

    time: jax.Array
    """[s], shape `(T + 1,)`; of a rollout that keeps every k-th state `(T / k + 1,)`, and so below."""
    q: jax.Array
    """Configurations, shape `(T + 1, nq)`."""
    v: jax.Array
    """Velocities, shape `(T + 1, nv)`."""
    status: jax.Array | None = None
    """Of an embedded model and of one with bodies that bend, `RolloutStatus` by row as integers, shape `(T + 1,)`;
    otherwise `None`."""
    touch: TouchReport | None = None
    """Of a scene, what happened in the steps that led to each row, each entry of shape `(T + 1,)`."""
    actuators: Any = None
    """The states of actuators by row, a pytree as `Actuators.initial` gives it; `None` without actuators."""
    sensors: dict[str, jax.Array] | None = None
    """What sensors said by row, by their names; `None` without sensors."""
    patch: Any = None
    """The state of surfaces by row, a `contact.Patch`; `None` but for scenes whose surfaces yield."""

    def __iter__(self) -> Iterator[jax.Array]:
        return iter((self.time, self.q, self.v))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> jax.Array:
        return (self.time, self.q, self.v)[index]

    @property
    def stopped(self) -> jax.Array:
        """Whether the motion has stopped before each time, and the row is none of it."""
        none = jnp.zeros(self.time.shape, bool)
        return none if self.status is None else self.status >= RolloutStatus.OPEN

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}={jnp.shape(getattr(self, name))}" for name in ("time", "q", "v"))
        return f"Trajectory({shapes}{_told(self.status)})"


def _told(status: jax.Array | None) -> str:
    """The last status by its name, where it is known."""
    if status is None or isinstance(status, Tracer) or jnp.ndim(status) != 1:
        return ""
    last = RolloutStatus(int(status[-1]))
    at = f" at row {int(jnp.argmax(status >= RolloutStatus.OPEN))}" if last.stopped else ""
    return f", {last.name}{at}"
