"""A robot as MuJoCo's compiled model, for MuJoCo, MJX and Brax. Needs MuJoCo and NumPy only."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from benchmarks.bodies import FREE, PRISMATIC, REVOLUTE, SPHERICAL, Bodies

JOINTS = {
    FREE: mujoco.mjtJoint.mjJNT_FREE,
    SPHERICAL: mujoco.mjtJoint.mjJNT_BALL,
    PRISMATIC: mujoco.mjtJoint.mjJNT_SLIDE,
    REVOLUTE: mujoco.mjtJoint.mjJNT_HINGE,
}


def mujoco_model(bodies: Bodies, timestep: float = 0.002) -> Any:
    """Smooth dynamics only: no geometry, no constraints."""
    spec = mujoco.MjSpec()
    spec.modelname = bodies.name
    spec.option.timestep = timestep
    spec.option.disableflags = mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_CONTACT
    made: list[Any] = []
    for k, kind in enumerate(bodies.kinds):
        parent = made[bodies.parents[k]] if bodies.parents[k] >= 0 else spec.worldbody
        i = bodies.inertia[k]
        body = parent.add_body(
            name=bodies.names[k],
            pos=bodies.translation[k],
            quat=_quaternion(bodies.rotation[k]),
            mass=float(bodies.mass[k]),
            ipos=bodies.com[k],
            fullinertia=[i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]],
            explicitinertial=True,
        )
        axis = bodies.axes[k] if kind in (REVOLUTE, PRISMATIC) else np.array([0.0, 0.0, 1.0])
        body.add_joint(name=bodies.joints[k], type=JOINTS[kind], axis=axis)
        made.append(body)
    return spec.compile()


def _quaternion(rotation: np.ndarray) -> np.ndarray:
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, rotation.ravel())
    return quaternion
