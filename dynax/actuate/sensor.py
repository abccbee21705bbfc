"""What a sensor is: a pure function of a moment of the motion, or one that remembers and errs."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.actuate.actuators import Actuation, typed
from dynax.actuate.law import Numbered
from dynax.algorithms.frame_motion import FrameMotion, frame_motion
from dynax.algorithms.frames import body_accelerations, body_velocities, forward_kinematics
from dynax.algorithms.rnea import joint_forces
from dynax.contact.scene import Scene
from dynax.embedding.meanings import tree_motion
from dynax.embedding.model import EmbeddedModel
from dynax.model.checks import as_state
from dynax.model.kinds import AnyModel
from dynax.spatial import Transform

UNKNOWN = "a sensor feels accelerations: give `a`, such as dx.forward_dynamics(model, q, v, tau)"


@dataclass
class Moment:
    """A moment of the motion of a tree; what several sensors need is computed once."""

    model: Any
    q: jax.Array
    v: jax.Array
    a: jax.Array | None
    """`None` where nobody said: then what feels accelerations cannot be read."""
    actuation: Actuation | None
    names: tuple[str, ...] = ()
    """Of the actuators."""
    scene: Scene | None = None
    forces: jax.Array | None = None
    """Of contacts, on the second body of each candidate, in world axes, shape `(k, 3)` [N]; `None` if nobody said."""
    _frames: dict[str, FrameMotion] = field(default_factory=dict)

    @cached_property
    def poses(self) -> Transform:
        return forward_kinematics(self.model, self.q)

    @cached_property
    def velocities(self) -> jax.Array:
        return body_velocities(self.model, self.q, self.v)

    @property
    def given(self) -> jax.Array:
        """The acceleration."""
        if self.a is None:
            raise ValueError(UNKNOWN)
        return self.a

    @cached_property
    def accelerations(self) -> jax.Array:
        return body_accelerations(self.model, self.q, self.v, self.given)

    @cached_property
    def joint_forces(self) -> jax.Array:
        return joint_forces(self.model, self.q, self.v, self.given)

    def frame(self, name: str) -> FrameMotion:
        """Where a body or frame is and how it moves."""
        if name not in self._frames:
            self._frames[name] = frame_motion(self.model, self.q, self.v, self.a, name)
        return self._frames[name]

    def acceleration(self, name: str) -> jax.Array:
        """The classical acceleration of a frame's origin, `[angular; linear]` along its own axes."""
        found = self.frame(name).acceleration
        if found is None:
            raise ValueError(UNKNOWN)
        return found

    def placed(self, pose: Transform | None) -> tuple[jax.Array, jax.Array]:
        dtype = self.q.dtype
        if pose is None:
            return jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype)
        return jnp.asarray(pose.rotation, dtype), jnp.asarray(pose.translation, dtype)


class AbstractSensor(Numbered, abc.ABC):
    """A sensor. To write one's own, give `value`; make the class a pytree."""

    @property
    def feels_contact(self) -> bool:
        """Whether it asks what contacts do."""
        return False

    @abc.abstractmethod
    def value(self, at: Moment) -> jax.Array:
        """What it says if it neither errs nor remembers."""

    def begin(self, at: Moment) -> Any:
        """What it remembers before its first reading."""
        return ()

    def read(self, at: Moment, state: Any, key: jax.Array | None) -> tuple[jax.Array, Any]:
        """What it says, and what it remembers for the next reading."""
        return self.value(at), state


Sensors = Mapping[str, AbstractSensor]
"""By names of one's own."""


def measure(
    sensors: Sensors,
    model: AnyModel,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike | None = None,
    *,
    actuation: Actuation | None = None,
    names: tuple[str, ...] = (),
    forces: ArrayLike | None = None,
    key: jax.Array | None = None,
) -> dict[str, jax.Array]:
    """What sensors say at one moment, by their names; those that remember, as at their first reading.

    **Arguments:**

    - `q`, `v`, `a`: configuration, velocity and, for sensors that feel it, acceleration.
    - `actuation`, `names`: of actuators, for sensors on these: `actuate.actuation(...)` and `actuators.names`.
    - `forces`: of contacts, for sensors that feel them: `touched.impulses / dt`, or `compliant_forces(...).forces`.
    - `key`: for sensors that err at random.
    """
    q, v, a = as_state(model, q=q, v=v, a=a, optional=("a",))
    at = moment(model, q, v, a, actuation, names, None if forces is None else jnp.asarray(forces))
    own = typed(dict(sensors), at.q.dtype)
    return read_all(own, at, begin_all(own, at), key)[0]


def moment(
    model: Any,
    q: Any,
    v: Any,
    a: Any,
    actuation: Actuation | None = None,
    names: tuple[str, ...] = (),
    forces: jax.Array | None = None,
) -> Moment:
    """Of any kind of model, that of its tree."""
    own = model.model if isinstance(model, Scene) else model
    if isinstance(own, EmbeddedModel):
        motion = tree_motion(own, q, v)
        own, v, a = own.tree, motion.v, None if a is None else motion.x @ a + motion.bias
    return Moment(own, q, v, a, actuation, names, model if isinstance(model, Scene) else None, forces)


def begin_all(sensors: Sensors, at: Moment) -> dict[str, Any]:
    return {name: sensor.begin(at) for name, sensor in sensors.items()}


def read_all(sensors: Sensors, at: Moment, state: Any, key: jax.Array | None) -> tuple[dict[str, jax.Array], Any]:
    """The readings, and the states for the next ones; each sensor gets a random key of its own."""
    said, following = {}, {}
    for k, (name, sensor) in enumerate(sorted(sensors.items())):
        own = None if key is None else jax.random.fold_in(key, k)
        said[name], following[name] = sensor.read(at, state[name], own)
    return said, following
