"""The cylindrical joint (table 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from dynax.joints.base import AxisJoint, Coordinates, constant_columns
from dynax.joints.nearest import angle_about_z, tilt_error
from dynax.spatial import Mat3, Motion, Scalar, Vec3
from dynax.spatial.cos_sin import cos_sin


@dataclass(frozen=True, repr=False)
class Cylindrical(AxisJoint):
    """Rotation about and translation along `axis`: `q = [angle, displacement]`, `v` their rates."""

    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        zero = jnp.zeros_like(q[0])
        return Mat3.identity(q[0]).rotate_z(*cos_sin(q[0])), Vec3(zero, zero, q[1])

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        return constant_columns((2, 5))

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> None:
        return None

    def sample(self, uniform: Coordinates) -> Coordinates:
        return jnp.pi * uniform[0], uniform[1]

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        return angle_about_z(rotation), translation.z

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        aside = rotation.transpose_apply(Vec3(translation.x, translation.y, jnp.zeros_like(translation.z)))
        return (*tilt_error(rotation), aside.x, aside.y)
