"""A joint moved as a given function of time: a rheonomic constraint (sections 3.4 and 4.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dynax.joints.base import AbstractJoint, Coordinates
from dynax.spatial import Mat3, Scalar, Vec3


@dataclass(frozen=True, repr=False)
class Driven(AbstractJoint):
    """`joint` following `schedule(time)`: it has no freedom left, its motion is data.

    **Arguments:**

    - `joint`: any joint.
    - `schedule`: a JAX function from the time [s], a scalar, to the joint's configuration: a scalar, or shape
      `(joint.nq,)`. It must be smooth: velocity and acceleration come from differentiating it.

    The time is the leaf `model.time`; a rollout advances it.
    """

    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0
    rheonomic: ClassVar[bool] = True
    joint: AbstractJoint
    schedule: Callable

    def __post_init__(self):
        if not isinstance(self.joint, AbstractJoint) or not self.joint.nq:
            raise TypeError(f"Driven: `joint` must be a joint with a freedom to drive, got {self.joint!r}")
        if not callable(self.schedule):
            raise TypeError(f"Driven: `schedule` must be a function of time, got {self.schedule!r}")

    @property
    def frame(self) -> np.ndarray:
        return self.joint.frame

    @property
    def parameters(self) -> tuple[float, ...]:
        return self.joint.parameters

    @property
    def canonical(self) -> Driven:
        return Driven(self.joint.canonical, self.schedule)

    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        times = jnp.asarray(time)
        flat = jax.vmap(lambda t: jnp.reshape(self.schedule(t), (self.joint.nq,)))(times.reshape(-1))
        coordinates = tuple(flat[:, k].reshape(times.shape) for k in range(self.joint.nq))
        return self.joint.pose(self.joint.normalize(coordinates), parameters, time)

    def __repr__(self) -> str:
        return f"Driven({self.joint!r})"
