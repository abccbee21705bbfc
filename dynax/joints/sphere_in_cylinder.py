"""A sphere in a cylinder: a ball joint whose centre slides along an axis (Featherstone 2008, section 8.10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from dynax.joints.base import AbstractJoint, Coordinates, frame_along, unit_vector
from dynax.joints.spherical import turn, turning, turning_velocity, uniform_rotation
from dynax.spatial import Force, Mat3, Motion, Quaternion, Scalar, Vec3


@dataclass(frozen=True, repr=False)
class SphereInCylinder(AbstractJoint):
    """Free rotation about a point that slides along `axis`, a line of the predecessor.

    `q = [d, qw, qx, qy, qz]`: the displacement [m] and the orientation; `v = [d', omega]`, `omega` in successor axes.
    `axis` is given in the body's axes at the identity. It closes a planar loop without redundant constraints.
    """

    nq: ClassVar[int] = 5
    nv: ClassVar[int] = 4
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)

    def __post_init__(self):
        object.__setattr__(self, "axis", unit_vector(self.axis, "SphereInCylinder: `axis`"))

    @property
    def frame(self) -> np.ndarray:
        return frame_along(self.axis)

    @property
    def canonical(self) -> SphereInCylinder:
        return SphereInCylinder()

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        zero = jnp.zeros_like(q[0])
        return Quaternion(*q[1:]).matrix(), Vec3(zero, zero, q[0])

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        axes = Quaternion(*q[1:]).matrix().rows  # those of the predecessor, in successor axes
        still, one = Vec3.zero(q[0]), jnp.ones_like(q[0])
        units = (Vec3(one, still.x, still.x), Vec3(still.x, one, still.x), Vec3(still.x, still.x, one))
        return (Motion(still, axes[2]), *(Motion(unit, still) for unit in units))

    def neutral(self) -> tuple[float, ...]:
        return (0.0, 1.0, 0.0, 0.0, 0.0)

    def rate(self, q: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        return (v[0], *turning(Quaternion(*q[1:]), Vec3(*v[1:])))

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        v = turning_velocity(Quaternion(*q[1:]), Quaternion(*rate[1:]))
        return rate[0], v.x, v.y, v.z

    def integrate(self, q: Coordinates, dv: Coordinates, parameters: Coordinates) -> Coordinates:
        return (q[0] + dv[0], *turn(Quaternion(*q[1:]), Vec3(*dv[1:])))

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        angular = (Quaternion(*q0[1:]).conjugate @ Quaternion(*q1[1:])).log()
        return q1[0] - q0[0], angular.x, angular.y, angular.z

    def bracket(self, a: Coordinates, b: Coordinates) -> Coordinates:
        c = Vec3(*a[1:]).cross(Vec3(*b[1:]))
        return jnp.zeros_like(a[0]), c.x, c.y, c.z

    def normalize(self, q: Coordinates) -> Coordinates:
        r = Quaternion(*q[1:]).normalized()
        return q[0], r.w, r.x, r.y, r.z

    def sample(self, uniform: Coordinates) -> Coordinates:
        return (uniform[0], *uniform_rotation(uniform[1:4]))

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        r = Quaternion.from_matrix(rotation)
        return translation.z, r.w, r.x, r.y, r.z

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        return translation.x, translation.y

    def complement(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Force, ...]:
        axes = Quaternion(*q[1:]).matrix().rows
        return tuple(Force(Vec3.zero(q[0]), axis) for axis in axes[:2])
