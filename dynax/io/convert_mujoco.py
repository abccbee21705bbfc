"""States to and from MuJoCo: the table of `convert.py`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.io._mujoco_names import BALL, FREE, HINGE, SLIDE, joint_names
from dynax.io.convert import JointState, TheirJoint, arrays, matched
from dynax.joints import AbstractJoint, Free, Prismatic, Revolute, Spherical
from dynax.model import Model
from dynax.spatial import Quaternion

_MUJOCO: dict[int, tuple[type[AbstractJoint], ...]] = {
    FREE: (Free,), BALL: (Spherical,), SLIDE: (Prismatic,), HINGE: (Revolute,)
}  # fmt: skip


class MujocoConverter:
    """Between our states and MuJoCo's.

    **Arguments:**

    - `model`: our model.
    - `mj_model`: a `mujoco.MjModel` of the same robot. Joints correspond by name; those without one have the names
      `dx.load` gives them. If one free joint is left over on either side, the two correspond.

    `to` and `back` convert one state; `jax.vmap` converts batches.
    """

    def __init__(self, model: Model, mj_model: Any):
        theirs = [
            TheirJoint(name, _MUJOCO[int(kind)], int(q), int(v))
            for name, kind, q, v in zip(
                joint_names(mj_model), mj_model.jnt_type, mj_model.jnt_qposadr, mj_model.jnt_dofadr, strict=True
            )
        ]
        self._q, self._v = np.zeros(model.nq, int), np.zeros(model.nv, int)
        free = []
        for joint, k in matched(model, theirs, "MuJoCo"):
            ours = model.topology.joints[k]
            q, v = int(model.topology.q_start[k]), int(model.topology.v_start[k])
            self._q[joint.q : joint.q + ours.nq] = np.arange(q, q + ours.nq)
            rows = np.arange(v, v + ours.nv)
            if isinstance(ours, Free):
                rows = np.roll(rows, 3)  # the linear ones first
                free.append((q + 3, v, v + 3))
            self._v[joint.v : joint.v + ours.nv] = rows
        self._q_back, self._v_back = np.argsort(self._q), np.argsort(self._v)
        start = np.array(free, int).reshape(-1, 3, 1)
        self._quaternion = start[:, 0] + np.arange(4)
        self._angular, self._linear = start[:, 1] + np.arange(3), start[:, 2] + np.arange(3)

    def to(
        self, q: ArrayLike, v: ArrayLike | None = None, *, a: ArrayLike | None = None, tau: ArrayLike | None = None
    ) -> JointState:
        """Our state as MuJoCo's `qpos`, `qvel`, `qacc` and `qfrc`; `a` needs `v`."""
        s = arrays(len(self._q), len(self._v), q, v, a, tau)
        rotation = self._rotations(s.q)

        def turned(x: jax.Array | None) -> jax.Array | None:
            if x is None:
                return None
            linear = jnp.einsum("fij,fj->fi", rotation, x[self._linear])
            return x.at[self._linear].set(linear)[self._v]

        spun = None if a is None else self._add_spin(s.a, s.v, 1.0)
        return JointState(s.q[self._q], turned(s.v), turned(spun), turned(s.tau))

    def back(
        self,
        qpos: ArrayLike,
        qvel: ArrayLike | None = None,
        *,
        qacc: ArrayLike | None = None,
        qfrc: ArrayLike | None = None,
    ) -> JointState:
        """MuJoCo's state as ours; `qacc` needs `qvel`."""
        s = arrays(len(self._q), len(self._v), qpos, qvel, qacc, qfrc)
        q = s.q[self._q_back]
        rotation = self._rotations(q)

        def turned(x: jax.Array | None) -> jax.Array | None:
            if x is None:
                return None
            x = x[self._v_back]
            linear = jnp.einsum("fji,fj->fi", rotation, x[self._linear])
            return x.at[self._linear].set(linear)

        v, a = turned(s.v), turned(s.a)
        return JointState(q, v, None if v is None or a is None else self._add_spin(a, v, -1.0), turned(s.tau))

    def _rotations(self, q: jax.Array) -> jax.Array:
        """Body to world for every free joint, from our coordinates."""
        return Quaternion.from_array(q[self._quaternion]).matrix().array

    def _add_spin(self, a: jax.Array, v: jax.Array, sign: float) -> jax.Array:
        """`a + omega x v` at the free joints: our derivative of body components against that of the vector."""
        return a.at[self._linear].add(sign * jnp.cross(v[self._angular], v[self._linear]))
