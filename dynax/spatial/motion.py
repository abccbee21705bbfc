"""Spatial motions and forces: two different spaces, so two different types (Featherstone 2008, sections 2.1 to 2.9).

A motion (velocity, acceleration, joint column) and a force (wrench, momentum) are both `[angular; linear]`, but only a
motion and a force can be paired: their product is power. Adding one to the other, or pairing two of a kind, raises.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from dynax.spatial.components import Mat3, Scalar, Vec3, component_dataclass


def _refuse(operation: str, left: object, right: object) -> TypeError:
    return TypeError(
        f"cannot {operation} a {type(left).__name__} and a {type(right).__name__}: "
        "motions add to motions, forces to forces, and only a Motion and a Force have a product (power)"
    )


def _six(a: ArrayLike) -> jax.Array:
    array = jnp.asarray(a)
    if array.ndim == 0 or array.shape[-1] != 6:
        raise ValueError(f"a spatial vector has 6 entries [angular; linear] on its last axis, got shape {array.shape}")
    return array


class _SpatialVector:
    """What motions and forces share: a linear space over two 3-vectors."""

    angular: Vec3
    linear: Vec3

    def __init__(self, angular: Vec3, linear: Vec3):
        raise NotImplementedError

    @classmethod
    def from_array(cls, a: ArrayLike):
        """From an array whose last axis is `[angular; linear]`, length 6."""
        a = _six(a)
        return cls(Vec3.from_array(a[..., :3]), Vec3.from_array(a[..., 3:]))

    @classmethod
    def zero(cls, like: Scalar = 0.0):
        return cls(Vec3.zero(like), Vec3.zero(like))

    @property
    def array(self) -> jax.Array:
        """The vector `[angular; linear]` on a new last axis of length 6."""
        return jnp.concatenate([self.angular.array, self.linear.array], axis=-1)

    def __add__(self, other):
        if type(other) is not type(self):
            raise _refuse("add", self, other)
        return type(self)(self.angular + other.angular, self.linear + other.linear)

    def __sub__(self, other):
        if type(other) is not type(self):
            raise _refuse("subtract", self, other)
        return type(self)(self.angular - other.angular, self.linear - other.linear)

    def __neg__(self):
        return type(self)(-self.angular, -self.linear)

    def __mul__(self, scale: Scalar):
        if isinstance(scale, _SpatialVector):
            raise _refuse("multiply", self, scale)
        return type(self)(self.angular * scale, self.linear * scale)

    __rmul__ = __mul__

    def __truediv__(self, scale: Scalar):
        return type(self)(self.angular / scale, self.linear / scale)


@component_dataclass
class Motion(_SpatialVector):
    """A spatial motion `[angular; linear]`: the angular part and the linear part of the body point at the origin."""

    angular: Vec3
    linear: Vec3

    def dot(self, force: Force) -> Scalar:
        """The scalar product `m . f`, power when `m` is a velocity (eq. 2.12)."""
        if not isinstance(force, Force):
            raise _refuse("pair", self, force)
        return self.angular.dot(force.angular) + self.linear.dot(force.linear)

    def cross(self, other):
        """`v x m` for a motion (eq. 2.33) and `v x* f` for a force (eq. 2.34)."""
        if isinstance(other, Motion):
            return Motion(
                self.angular.cross(other.angular), self.angular.cross(other.linear) + self.linear.cross(other.angular)
            )
        if isinstance(other, Force):
            return Force(
                self.angular.cross(other.angular) + self.linear.cross(other.linear), self.angular.cross(other.linear)
            )
        raise _refuse("cross", self, other)

    def shift(self, offset: Vec3) -> Motion:
        """The same motion about an origin displaced by `offset`, axes unchanged: the operator `phi*` of Jain."""
        return Motion(self.angular, self.linear + self.angular.cross(offset))

    def rotate(self, r: Mat3) -> Motion:
        """`r @ m`, both halves rotated."""
        return Motion(r @ self.angular, r @ self.linear)

    def rotate_back(self, r: Mat3) -> Motion:
        """`r.T @ m`, both halves rotated back."""
        return Motion(r.transpose_apply(self.angular), r.transpose_apply(self.linear))


@component_dataclass
class Force(_SpatialVector):
    """A spatial force `[moment; force]`: a wrench or a momentum, the moment taken about the origin."""

    angular: Vec3
    linear: Vec3

    def dot(self, motion: Motion) -> Scalar:
        """The scalar product `f . m` (eq. 2.12)."""
        if not isinstance(motion, Motion):
            raise _refuse("pair", self, motion)
        return motion.dot(self)

    def cross(self, other):
        raise _refuse("cross", self, other)

    def shift(self, offset: Vec3) -> Force:
        """The same force about an origin displaced by `offset`, axes unchanged."""
        return Force(self.angular - offset.cross(self.linear), self.linear)

    def shift_to_parent(self, offset: Vec3) -> Force:
        """The same force about the origin `offset` leads away from: the operator `phi` of Jain."""
        return Force(self.angular + offset.cross(self.linear), self.linear)

    def rotate(self, r: Mat3) -> Force:
        return Force(r @ self.angular, r @ self.linear)

    def rotate_back(self, r: Mat3) -> Force:
        return Force(r.transpose_apply(self.angular), r.transpose_apply(self.linear))


def classical_acceleration(acceleration: Motion, velocity: Motion) -> Motion:
    """The classical acceleration `[w_dot; r_ddot]` of the origin from the spatial one (Featherstone 2008, eq. 2.48).

    A uniformly rotating body has zero spatial acceleration although its points accelerate.
    """
    return Motion(acceleration.angular, acceleration.linear + velocity.angular.cross(velocity.linear))


def spatial_acceleration(classical: Motion, velocity: Motion) -> Motion:
    """The spatial acceleration from the classical one; the inverse of `classical_acceleration`."""
    return Motion(classical.angular, classical.linear - velocity.angular.cross(velocity.linear))
