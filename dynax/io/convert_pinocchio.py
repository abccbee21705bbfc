"""States to and from Pinocchio: the table of `convert.py`."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.io.convert import JointState, TheirJoint, arrays, matched
from dynax.joints import (
    AbstractJoint,
    Free,
    Gimbal,
    Helical,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    Translation,
    Universal,
)
from dynax.model import Model

_PINOCCHIO: dict[str, tuple[type[AbstractJoint], ...]] = {
    "R[XYZ]|RUB[XYZ]|Revolute(Unbounded)?Unaligned": (Revolute,),
    "P[XYZ]|PrismaticUnaligned": (Prismatic,),
    "H[XYZ]|HelicalUnaligned": (Helical,),
    "FreeFlyer": (Free,),
    "Spherical": (Spherical,),
    "SphericalZYX": (Gimbal,),
    "Planar": (Planar,),
    "Translation": (Translation,),
    "Universal": (Universal,),
}


class PinocchioConverter:
    """Between our states and Pinocchio's.

    **Arguments:**

    - `model`: our model.
    - `pin_model`: a `pinocchio.Model` of the same robot. Joints correspond by name; if one free joint is left over on
      either side, the two correspond.

    `to` and `back` convert one state; `jax.vmap` converts batches. A `continuous` joint has `cos` and `sin` in
    Pinocchio: coming back its angle lies within half a turn of zero. Velocities and forces only change order.
    """

    def __init__(self, model: Model, pin_model: Any):
        theirs = [
            _pinocchio_joint(name, joint)
            for name, joint in zip(pin_model.names, pin_model.joints, strict=True)
            if name != "universe"
        ]
        self._nq = int(pin_model.nq)
        self._v = np.zeros(model.nv, int)
        plain, angles = [], []
        for joint, k in matched(model, theirs, "Pinocchio"):
            ours = model.topology.joints[k]
            q, v = int(model.topology.q_start[k]), int(model.topology.v_start[k])
            self._v[joint.v : joint.v + ours.nv] = v + _pinocchio_velocity(ours)
            if isinstance(ours, Free):
                plain += zip(joint.q + np.arange(7), q + np.array([0, 1, 2, 4, 5, 6, 3]), strict=True)
            elif isinstance(ours, Spherical):
                plain += zip(joint.q + np.arange(4), q + np.array([1, 2, 3, 0]), strict=True)
            elif isinstance(ours, Planar):
                _check_planar(model, k)
                plain += [(joint.q, q + 1), (joint.q + 1, q + 2)]
                angles.append((joint.q + 2, q))
            elif joint.circle:
                angles.append((joint.q, q))
            else:
                plain += zip(joint.q + np.arange(ours.nq), q + np.arange(ours.nq), strict=True)
        self._theirs, self._ours = np.array(plain, int).reshape(-1, 2).T
        self._circle, self._angle = np.array(angles, int).reshape(-1, 2).T
        self._v_back = np.argsort(self._v)
        self._own_nq = model.nq

    def to(
        self, q: ArrayLike, v: ArrayLike | None = None, *, a: ArrayLike | None = None, tau: ArrayLike | None = None
    ) -> JointState:
        """Our state as Pinocchio's."""
        s = arrays(self._own_nq, len(self._v), q, v, a, tau)
        out = jnp.zeros(self._nq, s.q.dtype).at[self._theirs].set(s.q[self._ours])
        angle = s.q[self._angle]
        out = out.at[self._circle].set(jnp.cos(angle)).at[self._circle + 1].set(jnp.sin(angle))
        return JointState(out, *(None if x is None else x[self._v] for x in s[1:]))

    def back(
        self, q: ArrayLike, v: ArrayLike | None = None, *, a: ArrayLike | None = None, tau: ArrayLike | None = None
    ) -> JointState:
        """Pinocchio's state as ours."""
        s = arrays(self._nq, len(self._v), q, v, a, tau)
        out = jnp.zeros(self._own_nq, s.q.dtype).at[self._ours].set(s.q[self._theirs])
        out = out.at[self._angle].set(jnp.arctan2(s.q[self._circle + 1], s.q[self._circle]))
        return JointState(out, *(None if x is None else x[self._v_back] for x in s[1:]))


def _pinocchio_joint(name: str, joint: Any) -> TheirJoint:
    kind = joint.shortname()
    matches = next((types for pattern, types in _PINOCCHIO.items() if re.fullmatch(f"JointModel({pattern})", kind)), ())
    circle = "RUB" in kind or "Unbounded" in kind
    return TheirJoint(name, matches, int(joint.idx_q), int(joint.idx_v), circle)


def _pinocchio_velocity(joint: AbstractJoint) -> np.ndarray:
    """Where each of Pinocchio's velocities stands among ours, within the joint."""
    if isinstance(joint, Free):
        return np.array([3, 4, 5, 0, 1, 2])
    return np.array([1, 2, 0]) if isinstance(joint, Planar) else np.arange(joint.nv)


def _check_planar(model: Model, k: int) -> None:
    """Pinocchio's planar joint moves in the body's own x and y."""
    if not np.allclose(np.asarray(model.hinges.rotation[k]), np.eye(3), atol=1e-6):
        raise ValueError(f"joint {model.joint_names[k]!r}: Pinocchio's planar joints all have the normal (0, 0, 1)")
