"""No freedom at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from dynax.joints.base import AbstractJoint, Coordinates, JointMotion
from dynax.joints.nearest import turn_error
from dynax.spatial import Mat3, Motion, Scalar, Vec3


@dataclass(frozen=True, repr=False)
class Weld(AbstractJoint):
    """A rigid connection: the builder merges the body into its parent and keeps it as a frame of its name."""

    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        zero = jnp.zeros_like(time)
        return Mat3.identity(zero), Vec3.zero(zero)

    def motion(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> JointMotion:
        rotation, translation = self.pose(q, parameters, time)
        return JointMotion(rotation, translation, (), Motion.zero(time), None)

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        turn, shift = turn_error(rotation), rotation.transpose_apply(translation)
        return turn.x, turn.y, turn.z, shift.x, shift.y, shift.z
