"""The free base: six freedoms, carried by the world, closed by one 6x6 solution where the walk inward ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.fence import apart
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.model import Model
from dynax.spatial import ArticulatedInertia, Force, Mat3, Motion, RigidInertia, Vec3
from dynax.spatial.inertia import vec3
from dynax.sweep import take_rows
from dynax.sweep.scan import scan
from dynax.tree.bodies import per_velocity, stacked
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup


class RootInertia(NamedTuple):
    """The articulated inertias of the free bases in their own axes, shape `(6, 6, k, *batch)`."""

    matrix: jax.Array

    def solve(self, rhs: jax.Array) -> jax.Array:
        """Accelerations from forces, both in the bases' own axes and of shape `(6 k, m, *batch)`."""
        own = jnp.moveaxis(apart(rhs).reshape(rhs.shape[0] // 6, 6, *rhs.shape[1:]), 0, 2)
        return jnp.moveaxis(gauss_jordan(self.matrix, own), 2, 0).reshape(rhs.shape)

    def definite(self) -> jax.Array:
        """One where all are positive, and no number where one is not, shape `batch`: their solution is one all the
        same, but no motion."""

        def eliminated(rest: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
            own = lax.dynamic_index_in_dim(rest, k, 1, keepdims=False)
            own = own / jnp.sqrt(lax.dynamic_index_in_dim(own, k, 0))
            return rest - own[:, None] * own, jnp.sum(own, axis=(0, 1))

        return 1.0 + 0.0 * jnp.sum(scan(eliminated, self.matrix, jnp.arange(6))[1], axis=0)


class Bases(NamedTuple):
    """The free bases of a tree by themselves."""

    rotation: Mat3
    inertia: RigidInertia
    """World axes about their origins."""
    armature: jax.Array
    """Shape `(6, k, *batch)`."""

    def closed(self, handed: ArticulatedInertia) -> RootInertia:
        """With what the world and the bases are handed."""
        total = jax.tree.map(lambda a: a[1:], handed) + self.inertia
        rows = _in_own_axes(self.rotation, _stacked(total.rows))
        eye = jnp.eye(6, dtype=rows.dtype).reshape((6, 6) + (1,) * (rows.ndim - 2))
        return RootInertia(rows + eye * self.armature[None].astype(rows.dtype))


def _stacked(rows: Sequence[Sequence[jax.Array]]) -> jax.Array:
    """A matrix of entries, put together before it is used: as a part of a formula it would be in it again and again."""
    return apart(jnp.stack([jnp.stack(jnp.broadcast_arrays(*row)) for row in rows]))


def _in_own_axes(rotation: Mat3, matrix: jax.Array) -> jax.Array:
    """`R* M R`, `R` the rotation twice on the diagonal, of symmetric matrices `(6, 6, k, *batch)` in world axes.

    By arrays: entry by entry it is a sixth of what forward dynamics of a small floating robot compiles to.
    """
    axes = _stacked([vec3(row) for row in rotation.rows])
    for _ in range(2):  # rows, then columns: the transpose of the transpose
        parts = matrix.reshape(2, 3, 1, *matrix.shape[1:])
        turned = sum((axes[k, :, None] * parts[:, k] for k in (1, 2)), axes[0, :, None] * parts[:, 0])
        matrix = jnp.swapaxes(turned.reshape(matrix.shape), 0, 1)
    return matrix


def free_bases(model: Model, s: Setup, inertias: Parts, which: np.ndarray | None = None) -> Bases:
    """The free roots of a tree, or those of them that are bases."""
    which = np.arange(len(s.layout.topology.free_roots)) if which is None else which
    entries = s.layout.root_velocity.reshape(-1, 6)[which].reshape(-1)
    armature = per_velocity(model.armature, jnp.zeros((model.nv, *s.batch), s.dtype))[entries]
    own = jnp.moveaxis(armature.reshape(len(which), 6, *armature.shape[1:]), 0, 1)
    rotation, inertia = take_rows((s.root_rotation, inertias.roots), which)
    return Bases(rotation, inertia, own)


def root_forces(rotation: Mat3, force: Force) -> jax.Array:
    """Forces on the free bases in their own axes, shape `(6 k, *batch)`."""
    own = stacked(force.rotate_back(rotation))
    return own.reshape(own.shape[0] * own.shape[1], *own.shape[2:])


def base_accelerations(rotation: Mat3, own: jax.Array) -> Motion:
    """Accelerations in world axes: zero for the world, then the free bases' from their own axes."""
    six = own.reshape(own.shape[0] // 6, 6, *own.shape[1:])
    motion = Motion(Vec3(six[:, 0], six[:, 1], six[:, 2]), Vec3(six[:, 3], six[:, 4], six[:, 5])).rotate(rotation)
    return jax.tree.map(lambda a: jnp.concatenate([jnp.zeros_like(a, shape=(1, *a.shape[1:])), a]), motion)
