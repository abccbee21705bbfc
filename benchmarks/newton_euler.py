"""Inverse dynamics of hinged trees as plainly as it can be written: the oracle of robots too large for other engines.

Pinocchio's data grows with the third power of the freedoms, MuJoCo's models end at a depth of 1024. NumPy only.
"""

from __future__ import annotations

import numpy as np

from benchmarks.bodies import REVOLUTE, Bodies

GRAVITY = np.array([0.0, 0.0, -9.81])


def inverse_dynamics(bodies: Bodies, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Newton's and Euler's equations of every body in world axes, joint by joint."""
    if set(bodies.kinds) != {REVOLUTE}:
        raise ValueError("all joints must be revolute")
    count = len(bodies.parents)
    rotation, axis = np.empty((count, 3, 3)), np.empty((count, 3))
    origin, omega, alpha, acceleration, force, moment = np.zeros((6, count, 3))
    for k, parent in enumerate(bodies.parents):
        turned = np.eye(3) if parent < 0 else rotation[parent]
        rotation[k] = turned @ bodies.rotation[k] @ _about(bodies.axes[k], q[k])
        axis[k] = rotation[k] @ bodies.axes[k]
        arm = turned @ bodies.translation[k]
        if parent < 0:
            origin[k], omega[k], alpha[k] = arm, axis[k] * v[k], axis[k] * a[k]
            acceleration[k] = -GRAVITY
        else:
            w = omega[parent]
            origin[k], omega[k] = origin[parent] + arm, w + axis[k] * v[k]
            alpha[k] = alpha[parent] + axis[k] * a[k] + np.cross(w, axis[k] * v[k])
            acceleration[k] = acceleration[parent] + np.cross(alpha[parent], arm) + np.cross(w, np.cross(w, arm))
        com, w = rotation[k] @ bodies.com[k], omega[k]
        inertia = rotation[k] @ bodies.inertia[k] @ rotation[k].T
        force[k] = bodies.mass[k] * (acceleration[k] + np.cross(alpha[k], com) + np.cross(w, np.cross(w, com)))
        moment[k] = inertia @ alpha[k] + np.cross(w, inertia @ w) + np.cross(com, force[k])
    for k in reversed(range(count)):
        parent = bodies.parents[k]
        if parent >= 0:
            force[parent] += force[k]
            moment[parent] += moment[k] + np.cross(origin[k] - origin[parent], force[k])
    return np.einsum("ki,ki->k", axis, moment)


def _about(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rodrigues' rotation."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross
