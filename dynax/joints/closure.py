"""What closes a loop: a condition on the pose of one frame (the successor) in another (the predecessor).

A joint closes a loop by the part of the pose error that its freedoms cannot take up, `AbstractJoint.gap`
(Featherstone 2008, section 8.3).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np

from dynax.joints.base import AbstractJoint, Coordinates, finite_number
from dynax.spatial import Mat3, Scalar, Vec3


class AbstractClosure(abc.ABC):
    """A condition on the relative pose of two frames. To write one's own, give `rows` and `error`.

    Subclasses are frozen, hashable dataclasses; numbers that vary continuously are `parameters`, leaves of the model.
    """

    #: How many conditions it makes.
    rows: int

    @property
    def frame(self) -> np.ndarray:
        """The canonical frame in the user's axes, as for joints."""
        return np.eye(3)

    @property
    def parameters(self) -> tuple[float, ...]:
        return ()

    @property
    def canonical(self) -> AbstractClosure:
        """The closure without its continuous parameters and axes."""
        return self

    @property
    def rheonomic(self) -> bool:
        """Whether `error` depends on time."""
        return False

    @abc.abstractmethod
    def error(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        """What vanishes where the loop is closed, one entry per row.

        `rotation` turns successor components into predecessor components, `translation` is the successor's origin in
        predecessor axes; all are components over any axes. Smooth near closure, its derivative of full rank.
        """


@dataclass(frozen=True)
class JointClosure(AbstractClosure):
    """A loop closed by a joint."""

    joint: AbstractJoint

    @property
    def rows(self) -> int:  # type: ignore[override]
        return 6 - self.joint.nv

    @property
    def frame(self) -> np.ndarray:
        return self.joint.frame

    @property
    def parameters(self) -> tuple[float, ...]:
        return tuple(float(p) for p in self.joint.parameters)

    @property
    def canonical(self) -> JointClosure:
        return JointClosure(self.joint.canonical)

    @property
    def rheonomic(self) -> bool:
        return self.joint.rheonomic

    def error(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        return self.joint.gap(rotation, translation, parameters, time)


@dataclass(frozen=True)
class Distance(AbstractClosure):
    """A massless rod with ball joints at both ends: the two origins stay `length` [m] apart."""

    rows = 1
    length: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "length", finite_number(self.length, "Distance: `length`"))
        if self.length <= 0.0:
            raise ValueError(f"Distance: `length` must be positive, got {self.length}; for none use Spherical()")

    @property
    def parameters(self) -> tuple[float, ...]:
        return (self.length,)

    @property
    def canonical(self) -> Distance:
        return Distance()

    def error(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        (length,) = parameters
        return ((translation.dot(translation) - length * length) * (0.5 / length),)
