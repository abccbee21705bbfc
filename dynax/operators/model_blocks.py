"""The blocks of E, H, M and the armature of a model of rigid bodies, in body axes about body origins."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.model import Model
from dynax.model.inertias import body_inertias
from dynax.operators.blocks import BlockDiagonal, Blocks, ChildToParent
from dynax.operators.recursions import mul
from dynax.spatial import Motion, Transform, Vec3
from dynax.tree.setup import _join_groups, group_motions


class ModelBlocks(NamedTuple):
    """What a configuration decides; everything else follows from these."""

    E_phi: ChildToParent
    H: BlockDiagonal
    M: BlockDiagonal
    armature: BlockDiagonal


def force_transform(rotation: jax.Array, translation: jax.Array) -> jax.Array:
    """`phi` for frames at poses `(m, 3, 3)`, `(m, 3)`: forces in their axes, at their origins, to the outer frame."""
    moment = mul(Vec3.from_array(translation).skew().array, rotation)
    top = jnp.concatenate([rotation, moment], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([jnp.zeros_like(rotation), rotation], axis=-1)], axis=-2)


def _cast(pose: Transform, dtype) -> Transform:
    return Transform(pose.rotation.astype(dtype), pose.translation.astype(dtype))


def _joints(model: Model, q: jax.Array) -> tuple[Transform, jax.Array]:
    """Each body's pose in its parent, and the motion columns in body axes, `(nv, 6)`."""
    t, n = model.topology, model.num_bodies
    if not n:
        return _cast(model.placements, q.dtype), jnp.zeros((0, 6), q.dtype)
    motions = list(group_motions(model, q, jnp.zeros(model.nv, q.dtype), list(range(n))))
    poses = [(bodies, (m.rotation, m.translation)) for _, bodies, m in motions]
    rotation, translation = _join_groups(poses, np.arange(n), (), q.dtype)
    hinges = _cast(model.hinges, q.dtype)
    pose = _cast(model.placements, q.dtype) @ hinges @ Transform(rotation.array, translation.array) @ hinges.inverse
    parts = [(t.v_start[bodies] + k, column) for _, bodies, m in motions for k, column in enumerate(m.columns)]
    if not parts:
        return pose, jnp.zeros((0, 6), q.dtype)
    columns: Motion = _join_groups(parts, np.arange(model.nv), (), q.dtype)
    own = t.body_of_velocity
    return pose, (Transform(hinges.rotation[own], hinges.translation[own]) @ columns).array


def model_blocks(model: Model, q: jax.Array) -> ModelBlocks:
    """The blocks at a configuration `(nq,)`."""
    t, n, dtype = model.topology, model.num_bodies, q.dtype
    six, free = Blocks((6,) * n, 6), Blocks(tuple(joint.nv for joint in t.joints))
    pose, columns = _joints(model, q)
    carried = (np.array(t.parents, int) >= 0).reshape(-1, 1, 1)
    shift = jnp.where(carried, force_transform(pose.rotation, pose.translation), jnp.zeros((), dtype))
    rotor = free.pad(model.armature.astype(dtype)[:, None]) * jnp.eye(free.width, dtype=dtype)
    return ModelBlocks(
        ChildToParent(t.parents, six, six, shift),
        BlockDiagonal(free, six, free.pad(columns)),
        BlockDiagonal(six, six, body_inertias(model, dtype).matrix, "positive"),
        BlockDiagonal(free, free, rotor, "positive"),
    )
