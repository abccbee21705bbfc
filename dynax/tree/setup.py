"""Everything about the bodies and joints that does not depend on other bodies, for all of them at once.

Model leaves become components here; each body's internal axes are its joint's canonical ones, hinge along z, origin at
the joint. What comes out has one leading axis (bodies, or rows of the layout) and then the batch axes of `q`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.fence import apart
from dynax.joints import AbstractJoint, JointMotion
from dynax.model import Model
from dynax.spatial import Mat3, Motion, RigidInertia, Scalar, Sym3, Vec3
from dynax.spatial.cos_sin import cos_sin
from dynax.sweep import take_entries, take_rows
from dynax.tree.layout import Layout, Parts, layout


class Constants(NamedTuple):
    """Per body, in body order and internal axes."""

    rotation: Mat3
    """The internal axes at the joint's identity, in the parent's internal axes."""
    offset: Vec3
    """The joint's origin, in the parent's internal axes from the parent's internal origin."""
    inertia: RigidInertia
    hinge_rotation: Mat3
    """Internal axes in the body's own."""
    hinge_offset: Vec3
    """The internal origin in the body's frame."""


class JointRows(NamedTuple):
    """The carried bodies' joints, in rows. Screws along z have `cosine` and `sine`, other joints a full pose."""

    cosine: Scalar | None = None
    sine: Scalar | None = None
    slide: Scalar | None = None
    rotation: Mat3 | None = None
    translation: Vec3 | None = None
    turn_per_unit: Scalar | None = None
    slide_per_unit: Scalar | None = None


class Setup(NamedTuple):
    """What the algorithms start from."""

    layout: Layout
    q: jax.Array
    constants: Parts
    joints: JointRows
    motions: tuple[tuple[AbstractJoint, np.ndarray, JointMotion], ...]
    """For general joints: kind, bodies and motion, before they are put in rows."""
    root_rotation: Mat3
    root_position: Vec3
    gravity: Vec3
    batch: tuple[int, ...]
    dtype: jnp.dtype


def rows_vec(a: jax.Array) -> Vec3:
    """Components of an array whose axis 1 has length 3, at once: the transpose of single ones is a sum of paddings."""
    return Vec3(*jnp.unstack(a, axis=1))


def rows_mat(a: jax.Array) -> Mat3:
    return Mat3(*(a[:, i, j] for i in range(3) for j in range(3)))


def lift(leaf: jax.Array, ndim: int, batch_ndim: int, dtype) -> jax.Array:
    """A leaf with as many trailing batch axes as the state: its own, or new ones of length one."""
    leaf = leaf.astype(dtype)
    return leaf.reshape(leaf.shape + (1,) * (ndim + batch_ndim - leaf.ndim)) if leaf.ndim < ndim + batch_ndim else leaf


def body_constants(model: Model, batch_ndim: int, dtype) -> Constants:
    """The model's constants in internal axes."""

    def get(leaf: jax.Array, ndim: int) -> jax.Array:
        return lift(leaf, ndim, batch_ndim, dtype)

    placement = rows_mat(get(model.placements.rotation, 3)), rows_vec(get(model.placements.translation, 2))
    hinge = rows_mat(get(model.hinges.rotation, 3)), rows_vec(get(model.hinges.translation, 2))
    parents = np.asarray(model.parents, dtype=int)
    one = Mat3.identity(hinge[0].xx[:1])

    def of_parent(own, world):
        joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), own, world)
        return take_rows(joined, np.where(parents < 0, len(parents), parents))

    parent_rotation = of_parent(hinge[0], one)
    parent_offset = of_parent(hinge[1], Vec3.zero(hinge[1].x[:1]))
    rotation = parent_rotation.T @ (placement[0] @ hinge[0])
    offset = parent_rotation.transpose_apply(placement[1] + placement[0] @ hinge[1] - parent_offset)
    com, left = (rows_vec(get(leaf, 2)) for leaf in (model.com, model.first_moment))
    about_com = RigidInertia(get(model.mass, 1), left, Sym3(*jnp.unstack(get(model.inertia, 2), axis=1)))
    local = about_com.rotate(hinge[0].T).shift_to_parent(hinge[0].transpose_apply(com - hinge[1]))
    # Else what is made of them, in world axes, computes each of them once more for each of its own numbers.
    return Constants(rotation, offset, jax.tree.map(apart, local), hinge[0], hinge[1])


