"""Rolling contact: rack and pinion, a wheel on a plane, a ball on a plane (example 4.6; Jain, table 2.5 corrected)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.joints.base import AbstractJoint, Coordinates, check_perpendicular, finite_number, frame_along, unit_vector
from dynax.joints.nearest import angle_about_z, constant_forces
from dynax.joints.spherical import turn, turning, turning_velocity, uniform_rotation
from dynax.spatial import Force, Mat3, Motion, Quaternion, Scalar, Vec3
from dynax.spatial.cos_sin import cos_sin


@dataclass(frozen=True, repr=False)
class _Pinion(AbstractJoint):
    """A wheel that turns about z while its centre moves along x, `radius` for each radian."""

    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    radius: float = 1.0
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)
    direction: tuple[float, float, float] = (1.0, 0.0, 0.0)

    def __post_init__(self):
        name = type(self).__name__
        object.__setattr__(self, "axis", unit_vector(self.axis, f"{name}: `axis`"))
        object.__setattr__(self, "direction", unit_vector(self.direction, f"{name}: `direction`"))
        object.__setattr__(self, "radius", finite_number(self.radius, f"{name}: `radius`"))
        check_perpendicular(self, "axis", "direction")

    @property
    def frame(self) -> np.ndarray:
        return frame_along(self.axis, self.direction)

    @property
    def parameters(self) -> tuple[float, ...]:
        return (self.radius,)

    @property
    def canonical(self) -> AbstractJoint:
        return type(self)()

    def _height(self, radius: Scalar) -> Scalar:
        """Where the centre stands along y."""
        raise NotImplementedError

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        zero, radius = jnp.zeros_like(q[0]), parameters[0]
        rotation = Mat3.identity(q[0]).rotate_z(*cos_sin(q[0]))
        return rotation, Vec3(radius * q[0], zero + self._height(radius), zero)

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        zero, one = jnp.zeros_like(q[0]), jnp.ones_like(q[0])
        (c, s), radius = cos_sin(q[0]), parameters[0]
        return (Motion(Vec3(zero, zero, one), Vec3(radius * c, -radius * s, zero)),)

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> Motion:
        (c, s), zero, square = cos_sin(q[0]), jnp.zeros_like(q[0]), parameters[0] * v[0] * v[0]
        return Motion(Vec3(zero, zero, zero), Vec3(-s * square, -c * square, zero))

    def sample(self, uniform: Coordinates) -> Coordinates:
        return (jnp.pi * uniform[0],)

    def complement(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Force, ...]:
        (c, s), zero = cos_sin(q[0]), jnp.zeros_like(q[0])
        along = Force(Vec3(zero, zero, zero - parameters[0]), Vec3(c, -s, zero))
        return (*constant_forces((0, 1, 5)), Force(Vec3.zero(zero), Vec3(s, c, zero)), along)

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        # The turns are told by the way.
        angle, radius = angle_about_z(rotation), parameters[0]
        rolls = radius != 0.0
        turns = jnp.round((translation.x / jnp.where(rolls, radius, 1.0) - angle) / (2.0 * jnp.pi))
        return (angle + 2.0 * jnp.pi * jnp.where(rolls, lax.stop_gradient(turns), 0.0),)


@dataclass(frozen=True, repr=False)
class RackAndPinion(_Pinion):
    """A pinion that turns about `axis` while it rolls along `direction`: `q` is its angle [rad].

    The pinion's centre starts at the joint's origin and stays on the line along `direction`, `radius * q` from there;
    the pitch line of the rack runs parallel at the distance `radius`, on the side of `axis x direction`.
    """

    def _height(self, radius: Scalar) -> Scalar:
        return 0.0


@dataclass(frozen=True, repr=False)
class Rolling(_Pinion):
    """A wheel that rolls without slipping: a pinion whose rack passes through the joint's origin.

    The body's frame sits at the wheel's centre, at the distance `radius` from the line, on the side opposite to
    `axis x direction`; for a wheel upon the ground choose them so that `axis x direction` points down.
    """

    def _height(self, radius: Scalar) -> Scalar:
        return -radius


@dataclass(frozen=True, repr=False)
class RollingBall(AbstractJoint):
    """A ball that rolls without slipping on the plane through the joint's origin with normal z: not holonomic.

    `q = [x, y, qw, qx, qy, qz]`, five freedoms of position; `v` is the angular velocity in body axes, three of
    velocity. The body's frame sits at the centre, `radius` above the plane.
    """

    nq: ClassVar[int] = 6
    nv: ClassVar[int] = 3
    holonomic: ClassVar[bool] = False
    radius: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "radius", finite_number(self.radius, "RollingBall: `radius`"))

    @property
    def parameters(self) -> tuple[float, ...]:
        return (self.radius,)

    @property
    def canonical(self) -> RollingBall:
        return RollingBall()

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        return Quaternion(*q[2:]).matrix(), Vec3(q[0], q[1], parameters[0] * jnp.ones_like(q[0]))

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        zero, one = jnp.zeros_like(q[0]), jnp.ones_like(q[0])
        arm = Quaternion(*q[2:]).matrix().rows[2] * parameters[0]  # from the contact to the centre, body axes
        units = (Vec3(one, zero, zero), Vec3(zero, one, zero), Vec3(zero, zero, one))
        return tuple(Motion(unit, unit.cross(arm)) for unit in units)

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> Motion:
        arm = Quaternion(*q[2:]).matrix().rows[2] * parameters[0]
        w = Vec3(*v)
        return Motion(Vec3.zero(q[0]), w.cross(arm.cross(w)))

    def neutral(self) -> tuple[float, ...]:
        return (0.0, 0.0, 1.0, 0.0, 0.0, 0.0)

    def rate(self, q: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        rotation, radius = Quaternion(*q[2:]), parameters[0]
        w = rotation.matrix() @ Vec3(*v)
        return (radius * w.y, -radius * w.x, *turning(rotation, Vec3(*v)))

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        v = turning_velocity(Quaternion(*q[2:]), Quaternion(*rate[2:]))
        return v.x, v.y, v.z

    def integrate(self, q: Coordinates, dv: Coordinates, parameters: Coordinates) -> Coordinates:
        rotation = Quaternion(*q[2:])
        w = rotation.matrix() @ Vec3(*dv)  # one rotation vector in both frames: the centre's path is straight
        radius = parameters[0]
        return (q[0] + radius * w.y, q[1] - radius * w.x, *turn(rotation, Vec3(*dv)))

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        """The rotation that leads from one orientation to the other; where the ball stands is not its to choose."""
        v = (Quaternion(*q0[2:]).conjugate @ Quaternion(*q1[2:])).log()
        return v.x, v.y, v.z

    def bracket(self, a: Coordinates, b: Coordinates) -> Coordinates:
        c = Vec3(*a).cross(Vec3(*b))
        return c.x, c.y, c.z

    def normalize(self, q: Coordinates) -> Coordinates:
        r = Quaternion(*q[2:]).normalized()
        return (q[0], q[1], r.w, r.x, r.y, r.z)

    def sample(self, uniform: Coordinates) -> Coordinates:
        return (uniform[0], uniform[1], *uniform_rotation(uniform[2:5]))
