"""Three translations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dynax.joints.base import AbstractJoint, Coordinates, constant_columns
from dynax.joints.nearest import turn_error
from dynax.spatial import Mat3, Motion, Scalar, Vec3


@dataclass(frozen=True, repr=False)
class Translation(AbstractJoint):
    """Free translation with fixed orientation: `q = [x, y, z]` [m], `v` their rates."""

    nq: ClassVar[int] = 3
    nv: ClassVar[int] = 3

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        return Mat3.identity(q[0]), Vec3(*q)

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        return constant_columns((3, 4, 5))

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> None:
        return None

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        return translation.x, translation.y, translation.z

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        turn = turn_error(rotation)
        return turn.x, turn.y, turn.z
