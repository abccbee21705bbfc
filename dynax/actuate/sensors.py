"""Sensors: of joints, of actuators, of inertia, of frames. Each is a pure function of a `Moment`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.actuate.actuators import Actuation, as_names, row_of
from dynax.actuate.sensor import AbstractSensor, Moment
from dynax.operators.pytree import pytree_dataclass
from dynax.spatial import Rotation
from dynax.spatial.components import Mat3, Vec3
from dynax.spatial.inertia import RigidInertia
from dynax.spatial.motion import Force, Motion


def _settle_names(sensor: AbstractSensor, field: str) -> None:
    """A list of names becomes a tuple, so that the sensor can be hashed."""
    object.__setattr__(sensor, field, as_names(getattr(sensor, field), field))


@pytree_dataclass("joints")
class JointPosition(AbstractSensor):
    """The coordinates of some joints, one after the other; of all, `q`, if none are named."""

    joints: tuple[str, ...] = ()

    def __post_init__(self):
        _settle_names(self, "joints")

    def value(self, at):
        slices = [at.model.q_slice(name) for name in self.joints]
        return jnp.concatenate([at.q[s] for s in slices]) if slices else at.q


@pytree_dataclass("joints")
class JointVelocity(AbstractSensor):
    """The velocities of some joints; of all, the tree's `v`, if none are named."""

    joints: tuple[str, ...] = ()

    def __post_init__(self):
        _settle_names(self, "joints")

    def value(self, at):
        slices = [at.model.v_slice(name) for name in self.joints]
        return jnp.concatenate([at.v[s] for s in slices]) if slices else at.v


class OfActuators(AbstractSensor):
    """A number for each of some actuators, all if none are named."""

    actuators: tuple[str, ...]

    def __post_init__(self):
        _settle_names(self, "actuators")

    def of(self, at: Moment) -> Actuation:
        if at.actuation is None:
            raise ValueError("a sensor is on actuators, but there are none: give `actuators=`, or `actuation=`")
        return at.actuation

    def pick(self, at: Moment, values: jax.Array) -> jax.Array:
        rows = [row_of(at.names, name) for name in self.actuators]
        return values[np.array(rows, int)] if rows else values


@pytree_dataclass("actuators")
class ActuatorForce(OfActuators):
    """The force of some actuators along their transmissions; of all, if none are named [N m, N]."""

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
    """The rate of the length of the transmission [rad/s, m/s]."""

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
            wrench = Force.from_array(at.joint_forces[body])
        else:
            wrench = self._of_part(at, body)
            for name in self.carries:
                wrench = wrench + self._of_child(at, body, at.model.body_index(name))
        return wrench.shift(Vec3.from_array(offset)).rotate_back(Mat3.from_array(turn)).array

    def _of_part(self, at: Moment, body: int) -> Force:
        """`I a + v x* I v` with the weight, about the body's origin in its axes."""
        inertia = RigidInertia.from_parameters(self.beyond)
        v, a = (Motion.from_array(x[body]) for x in (at.velocities, at.accelerations))
        turn, gravity = Mat3.from_array(at.poses.rotation[body]), jnp.asarray(at.model.gravity, at.q.dtype)
        fall = Motion(Vec3.zero(gravity[0]), Vec3.from_array(gravity)).rotate_back(turn)
        return inertia @ (a - fall) + v.cross(inertia @ v)

    @staticmethod
    def _of_child(at: Moment, body: int, child: int) -> Force:
        turn = at.poses.rotation[body].T @ at.poses.rotation[child]
        arm = at.poses.rotation[body].T @ (at.poses.translation[child] - at.poses.translation[body])
        force = Force.from_array(at.joint_forces[child])
        return force.rotate(Mat3.from_array(turn)).shift_to_parent(Vec3.from_array(arm))


@pytree_dataclass("start", "stop")
class Part(AbstractSensor):
    """The entries `start` to `stop` of another sensor."""

    sensor: AbstractSensor
    start: int
    stop: int

    def value(self, at):
        return self.sensor.value(at)[self.start : self.stop]

    @property
    def feels_contact(self) -> bool:
        return self.sensor.feels_contact
