"""Small geometry in NumPy: reading a file starts no JAX backend."""

from __future__ import annotations

import numpy as np

from dynax.io._mjcf_compile import import_mujoco
from dynax.spatial import Transform


def matrix_of(quaternion: np.ndarray) -> np.ndarray:
    """The rotation matrix of a quaternion `w, x, y, z` of any length but zero."""
    matrix, unit = np.zeros(9), np.asarray(quaternion, dtype=np.float64)
    import_mujoco().mju_quat2Mat(matrix, unit / np.linalg.norm(unit))
    return matrix.reshape(3, 3)


def transform(rotation: np.ndarray, translation: np.ndarray) -> Transform:
    return Transform(rotation, np.asarray(translation, dtype=np.float64))


def pose_of(quaternion: np.ndarray, position: np.ndarray) -> Transform:
    return transform(matrix_of(quaternion), np.array(position))
