"""Rotations and poses as a user holds them: arrays with last axes 3x3 and 3, acting on everything that has a frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.spatial.components import Mat3, Vec3, register_fields
from dynax.spatial.exponential import Exponential
from dynax.spatial.inertia import ArticulatedInertia, RigidInertia, SpatialInertia
from dynax.spatial.motion import Force, Motion
from dynax.spatial.quaternion import Quaternion


@register_fields
@dataclass(frozen=True, eq=False)
class Rotation:
    """A rotation that turns body components into parent components.

    **Arguments:**

    - `matrix`: shape `(..., 3, 3)`.
    """

    matrix: Any

    @staticmethod
    def identity() -> Rotation:
        return Rotation(np.eye(3))

    @staticmethod
    def exp(vector: ArrayLike) -> Rotation:
        """The rotation by the angle `|vector|` [rad] about `vector`, shape `(..., 3)`; smooth at zero."""
        return Rotation(Quaternion.exp(Vec3.from_array(vector)).matrix().array)

    @staticmethod
    def from_quaternion(wxyz: ArrayLike) -> Rotation:
        """From a unit quaternion `w, x, y, z`, shape `(..., 4)`."""
        return Rotation(Quaternion.from_array(wxyz).matrix().array)

    @staticmethod
    def from_axis_angle(axis: ArrayLike, angle: ArrayLike) -> Rotation:
        """The rotation by `angle` [rad] about the unit vector `axis`, shape `(..., 3)`."""
        return Rotation.exp(jnp.asarray(axis) * jnp.asarray(angle)[..., None])

    @staticmethod
    def from_rpy(roll: ArrayLike, pitch: ArrayLike, yaw: ArrayLike) -> Rotation:
        """From the fixed-axis angles of URDF [rad]: `Rz(yaw) Ry(pitch) Rx(roll)`."""
        half = (0.5 * jnp.asarray(angle) for angle in (roll, pitch, yaw))
        (cr, sr), (cp, sp), (cy, sy) = ((jnp.cos(a), jnp.sin(a)) for a in half)
        zero = jnp.zeros_like(cr)
        x, y, z = Quaternion(cr, sr, zero, zero), Quaternion(cp, zero, sp, zero), Quaternion(cy, zero, zero, sy)
        return Rotation((z @ y @ x).matrix().array)

    def log(self) -> jax.Array:
        """The rotation vector, of length at most pi, shape `(..., 3)`."""
        return Quaternion.from_matrix(self._components).log().array

    def quaternion(self) -> jax.Array:
        """The unit quaternion `w, x, y, z` with `w >= 0`, shape `(..., 4)`."""
        return Quaternion.from_matrix(self._components).array

    @property
    def inverse(self) -> Rotation:
        return Rotation(self.matrix.swapaxes(-1, -2))

    @property
    def _components(self) -> Mat3:
        return Mat3.from_array(self.matrix)

    def __matmul__(self, other: Any) -> Any:
        """Compose with a `Rotation`, or turn points `(..., 3)`, a `Motion`, a `Force` or an inertia."""
        if isinstance(other, Rotation):
            return Rotation(self.matrix @ other.matrix)
        if isinstance(other, Motion | Force | RigidInertia | ArticulatedInertia):
            return other.rotate(self._components)
        _refuse_unknown("turn", other)
        return (self._components @ Vec3.from_array(other)).array


@register_fields
@dataclass(frozen=True, eq=False)
class Transform:
    """The pose of a frame in another: it turns coordinates in the first into coordinates in the second.

    **Arguments:**

    - `rotation`: shape `(..., 3, 3)`, or a `Rotation`.
    - `translation`: the origin of the first frame in the second [m], shape `(..., 3)`.

    `a @ b` composes, `a @ x` moves points `(..., 3)`, `Motion`, `Force`, `RigidInertia`, `ArticulatedInertia` and
    `SpatialInertia`; `a.inverse_apply(x)` undoes it without forming the inverse.
    """

    rotation: Any = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    translation: Any = (0.0, 0.0, 0.0)

    def __post_init__(self):
        rotation = self.rotation.matrix if isinstance(self.rotation, Rotation) else self.rotation
        for name, value in (("rotation", rotation), ("translation", self.translation)):
            object.__setattr__(self, name, _array(value))

    @staticmethod
    def identity() -> Transform:
        return Transform()

    @staticmethod
    def from_translation(translation: ArrayLike) -> Transform:
        return Transform(np.eye(3), translation)

    @staticmethod
    def exp(twist: Motion) -> Transform:
        """The displacement of a body that moves for one second with the constant `twist` (the same in either axes)."""
        exponential = Exponential.of(twist.angular)
        return Transform(exponential.quaternion().matrix().array, exponential.translation(twist.linear).array)

    def log(self) -> Motion:
        """The twist whose exponential this is, with an angle of at most pi."""
        angular = Quaternion.from_matrix(self._r).log()
        return Motion(angular, Exponential.of(angular).log_translation(self._p))

    @property
    def _r(self) -> Mat3:
        return Mat3.from_array(self.rotation)

    @property
    def _p(self) -> Vec3:
        return Vec3.from_array(self.translation)

    @property
    def homogeneous(self) -> jax.Array:
        """The 4x4 matrix of the pose, shape `(..., 4, 4)` (eq. 2.28)."""
        top = jnp.concatenate([self.rotation, self.translation[..., None]], axis=-1)
        bottom = jnp.broadcast_to(jnp.array([0.0, 0.0, 0.0, 1.0], top.dtype), (*top.shape[:-2], 1, 4))
        return jnp.concatenate([top, bottom], axis=-2)

    @staticmethod
    def from_homogeneous(matrix: ArrayLike) -> Transform:
        """From the 4x4 matrix of the pose, shape `(..., 4, 4)`; the inverse of `homogeneous`."""
        a = jnp.asarray(matrix)
        return Transform(a[..., :3, :3], a[..., :3, 3])

    @property
    def inverse(self) -> Transform:
        rotation = self.rotation.swapaxes(-1, -2)
        return Transform(rotation, -(self._r.transpose_apply(self._p)).array)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Transform):
            translation = (self.rotation @ other.translation[..., None])[..., 0] + self.translation
            return Transform(self.rotation @ other.rotation, translation)
        if isinstance(other, Motion):
            return other.rotate(self._r).shift(-self._p)
        if isinstance(other, Force | RigidInertia | ArticulatedInertia):
            return other.rotate(self._r).shift_to_parent(self._p)
        if isinstance(other, SpatialInertia):
            r, p = np.asarray(self.rotation), np.asarray(self.translation)
            return SpatialInertia(other.mass, r @ other.com + p, r @ other.inertia @ r.T, r @ other.first_moment)
        _refuse_unknown("move", other)
        return (self._r @ Vec3.from_array(other) + self._p).array

    def inverse_apply(self, other: Any) -> Any:
        """`self.inverse @ other` without forming the inverse."""
        if isinstance(other, Motion | Force):
            return other.shift(self._p).rotate_back(self._r)
        if isinstance(other, RigidInertia | ArticulatedInertia):
            return other.shift_to_parent(-self._p).rotate(self._r.T)
        if isinstance(other, Transform):
            transposed = self.rotation.swapaxes(-1, -2)
            offset = (other.translation - self.translation)[..., None]
            return Transform(transposed @ other.rotation, (transposed @ offset)[..., 0])
        if isinstance(other, SpatialInertia):
            r, p = np.asarray(self.rotation), np.asarray(self.translation)
            return SpatialInertia(other.mass, r.T @ (other.com - p), r.T @ other.inertia @ r, r.T @ other.first_moment)
        _refuse_unknown("move", other)
        return self._r.transpose_apply(Vec3.from_array(other) - self._p).array


def _array(value: Any) -> Any:
    """Lists and tuples as arrays, NumPy unless a tracer is in them; arrays and placeholders of a pytree as they are."""
    if not isinstance(value, list | tuple):
        return value
    traced = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value))
    return jnp.asarray(value) if traced else np.asarray(value, dtype=float)


def _refuse_unknown(verb: str, other: Any) -> None:
    """Points are arrays; anything else of ours that gets this far has no frame to change."""
    if not isinstance(other, np.ndarray | jax.Array | list | tuple):
        raise TypeError(f"cannot {verb} a {type(other).__name__}: expected points (..., 3), or what has a frame")