def setup(
    model: Model, q: jax.Array, v: jax.Array | None = None, execution: str = "levels", *, stopped: bool = False
) -> Setup:
    """Constants, joint poses and root poses for configurations `q` of shape `(nq, *batch)`.

    `execution` is that of the walks, `"automatic"` in what can be one kernel. `stopped` takes joints that are driven in
    time where they stand, and at rest.
    """
    topology = model.topology
    plan = layout(topology, execution)
    batch, dtype = q.shape[1:], q.dtype
    constants = body_constants(model, len(batch), dtype)
    parts = plan.split(constants)
    motions: tuple = ()
    if topology.all_screws:
        joints = screw_rows(model, plan.body_of_row, q)
    else:
        rates = jnp.zeros((topology.nv, *batch), dtype) if v is None else v
        motions = tuple(group_motions(model, q, rates, list(topology.carried), stopped=stopped))
        pose = [(bodies, (m.rotation, m.translation)) for _, bodies, m in motions]
        rotation, translation = _join_groups(pose, plan.body_of_row, batch, dtype)
        joints = JointRows(rotation=rotation, translation=translation)
    root_rotation, root_position = _root_poses(model, plan, parts.roots, q)
    gravity = lift(model.gravity, 1, len(batch), dtype)
    return Setup(plan, q, parts, joints, motions, root_rotation, root_position, Vec3(*gravity), batch, jnp.dtype(dtype))


def screw_rows(model: Model, bodies: np.ndarray, q: jax.Array) -> JointRows:
    """The joints of some bodies, all screws; rows of negative numbers hold anything."""
    topology, at = model.topology, np.maximum(bodies, 0)
    coordinate = take_rows(q, topology.q_start[at])
    if topology.all_revolute:
        cosine, sine = cos_sin(coordinate)
        return JointRows(cosine=cosine, sine=sine)
    screws = [topology.joints[b].screw or (0.0, 0.0) for b in at]
    shape = (-1,) + (1,) * (q.ndim - 1)
    turn = jnp.asarray([s[0] for s in screws], q.dtype).reshape(shape)
    slide = jnp.asarray([s[1] for s in screws], q.dtype).reshape(shape)
    pitched = np.array([bool(topology.joints[b].parameters) for b in at])
    if pitched.any():
        pitches = take_rows(
            lift(model.joint_parameters, 1, q.ndim - 1, q.dtype), np.where(pitched, topology.parameter_start[at], -1)
        )
        slide = slide + turn * pitches
    cosine, sine = cos_sin(turn * coordinate)
    return JointRows(cosine=cosine, sine=sine, slide=slide * coordinate, turn_per_unit=turn, slide_per_unit=slide)


def group_motions(model: Model, q: jax.Array, v: jax.Array, bodies: list[int], *, stopped: bool = False):
    """The motion of each kind of joint, all joints of a kind at once."""
    topology, wanted = model.topology, {int(b) for b in bodies}
    parameters = lift(model.joint_parameters, 1, q.ndim - 1, q.dtype)
    time = lift(model.time, 0, q.ndim - 1, q.dtype)
    for kind, members in topology.groups.items():
        group = np.array([b for b in members if int(b) in wanted], dtype=int)
        if not len(group):
            continue
        coordinates = take_entries(q, topology.q_start[group], kind.nq)
        rates = take_entries(v, topology.v_start[group], kind.nv)
        own = take_entries(parameters, topology.parameter_start[group], len(kind.parameters))
        clock = jnp.broadcast_to(time, (len(group), *q.shape[1:]))
        motion = kind.motion(coordinates, rates, own, clock)
        if stopped and kind.rheonomic:
            changes = kind.column_rates(coordinates, rates, own, clock) if kind.nv else ()
            velocity, bias = (
                sum((c * x for c, x in zip(columns, rates, strict=True)), Motion.zero())
                for columns in (motion.columns, changes)
            )
            motion = motion._replace(velocity=velocity, bias=bias)
        yield kind, group, motion


def _join_groups(parts, index: np.ndarray, batch, dtype):
    """Trees per group of bodies, joined and put in the order of `index` (bodies; -1 for zeros)."""
    bodies = np.concatenate([b for b, _ in parts])

    def fill(count: int):
        # What is computed stays so: behind a look-up each row would choose its formula, sines of all in each.
        return lambda a: apart(jnp.broadcast_to(jnp.asarray(a, dtype), (count, *batch)))

    trees = [jax.tree.map(fill(len(b)), tree) for b, tree in parts]
    joined = trees[0] if len(trees) == 1 else jax.tree.map(lambda *a: jnp.concatenate(a), *trees)
    position = np.zeros(bodies.max() + 1, dtype=int)
    position[bodies] = np.arange(len(bodies))
    return take_rows(joined, np.where(index < 0, -1, position[np.maximum(index, 0)]))


