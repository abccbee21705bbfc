"""A joint of the user's own, from its pose alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dynax.joints.base import AbstractJoint, Coordinates
from dynax.spatial import Mat3, Scalar, Transform, Vec3


@dataclass(frozen=True, repr=False)
class UserJoint(AbstractJoint):
    """A joint given by its pose; its columns and bias follow by automatic differentiation.

    **Arguments:**

    - `function`: a JAX function from the coordinates, shape `(size,)`, to the `Transform` of the successor's frame in
      the predecessor's. Its derivative must have full rank; velocities are the rates of the coordinates.
    - `size`: how many coordinates there are.
    """

    function: Callable[[jax.Array], Transform]
    size: int = 1

    def __post_init__(self):
        if not callable(self.function):
            raise TypeError(f"UserJoint: `function` must be callable, got {self.function!r}")
        if not isinstance(self.size, int) or self.size < 1:
            raise ValueError(f"UserJoint: `size` must be a positive integer, got {self.size!r}")

    @property
    def nq(self) -> int:  # type: ignore[override]
        return self.size

    @property
    def nv(self) -> int:  # type: ignore[override]
        return self.size

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        stacked = jnp.stack(jnp.broadcast_arrays(*q), axis=-1)
        poses = jax.vmap(self._checked)(stacked.reshape(-1, self.size))
        shape = stacked.shape[:-1]
        # A function that mixes in NumPy constants must not turn a float32 state into float64.
        rotation = jnp.reshape(poses.rotation, (*shape, 3, 3)).astype(stacked.dtype)
        translation = jnp.reshape(poses.translation, (*shape, 3)).astype(stacked.dtype)
        return Mat3.from_array(rotation), Vec3.from_array(translation)

    def _checked(self, q: jax.Array) -> Transform:
        pose = self.function(q)
        if not isinstance(pose, Transform):
            raise TypeError(f"{self!r}: the function must return a Transform, got {type(pose).__name__}")
        return pose

    def __repr__(self) -> str:
        return f"UserJoint({getattr(self.function, '__name__', 'function')})"
