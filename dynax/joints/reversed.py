"""Any joint with predecessor and successor exchanged (table 4.2, with the star that the scan lost)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynax.joints.base import AbstractJoint, Coordinates, JointMotion
from dynax.spatial import Force, Mat3, Motion, Scalar, Vec3


@dataclass(frozen=True, repr=False)
class Reversed(AbstractJoint):
    """`joint` with the opposite polarity: the same coordinates, the inverse pose.

    For a screw this only changes the sign of the motion; for a joint whose columns move with the coordinates, such as
    a rack and pinion, it is another mechanism.
    """

    joint: AbstractJoint

    def __post_init__(self):
        if not isinstance(self.joint, AbstractJoint):
            raise TypeError(f"Reversed: `joint` must be a joint, for example Revolute((0, 0, 1)), got {self.joint!r}")

    @property
    def nq(self) -> int:  # type: ignore[override]
        return self.joint.nq

    @property
    def nv(self) -> int:  # type: ignore[override]
        return self.joint.nv

    @property
    def rheonomic(self) -> bool:  # type: ignore[override]
        return self.joint.rheonomic

    @property
    def holonomic(self) -> bool:  # type: ignore[override]
        return self.joint.holonomic

    @property
    def screw(self) -> tuple[float, float] | None:
        screw = self.joint.screw
        return None if screw is None else (-screw[0], -screw[1])

    @property
    def frame(self) -> np.ndarray:
        return self.joint.frame

    @property
    def parameters(self) -> tuple[float, ...]:
        return self.joint.parameters

    @property
    def canonical(self) -> Reversed:
        return Reversed(self.joint.canonical)

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        rotation, translation = self.joint.pose(q, parameters, time)
        return rotation.T, -rotation.transpose_apply(translation)

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        pose = self.joint.pose(q, parameters, time)
        return tuple(_exchange(*pose, column) for column in self.joint.columns(q, parameters, time))

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> Motion | None:
        bias = self.joint.bias(q, v, parameters, time)
        return None if bias is None else _exchange(*self.joint.pose(q, parameters, time), bias)

    def motion(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> JointMotion:
        inner = self.joint.motion(q, v, parameters, time)
        pose = inner.rotation, inner.translation
        return JointMotion(
            inner.rotation.T,
            -inner.rotation.transpose_apply(inner.translation),
            tuple(_exchange(*pose, column) for column in inner.columns),
            _exchange(*pose, inner.velocity),
            None if inner.bias is None else _exchange(*pose, inner.bias),
        )

    def neutral(self) -> tuple[float, ...]:
        return self.joint.neutral()

    def rate(self, q: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        return self.joint.rate(q, v, parameters)

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        return self.joint.tangent(q, rate)

    def integrate(self, q: Coordinates, dv: Coordinates, parameters: Coordinates) -> Coordinates:
        return self.joint.integrate(q, dv, parameters)

    @property
    def adds(self) -> bool:
        return self.joint.adds

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        return self.joint.difference(q0, q1)

    def difference_rate(self, q0: Coordinates, q1: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        return self.joint.difference_rate(q0, q1, v, parameters)

    def carried(self, q: Coordinates, dv: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        return self.joint.carried(q, dv, v, parameters)

    def integrate_rate(
        self, q: Coordinates, dv: Coordinates, change: Coordinates, parameters: Coordinates
    ) -> Coordinates:
        return self.joint.integrate_rate(q, dv, change, parameters)

    def bracket(self, a: Coordinates, b: Coordinates) -> Coordinates:
        return self.joint.bracket(a, b)

    def normalize(self, q: Coordinates) -> Coordinates:
        return self.joint.normalize(q)

    def sample(self, uniform: Coordinates) -> Coordinates:
        return self.joint.sample(uniform)

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        return self.joint.nearest(rotation.T, -rotation.transpose_apply(translation), parameters, time)

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        return self.joint.gap(rotation.T, -rotation.transpose_apply(translation), parameters, time)

    def complement(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Force, ...]:
        rotation, translation = self.joint.pose(q, parameters, time)
        borne = self.joint.complement(q, parameters, time)
        return tuple(-force.rotate(rotation).shift_to_parent(translation) for force in borne)

    def __repr__(self) -> str:
        return f"Reversed({self.joint!r})"


def _exchange(rotation: Mat3, translation: Vec3, motion: Motion) -> Motion:
    """`-p_X_s m`: the opposite motion, in predecessor axes about the predecessor's origin."""
    return -motion.rotate(rotation).shift(-translation)
