"""Nodes: a static set of frames fixed to bodies, several on a body if need be, all at once (Jain, SOA-B, SOA-JAC).

    V_nodes = B* V_bodies      f_bodies = B f_nodes      J = B* phi* H*

A node's six-vectors stand in its own axes about its own origin, or as the choice of `frame` says. Inside, its body's
stand in world axes about the body's joint; `NodeRows` holds what leads from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.frames import FrameChoice, root_offsets
from dynax.model import Model
from dynax.spatial import Force, Mat3, Motion, Transform, Vec3, classical_acceleration
from dynax.sweep import take_rows
from dynax.tree.freedoms import freedoms, pair
from dynax.tree.layout import Layout, Parts
from dynax.tree.setup import Setup


class Nodes(NamedTuple):
    """The frames of a list of names: bodies are static, -1 for the world; poses in the bodies are leaves."""

    bodies: tuple[int, ...]
    poses: Transform


def find_nodes(model: Model, names: str | Sequence[str], dtype) -> Nodes:
    """The nodes of bodies or frames; `KeyError` with near names for one the model does not have."""
    found = [model.locate(name) for name in ((names,) if isinstance(names, str) else names)]
    poses = [Transform() if pose is None else pose for _, pose in found]
    rotation = jnp.stack([jnp.asarray(p.rotation, dtype) for p in poses]) if poses else jnp.zeros((0, 3, 3), dtype)
    translation = jnp.stack([jnp.asarray(p.translation, dtype) for p in poses]) if poses else jnp.zeros((0, 3), dtype)
    return Nodes(tuple(body for body, _ in found), Transform(rotation, translation))


class NodeRows(NamedTuple):
    """Where nodes stand, one row each; zeros for those fixed to the world, which neither move nor give way."""

    axes: Mat3
    """The axes of the six-vectors, in the world."""
    point: Vec3
    """The point they are taken about, from the joint of the body."""
    joint: Vec3
    """The joint of the body, from the free root of its tree."""


def node_rows(model: Model, s: Setup, kin: Parts, nodes: Nodes, frame: FrameChoice) -> tuple[NodeRows, Transform]:
    """Where nodes stand, and their poses in the world; `kin` with positions."""
    at = np.array(nodes.bodies, dtype=int)
    rotation, joint, root, constants = take_rows(
        (
            *s.layout.body_order(
                Parts((kin.roots.rotation, kin.roots.position), (kin.rows.rotation, kin.rows.position))
            ),
            root_offsets(model, s),
            s.layout.body_order(s.constants),
        ),
        at,
    )
    body = rotation @ constants.hinge_rotation.T
    local = Mat3.from_array(nodes.poses.rotation), Vec3.from_array(nodes.poses.translation)
    origin = body @ (local[1] - constants.hinge_offset)
    axes = body @ local[0]
    fixed = jnp.asarray((at < 0)[:, None, None])
    pose = Transform(
        jnp.where(fixed, nodes.poses.rotation, axes.array),
        jnp.where(fixed[..., 0], nodes.poses.translation, (root + joint + origin).array),
    )
    if frame == "body":
        return NodeRows(axes, origin, joint), pose
    moving = jnp.asarray(at >= 0, s.dtype)
    still = 0.0 * moving
    upright = Mat3(moving, still, still, still, moving, still, still, still, moving)
    return NodeRows(upright, -(root + joint) if frame == "world" else origin, joint), pose


def unit_wrenches(rows: NodeRows) -> Force:
    """The six unit wrenches on each node, as forces on its body; leading axes node and entry."""
    still, units = Vec3.zero(rows.axes.xx), rows.axes.columns
    six = [Force(u, still) for u in units] + [Force(still, u).shift_to_parent(rows.point) for u in units]
    return jax.tree.map(lambda *a: jnp.stack(a, axis=1), *six)


def wrenches(rows: NodeRows, f: jax.Array) -> Force:
    """Wrenches on the nodes, shape `(m, 6)`, as forces on their bodies."""
    return Force.from_array(f).rotate(rows.axes).shift_to_parent(rows.point)


def node_motions(rows: NodeRows, motion: Motion) -> Motion:
    """Motions of the bodies of the nodes as those of the nodes."""
    return motion.shift(rows.point).rotate_back(rows.axes)


def node_biases(rows: NodeRows, frame: FrameChoice, velocity: Motion, acceleration: Motion) -> Motion:
    """`Jdot v`, from velocities and bias accelerations of the bodies."""
    found = acceleration.shift(rows.point)
    if frame == "world_aligned":
        return classical_acceleration(found, velocity.shift(rows.point))
    return found.rotate_back(rows.axes)


def of_bodies(plan: Layout, bodies: tuple[int, ...], parts: Parts):
    """A quantity of the bodies at each node; zeros for the world."""
    return take_rows(plan.body_order(parts), np.array(bodies, dtype=int))


def on_bodies(plan: Layout, bodies: tuple[int, ...], forces: Force) -> Parts:
    """`B f`, node by node: forces `(m, c)` on the bodies of nodes, in `c` cases, at those bodies and zero at others.

    On the free roots and in slot rows, shape `(., m, c)`; the force on a body is the sum over the nodes.
    """
    at = np.array(bodies, dtype=int)
    body_of_slot = np.where(plan.slot_last >= 0, plan.body_of_row[np.maximum(plan.slot_last, 0)], -2)

    def place(rows: np.ndarray):
        here = jnp.asarray(rows[:, None] == at)[:, :, None]
        return jax.tree.map(lambda a: jnp.where(here, a, jnp.zeros((), a.dtype)), forces)

    return Parts(place(plan.topology.free_roots), place(body_of_slot))


def jacobian_rows(model: Model, s: Setup, kin: Parts, bodies: tuple[int, ...], rows: NodeRows) -> jax.Array:
    """`J` of all nodes, shape `(6 m, nv)`; `kin` with positions."""
    force = jax.tree.map(lambda a: a.reshape(-1), unit_wrenches(rows))
    joint = jax.tree.map(lambda a: jnp.repeat(a, 6), rows.joint)
    own = freedoms(model, s, kin)
    carrying = np.zeros((len(bodies), model.nv), dtype=bool)
    for k, body in enumerate(bodies):
        if body >= 0:
            carrying[k] = model.topology.support[body][model.topology.body_of_velocity]
    return jnp.where(np.repeat(carrying, 6, axis=0), pair(force, own.column, joint, own.position), 0.0)
