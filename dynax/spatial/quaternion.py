"""Unit quaternions, `w, x, y, z`, body to parent, by components; exponential and logarithm with exact derivatives at 0.

What divides by an angle is made of `stumpff`'s functions, so values and derivatives of any order are finite everywhere.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from dynax.spatial.components import Mat3, Scalar, Vec3, component_dataclass, stack
from dynax.spatial.stumpff import stumpff


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
        c = stumpff(0.25 * v.dot(v), 4)
        s = 0.5 * c[1]
        return Quaternion(c[0], v.x * s, v.y * s, v.z * s)

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
