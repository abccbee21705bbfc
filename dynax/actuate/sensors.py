"""Sensors: of joints, of actuators, of inertia, of frames. Each is a pure function of a `Moment`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.actuate.actuators import Actuation
from dynax.actuate.sensor import AbstractSensor, Moment
from dynax.operators.pytree import pytree_dataclass
from dynax.spatial import Rotation


def _as_names(sensor: AbstractSensor, field: str) -> None:
    """A list of names becomes a tuple; a name alone would be taken for its letters."""
    names = getattr(sensor, field)
    if isinstance(names, str):
        raise ValueError(f"`{field}` is {names!r}: give a tuple of names, ({names!r},)")
    object.__setattr__(sensor, field, tuple(names))


@pytree_dataclass("joints")
class JointPosition(AbstractSensor):
    """The coordinates of some joints, one after the other; of all, `q`, if none are named."""

    joints: tuple[str, ...] = ()

    def __post_init__(self):
        _as_names(self, "joints")

    def value(self, at):
        slices = [at.model.q_slice(name) for name in self.joints]
        return jnp.concatenate([at.q[s] for s in slices]) if slices else at.q


@pytree_dataclass("joints")
class JointVelocity(AbstractSensor):
    """The velocities of some joints; of all, the tree's `v`, if none are named."""

    joints: tuple[str, ...] = ()

    def __post_init__(self):
        _as_names(self, "joints")

    def value(self, at):
        slices = [at.model.v_slice(name) for name in self.joints]
        return jnp.concatenate([at.v[s] for s in slices]) if slices else at.v


class OfActuators(AbstractSensor):
    """A number for each of some actuators, all if none are named."""

    actuators: tuple[str, ...]

    def __post_init__(self):
        _as_names(self, "actuators")

    def of(self, at: Moment) -> Actuation:
        if at.actuation is None:
            raise ValueError("a sensor is on actuators, but there are none: give `actuators=`, or `actuation=`")
        return at.actuation

    def pick(self, at: Moment, values: jax.Array) -> jax.Array:
        rows = [at.names.index(name) for name in self.actuators]
        return values[np.array(rows, int)] if rows else values


@pytree_dataclass("actuators")
class ActuatorForce(OfActuators):
    actuators: tuple[str, ...] = ()

    def value(self, at):
        return self.pick(at, self.of(at).force)


@pytree_dataclass("actuators")
class ActuatorPosition(OfActuators):
    """The length of the transmission."""

    actuators: tuple[str, ...] = ()

    def value(self, at):
        return self.pick(at, self.of(at).length)


@pytree_dataclass("actuators")
class ActuatorVelocity(OfActuators):
    actuators: tuple[str, ...] = ()

    def value(self, at):
        return self.pick(at, self.of(at).velocity)


@pytree_dataclass("frame")
class Gyro(AbstractSensor):
    """Angular velocity along the frame's axes, shape `(3,)` [rad/s]."""

    frame: str

    def value(self, at):
        return at.frame(self.frame).velocity[:3]


@pytree_dataclass("frame")
class Velocimeter(AbstractSensor):
    """Velocity of the frame's origin along its axes, shape `(3,)` [m/s]."""

    frame: str

    def value(self, at):
        return at.frame(self.frame).velocity[3:]


@pytree_dataclass("frame")
class Accelerometer(AbstractSensor):
    """Acceleration of the frame's origin against free fall, along the frame's axes, shape `(3,)` [m/s^2]: 9.81 upwards
    at rest, zero in free fall."""

    frame: str

    def value(self, at):
        gravity = jnp.asarray(at.model.gravity, at.q.dtype)
        return at.acceleration(self.frame)[3:] - at.frame(self.frame).rotation.T @ gravity


@pytree_dataclass("frame", "reference")
class FramePosition(AbstractSensor):
    """The origin of a body or frame, seen from another, shape `(3,)` [m]."""

    frame: str
    reference: str = "world"

    def value(self, at):
        own, seen = at.frame(self.frame), at.frame(self.reference)
        return seen.rotation.T @ (own.position - seen.position)


@pytree_dataclass("frame", "reference")
class FrameQuaternion(AbstractSensor):
    """How a body or frame is turned against another, a unit quaternion `w, x, y, z` with `w >= 0`, shape `(4,)`."""

    frame: str
    reference: str = "world"

    def value(self, at):
        turn = at.frame(self.reference).rotation.T @ at.frame(self.frame).rotation
        return Rotation(turn).quaternion()


