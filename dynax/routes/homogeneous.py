"""Joints and bodies of one state as 4x4 matrices, all at once, the bodies on the last axis: few kernels, small ones.

A pose is `[R, p; 0, 1]`, a twist `[[w]x, u; 0, 0]` without its last row, an inertia `sum of m r r^T` over the points
`r = (x, y, z, 1)` of a body (the pseudo-inertia of Wensing, Kim and Slotine 2018), a wrench `[[n]x / 2, f; 0, 0]`. The
product of a twist and an inertia is the momentum `sum of m r_dot r^T`, and its power is the sum of the products of its
entries with those of a twist, in which only half the difference of off-diagonal entries counts: the moment.

Besides their number it matters how many kernels could run side by side: of more than eight XLA's executor on a CPU
hands some to another thread and waits for it, 8 us each time. Components of their own, as in the walks, are many.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.model import Model
from dynax.spatial import Quaternion, Transform
from dynax.tree.setup import group_motions, screw_rows

product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def times(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a b` for each body; `b` may lack its last row, of zeros."""
    return sum((a[:, k : k + 1] * b[k : k + 1] for k in range(1, len(b))), a[:, :1] * b[:1])


def times_transpose(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a b^T` for each body."""
    return sum((a[:, k : k + 1] * b[None, :, k] for k in range(1, a.shape[1])), a[:, :1] * b[None, :, 0])


def ends(x: jax.Array) -> jax.Array:
    """Vectors `(3, n)` as the last columns of matrices `(3, 4, n)` of zeros."""
    return x[:, None] * jnp.asarray(np.eye(4)[3], x.dtype)[:, None]


def turned(x: jax.Array) -> jax.Array:
    """Poses, or twists, with zeros for their upper last columns."""
    kept = np.ones((4, 4, 1))
    kept[:3, 3] = 0.0
    return x * jnp.asarray(kept[: len(x)], x.dtype)


class Joints(NamedTuple):
    """All joints; columns and biases in the axes of the bodies carried."""

    pose: jax.Array
    """`(4, 4, n)`; of free roots the rotation alone, their positions are those of the points all motions are about."""
    columns: jax.Array
    """`(6, nv)`."""
    bias: jax.Array | None
    """`S_ring v`, `(6, n)`; `None` where all columns stand still."""


class _Part(NamedTuple):
    """Some of the joints."""

    bodies: np.ndarray
    pose: jax.Array
    columns: tuple[jax.Array, ...]
    """First columns, second columns ..."""
    bias: jax.Array | None


def joint_arrays(model: Model, q: jax.Array, v: jax.Array) -> Joints:
    t = model.topology
    parts = [_roots(model, q)] if len(t.free_roots) else []
    if len(t.carried):
        parts += [_screws(model, q)] if t.all_screws else _general(model, q, v)
    bodies = [part.bodies for part in parts]
    freedoms = [t.v_start[part.bodies] + k for part in parts for k in range(len(part.columns))]
    columns = [column for part in parts for column in part.columns]
    bias = None
    if any(part.bias is not None for part in parts):
        still = [jnp.zeros((6, len(part.bodies)), q.dtype) for part in parts]
        bias = _side_by_side([s if p.bias is None else p.bias for s, p in zip(still, parts, strict=True)], bodies)
    pose = _side_by_side([part.pose for part in parts], bodies).reshape(4, 4, t.num_bodies)
    return Joints(pose, _side_by_side(columns, freedoms), bias)


def _side_by_side(parts: list[jax.Array], places: list[np.ndarray]) -> jax.Array:
    """Along the last axis, in the order of the places."""
    order = np.argsort(np.concatenate(places))
    joined = parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)
    return joined if np.array_equal(order, np.arange(len(order))) else joined[:, order]


def _rows(components, count: int, dtype) -> jax.Array:
    return jnp.stack([jnp.broadcast_to(jnp.asarray(x, dtype), (count,)) for x in components])


def _unit(index: int, count: int, dtype) -> jax.Array:
    return jnp.asarray(np.tile(np.eye(6)[:, index : index + 1], count), dtype)


def _quadratic_form() -> np.ndarray:
    """`B` with `R = 1 + B (x o x)` for a quaternion `x`, `(16, 16)`: the entries of its matrix are of second degree."""

    def entries(*sum_of: int) -> np.ndarray:
        r = Quaternion(*(np.eye(4)[list(sum_of)].sum(0))).matrix()
        matrix = np.zeros((4, 4))
        matrix[:3, :3] = np.reshape(jax.tree.leaves(r), (3, 3)) - np.eye(3)
        return matrix.reshape(16)

    form = np.zeros((16, 4, 4))
    for a in range(4):
        for b in range(4):
            form[:, a, b] = entries(a) if a == b else 0.5 * (entries(a, b) - entries(a) - entries(b))
    return form.reshape(16, 16)


_QUATERNION = _quadratic_form()


def _roots(model: Model, q: jax.Array) -> _Part:
    """One product for the rotations: by components they would be a dozen kernels side by side."""
    t = model.topology
    x = jnp.stack([q[start + 3 : start + 7] for start in t.q_start[t.free_roots]], axis=1)
    pairs = (x[:, None] * x[None]).reshape(16, -1)
    pose = product(jnp.asarray(_QUATERNION, q.dtype), pairs) + jnp.asarray(np.eye(4).reshape(16, 1), q.dtype)
    return _Part(t.free_roots, pose, tuple(_unit(k, len(t.free_roots), q.dtype) for k in range(6)), None)


def _screws(model: Model, q: jax.Array) -> _Part:
    bodies, count = model.topology.carried, len(model.topology.carried)
    joints = screw_rows(model, bodies, q)
    assert joints.cosine is not None
    numbers = (joints.cosine, joints.sine, jnp.ones_like(joints.cosine), joints.slide)
    known = {k: x for k, x in enumerate(numbers) if x is not None}
    entries = np.zeros((4, 4, 4))  # of the pose, in terms of those numbers
    entries[[0, 1], [0, 1], 0] = entries[[2, 3], [2, 3], 2] = 1.0
    entries[0, 1, 1], entries[1, 0, 1], entries[2, 3, 3] = -1.0, 1.0, 1.0
    pose = product(jnp.asarray(entries.reshape(16, 4)[:, list(known)], q.dtype), jnp.stack(list(known.values())))
    turn, slide = (1.0, 0.0) if joints.turn_per_unit is None else (joints.turn_per_unit, joints.slide_per_unit)
    return _Part(bodies, pose, (_rows((0.0, 0.0, turn, 0.0, 0.0, slide), count, q.dtype),), None)


def _general(model: Model, q: jax.Array, v: jax.Array):
    for _, bodies, m in group_motions(model, q, v, list(model.topology.carried)):
        r, d, below = m.rotation, m.translation, (0.0, 0.0, 0.0, 1.0)
        entries = (r.xx, r.xy, r.xz, d.x, r.yx, r.yy, r.yz, d.y, r.zx, r.zy, r.zz, d.z, *below)
        rows = partial(_rows, count=len(bodies), dtype=q.dtype)
        columns = tuple(rows(jax.tree.leaves(column)) for column in m.columns)
        yield _Part(bodies, rows(entries), columns, None if m.bias is None else rows(jax.tree.leaves(m.bias)))


def _screw_matrix() -> np.ndarray:
    """Entries `[[w]x, p x w + u]` in terms of those of `w (p, 1)^T` and, in the row below, of `u^T`: `(12, 16)`."""
    epsilon = np.cross(np.eye(3)[:, None], np.eye(3)[None])  # [i, j, k]: (e_i x e_j)_k
    matrix = np.zeros((3, 4, 4, 4))
    matrix[:, :3, :3, 3] = -epsilon
    matrix[:, 3, :3, :3] = epsilon.transpose(0, 2, 1)
    matrix[:, 3, 3, :3] = np.eye(3)
    return matrix.reshape(12, 16)


_SCREW = _screw_matrix()


def twists(pose: jax.Array, motions: jax.Array) -> jax.Array:
    """`(3, 4, m)` in world axes about the common point, from motions `(6, m)` in the axes of bodies at `pose`."""
    angular, linear = (times(pose[:, :3], half[:, None])[:, 0] for half in jnp.split(motions, 2))
    below = jnp.asarray(np.eye(4)[3], pose.dtype)[:, None, None]
    lines = angular[:, None] * pose[None, :, 3] + below * linear
    return product(jnp.asarray(_SCREW, pose.dtype), lines.reshape(16, -1)).reshape(3, 4, -1)


class Bodies(NamedTuple):
    """`(4, 4, n)` each, in the axes of the joints that carry the bodies."""

    frame: jax.Array
    """The joint at its identity, in the axes of the parent's."""
    inertia: jax.Array
    wrench: jax.Array | None


def _moment_matrix() -> np.ndarray:
    """Second moments about the centre of mass, and the centre, in terms of Ixx Iyy Izz Ixy Iyz Ixz x y z 1."""
    matrix = np.zeros((5, 4, 10))
    matrix[range(3), range(3), :3] = 0.5 - np.eye(3)
    matrix[[0, 1, 1, 2, 0, 2], [1, 0, 2, 1, 2, 0], [3, 3, 4, 4, 5, 5]] = -1.0
    matrix[4, :, 6:] = np.eye(4)
    return matrix.reshape(20, 10)


_MOMENTS = _moment_matrix()


def body_arrays(model: Model, dtype, external: jax.Array | None) -> Bodies:
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), model.hinges, model.placements)
    hinge, placement = jnp.split(_poses(both, dtype), 2, axis=2)
    back = jnp.swapaxes(hinge[:3, :3], 0, 1)
    into = jnp.concatenate([jnp.concatenate([back, -times(back, hinge[:3, 3:])], axis=1), hinge[3:]])
    parents, count = np.asarray(model.parents), model.num_bodies
    world = jnp.asarray(np.eye(4)[:, :, None], dtype)
    of_parent = jnp.concatenate([into, world], axis=2)[:, :, np.where(parents < 0, count, parents)]
    # Where a tree hangs on the world does not matter to it: the first joint is the point all motions are about.
    known = np.ones((4, 4, count))
    known[:3, 3, parents < 0] = 0.0
    frame = times(of_parent, times(placement, hinge)) * jnp.asarray(known, dtype)

    leaves = jnp.concatenate([model.inertia, model.com, jnp.ones((count, 1), model.com.dtype)], axis=1).astype(dtype)
    spread, centre = jnp.split(product(jnp.asarray(_MOMENTS, dtype), leaves.T).reshape(5, 4, count), [4])
    inertia = spread + model.mass.astype(dtype) * centre[0][:, None] * centre
    wrench = None
    if external is not None:
        # [[n]x / 2, f] from the twist of the screw (n / 2; f) through the origin.
        halves = jnp.asarray([0.5, 0.5, 0.5, 1.0, 1.0, 1.0], dtype)[:, None]
        top = twists(jnp.broadcast_to(world, (4, 4, count)), external.astype(dtype).T * halves)
        below = jnp.zeros((1, 4, count), dtype)
        wrench = times_transpose(times(into, jnp.concatenate([top, below])), into)
    return Bodies(frame, times_transpose(times(into, inertia), into), wrench)


def _poses(poses: Transform, dtype) -> jax.Array:
    top = jnp.concatenate([poses.rotation, poses.translation[:, :, None]], axis=2).astype(dtype)
    below = jnp.broadcast_to(jnp.asarray(np.eye(4)[3:, :, None], dtype), (1, 4, len(top)))
    return jnp.concatenate([jnp.moveaxis(top, 0, 2), below])
