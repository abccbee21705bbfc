"""States to and from JaxSim: the table of `convert.py`."""

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
from dynax.joints import Free, Prismatic, Revolute
from dynax.model import Model


class JaxsimConverter:
    """Between our states and those of a `JaxSimModel`, in its mixed representation of velocities, its default.

    **Arguments:**

    - `model`: our model, its joints of one freedom but for a free root.
    - `js_model`: a `jaxsim.api.model.JaxSimModel` of the same robot. Joints correspond by name.

    JaxSim's base comes first and is always there: `q` is `[position, quaternion, joints]`, `v` is
    `[velocity, omega, joints]` in world axes, `tau` the wrench on the base likewise and the forces of the joints. A
    root that is fixed stands at the world's origin, with zeros. `to` and `back` convert one state; `jax.vmap` converts
    batches.
    """

    def __init__(self, model: Model, js_model: Any):
        base = [TheirJoint(f"the base {js_model.base_link()}", (Free,), 0, 0)] if js_model.floating_base() else []
        joints = [
            TheirJoint(name, (Revolute, Prismatic), 7 + k, 6 + k) for k, name in enumerate(js_model.joint_names())
        ]
        q, v, pairs = [], [], matched(model, [*base, *joints], "JaxSim")
        for joint, k in pairs:
            first_q, first_v = int(model.topology.q_start[k]), int(model.topology.v_start[k])
            order = np.array([3, 4, 5, 0, 1, 2] if isinstance(model.topology.joints[k], Free) else [0])
            size = np.arange(model.topology.joints[k].nq)
            q += zip(joint.q + size, first_q + size, strict=True)
            v += zip(joint.v + np.arange(len(order)), first_v + order, strict=True)
        self._q, self._own_q = np.array(q, int).reshape(-1, 2).T
        self._v, self._own_v = np.array(v, int).reshape(-1, 2).T
        self._count = len(joints)
        self._turns = turns(model, [k for _, k in pairs])

    def to(
        self, q: ArrayLike, v: ArrayLike | None = None, *, a: ArrayLike | None = None, tau: ArrayLike | None = None
    ) -> JointState:
        """Our state as JaxSim's, in the arrays described above; `a` needs `v`."""
        s = to_parent_axes(self._turns, arrays(len(self._q), len(self._v), q, v, a, tau))
        still = jnp.zeros(7 + self._count, s.q.dtype).at[3].set(1.0)
        return JointState(still.at[self._q].set(s.q[self._own_q]), *(self._spread(x) for x in s[1:]))

    def _spread(self, x: jax.Array | None) -> jax.Array | None:
        return None if x is None else jnp.zeros(6 + self._count, x.dtype).at[self._v].set(x[self._own_v])

    def back(
        self, q: ArrayLike, v: ArrayLike | None = None, *, a: ArrayLike | None = None, tau: ArrayLike | None = None
    ) -> JointState:
        """JaxSim's state as ours; `a` needs `v`. What it says of a base that is fixed here is left out."""
        s = arrays(7 + self._count, 6 + self._count, q, v, a, tau)
        own = jnp.zeros(len(self._q), s.q.dtype).at[self._own_q].set(s.q[self._q])
        rest = (None if x is None else jnp.zeros(len(self._v), x.dtype).at[self._own_v].set(x[self._v]) for x in s[1:])
        return from_parent_axes(self._turns, JointState(own, *rest))

    def keywords(self, q: ArrayLike, v: ArrayLike) -> dict[str, jax.Array]:
        """What `jaxsim.api.data.JaxSimModelData.build(model=js_model, ...)` takes of a state of ours."""
        there, motion, _, _ = self.to(q, v)
        assert motion is not None
        return {
            "base_position": there[:3], "base_quaternion": there[3:7], "joint_positions": there[7:],
            "base_linear_velocity": motion[:3], "base_angular_velocity": motion[3:6], "joint_velocities": motion[6:],
        }  # fmt: skip
