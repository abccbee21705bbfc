"""States between our conventions and those of other engines: what `MujocoConverter`, `PinocchioConverter`,
`DrakeConverter` and `JaxsimConverter` share.

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

| joint | Drake, velocities in the parent's axes | JaxSim, in the world's axes |
|---|---|---|
| free `q` | `qw qx qy qz` or `roll pitch yaw`, then `x y z` | `x y z, qw qx qy qz`, before all others |
| free `v` | `[omega; velocity]` | `[velocity; omega]` |
| spherical `q`; `v` | `roll pitch yaw`; `omega` | |
| planar `q`; `v` | `x, y, theta`; `vx, vy, omega` | |

Unless it says otherwise, components are in the body's axes. Accelerations are the derivatives of `v` on either side:
that of a velocity in axes which do not move depends on the velocity too, `R (v_dot + omega x v)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.joints import AbstractJoint, Free, Planar, Spherical
from dynax.model import Model
from dynax.spatial import Quaternion


class JointState(NamedTuple):
    """Configuration, velocity, acceleration and joint force, `None` for what a converter was not given."""

    q: jax.Array
    v: jax.Array | None = None
    a: jax.Array | None = None
    tau: jax.Array | None = None


class TheirJoint(NamedTuple):
    """A joint of the other tool: where its coordinates stand, and the types of ours it can match."""

    name: str
    matches: tuple[type[AbstractJoint], ...]
    q: int
    v: int
    circle: bool = False
    """Whether its angle is kept as cosine and sine."""


class Turn(NamedTuple):
    """A joint of ours whose velocity other tools give in axes of its parent: where it stands in our `q` and `v`."""

    kind: type[AbstractJoint]
    q: int
    v: int

    def blocks(self, q: jax.Array) -> list[tuple[np.ndarray, jax.Array]]:
        """Rows of `v`, and what turns them from the body's axes to the parent's."""
        if self.kind is Planar:
            c, s = jnp.cos(q[self.q]), jnp.sin(q[self.q])
            return [(self.v + np.array([1, 2]), jnp.array([[c, -s], [s, c]]))]
        start = self.q + (3 if self.kind is Free else 0)
        rotation = Quaternion.from_array(q[start : start + 4]).matrix().array
        count = 2 if self.kind is Free else 1
        return [(self.v + 3 * k + np.arange(3), rotation) for k in range(count)]

    def spin(self, v: jax.Array) -> tuple[np.ndarray, jax.Array]:
        """Rows of linear velocity, and `omega x velocity` in the body's axes: the rest of its derivative."""
        if self.kind is Planar:
            return self.v + np.array([1, 2]), v[self.v] * jnp.array([-v[self.v + 2], v[self.v + 1]])
        rows = self.v + 3 + np.arange(3 if self.kind is Free else 0)
        return rows, jnp.cross(v[self.v + np.arange(3)], v[rows]) if self.kind is Free else v[rows]


def turns(model: Model, rows: Sequence[int]) -> list[Turn]:
    """The joints among `rows` that turn as a whole."""
    found = []
    for k in rows:
        kind = next((t for t in (Free, Spherical, Planar) if isinstance(model.topology.joints[k], t)), None)
        if kind is not None:
            found.append(Turn(kind, int(model.topology.q_start[k]), int(model.topology.v_start[k])))
    return found


def to_parent_axes(found: Sequence[Turn], s: JointState) -> JointState:
    """A state of ours with velocities, accelerations and forces of those joints in their parents' axes."""
    return JointState(s.q, *(_turned(found, s.q, x, False) for x in (s.v, _spun(found, s.a, s.v, 1.0), s.tau)))


def from_parent_axes(found: Sequence[Turn], s: JointState) -> JointState:
    """What `to_parent_axes` undoes; the configuration is ours already."""
    v, a, tau = (_turned(found, s.q, x, True) for x in s[1:])
    return JointState(s.q, v, _spun(found, a, v, -1.0), tau)


def _turned(found: Sequence[Turn], q: jax.Array, x: jax.Array | None, back: bool) -> jax.Array | None:
    if x is None:
        return None
    for turn in found:
        for rows, matrix in turn.blocks(q):
            x = x.at[rows].set((matrix.T if back else matrix) @ x[rows])
    return x


def _spun(found: Sequence[Turn], a: jax.Array | None, v: jax.Array | None, sign: float) -> jax.Array | None:
    if a is None or v is None:
        return None
    for turn in found:
        rows, more = turn.spin(v)
        a = a.at[rows].add(sign * more)
    return a


def matched(model: Model, theirs: Sequence[TheirJoint], tool: str) -> list[tuple[TheirJoint, int]]:
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


def arrays(nq: int, nv: int, q: ArrayLike, v: Any, a: Any, tau: Any) -> Any:
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
