"""The spherical joint with Euler parameters (section 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from dynax.joints.base import AbstractJoint, Coordinates, constant_columns
from dynax.spatial import Exponential, Mat3, Motion, Quaternion, Scalar, Vec3


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
        v = turn_between(Quaternion(*q0), Quaternion(*q1))
        return v.x, v.y, v.z

    def difference_rate(self, q0: Coordinates, q1: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        angular = turn_between(Quaternion(*q0), Quaternion(*q1))
        rate = Exponential.of(angular).log_jacobian().transpose_apply(Vec3(*v))
        return rate.x, rate.y, rate.z

    def carried(self, q: Coordinates, dv: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        before = Exponential.of(Vec3(*dv)).quaternion().matrix().transpose_apply(Vec3(*v))
        return before.x, before.y, before.z

    def integrate_rate(
        self, q: Coordinates, dv: Coordinates, change: Coordinates, parameters: Coordinates
    ) -> Coordinates:
        rate = Exponential.of(Vec3(*dv)).jacobian().transpose_apply(Vec3(*change))
        return rate.x, rate.y, rate.z

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


@jax.custom_jvp
def turn(q: Quaternion, v: Vec3) -> Coordinates:
    """`q exp(v)`, scaled to unit length so that rounding does not add up over many steps (section 4.5)."""
    return turned(q, Exponential.of(v))


@turn.defjvp
def _turn_rate(primals: tuple, tangents: tuple) -> tuple[Coordinates, Coordinates]:
    (q, v), (rate, change) = primals, tangents
    exponential = Exponential.of(v)
    reached = turned(q, exponential)
    angular = turned_velocity(exponential.quaternion(), exponential.jacobian(), turning_velocity(q, rate), change)
    return reached, turning_unit(Quaternion(*reached), angular)


def turned(q: Quaternion, exponential: Exponential) -> Coordinates:
    """`turn`."""
    q = (q @ exponential.quaternion()).normalized()
    return q.w, q.x, q.y, q.z


def turned_velocity(turn: Quaternion, jacobian: Mat3, before: Vec3, change: Vec3) -> Vec3:
    """The angular velocity of `q exp(v)` in its own axes, where that of `q` is `before` and `v` changes; `turn` is
    `exp(v)`."""
    return turn.matrix().transpose_apply(before) + jacobian.transpose_apply(change)


@jax.custom_jvp
def turn_between(q0: Quaternion, q1: Quaternion) -> Vec3:
    """The rotation vector from `q0` to `q1`, of length at most pi."""
    return (q0.conjugate @ q1).log()


@partial(turn_between.defjvp, symbolic_zeros=True)
def _turn_between_rate(primals: tuple, tangents: tuple) -> tuple[Vec3, Vec3]:
    (q0, q1), (rate0, rate1) = primals, map(rates_of, tangents)
    relative = q0.conjugate @ q1
    v = relative.log()
    angular = Vec3.zero(v.x) if rate1 is None else turning_velocity(q1, rate1)
    if rate0 is not None:
        angular = relative_velocity(relative, turning_velocity(q0, rate0), angular)
    return v, Exponential.of(v).log_jacobian().transpose_apply(angular)


def rates_of(tangents: Any) -> Any:
    """Those that a rule with symbolic zeros is given, as arrays; `None` where nothing moves."""
    leaves, structure = jax.tree.flatten(tangents)
    still = [isinstance(x, SymbolicZero) for x in leaves]
    if all(still):
        return None
    rates = [jnp.zeros(x.shape, x.dtype) if zero else x for x, zero in zip(leaves, still, strict=True)]
    return structure.unflatten(rates)


def relative_velocity(relative: Quaternion, first: Vec3, second: Vec3) -> Vec3:
    """The angular velocity of `relative`, from one orientation to another, in the axes of the second; both have theirs
    in their own axes."""
    return second - relative.matrix().transpose_apply(first)


def turning(q: Quaternion, v: Vec3) -> Coordinates:
    """The rate of `turn(q, t v)` at `t = 0`: `q (0, v / 2)` (eq. 4.13)."""
    return turning_unit(q.normalized(), v)


def turning_unit(q: Quaternion, v: Vec3) -> Coordinates:
    """`turning` of what is of unit length."""
    half = v * 0.5
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
