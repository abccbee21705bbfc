"""Our states as MuJoCo's and back, in NumPy: converting with JAX would mix its two precisions in one process.

A free joint's velocity has its linear part first and in world axes there, and so have accelerations and forces.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mujoco
import numpy as np

from benchmarks.bodies import FREE
from benchmarks.ours import DT
from benchmarks.peers.mujoco_model import mujoco_model
from benchmarks.robots import Robot, States


class MujocoState:
    def __init__(self, robot: Robot):
        self.model = mujoco_model(robot.bodies, DT)
        bodies, ours = robot.bodies, robot.model
        self.tip = self.model.body(bodies.names[bodies.tip]).id
        self._free = bodies.kinds[0] == FREE
        if FREE in bodies.kinds[1:] or (self._free and self.model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE):
            raise ValueError("a free joint must be the first, here and in MuJoCo")
        self._q, self._v = np.zeros(ours.nq, int), np.zeros(ours.nv, int)
        for name in bodies.joints:
            joint = self.model.joint(name)
            q, v = np.arange(ours.nq)[ours.q_slice(name)], np.arange(ours.nv)[ours.v_slice(name)]
            self._q[joint.qposadr[0] + np.arange(len(q))] = q
            self._v[joint.dofadr[0] + np.arange(len(v))] = v

    def to(self, states: States, acceleration: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`qpos`, `qvel`, and `qfrc`, or `qacc` if `acceleration`."""
        map_ = self._map(states)
        inverse = np.linalg.inv(map_)
        if acceleration:
            x = np.einsum("bij,bj->bi", inverse, states.tau + self._spin(states))
        else:
            x = np.einsum("bji,bj->bi", map_, states.tau)  # power is the same
        return states.q[:, self._q], np.einsum("bij,bj->bi", inverse, states.v), x

    def back(self, what: str, states: States, answer: Any) -> np.ndarray:
        """A result for the first states, in our conventions."""
        value = np.asarray(answer, np.float64)
        few = states.head(len(value))
        map_ = self._map(few)
        inverse = np.linalg.inv(map_)
        match what:
            case "id":
                return np.einsum("bji,bj->bi", inverse, value)
            case "mass":
                return np.swapaxes(inverse, 1, 2) @ value @ inverse
            case "jac":
                turned = np.einsum("bji,bsjk->bsik", self._tip_axes(few), value.reshape(len(value), 2, 3, -1))
                return turned.reshape(value.shape) @ inverse
        return np.einsum("bij,bj->bi", map_, value) - self._spin(few)

    def _map(self, states: States) -> np.ndarray:
        """From MuJoCo's velocities to ours, a matrix for each state."""
        count, nv = states.v.shape
        matrices = np.zeros((count, nv, nv))
        matrices[:, self._v, np.arange(nv)] = 1.0
        if self._free:
            matrices[:, :6, :6] = 0.0
            matrices[:, :3, 3:6] = np.eye(3)
            matrices[:, 3:6, :3] = np.swapaxes(_rotation(states.q[:, 3:7]), 1, 2)
        return matrices

    def _spin(self, states: States) -> np.ndarray:
        """`omega x v` of the free joint: what the derivative of a body's components lacks to that of the vector."""
        spin = np.zeros_like(states.v)
        if self._free:
            spin[:, 3:6] = np.cross(states.v[:, :3], states.v[:, 3:6])
        return spin

    def _tip_axes(self, states: States) -> np.ndarray:
        data, axes = mujoco.MjData(self.model), []
        for q in states.q[:, self._q]:
            data.qpos[:] = q
            mujoco.mj_kinematics(self.model, data)
            axes.append(data.xmat[self.tip].reshape(3, 3).copy())
        return np.array(axes)


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    """Body to parent, from rows `w x y z`."""
    w, x, y, z = (quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)


@lru_cache(maxsize=1)
def mujoco_state(robot: Robot) -> MujocoState:
    return MujocoState(robot)
