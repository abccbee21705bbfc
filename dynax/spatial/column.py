"""One motion column of a joint, in the form the recursions want it.

A joint with one freedom is a screw along its body's z axis, whose zero part is structurally absent; every other column
is a general motion. Both answer the same four questions, so a step of a sweep is written once.
"""

from __future__ import annotations

from dynax.spatial.components import Scalar, Vec3, component_dataclass
from dynax.spatial.inertia import ArticulatedInertia, RigidInertia
from dynax.spatial.motion import Force, Motion


@component_dataclass
class ScrewColumn:
    """`(turn z, slide z)`; `turn = None` stands for exactly one and `slide = None` for exactly zero (a revolute)."""

    z: Vec3
    turn: Scalar | None
    slide: Scalar | None

    def image(self, inertia: ArticulatedInertia) -> Force:
        """`P s`."""
        if self.turn is None or self.slide is None:
            return Force(inertia.inertia @ self.z, inertia.coupling.transpose_apply(self.z))
        a, b = self.z * self.turn, self.z * self.slide
        return inertia @ Motion(a, b)

    def dot(self, force: Force) -> Scalar:
        """`s . f`."""
        if self.turn is None or self.slide is None:
            return self.z.dot(force.angular)
        return self.turn * self.z.dot(force.angular) + self.slide * self.z.dot(force.linear)

    def add(self, motion: Motion, rate: Scalar) -> Motion:
        """`m + s rate`."""
        if self.turn is None or self.slide is None:
            return Motion(motion.angular + self.z * rate, motion.linear)
        return Motion(motion.angular + self.z * (self.turn * rate), motion.linear + self.z * (self.slide * rate))

    def motion(self) -> Motion:
        if self.turn is None or self.slide is None:
            return Motion(self.z, Vec3.zero(self.z.x))
        return Motion(self.z * self.turn, self.z * self.slide)


@component_dataclass
class MotionColumn:
    """A general motion column."""

    value: Motion

    def image(self, inertia: ArticulatedInertia | RigidInertia) -> Force:
        return inertia @ self.value

    def dot(self, force: Force) -> Scalar:
        return self.value.dot(force)

    def add(self, motion: Motion, rate: Scalar) -> Motion:
        return motion + self.value * rate

    def motion(self) -> Motion:
        return self.value


Column = ScrewColumn | MotionColumn
