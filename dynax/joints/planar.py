"""The planar joint (table 4.1 with the errata of example 4.5: velocity variables in successor axes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from dynax.joints.base import AbstractJoint, Coordinates, constant_columns, frame_along, unit_vector
from dynax.joints.nearest import angle_about_z, tilt_error
from dynax.spatial import Exponential, Mat3, Motion, Scalar, Vec3
from dynax.spatial.cos_sin import cos_sin


@dataclass(frozen=True, repr=False)
class Planar(AbstractJoint):
    """Motion in the plane with the given `normal`.

    `q = [angle, x, y]` with the position in predecessor axes, so that a body that spins far away has bounded rates;
    `v = [omega, vx, vy]`, the velocity of the successor's origin in its own axes. The x and y axes are those of a
    right-handed frame whose z is `normal`; for `normal = (0, 0, 1)` they are the body's own.
    """

    nq: ClassVar[int] = 3
    nv: ClassVar[int] = 3
    turning: ClassVar[tuple[int, ...]] = (-1, -1, 0, 1, 2, -1)
    normal: tuple[float, float, float] = (0.0, 0.0, 1.0)

    def __post_init__(self):
        object.__setattr__(self, "normal", unit_vector(self.normal, "Planar: `normal`"))

    @property
    def frame(self) -> np.ndarray:
        return frame_along(self.normal)

    @property
    def canonical(self) -> Planar:
        return Planar()

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        angle, x, y = q
        return Mat3.identity(angle).rotate_z(*cos_sin(angle)), Vec3(x, y, jnp.zeros_like(x))

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        return constant_columns((2, 3, 4))

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> None:
        return None

    def rate(self, q: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        c, s = cos_sin(q[0])
        return v[0], c * v[1] - s * v[2], s * v[1] + c * v[2]

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        c, s = cos_sin(q[0])
        return rate[0], c * rate[1] + s * rate[2], c * rate[2] - s * rate[1]

    def integrate(self, q: Coordinates, dv: Coordinates, parameters: Coordinates) -> Coordinates:
        angle, x, y = q
        zero = jnp.zeros_like(angle)
        step = Exponential.of(Vec3(zero, zero, dv[0])).translation(Vec3(dv[1], dv[2], zero))
        c, s = cos_sin(angle)
        return angle + dv[0], x + c * step.x - s * step.y, y + s * step.x + c * step.y

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        """Turns count, as they do for a revolute joint; after whole turns, a body that moves evenly is back in place.

        So no tangent vector of whole turns leads elsewhere, and near them the linear part grows without bound.
        """
        angle, x, y = (b - a for a, b in zip(q0, q1, strict=True))
        c, s = cos_sin(q0[0])
        zero = jnp.zeros_like(angle)
        offset = Vec3(c * x + s * y, c * y - s * x, zero)
        step = Exponential.of(Vec3(zero, zero, angle)).log_translation(offset)
        return angle, step.x, step.y

    def bracket(self, a: Coordinates, b: Coordinates) -> Coordinates:
        return jnp.zeros_like(a[0]), a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]

    def sample(self, uniform: Coordinates) -> Coordinates:
        return jnp.pi * uniform[0], uniform[1], uniform[2]

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        return angle_about_z(rotation), translation.x, translation.y

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        return (*tilt_error(rotation), translation.z)
