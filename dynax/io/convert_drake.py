"""States to and from Drake: the table of `convert.py`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.io.convert import (
    JointState,
    TheirJoint,
    arrays,
    from_parent_axes,
    matched,
    to_parent_axes,
    turns,
)
from dynax.joints import AbstractJoint, Free, Helical, Planar, Prismatic, Revolute, Spherical, Universal
from dynax.model import Model
from dynax.spatial import Quaternion

_DRAKE: dict[str, tuple[type[AbstractJoint], ...]] = {
    "revolute": (Revolute,), "prismatic": (Prismatic,), "screw": (Helical,), "universal": (Universal,),
    "planar": (Planar,), "ball_rpy": (Spherical,), "quaternion_floating": (Free,), "rpy_floating": (Free,),
}  # fmt: skip


class DrakeConverter:
    """Between our states and those of Drake's `MultibodyPlant`.

    **Arguments:**

    - `model`: our model.
    - `plant`: a finalized `pydrake.multibody.plant.MultibodyPlant` with the same robot alone. Joints correspond by
      name; if one free joint is left over on either side, the two correspond.

    `to` and `back` convert one state; `jax.vmap` converts batches. Joints with roll, pitch and yaw have no derivative
    where the pitch is a quarter of a turn.
    """

    def __init__(self, model: Model, plant: Any):
        joints = [plant.get_joint(index) for index in plant.GetJointIndices()]
        joints = {joint.name(): joint for joint in joints if joint.num_velocities()}
        if sum(joint.num_velocities() for joint in joints.values()) != plant.num_velocities():
            raise ValueError("two joints of the plant have one name: give a plant with one robot alone")
        theirs = [
            TheirJoint(name, _DRAKE.get(joint.type_name(), ()), joint.position_start(), joint.velocity_start())
            for name, joint in joints.items()
        ]
        self._nq, self._own_nq = int(plant.num_positions()), model.nq
        self._v = np.zeros(model.nv, int)
        plain, self._angles = [], []
        pairs = matched(model, theirs, "Drake")
        for joint, k in pairs:
            ours = model.topology.joints[k]
            q, v = int(model.topology.q_start[k]), int(model.topology.v_start[k])
            self._v[joint.v : joint.v + ours.nv] = v + np.array(
                [1, 2, 0] if isinstance(ours, Planar) else range(ours.nv)
            )
            if isinstance(ours, Free | Spherical | Planar):
                _check_frame(model, k, joints[joint.name])
            if isinstance(ours, Planar):
                plain += zip(joint.q + np.arange(3), q + np.array([1, 2, 0]), strict=True)
            elif isinstance(ours, Spherical):
                self._angles.append((joint.q, q))
            elif isinstance(ours, Free):
                rpy = joints[joint.name].type_name() == "rpy_floating"
                plain += zip(joint.q + (3 if rpy else 4) + np.arange(3), q + np.arange(3), strict=True)
                if rpy:
                    self._angles.append((joint.q, q + 3))
                else:
                    plain += zip(joint.q + np.arange(4), q + 3 + np.arange(4), strict=True)
            else:
                plain += zip(joint.q + np.arange(ours.nq), q + np.arange(ours.nq), strict=True)
        self._theirs, self._ours = np.array(plain, int).reshape(-1, 2).T
        self._v_back = np.argsort(self._v)
        self._turns = turns(model, [k for _, k in pairs])

    def to(
        self, q: ArrayLike, v: ArrayLike | None = None, *, a: ArrayLike | None = None, tau: ArrayLike | None = None
    ) -> JointState:
        """Our state as Drake's positions, velocities, their rates and generalized forces; `a` needs `v`."""
        s = to_parent_axes(self._turns, arrays(self._own_nq, len(self._v), q, v, a, tau))
        out = jnp.zeros(self._nq, s.q.dtype).at[self._theirs].set(s.q[self._ours])
        for there, here in self._angles:
            out = out.at[there + np.arange(3)].set(_angles(s.q[here : here + 4]))
        return JointState(out, *(None if x is None else x[self._v] for x in s[1:]))

    def back(
        self, q: ArrayLike, v: ArrayLike | None = None, *, a: ArrayLike | None = None, tau: ArrayLike | None = None
    ) -> JointState:
        """Drake's state as ours; `a` needs `v`."""
        s = arrays(self._nq, len(self._v), q, v, a, tau)
        out = jnp.zeros(self._own_nq, s.q.dtype).at[self._ours].set(s.q[self._theirs])
        for there, here in self._angles:
            out = out.at[here + np.arange(4)].set(_quaternion(s.q[there : there + 3]))
        return from_parent_axes(self._turns, JointState(out, *(None if x is None else x[self._v_back] for x in s[1:])))


def _check_frame(model: Model, k: int, joint: Any) -> None:
    """Whether the joint's axes in the body are ours."""
    theirs = joint.frame_on_child().GetFixedPoseInBodyFrame().rotation().matrix()
    if not np.allclose(np.asarray(model.hinges.rotation[k]), theirs, atol=1e-6):
        raise ValueError(
            f"joint {model.joint_names[k]!r}: its frame has other axes in Drake's body than in model {model.name!r}"
        )


def _angles(quaternion: jax.Array) -> jax.Array:
    """Roll, pitch and yaw of `Rz(yaw) Ry(pitch) Rx(roll)`."""
    r = Quaternion.from_array(quaternion).matrix().array
    pitch = jnp.arctan2(-r[2, 0], jnp.hypot(r[0, 0], r[1, 0]))
    return jnp.stack([jnp.arctan2(r[2, 1], r[2, 2]), pitch, jnp.arctan2(r[1, 0], r[0, 0])])


def _quaternion(angles: jax.Array) -> jax.Array:
    c, s = jnp.cos(0.5 * angles), jnp.sin(0.5 * angles)
    about = [Quaternion.from_array(jnp.zeros(4).at[0].set(c[k]).at[1 + k].set(s[k])) for k in range(3)]
    return (about[2] @ about[1] @ about[0]).array
