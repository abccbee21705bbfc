"""Six freedoms: the joint of a floating base (table 4.1, sections 4.1 and 9.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax

from dynax.joints.base import AbstractJoint, Coordinates, constant_columns
from dynax.joints.spherical import (
    rates_of,
    relative_velocity,
    turn_between,
    turned,
    turned_velocity,
    turning,
    turning_unit,
    turning_velocity,
    uniform_rotation,
)
from dynax.spatial import Exponential, Mat3, Motion, Quaternion, Scalar, Vec3


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
        return _moved(q, dv)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        return _apart(q0, q1)

    def difference_rate(self, q0: Coordinates, q1: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        angular, offset = _seen(q0, q1)
        exponential = Exponential.of(angular, 6)
        jacobian = exponential.log_jacobian()
        change, moved = (jacobian.transpose_apply(Vec3(*x)) for x in (v[:3], v[3:]))
        return _components(change, moved + exponential.log_jacobian_rate(change, offset))

    def carried(self, q: Coordinates, dv: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        exponential, angular = Exponential.of(Vec3(*dv[:3])), Vec3(*v[:3])
        turn, step = exponential.quaternion().matrix(), exponential.translation(Vec3(*dv[3:]))
        return _components(*map(turn.transpose_apply, (angular, Vec3(*v[3:]) + angular.cross(step))))

    def integrate_rate(
        self, q: Coordinates, dv: Coordinates, change: Coordinates, parameters: Coordinates
    ) -> Coordinates:
        exponential, angular, u = Exponential.of(Vec3(*dv[:3]), 6), Vec3(*change[:3]), Vec3(*dv[3:])
        turned, moved = map(exponential.jacobian().transpose_apply, (angular, Vec3(*change[3:])))
        turn = exponential.quaternion().matrix()
        return _components(turned, moved + turn.transpose_apply(exponential.jacobian_rate(angular, u)))

    def bracket(self, a: Coordinates, b: Coordinates) -> Coordinates:
        c = Motion(Vec3(*a[:3]), Vec3(*a[3:])).cross(Motion(Vec3(*b[:3]), Vec3(*b[3:])))
        return c.angular.x, c.angular.y, c.angular.z, c.linear.x, c.linear.y, c.linear.z

    def normalize(self, q: Coordinates) -> Coordinates:
        r = Quaternion(*q[3:]).normalized()
        return (*q[:3], r.w, r.x, r.y, r.z)

    def sample(self, uniform: Coordinates) -> Coordinates:
        return (*uniform[:3], *uniform_rotation(uniform[3:6]))


@jax.custom_jvp
def _moved(q: Coordinates, dv: Coordinates) -> Coordinates:
    """`q exp([omega; velocity])`."""
    exponential, rotation = Exponential.of(Vec3(*dv[:3])), Quaternion(*q[3:])
    p = Vec3(*q[:3]) + rotation.matrix() @ exponential.translation(Vec3(*dv[3:]))
    return (p.x, p.y, p.z, *turned(rotation, exponential))


@_moved.defjvp
def _moved_rate(primals: tuple, tangents: tuple) -> tuple[Coordinates, Coordinates]:
    """With `J` of the exponential and `w` the angular velocity of `q`

    dp+ = dp + R (w x J u + J du + dJ u)        w+ = exp(-v) w + J^T dv
    """
    (q, dv), (rate, change) = primals, tangents
    exponential, rotation, u = Exponential.of(Vec3(*dv[:3]), 6), Quaternion(*q[3:]), Vec3(*dv[3:])
    before, v_rate, u_rate = turning_velocity(rotation, Quaternion(*rate[3:])), Vec3(*change[:3]), Vec3(*change[3:])
    matrix, jacobian = rotation.matrix(), exponential.jacobian()
    step = jacobian @ u
    along = before.cross(step) + jacobian @ u_rate + exponential.jacobian_rate(v_rate, u)
    p, p_rate = Vec3(*q[:3]) + matrix @ step, Vec3(*rate[:3]) + matrix @ along
    reached = turned(rotation, exponential)
    angular = turned_velocity(exponential.quaternion(), jacobian, before, v_rate)
    return (p.x, p.y, p.z, *reached), (p_rate.x, p_rate.y, p_rate.z, *turning_unit(Quaternion(*reached), angular))


@jax.custom_jvp
def _apart(q0: Coordinates, q1: Coordinates) -> Coordinates:
    """The logarithm of the displacement from `q0` to `q1`."""
    angular, offset = _seen(q0, q1)
    return _components(angular, Exponential.of(angular).log_translation(offset))


@partial(_apart.defjvp, symbolic_zeros=True)
def _apart_rate(primals: tuple, tangents: tuple) -> tuple[Coordinates, Coordinates]:
    """With `J` of the logarithm, `w` the relative angular velocity and `w0` that of `q0`

    dv = J^T w        du = J (R0^T (dp1 - dp0) - w0 x offset) + dJ offset
    """
    (q0, q1), (rate0, rate1) = primals, map(rates_of, tangents)
    start, end = Quaternion(*q0[3:]), Quaternion(*q1[3:])
    angular, offset = _seen(q0, q1)
    exponential = Exponential.of(angular, 6)
    jacobian = exponential.log_jacobian()
    velocity, moved = Vec3.zero(angular.x), Vec3.zero(offset.x)
    if rate1 is not None:
        velocity, moved = turning_velocity(end, Quaternion(*rate1[3:])), Vec3(*rate1[:3])
    if rate0 is not None:
        before = turning_velocity(start, Quaternion(*rate0[3:]))
        velocity, moved = relative_velocity(start.conjugate @ end, before, velocity), moved - Vec3(*rate0[:3])
    along = start.matrix().transpose_apply(moved)
    if rate0 is not None:
        along = along - before.cross(offset)
    change = jacobian.transpose_apply(velocity)
    linear = jacobian @ along + exponential.log_jacobian_rate(change, offset)
    return _components(angular, exponential.log_translation(offset)), _components(change, linear)


def _seen(q0: Coordinates, q1: Coordinates) -> tuple[Vec3, Vec3]:
    """Rotation vector and translation of `q1` as seen from `q0`."""
    start = Quaternion(*q0[3:])
    offset = start.matrix().transpose_apply(Vec3(*q1[:3]) - Vec3(*q0[:3]))
    return turn_between(start, Quaternion(*q1[3:])), offset


def _components(angular: Vec3, linear: Vec3) -> Coordinates:
    return angular.x, angular.y, angular.z, linear.x, linear.y, linear.z
