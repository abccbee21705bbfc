"""Six freedoms: the joint of a floating base (table 4.1, sections 4.1 and 9.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dynax.joints.base import AbstractJoint, Coordinates, constant_columns
from dynax.joints.spherical import turn, turning, turning_velocity, uniform_rotation
from dynax.spatial import Mat3, Motion, Quaternion, Scalar, Vec3, exp_translation, log_translation


@dataclass(frozen=True, repr=False)
class Free(AbstractJoint):
    """No constraint: `q = [x y z, qw qx qy qz]`, `v = [omega; velocity]` of the body's origin, in body axes.

    `integrate` follows the screw of a constant body velocity: `q exp([omega; velocity])` in SE(3).
    """

    nq: ClassVar[int] = 7
    nv: ClassVar[int] = 6
    turning: ClassVar[tuple[int, ...]] = (0, 1, 2, 3, 4, 5)

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        return Quaternion(*q[3:]).matrix(), Vec3(*q[:3])

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        return constant_columns(range(6))

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> None:
        return None

    def neutral(self) -> tuple[float, ...]:
        return (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)

    def rate(self, q: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        rotation = Quaternion(*q[3:])
        p = rotation.matrix() @ Vec3(*v[3:])
        return (p.x, p.y, p.z, *turning(rotation, Vec3(*v[:3])))

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        rotation = Quaternion(*q[3:])
        angular = turning_velocity(rotation, Quaternion(*rate[3:]))
        linear = rotation.matrix().transpose_apply(Vec3(*rate[:3]))
        return angular.x, angular.y, angular.z, linear.x, linear.y, linear.z

    def integrate(self, q: Coordinates, dv: Coordinates, parameters: Coordinates) -> Coordinates:
        rotation = Quaternion(*q[3:])
        angular, linear = Vec3(*dv[:3]), Vec3(*dv[3:])
        p = Vec3(*q[:3]) + rotation.matrix() @ exp_translation(angular, linear)
        return (p.x, p.y, p.z, *turn(rotation, angular))

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        start = Quaternion(*q0[3:])
        angular = (start.conjugate @ Quaternion(*q1[3:])).log()
        offset = start.matrix().transpose_apply(Vec3(*q1[:3]) - Vec3(*q0[:3]))
        linear = log_translation(angular, offset)
        return angular.x, angular.y, angular.z, linear.x, linear.y, linear.z

    def bracket(self, a: Coordinates, b: Coordinates) -> Coordinates:
        c = Motion(Vec3(*a[:3]), Vec3(*a[3:])).cross(Motion(Vec3(*b[:3]), Vec3(*b[3:])))
        return c.angular.x, c.angular.y, c.angular.z, c.linear.x, c.linear.y, c.linear.z

    def normalize(self, q: Coordinates) -> Coordinates:
        r = Quaternion(*q[3:]).normalized()
        return (*q[:3], r.w, r.x, r.y, r.z)

    def sample(self, uniform: Coordinates) -> Coordinates:
        return (*uniform[:3], *uniform_rotation(uniform[3:6]))
