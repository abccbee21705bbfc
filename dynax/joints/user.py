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

    @property
    def nq(self) -> int:  # type: ignore[override]
        return self.size

    @property
    def nv(self) -> int:  # type: ignore[override]
        return self.size

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        stacked = jnp.stack(jnp.broadcast_arrays(*q), axis=-1)
        poses = jax.vmap(self.function)(stacked.reshape(-1, self.size))
        shape = stacked.shape[:-1]
        rotation = jnp.reshape(poses.rotation, (*shape, 3, 3))
        translation = jnp.reshape(poses.translation, (*shape, 3))
        return Mat3.from_array(rotation), Vec3.from_array(translation)

    def __repr__(self) -> str:
        return f"UserJoint({getattr(self.function, '__name__', 'function')})"
