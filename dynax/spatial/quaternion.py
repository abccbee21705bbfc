"""Unit quaternions, `w, x, y, z`, body to parent, by components; exponential and logarithm with exact derivatives at 0.

Each function that divides by an angle branches on its square, uses a series near zero and feeds a harmless argument to
the branch not taken, so values and derivatives of any order are finite everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from dynax.spatial.components import Mat3, Scalar, Vec3, component_dataclass, stack


@component_dataclass
class Quaternion:
    """A quaternion `w + x i + y j + z k`; a unit one turns body components into parent components."""

    w: Scalar
    x: Scalar
    y: Scalar
    z: Scalar

    @staticmethod
    def from_array(a: ArrayLike) -> Quaternion:
        a = jnp.asarray(a)
        return Quaternion(*(a[..., k] for k in range(4)))

    @property
    def array(self) -> jax.Array:
        return stack((self.w, self.x, self.y, self.z))

    @property
    def vector(self) -> Vec3:
        return Vec3(self.x, self.y, self.z)

    @property
    def conjugate(self) -> Quaternion:
        return Quaternion(self.w, -self.x, -self.y, -self.z)

    def __matmul__(self, other: Quaternion) -> Quaternion:
        """The product of two quaternions: the rotation `other` first, then `self`."""
        a, b = self.vector, other.vector
        v = b * self.w + a * other.w + a.cross(b)
        return Quaternion(self.w * other.w - a.dot(b), v.x, v.y, v.z)

    def normalized(self) -> Quaternion:
        """Scaled to unit length; a zero quaternion, which is no rotation, becomes the identity."""
        square = self.w * self.w + self.vector.dot(self.vector)
        zero = square == 0.0
        length = jnp.sqrt(jnp.where(zero, 1.0, square))
        return Quaternion(jnp.where(zero, 1.0, self.w / length), self.x / length, self.y / length, self.z / length)

    def matrix(self) -> Mat3:
        """The rotation matrix `E^T` of eq. 4.12 (body to parent), exactly orthogonal when the quaternion is unit."""
        w, x, y, z = self.w, self.x, self.y, self.z
        xx, yy, zz = 2.0 * x * x, 2.0 * y * y, 2.0 * z * z
        xy, xz, yz = 2.0 * x * y, 2.0 * x * z, 2.0 * y * z
        wx, wy, wz = 2.0 * w * x, 2.0 * w * y, 2.0 * w * z
        return Mat3(
            1.0 - yy - zz, xy - wz, xz + wy,
            xy + wz, 1.0 - xx - zz, yz - wx,
            xz - wy, yz + wx, 1.0 - xx - yy,
        )  # fmt: skip

    @staticmethod
    def exp(v: Vec3) -> Quaternion:
        """The rotation by the angle `|v|` about `v`."""
        square = v.dot(v)
        s = _half_sinc(square)
        return Quaternion(_half_cosine(square), v.x * s, v.y * s, v.z * s)

    def log(self) -> Vec3:
        """The rotation vector of a unit quaternion, of length at most pi."""
        sign = jnp.where(self.w < 0.0, -1.0, 1.0)
        w, v = self.w * sign, self.vector * sign
        square = v.dot(v)
        small = square < 1e-8
        length = jnp.sqrt(jnp.where(small, 1.0, square))
        safe_w = jnp.where(small, w, 1.0)
        ratio = square / (safe_w * safe_w)
        series = (2.0 - ratio * (2.0 / 3.0 - ratio * (2.0 / 5.0))) / safe_w
        return v * jnp.where(small, series, 2.0 * jnp.arctan2(length, w) / length)

    @staticmethod
    def from_matrix(r: Mat3) -> Quaternion:
        """The quaternion of a rotation matrix with `w >= 0`, by the largest of its four components."""
        squares = (
            1.0 + r.xx + r.yy + r.zz,
            1.0 + r.xx - r.yy - r.zz,
            1.0 - r.xx + r.yy - r.zz,
            1.0 - r.xx - r.yy + r.zz,
        )
        a, b, c = r.zy - r.yz, r.xz - r.zx, r.yx - r.xy
        d, e, f = r.yx + r.xy, r.xz + r.zx, r.zy + r.yz
        numerators = ((None, a, b, c), (a, None, d, e), (b, d, None, f), (c, e, f, None))
        largest = jnp.argmax(jnp.stack(jnp.broadcast_arrays(*squares)), axis=0)
        components: list[Scalar] = [0.0] * 4
        for k, (square, row) in enumerate(zip(squares, numerators, strict=True)):
            chosen = largest == k
            root = jnp.sqrt(jnp.where(chosen, square, 1.0))
            for j, numerator in enumerate(row):
                value = 0.5 * root if numerator is None else 0.5 * numerator / root
                components[j] = jnp.where(chosen, value, components[j])
        sign = jnp.where(components[0] < 0.0, -1.0, 1.0)
        return Quaternion(*(component * sign for component in components))


def _analytic(coefficients: tuple[float, ...], near: float, exact: Callable) -> Callable[[Scalar], Scalar]:
    """A function of a squared angle: a power series below `near`, `exact(angle)` above, smooth through zero.

    `near` is where the closed form, which cancels, has lost as many digits as the truncated series neglects.
    """

    def function(square: Scalar) -> Scalar:
        small = square < near
        s = jnp.where(small, square, 0.0)
        series = jnp.full_like(s, coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            series = coefficient + s * series
        return jnp.where(small, series, exact(jnp.sqrt(jnp.where(small, 1.0, square))))

    return function


def _taylor(first: int, terms: int) -> tuple[float, ...]:
    """`1/first!, -1/(first+2)!, ...`"""
    return tuple((-1.0) ** k / math.factorial(first + 2 * k) for k in range(terms))


_half_sinc = _analytic(  # sin(a/2) / a
    tuple(0.5 * 0.25**k * c for k, c in enumerate(_taylor(1, 5))), 1e-2, lambda angle: jnp.sin(0.5 * angle) / angle
)
_half_cosine = _analytic(  # cos(a/2)
    tuple(0.25**k * c for k, c in enumerate(_taylor(0, 6))), 1e-2, lambda angle: jnp.cos(0.5 * angle)
)
_versine = _analytic(  # (1 - cos a) / a^2
    _taylor(2, 6), 1e-1, lambda angle: 2.0 * (jnp.sin(0.5 * angle) / angle) ** 2
)
_cubic = _analytic(  # (a - sin a) / a^3
    _taylor(3, 9), 1.0, lambda angle: (angle - jnp.sin(angle)) / angle**3
)
_cotangent = _analytic(  # (1 - (a/2) cot(a/2)) / a^2, coefficients |B_2k| / (2k)!
    (1 / 12, 1 / 720, 1 / 30240, 1 / 1209600, 1 / 47900160, 5.284190138687493e-10, 1.3382536530684679e-11),
    0.25,
    lambda angle: (1.0 - 0.5 * angle * jnp.cos(0.5 * angle) / jnp.sin(0.5 * angle)) / angle**2,
)


def exp_translation(v: Vec3, u: Vec3) -> Vec3:
    """The translation of the rigid displacement `exp([v; u])`: `u + (1-cos)/a^2 v x u + (a-sin)/a^3 v x (v x u)`."""
    square = v.dot(v)
    vu = v.cross(u)
    return u + vu * _versine(square) + v.cross(vu) * _cubic(square)


def exp_jacobian(v: Vec3, change: Vec3, u: Vec3) -> tuple[Mat3, Vec3]:
    """`J = 1 + (1-cos)/a^2 v~ + (a-sin)/a^3 v~ v~`, the angular velocity of `exp(v)` by the rate of `v`, in the
    parent's axes; and the rate of `J u` while `v` changes at the rate `change`, parallel to `u`."""
    square = v.dot(v)
    (versine, cubic), (versine_rate, cubic_rate) = jax.jvp(
        lambda s: (_versine(s), _cubic(s)), (square,), (2.0 * v.dot(change),)
    )
    along, vu = v * cubic, v.cross(u)
    x, y, z = v.x * versine, v.y * versine, v.z * versine
    xy, xz, yz = along.x * v.y, along.x * v.z, along.y * v.z
    xx, yy, zz = along.x * v.x, along.y * v.y, along.z * v.z
    jacobian = Mat3(
        1.0 - yy - zz, xy - z, xz + y,
        xy + z, 1.0 - xx - zz, yz - x,
        xz - y, yz + x, 1.0 - xx - yy,
    )  # fmt: skip
    return jacobian, vu * versine_rate + v.cross(vu) * cubic_rate + change.cross(vu) * cubic


def log_translation(v: Vec3, p: Vec3) -> Vec3:
    """The linear part of the twist whose exponential has rotation vector `v` and translation `p`."""
    vp = v.cross(p)
    return p - vp * 0.5 + v.cross(vp) * _cotangent(v.dot(v))
