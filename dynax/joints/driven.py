"""A joint moved as a given function of time: a rheonomic constraint (sections 3.4 and 4.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dynax.joints.base import AbstractJoint, Coordinates, JointMotion, body_velocity
from dynax.spatial import Mat3, Motion, Scalar, Vec3


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
    joint: AbstractJoint
    schedule: Callable

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
        return self.joint.pose(coordinates, parameters, time)

    def motion(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> JointMotion:
        def velocity(time: Scalar) -> tuple[Motion, tuple[Mat3, Vec3]]:
            pose, rate = jax.jvp(lambda t: self.pose((), parameters, t), (time,), (jnp.ones_like(time),))
            return body_velocity(pose[0], *rate), pose

        (sigma, (rotation, translation)), (sigma_rate, _) = jax.jvp(velocity, (time,), (jnp.ones_like(time),))
        return JointMotion(rotation, translation, (), sigma, sigma_rate)

    def __repr__(self) -> str:
        return f"Driven({self.joint!r})"
