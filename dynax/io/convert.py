"""States between our conventions and those of MuJoCo and Pinocchio.

A converter is made once from our model and the other tool's, joints matched by name; it then holds nothing but index
arrays, and its methods are pure functions of arrays that work under `jit`, `vmap` and `grad`. Power is the same on both
sides: `tau @ v`.

| joint | here | MuJoCo | Pinocchio |
|---|---|---|---|
| free `q` | `x y z, qw qx qy qz` | the same | `x y z, qx qy qz qw` |
| free `v` | `[omega; velocity]` | `[velocity in world axes; omega]` | `[velocity; omega]` |
| spherical `q` | `qw qx qy qz` | the same | `qx qy qz qw` |
| planar `q` | `theta, x, y` | | `x, y, cos, sin` |
| planar `v` | `omega, vx, vy` | | `vx, vy, omega` |
| revolute without limits `q` | angle | angle | `cos, sin` for `continuous` joints |

Unless it says otherwise, components are in the body's axes. Accelerations are the derivatives of `v` on either side.
MuJoCo's is that of a velocity in world axes, so it depends on the velocity too: `R (v_dot + omega x v)`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.io._mujoco_names import BALL, FREE, HINGE, SLIDE, joint_names
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
from dynax.spatial import Quaternion


class JointState(NamedTuple):
    """Configuration, velocity, acceleration and joint force, `None` for what a converter was not given."""

    q: jax.Array
    v: jax.Array | None = None
    a: jax.Array | None = None
    tau: jax.Array | None = None


class _Joint(NamedTuple):
    """A joint of the other tool: where its coordinates stand, and the types of ours it can match."""

    name: str
    matches: tuple[type[AbstractJoint], ...]
    q: int
    v: int
    circle: bool = False
    """Whether its angle is kept as cosine and sine."""


_MUJOCO: dict[int, tuple[type[AbstractJoint], ...]] = {
    FREE: (Free,), BALL: (Spherical,), SLIDE: (Prismatic,), HINGE: (Revolute,)
}  # fmt: skip
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
            _Joint(name, _MUJOCO[int(kind)], int(q), int(v))
            for name, kind, q, v in zip(
                joint_names(mj_model), mj_model.jnt_type, mj_model.jnt_qposadr, mj_model.jnt_dofadr, strict=True
            )
        ]
        self._q, self._v = np.zeros(model.nq, int), np.zeros(model.nv, int)
        free = []
        for joint, k in _matched(model, theirs, "MuJoCo"):
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
        s = _arrays(len(self._q), len(self._v), q, v, a, tau)
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
        s = _arrays(len(self._q), len(self._v), qpos, qvel, qacc, qfrc)
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
        for joint, k in _matched(model, theirs, "Pinocchio"):
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
        s = _arrays(self._own_nq, len(self._v), q, v, a, tau)
        out = jnp.zeros(self._nq, s.q.dtype).at[self._theirs].set(s.q[self._ours])
        angle = s.q[self._angle]
        out = out.at[self._circle].set(jnp.cos(angle)).at[self._circle + 1].set(jnp.sin(angle))
        return JointState(out, *(None if x is None else x[self._v] for x in s[1:]))

    def back(
        self, q: ArrayLike, v: ArrayLike | None = None, *, a: ArrayLike | None = None, tau: ArrayLike | None = None
    ) -> JointState:
        """Pinocchio's state as ours."""
        s = _arrays(self._nq, len(self._v), q, v, a, tau)
        out = jnp.zeros(self._own_nq, s.q.dtype).at[self._ours].set(s.q[self._theirs])
        out = out.at[self._angle].set(jnp.arctan2(s.q[self._circle + 1], s.q[self._circle]))
        return JointState(out, *(None if x is None else x[self._v_back] for x in s[1:]))


# Matching joints.


def _matched(model: Model, theirs: Sequence[_Joint], tool: str) -> list[tuple[_Joint, int]]:
    """The other tool's joints with the rows of ours; every moving joint must have its counterpart."""
    ours = {name: k for k, name in enumerate(model.joint_names) if model.topology.joints[k].nq}
    left = [joint for joint in theirs if joint.name not in ours]
    rest = [name for name in ours if name not in {joint.name for joint in theirs}]
    pairs = [(joint, ours[joint.name]) for joint in theirs if joint.name in ours]
    base = [Free in joint.matches for joint in left], [model.topology.joints[ours[n]] == Free() for n in rest]
    if base == ([True], [True]):  # the one joint of a robot that has no name in a URDF
        pairs.append((left.pop(), ours[rest.pop()]))
    if left or rest:
        raise ValueError(
            f"joints without a counterpart: {rest or 'none'} of model {model.name!r},"
            f" {[joint.name for joint in left] or 'none'} of {tool}'s"
        )
    for joint, k in pairs:
        kind = model.topology.joints[k]
        if not isinstance(kind, joint.matches):
            expected = " or ".join(t.__name__ for t in joint.matches) or "of a type that is not supported"
            raise ValueError(f"joint {joint.name!r} is {kind!r} in model {model.name!r}, but {tool}'s is {expected}")
    return pairs


def _pinocchio_joint(name: str, joint: Any) -> _Joint:
    kind = joint.shortname()
    matches = next((types for pattern, types in _PINOCCHIO.items() if re.fullmatch(f"JointModel({pattern})", kind)), ())
    circle = "RUB" in kind or "Unbounded" in kind
    return _Joint(name, matches, int(joint.idx_q), int(joint.idx_v), circle)


def _pinocchio_velocity(joint: AbstractJoint) -> np.ndarray:
    """Where each of Pinocchio's velocities stands among ours, within the joint."""
    if isinstance(joint, Free):
        return np.array([3, 4, 5, 0, 1, 2])
    return np.array([1, 2, 0]) if isinstance(joint, Planar) else np.arange(joint.nv)


def _check_planar(model: Model, k: int) -> None:
    """Pinocchio's planar joint moves in the body's own x and y."""
    if not np.allclose(np.asarray(model.hinges.rotation[k]), np.eye(3), atol=1e-6):
        raise ValueError(f"joint {model.joint_names[k]!r}: Pinocchio's planar joints all have the normal (0, 0, 1)")


def _arrays(nq: int, nv: int, q: ArrayLike, v: Any, a: Any, tau: Any) -> Any:
    """All in one floating type and of the right shapes: JAX would clamp an index that is out of range."""
    if a is not None and v is None:
        raise ValueError("converting an acceleration needs the velocity as well")
    given = [None if x is None else jnp.asarray(x) for x in (q, v, a, tau)]
    dtype = jnp.result_type(*(x for x in given if x is not None))
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    meaning = ("configuration", nq), ("velocity", nv), ("acceleration", nv), ("force", nv)
    for x, (what, size) in zip(given, meaning, strict=True):
        if x is not None and x.shape != (size,):
            raise ValueError(f"the {what} has shape {x.shape}, expected ({size},); for a batch use jax.vmap")
    typed: list[Any] = [None if x is None else x.astype(dtype) for x in given]
    return JointState(*typed)
