"""Limits of joints as contacts: the gap is the way to the nearer end, and nothing rubs.

gap = min(q - lower, upper - q)        d gap / dt = +-v
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.contact.scene import Scene
from dynax.embedding.meanings import tree_motion
from dynax.embedding.model import EmbeddedModel, tree_of

FAR = 1e3
"""Where there is no limit [m, rad]."""


class Limits(NamedTuple):
    """Rows of `scene.limited`."""

    gap: jax.Array
    """Shape `(l,)` [m, rad], negative beyond the limit."""
    sign: jax.Array
    """1 where the lower limit is the nearer one, -1 for the upper one."""
    jacobian: jax.Array
    """The rate of the gap by `v`, shape `(l, nv)`."""


def limits_at(scene: Scene, q: jax.Array) -> Limits:
    """How far joints are from where they end, at `q` of shape `(nq,)`."""
    tree = tree_of(scene.model)
    place = np.array([tree.q_slice(name).start for name in scene.limited], int)
    freedom = np.array([tree.v_slice(name).start for name in scene.limited], int)
    ends = tree.position_limits.astype(q.dtype)[place]
    below, above = q[place] - ends[:, 0], ends[:, 1] - q[place]
    lower = lax.stop_gradient(below <= above)
    gap = jnp.where(lower, below, above)
    gap = jnp.where(jnp.isfinite(gap), gap, FAR)
    sign = jnp.where(lower, 1.0, -1.0).astype(q.dtype)
    rows = np.eye(tree.nv, dtype=q.dtype)[freedom]
    if isinstance(scene.model, EmbeddedModel):
        rows = tree_motion(scene.model, q, jnp.zeros(scene.nv, q.dtype)).x[freedom]
    return Limits(gap, sign, sign[:, None] * rows)
