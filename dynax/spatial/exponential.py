"""The exponential of turns and displacements, its derivative and its inverse, for one rotation vector `v`.

With `a = |v|` and `J(v) = 1 + (1-cos)/a^2 v~ + (a-sin)/a^3 v~ v~`, the angular velocity of `exp(v)` by the rate of `v`
is `J` in the parent's axes and `J^T` in the body's, and the translation of `exp([v; u])` is `J u`. The logarithm has
`J^-1 = 1 - v~/2 + (1 - (a/2) cot(a/2))/a^2 v~ v~` (Barfoot 2024, State Estimation for Robotics, section 8.1.5).
Rates of `J u` and `J^-1 p` are the derivatives of these, with `v x (v x u) = v (v . u) - u a^2`.
"""

from __future__ import annotations

from typing import NamedTuple

from dynax.spatial.components import Mat3, Scalar, Vec3
from dynax.spatial.quaternion import Quaternion
from dynax.spatial.stumpff import stumpff


class Exponential(NamedTuple):
    """What the functions of one rotation vector have in common."""

    v: Vec3
    c: tuple[Scalar, ...]
    """Stumpff's functions at half the angle: `cos(a/2)`, `sin(a/2) / (a/2)` and so on; six for rates."""

    @staticmethod
    def of(v: Vec3, count: int = 4) -> Exponential:
        return Exponential(v, stumpff(0.25 * v.dot(v), count))

    def quaternion(self) -> Quaternion:
        """`exp(v)`."""
        half = self.v * (0.5 * self.c[1])
        return Quaternion(self.c[0], half.x, half.y, half.z)

    def translation(self, u: Vec3) -> Vec3:
        """`J u`."""
        versine, cubic = self._whole()
        vu = self.v.cross(u)
        return u + vu * versine + self.v.cross(vu) * cubic

    def jacobian(self) -> Mat3:
        """`J`."""
        versine, cubic = self._whole()
        return _made(self.v, versine, cubic)

    def jacobian_rate(self, change: Vec3, u: Vec3) -> Vec3:
        """The rate of `J u` while `v` changes."""
        c, (versine, cubic) = self.c, self._whole()
        fourth, fifth = 0.125 * c[3] * (1.0 + c[1]), 0.0625 * (c[4] + c[5] + c[2] * c[3])
        slopes = fourth - 0.5 * cubic, 1.5 * fifth - 0.5 * fourth
        return _rate(self.v, change, u, (versine, cubic), slopes)

    def log_translation(self, p: Vec3) -> Vec3:
        """`J^-1 p`."""
        vp = self.v.cross(p)
        return p - vp * 0.5 + self.v.cross(vp) * self._cotangent()

    def log_jacobian(self) -> Mat3:
        """`J^-1`."""
        return _made(self.v, -0.5, self._cotangent())

    def log_jacobian_rate(self, change: Vec3, p: Vec3) -> Vec3:
        """The rate of `J^-1 p` while `v` changes."""
        c = self.c
        apart, steep = c[2] - c[3], c[4] - 1.5 * c[5] + 0.5 * (c[4] - c[3])
        slope = 0.0625 * (steep + 0.5 * apart * apart / c[1]) / c[1]
        return _rate(self.v, change, p, (-0.5, 0.25 * apart / c[1]), (None, slope))

    def _whole(self) -> tuple[Scalar, Scalar]:
        """`(1 - cos a) / a^2` and `(a - sin a) / a^3`: `c_2` and `c_3` at the whole angle, by doubling."""
        c = self.c
        return 0.5 * c[1] * c[1], 0.25 * (c[2] + c[0] * c[3])

    def _cotangent(self) -> Scalar:
        """`(1 - (a/2) cot(a/2)) / a^2`, since `c_1 - c_0 = x (c_2 - c_3)`."""
        return 0.25 * (self.c[2] - self.c[3]) / self.c[1]


def _made(v: Vec3, first: Scalar, second: Scalar) -> Mat3:
    """`1 + first v~ + second v~ v~`."""
    along = v * second
    x, y, z = v.x * first, v.y * first, v.z * first
    xy, xz, yz = along.x * v.y, along.x * v.z, along.y * v.z
    xx, yy, zz = along.x * v.x, along.y * v.y, along.z * v.z
    return Mat3(
        1.0 - yy - zz, xy - z, xz + y,
        xy + z, 1.0 - xx - zz, yz - x,
        xz - y, yz + x, 1.0 - xx - yy,
    )  # fmt: skip


def _rate(v: Vec3, change: Vec3, u: Vec3, factors: tuple, slopes: tuple) -> Vec3:
    """The rate of `u + first v x u + second v x (v x u)`, where `slopes` are those of the factors by `a^2`."""
    (first, second), (slope, steep) = factors, slopes
    vu = v.cross(u)
    along = v.cross(vu) * steep - u * second
    if slope is not None:
        along = along + vu * slope
    return (
        along * (2.0 * v.dot(change))
        + (v * second) * u.dot(change)
        + change * (second * v.dot(u))
        + change.cross(u * first)
    )
