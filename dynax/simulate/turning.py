"""The axes of free and planar bases turn within a step.

Their velocities are along axes of the body, which turn by some degrees a step if it rolls fast. But weight and what
bears it, or what two bodies do to each other, are in balance along axes that both share: else what rolls gains speed
from its weight, up to `g dt / 2 r` of it in a second, and a hit loses momentum. So a step with contact knows the
velocity `w` along the axes where it begins,

    w  = v + dt a + dt omega x c         without contact: of Coriolis forces without the turn of axes
    v+ = w + (exp(-dt omega) - 1) c      along the axes where it ends
    x  = w + (V^-1 - 1) c                q+ = integrate(q, dt x), where V is the translation of exp(dt omega)

with `c` the velocity of the centre of mass of all that the base carries, its momentum by its mass. That moves straight,
by `dt c`, and the base turns about it; of linear momentum nothing is lost by the turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.embedding.coefficients import plan_of
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.model import Model
from dynax.spatial import Quaternion, Vec3, log_translation


@dataclass(frozen=True)
class Turning:
    """The bases whose axes turn, and the step."""

    angular: np.ndarray
    """Entries of the velocity, shape `(k, 3)`, -1 for none."""
    linear: np.ndarray
    inertia: jax.Array
    dt: jax.Array

    @classmethod
    def of(cls, model: Model | EmbeddedModel, inertia: jax.Array, dt: jax.Array) -> Turning:
        angular, linear = _bases(model)
        return cls(angular, linear, inertia, dt)

    def straight(self, v: jax.Array, free: jax.Array) -> jax.Array:
        """`w` of a step from `v` to `free` without contact, whose Coriolis forces are those of the mean velocity."""
        return self._changed(free, 0.5 * (v + free), lambda angle, c: angle.cross(c))

    def turned(self, w: jax.Array) -> jax.Array:
        """`v+`."""
        return self._changed(w, w, lambda angle, c: Quaternion.exp(-angle).matrix() @ c - c)

    def screw(self, w: jax.Array) -> jax.Array:
        """`x`."""
        return self._changed(w, w, lambda angle, c: log_translation(angle, c) - c)

    def _changed(self, v: jax.Array, mean: jax.Array, by: Callable[[Vec3, Vec3], Vec3]) -> jax.Array:
        """`v` with a change of linear velocities, by the angle and by `c` of a mean velocity."""
        if not len(self.linear):
            return v
        mass = jnp.diagonal(self.inertia)[self.linear]
        centre = _components((self.inertia[self.linear] @ mean) / mass, self.linear)
        change = by(_components(self.dt * mean[self.angular], self.angular), centre)
        rows = np.where(self.linear < 0, len(v), self.linear)
        return v.at[rows].add(jnp.stack([change.x, change.y, change.z], axis=1), mode="drop")


def _components(x: jax.Array, entries: np.ndarray) -> Vec3:
    return Vec3(*jnp.where(entries < 0, 0.0, x).T)


def _bases(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where the angular and the linear velocities of bases are whose axes turn."""
    topology = tree_of(model).topology
    place = np.arange(topology.nv)
    if isinstance(model, EmbeddedModel):
        # Of a base in a loop, or in a chart, velocities are not those of a body alone.
        plan = plan_of(model.tree, model.embedding)
        alone = np.setdiff1d(plan.independent, np.concatenate([g.freedoms.ravel() for g in plan.groups] or [[]]))
        place = np.where(np.isin(place, alone), np.searchsorted(plan.independent, place), -1)
    found = [
        np.where(np.array(joint.turning) < 0, -1, place[start + np.array(joint.turning)])
        for joint, parent, start in zip(topology.joints, topology.parents, topology.v_start, strict=False)
        if joint.turning and parent < 0 and np.all(place[start : start + joint.nv] >= 0)
    ]
    angular, linear = np.split(np.array(found, int).reshape(-1, 6), 2, axis=1)
    return angular, linear