def _root_poses(model: Model, plan: Layout, constants: Constants, q: jax.Array) -> tuple[Mat3, Vec3]:
    """World poses of the free roots, leading axis their number."""
    roots = model.topology.free_roots
    if not len(roots):
        empty = jnp.zeros((0, *q.shape[1:]), q.dtype)
        return Mat3(*(empty,) * 9), Vec3(*(empty,) * 3)
    ((_, _, motion),) = group_motions(model, q, jnp.zeros((model.nv, *q.shape[1:]), q.dtype), list(roots))
    rotation = constants.rotation @ motion.rotation
    position = constants.offset + constants.rotation @ motion.translation
    # Of one root a look-up is a slice, and all of this would be in each formula that asks for an entry.
    return jax.tree.map(lambda a: apart(jnp.broadcast_to(a, (len(roots), *q.shape[1:]))), (rotation, position))


def joint_rates(s: Setup, model: Model, v: jax.Array) -> Scalar | Motion:
    """The joint rates of the carried bodies in rows: `v` itself for screws, `S v + sigma` in body axes otherwise."""
    if model.topology.all_screws:
        return take_rows(v, model.topology.v_start[np.maximum(s.layout.body_of_row, 0)])
    parts = [(bodies, m.velocity) for _, bodies, m in s.motions]
    return _join_groups(parts, s.layout.body_of_row, s.batch, s.dtype)


def joint_biases(s: Setup, model: Model) -> Motion | None:
    """`S_ring v + sigma_ring` of the carried bodies in rows, `None` where it vanishes for all of them."""
    if model.topology.all_screws or all(m.bias is None for _, _, m in s.motions):
        return None
    parts = [(bodies, Motion.zero() if m.bias is None else m.bias) for _, bodies, m in s.motions]
    return _join_groups(parts, s.layout.body_of_row, s.batch, s.dtype)


def joint_motions(s: Setup, model: Model, x: jax.Array) -> Scalar | Motion:
    """`S x` of the carried bodies in rows, for any vector `x` of velocity coordinates."""
    if model.topology.all_screws:
        return take_rows(x, model.topology.v_start[np.maximum(s.layout.body_of_row, 0)])
    parts = []
    for _, bodies, m in s.motions:
        rates = take_entries(x, model.topology.v_start[bodies], len(m.columns))
        parts.append((bodies, m.along(rates) if rates else Motion.zero()))
    return _join_groups(parts, s.layout.body_of_row, s.batch, s.dtype)


def slot_columns(s: Setup, model: Model, which: np.ndarray | None = None) -> Motion:
    """The motion columns of general joints in slot rows, in the internal axes of their bodies; or `which` of them, by
    their freedoms, zeros where that is negative."""
    topology, rows = model.topology, s.layout.slot_velocity if which is None else which
    parts = [(topology.v_start[bodies] + k, column) for _, bodies, m in s.motions for k, column in enumerate(m.columns)]
    parts = [(own, column) for own, column in parts if np.isin(own, rows).any()]
    if not parts:  # driven joints alone
        return Motion.zero(jnp.zeros((len(rows), *s.batch), s.dtype))
    return _join_groups(parts, rows, s.batch, s.dtype)


def column_rates(s: Setup, model: Model, v: jax.Array) -> Motion | None:
    """`S_ring` column by column in slot rows, body axes: the rate of each column in its body as the joints move.

    `None` where all columns are fixed in their bodies.
    """
    # A joint with several freedoms may have `S_ring v = 0` and yet columns that move, as a reversed ball has.
    if model.topology.all_screws or all(m.bias is None and kind.nv < 2 for kind, _, m in s.motions):
        return None
    topology = model.topology
    parameters = lift(model.joint_parameters, 1, len(s.batch), s.dtype)
    parts = []
    for kind, bodies, m in s.motions:
        if not kind.nv:
            continue
        rates = tuple(Motion.zero() for _ in m.columns)
        if m.bias is not None or kind.nv > 1:
            own = take_entries(parameters, topology.parameter_start[bodies], len(kind.parameters))
            rates = kind.column_rates(
                take_entries(s.q, topology.q_start[bodies], kind.nq),
                take_entries(v, topology.v_start[bodies], kind.nv),
                own,
                lift(model.time, 0, len(s.batch), s.dtype),
            )
        parts += [(topology.v_start[bodies] + k, rate) for k, rate in enumerate(rates)]
    return None if not parts else _join_groups(parts, s.layout.slot_velocity, s.batch, s.dtype)
