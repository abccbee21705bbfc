"""Joints with one freedom that are screws along their axis: revolute, prismatic, helical (table 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jax import lax

from dynax.joints.base import AxisJoint, Coordinates, finite_number
from dynax.joints.nearest import angle_about_z, constant_forces, tilt_error, turn_error
from dynax.spatial import Force, Mat3, Motion, Scalar, Vec3
from dynax.spatial.cos_sin import cos_sin


@dataclass(frozen=True, repr=False)
class _Screw(AxisJoint):
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def _rates(self, parameters: Coordinates) -> tuple[Scalar, Scalar]:
        """How far one unit of the coordinate turns [rad] and moves [m]."""
        raise NotImplementedError

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        turn, slide = self._rates(parameters)
        zero, one = jnp.zeros_like(q[0]), jnp.ones_like(q[0])
        c, s = cos_sin(turn * q[0])
        return Mat3(c, -s, zero, s, c, zero, zero, zero, one), Vec3(zero, zero, slide * q[0])

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        turn, slide = self._rates(parameters)
        zero, one = jnp.zeros_like(q[0]), jnp.ones_like(q[0])
        return (Motion(Vec3(zero, zero, one * turn), Vec3(zero, zero, one * slide)),)

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> None:
        return None

    def complement(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Force, ...]:
        turn, slide = self._rates(parameters)
        zero, one = jnp.zeros_like(q[0]), jnp.ones_like(q[0])
        along = Force(Vec3(zero, zero, -one * slide), Vec3(zero, zero, one * turn))
        return (*constant_forces((0, 1, 3, 4)), along)


@dataclass(frozen=True, repr=False)
class Revolute(_Screw):
    """Rotation about `axis`: `q` is the angle [rad]."""

    @property
    def screw(self) -> tuple[float, float]:
        return (1.0, 0.0)

    def _rates(self, parameters: Coordinates) -> tuple[Scalar, Scalar]:
        return 1.0, 0.0

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        return (angle_about_z(rotation),)

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        shift = rotation.transpose_apply(translation)
        return (*tilt_error(rotation), shift.x, shift.y, shift.z)

    def sample(self, uniform: Coordinates) -> Coordinates:
        return (jnp.pi * uniform[0],)


@dataclass(frozen=True, repr=False)
class Prismatic(_Screw):
    """Translation along `axis`: `q` is the displacement [m]."""

    @property
    def screw(self) -> tuple[float, float]:
        return (0.0, 1.0)

    def _rates(self, parameters: Coordinates) -> tuple[Scalar, Scalar]:
        return 0.0, 1.0

    def complement(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Force, ...]:
        return constant_forces((0, 1, 3, 4, 2))

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        return (translation.z,)

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        turn = turn_error(rotation)
        aside = rotation.transpose_apply(Vec3(translation.x, translation.y, jnp.zeros_like(translation.z)))
        return turn.x, turn.y, aside.x, aside.y, turn.z


@dataclass(frozen=True, repr=False)
class Helical(_Screw):
    """A screw about `axis` that advances `pitch` [m/rad]: `q` is the angle [rad]; zero pitch is revolute."""

    pitch: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "pitch", finite_number(self.pitch, "Helical: `pitch`"))

    @property
    def screw(self) -> tuple[float, float]:
        return (1.0, self.pitch)

    @property
    def parameters(self) -> tuple[float, ...]:
        return (self.pitch,)

    def _rates(self, parameters: Coordinates) -> tuple[Scalar, Scalar]:
        return 1.0, parameters[0]

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        angle, pitch = angle_about_z(rotation), parameters[0]
        # The angle counts turns, which only the advance along the axis tells.
        screw = pitch != 0.0
        turns = jnp.round((translation.z / jnp.where(screw, pitch, 1.0) - angle) / (2.0 * jnp.pi))
        return (angle + 2.0 * jnp.pi * jnp.where(screw, lax.stop_gradient(turns), 0.0),)

    def sample(self, uniform: Coordinates) -> Coordinates:
        return (jnp.pi * uniform[0],)
