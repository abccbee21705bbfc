"""The spherical joint with Euler parameters (section 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from dynax.joints.base import AbstractJoint, Coordinates, constant_columns
from dynax.spatial import Mat3, Motion, Quaternion, Scalar, Vec3


@dataclass(frozen=True, repr=False)
class Spherical(AbstractJoint):
    """Free rotation about a point: `q` is the unit quaternion `w, x, y, z`, `v` the angular velocity in body axes."""

    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        return Quaternion(*q).matrix(), Vec3.zero(q[0])

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        return constant_columns((0, 1, 2))

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> None:
        return None

    def neutral(self) -> tuple[float, ...]:
        return (1.0, 0.0, 0.0, 0.0)

    def rate(self, q: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        return turning(Quaternion(*q), Vec3(*v))

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        v = turning_velocity(Quaternion(*q), Quaternion(*rate))
        return v.x, v.y, v.z

    def integrate(self, q: Coordinates, dv: Coordinates, parameters: Coordinates) -> Coordinates:
        return turn(Quaternion(*q), Vec3(*dv))

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        v = (Quaternion(*q0).conjugate @ Quaternion(*q1)).log()
        return v.x, v.y, v.z

    def bracket(self, a: Coordinates, b: Coordinates) -> Coordinates:
        c = Vec3(*a).cross(Vec3(*b))
        return c.x, c.y, c.z

    def normalize(self, q: Coordinates) -> Coordinates:
        r = Quaternion(*q).normalized()
        return r.w, r.x, r.y, r.z

    def sample(self, uniform: Coordinates) -> Coordinates:
        return uniform_rotation(uniform[:3])

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        r = Quaternion.from_matrix(rotation)
        return r.w, r.x, r.y, r.z

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        shift = rotation.transpose_apply(translation)
        return shift.x, shift.y, shift.z


def turn(q: Quaternion, v: Vec3) -> Coordinates:
    """`q exp(v)`, scaled to unit length so that rounding does not add up over many steps (section 4.5)."""
    q = (q @ Quaternion.exp(v)).normalized()
    return q.w, q.x, q.y, q.z


def turning(q: Quaternion, v: Vec3) -> Coordinates:
    """The rate of `turn(q, t v)` at `t = 0`: `q (0, v / 2)` (eq. 4.13)."""
    q, half = q.normalized(), v * 0.5
    along = half * q.w + q.vector.cross(half)
    return -q.vector.dot(half), along.x, along.y, along.z


def turning_velocity(q: Quaternion, rate: Quaternion) -> Vec3:
    """The angular velocity, in body axes, with which a quaternion changes at this rate, apart from its length."""
    a, b = q.vector, rate.vector
    return (b * q.w - a * rate.w - a.cross(b)) * (2.0 / (q.w * q.w + a.dot(a)))


def uniform_rotation(uniform: Coordinates) -> Coordinates:
    """A uniformly distributed unit quaternion from three numbers uniform in (-1, 1) (Shoemake 1992)."""
    u, a, b = 0.5 * (uniform[0] + 1.0), jnp.pi * uniform[1], jnp.pi * uniform[2]
    r, s = jnp.sqrt(u), jnp.sqrt(1.0 - u)
    return r * jnp.cos(a), r * jnp.sin(a), s * jnp.cos(b), s * jnp.sin(b)
