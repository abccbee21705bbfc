"""Three intersecting hinges in a row: the Euler-angle sequences (section 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from dynax.joints.base import AbstractJoint, Coordinates
from dynax.spatial import Mat3, Motion, Quaternion, Scalar, Vec3
from dynax.spatial.cos_sin import cos_sin


@dataclass(frozen=True, repr=False)
class Gimbal(AbstractJoint):
    """Rotations about three axes in turn, each carried by the one before: `q` the angles [rad], `v` their rates.

    **Arguments:**

    - `sequence`: any of the twelve Euler-angle sequences, such as `"zyx"` (yaw, pitch, roll: `Rz Ry Rx`) or `"zxz"`.

    The columns lose a rank where the first and third axes align: at a second angle of 0 or pi when the sequence repeats
    an axis, else of +-pi/2. The model is invalid there and ill-conditioned nearby; `Spherical` has no such place.
    """

    nq: ClassVar[int] = 3
    nv: ClassVar[int] = 3
    sequence: str = "zyx"

    def __post_init__(self):
        s = self.sequence
        if len(s) != 3 or set(s) - set("xyz") or s[0] == s[1] or s[1] == s[2]:
            raise ValueError(f"Gimbal: `sequence` must be three of x, y, z with no axis twice in a row, got {s!r}")

    def _turns(self, q: Coordinates) -> list[Mat3]:
        turns = []
        for axis, angle in zip(self.sequence, q, strict=True):
            (c, s), zero = cos_sin(0.5 * angle), jnp.zeros_like(angle)
            turns.append(Quaternion(c, *(s if axis == other else zero for other in "xyz")).matrix())
        return turns

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        first, second, third = self._turns(q)
        return first @ second @ third, Vec3.zero(q[0])

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        _, second, third = self._turns(q)
        one, still = jnp.ones_like(q[0]), Vec3.zero(q[0])
        axes = [Vec3(*(one if axis == other else still.x for other in "xyz")) for axis in self.sequence]
        first_axis = third.transpose_apply(second.transpose_apply(axes[0]))
        return tuple(Motion(a, still) for a in (first_axis, third.transpose_apply(axes[1]), axes[2]))

    def determinant(self, q: Coordinates) -> Scalar:
        """That of the columns: zero exactly where a freedom is lost, so a program can watch how near that is."""
        repeats = self.sequence[0] == self.sequence[2]
        handed = 1.0 if self.sequence[:2] in ("xy", "yz", "zx") else -1.0
        return -jnp.sin(q[1]) if repeats else handed * jnp.cos(q[1])

    def sample(self, uniform: Coordinates) -> Coordinates:
        # A second angle well inside the chart: centred on pi/2 for a repeated axis, on zero otherwise.
        centre = 0.5 * jnp.pi if self.sequence[0] == self.sequence[2] else 0.0
        return jnp.pi * uniform[0], centre + 1.2 * uniform[1], jnp.pi * uniform[2]
