"""The universal joint `Rz(a) Ry(b)` (Jain, table 2.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from dynax.joints.base import AbstractJoint, Coordinates, check_perpendicular, frame_along, unit_vector
from dynax.joints.nearest import constant_forces
from dynax.spatial import Force, Mat3, Motion, Scalar, Vec3
from dynax.spatial.cos_sin import cos_sin


@dataclass(frozen=True, repr=False)
class Universal(AbstractJoint):
    """Rotation about `first`, then about `second`: `q = [a, b]`, the two angles [rad], `v` their rates.

    The two axes are given in the body's axes at zero angles and must be perpendicular.
    """

    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2
    first: tuple[float, float, float] = (0.0, 0.0, 1.0)
    second: tuple[float, float, float] = (0.0, 1.0, 0.0)

    def __post_init__(self):
        for name in ("first", "second"):
            object.__setattr__(self, name, unit_vector(getattr(self, name), f"Universal: `{name}`"))
        check_perpendicular(self, "first", "second")

    @property
    def frame(self) -> np.ndarray:
        return frame_along(self.first, np.cross(self.second, self.first))

    @property
    def canonical(self) -> Universal:
        return Universal()

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        (ca, sa), (cb, sb) = map(cos_sin, q)
        zero = jnp.zeros_like(q[0])
        return Mat3(ca * cb, -sa, ca * sb, sa * cb, ca, sa * sb, -sb, zero, cb), Vec3(zero, zero, zero)

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        zero, one = jnp.zeros_like(q[0]), jnp.ones_like(q[0])
        (c, s), still = cos_sin(q[1]), Vec3(zero, zero, zero)
        return Motion(Vec3(-s, zero, c), still), Motion(Vec3(zero, one, zero), still)

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> Motion:
        (c, s), zero, product = cos_sin(q[1]), jnp.zeros_like(q[0]), v[0] * v[1]
        return Motion(Vec3(-c * product, zero, -s * product), Vec3(zero, zero, zero))

    def sample(self, uniform: Coordinates) -> Coordinates:
        return jnp.pi * uniform[0], jnp.pi * uniform[1]

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        return jnp.arctan2(-rotation.xy, rotation.yy), jnp.arctan2(-rotation.zx, rotation.zz)

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        shift = rotation.transpose_apply(translation)
        return rotation.zy, shift.x, shift.y, shift.z

    def complement(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Force, ...]:
        (c, s), still = cos_sin(q[1]), Vec3.zero(q[1])
        moment = Force(Vec3(c, still.y, s), still)
        return (moment, *constant_forces((3, 4, 5)))