@pytree_dataclass("frame", "reference", "axis")
class FrameAxis(AbstractSensor):
    """One of a frame's axes (0, 1, 2) in those of another, shape `(3,)`."""

    frame: str
    axis: int
    reference: str = "world"

    def value(self, at):
        return at.frame(self.reference).rotation.T @ at.frame(self.frame).rotation[:, self.axis]


@pytree_dataclass("frame", "reference")
class FrameVelocity(AbstractSensor):
    """The velocity of a frame as somebody in the reference sees it, along the reference's axes: `[angular; linear]`,
    shape `(6,)` [rad/s, m/s]."""

    frame: str
    reference: str = "world"

    def value(self, at):
        own, seen = at.frame(self.frame), at.frame(self.reference)
        turn = seen.rotation.T @ own.rotation
        arm = seen.rotation.T @ (own.position - seen.position)
        carried = seen.velocity[3:] + jnp.cross(seen.velocity[:3], arm)
        return jnp.concatenate([turn @ own.velocity[:3] - seen.velocity[:3], turn @ own.velocity[3:] - carried])


@pytree_dataclass("frame", "felt")
class FrameAcceleration(AbstractSensor):
    """The classical acceleration of a frame along the world's axes: `[angular; linear]`, shape `(6,)`; as `felt`, that
    against free fall."""

    frame: str
    felt: bool = False

    def value(self, at):
        turn, found = at.frame(self.frame).rotation, at.acceleration(self.frame)
        linear = turn @ found[3:]
        if self.felt:
            linear = linear - jnp.asarray(at.model.gravity, at.q.dtype)
        return jnp.concatenate([turn @ found[:3], linear])


@pytree_dataclass()
class Clock(AbstractSensor):
    """The model's time [s]."""

    def value(self, at):
        return jnp.asarray(at.model.time, at.q.dtype)


@pytree_dataclass("carries", "frame")
class ForceTorque(AbstractSensor):
    """What is transmitted through a cut at a frame, `[moment; force]` on what lies beyond it, along the frame's axes
    about its origin, shape `(6,)` [N m, N].

    The cut is the joint that carries the frame's body: of all bodies it carries the weight and the inertia, not what
    the environment does to them. Or, with `beyond`, it goes through the body itself, such as a flange.
    """

    frame: str
    beyond: Any = None
    """The inertia of the body's part beyond the cut, `[m, m c (3), Ixx, Iyy, Izz, Ixy, Iyz, Ixz]` about the body's
    origin in its axes, shape `(10,)`."""
    carries: tuple[str, ...] = ()
    """The bodies whose joints are beyond the cut."""

    def value(self, at):
        body, pose = at.model.locate(self.frame)
        turn, offset = at.placed(pose)
        if self.beyond is None:
            wrench = at.joint_forces[body]
        else:
            wrench = self._of_part(at, body)
            for name in self.carries:
                wrench = wrench + self._of_child(at, body, at.model.body_index(name))
        moment = wrench[:3] - jnp.cross(offset, wrench[3:])
        return jnp.concatenate([turn.T @ moment, turn.T @ wrench[3:]])

    def _of_part(self, at: Moment, body: int) -> jax.Array:
        """`I a + v x* I v` with the weight, about the body's origin in its axes."""
        m, first, (xx, yy, zz, xy, yz, xz) = self.beyond[0], self.beyond[1:4], self.beyond[4:]
        inertia = jnp.stack([jnp.stack([xx, xy, xz]), jnp.stack([xy, yy, yz]), jnp.stack([xz, yz, zz])])
        (w, u), (dw, du) = (x[body].reshape(2, 3) for x in (at.velocities, at.accelerations))
        felt = du + jnp.cross(w, u) - at.poses.rotation[body].T @ jnp.asarray(at.model.gravity, at.q.dtype)
        force = m * felt + jnp.cross(dw, first) + jnp.cross(w, jnp.cross(w, first))
        moment = inertia @ dw + jnp.cross(w, inertia @ w) + jnp.cross(first, felt)
        return jnp.concatenate([moment, force])

    @staticmethod
    def _of_child(at: Moment, body: int, child: int) -> jax.Array:
        turn = at.poses.rotation[body].T @ at.poses.rotation[child]
        arm = at.poses.rotation[body].T @ (at.poses.translation[child] - at.poses.translation[body])
        moment, force = (turn @ part for part in at.joint_forces[child].reshape(2, 3))
        return jnp.concatenate([moment + jnp.cross(arm, force), force])


@pytree_dataclass("start", "stop")
class Part(AbstractSensor):
    """The entries `start` to `stop` of another sensor."""

    sensor: AbstractSensor
    start: int
    stop: int

    def value(self, at):
        return self.sensor.value(at)[self.start : self.stop]
