"""Transmissions: from the forces of actuators to those of joints.

    velocity = G(q) v        tau = G(q)^T force

The matrix `G` is the moment; lengths are those of which `G v` are the rates.
"""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.frames import jacobian
from dynax.model import Model
from dynax.operators.pytree import pytree_dataclass


class AbstractTransmission(abc.ABC):
    """Of `k` actuators at once. To write one's own, give both functions of the tree; make the class a pytree."""

    @abc.abstractmethod
    def length(self, model: Model, q: jax.Array) -> jax.Array:
        """Shape `(k,)`."""

    @abc.abstractmethod
    def moment(self, model: Model, q: jax.Array) -> jax.Array:
        """Shape `(k, nv)`."""


@pytree_dataclass("joints")
class JointTransmission(AbstractTransmission):
    """Each actuator on a joint of its own, through a gear: `length = gear q`."""

    gear: Any
    joints: tuple[str, ...]

    def length(self, model, q):
        return self.gear * q[_rows(model, self.joints, "q")]

    def moment(self, model, q):
        one = np.zeros((len(self.joints), model.nv))
        one[np.arange(len(self.joints)), _rows(model, self.joints, "v")] = 1.0
        return jnp.broadcast_to(jnp.asarray(self.gear, q.dtype), len(self.joints))[:, None] * jnp.asarray(one, q.dtype)


@pytree_dataclass("joints")
class CoupledTransmission(AbstractTransmission):
    """Actuators on several joints at once, `length = matrix q[joints]`: fixed tendons, differentials, wrists."""

    matrix: Any
    """Shape `(k, number of joints)`."""
    joints: tuple[str, ...]

    def length(self, model, q):
        return jnp.asarray(self.matrix, q.dtype) @ q[_rows(model, self.joints, "q")]

    def moment(self, model, q):
        one = np.zeros((len(self.joints), model.nv))
        one[np.arange(len(self.joints)), _rows(model, self.joints, "v")] = 1.0
        return jnp.asarray(self.matrix, q.dtype) @ jnp.asarray(one, q.dtype)


@pytree_dataclass("frames")
class FrameTransmission(AbstractTransmission):
    """Each actuator a wrench on a body, fixed in a frame of it: thrusters. Their length is always zero."""

    wrench: Any
    """`[moment; force]` for a unit of the actuator's force, in the frame's axes about its origin, shape `(k, 6)`."""
    frames: tuple[str, ...]

    def length(self, model, q):
        return jnp.zeros(len(self.frames), q.dtype)

    def moment(self, model, q):
        own = {name: jacobian(model, q, name, frame="body") for name in dict.fromkeys(self.frames)}
        wrench = jnp.asarray(self.wrench, q.dtype)
        return jnp.stack([wrench[k] @ own[name] for k, name in enumerate(self.frames)])


def _rows(model: Model, joints: tuple[str, ...], what: str) -> np.ndarray:
    """Where the coordinates of joints of one freedom stand."""
    slices = [(model.q_slice if what == "q" else model.v_slice)(name) for name in joints]
    return np.array([s.start for s in slices], int)
