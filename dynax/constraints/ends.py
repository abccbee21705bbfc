"""The relative motion of the two ends of each loop (Featherstone 2008, sections 8.2 and 8.7).

    J_L = J_s - J_p        columns only of joints on one of the two branches below the common ancestor (eq. 8.7 to 8.13)

Everything stands in the axes of the loop's successor frame about its origin, and is formed from positions relative to
the free root: joints that carry both ends cancel exactly, and nothing loses digits far from the world's origin.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.frames import root_offsets
from dynax.model import Model
from dynax.model.structure import Structure
from dynax.spatial import Mat3, Motion, Vec3
from dynax.sweep import take_rows
from dynax.tree.bodies import public_rotation
from dynax.tree.freedoms import freedoms
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, lift, rows_mat, rows_vec


class Paths(NamedTuple):
    """The freedoms that move the ends of each loop against one another, padded, shape `(loops, w)`."""

    freedom: np.ndarray
    """-1 for padding."""
    sign: np.ndarray
    """+1 on the successor's branch, -1 on the predecessor's."""


class Ends(NamedTuple):
    """The successor frame of each loop in the predecessor frame, leading axis the loops."""

    rotation: Mat3
    translation: Vec3
    columns: Motion
    """Per loop and freedom of its path."""
    velocity: Motion | None
    bias: Motion | None
    """The rate of the entries of `velocity` while no joint accelerates."""
    axes: Mat3 | None = None
    """The successor frame's in the world."""
    from_joints: tuple[Vec3, Vec3] | None = None
    """Its origin from the joints that carry the two bodies, predecessor first, in world axes."""


@lru_cache(maxsize=256)
def loop_paths(structure: Structure) -> Paths:
    topology = structure.topology
    still = np.zeros((1, topology.num_bodies), dtype=int)
    support = np.concatenate([topology.support.astype(int), still])  # the last row is the world's
    signs = np.array(
        [(support[loop.successor] - support[loop.predecessor])[topology.body_of_velocity] for loop in structure.loops]
    ).reshape(len(structure.loops), topology.nv)
    width = max(1, int(np.count_nonzero(signs, axis=1).max(initial=1)))
    freedom, sign = np.full((len(signs), width), -1), np.zeros((len(signs), width))
    for k, row in enumerate(signs):
        own = np.flatnonzero(row)
        freedom[k, : len(own)], sign[k, : len(own)] = own, row[own]
    return Paths(freedom, sign)


def relative_motion(model: Model, s: Setup, kin: Parts, *, moving: bool = False) -> Ends:
    """The ends of all loops; with `moving`, from kinematics with velocities and accelerations (and gravity in them)."""
    structure = model.structure
    below, above = _bodies(model)
    bodies = s.layout.body_order(Parts(kin.roots, kin.rows))
    constants = s.layout.body_order(s.constants)
    axes = public_rotation(constants, bodies.rotation)
    origin = bodies.position - axes @ constants.hinge_offset
    root = root_offsets(model, s)

    zero = jnp.zeros((1, *s.batch), s.dtype)
    axes = _with_world(s, axes, Mat3.identity(zero))
    origin, joint, root = (_with_world(s, x, Vec3.zero(zero)) for x in (origin, bodies.position, root))

    def end(index: np.ndarray, poses) -> tuple[Mat3, Vec3, Vec3]:
        turn = rows_mat(lift(poses.rotation, 3, len(s.batch), s.dtype))
        shift = rows_vec(lift(poses.translation, 2, len(s.batch), s.dtype))
        own = take_rows(axes, index)
        return own @ turn, take_rows(origin, index) + own @ shift, take_rows(root, index)

    axes_p, at_p, root_p = end(below, model.loop_predecessors)
    axes_s, at_s, root_s = end(above, model.loop_successors)
    gap = (at_s - at_p) + (root_s - root_p)

    paths, rows = loop_paths(structure), freedoms(model, s, kin)
    tree = model.topology.body_of_velocity
    column, place, base = take_rows((rows.column, rows.position, take_rows(root, tree)), paths.freedom.reshape(-1))
    column, place, base = jax.tree.map(lambda a: a.reshape(*paths.freedom.shape, *a.shape[1:]), (column, place, base))
    about = jax.tree.map(lambda x, r, p, b: (x[:, None] - p) + (r[:, None] - b), at_s, root_s, place, base)
    joints = tuple((at_s - take_rows(joint, index)) + (root_s - take_rows(root, index)) for index in (below, above))
    sign = paths.sign.reshape(paths.sign.shape + (1,) * len(s.batch)).astype(s.dtype)
    turned = column.shift(about).rotate_back(jax.tree.map(lambda a: a[:, None], axes_s)) * sign
    still = Ends(axes_p.T @ axes_s, axes_p.transpose_apply(gap), turned, None, None, axes_s, joints)
    return in_motion(model, s, kin, still) if moving else still


def in_motion(model: Model, s: Setup, kin: Parts, ends: Ends) -> Ends:
    """The ends, whose places are known, with their velocity and its rate."""
    below, above = _bodies(model)
    bodies, zero = s.layout.body_order(Parts(kin.roots, kin.rows)), jnp.zeros((1, *s.batch), s.dtype)
    axes_s, joints = ends.axes, ends.from_joints
    assert axes_s is not None
    assert joints is not None
    lifted = Motion(Vec3.zero(zero), Vec3(*(zero - g for g in (s.gravity.x, s.gravity.y, s.gravity.z))))
    velocity, acceleration = _with_world(s, (bodies.velocity, bodies.acceleration), (Motion.zero(zero), lifted))

    def at_ends(motion: Motion) -> list[Motion]:
        return [take_rows(motion, index).shift(offset) for index, offset in zip((below, above), joints, strict=True)]

    (other, own), (lagging, leading) = at_ends(velocity), at_ends(acceleration)
    relative = own - other
    rate = leading - lagging - own.cross(relative)
    return ends._replace(velocity=relative.rotate_back(axes_s), bias=rate.rotate_back(axes_s))


def _bodies(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """The two bodies of each loop, the predecessor's first; the world is the last row."""
    pairs = [(loop.predecessor, loop.successor) for loop in model.structure.loops]
    below, above = np.array(pairs, dtype=int).reshape(-1, 2).T % (model.num_bodies + 1)
    return below, above


def _with_world(s: Setup, own, world):
    """Of all bodies in their order, and of the world."""

    def joined(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.broadcast_to(x, (len(x), *s.batch)) for x in (a, b)])

    return jax.tree.map(joined, own, world)
