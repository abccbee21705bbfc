"""The nodes of an embedded model (Jain, EMBED-ABA, eqs. 50 to 57), and forward dynamics by the recursion over them.

A node is some bodies that move together. Each is a port: with respect to the body that carries the node, member `m`
moves by `U_m x` for the node's independent velocities `x`, and by `b_m` when none of them accelerates.

Arrays have the axes of the batch last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.articulated import Tree, recursion
from dynax.algorithms.frames import root_offsets
from dynax.bodies.base import free_bases
from dynax.bodies.node import Node
from dynax.constraints.rows import constraint_rows
from dynax.embedding.coefficients import (
    Elimination,
    Embedding,
    NodePlan,
    coefficients,
    dependents,
    elimination,
    expanded,
    node_plan,
    pick,
    reduced,
)
from dynax.model import Model
from dynax.spatial import Motion, Vec3
from dynax.sweep import take_rows
from dynax.tree.bodies import net_forces, passive_force, per_velocity, world_inertias
from dynax.tree.freedoms import freedoms
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.nodes import Load
from dynax.tree.setup import Setup, setup


class Place(NamedTuple):
    """A configuration: everything that does not depend on velocity."""

    plan: NodePlan
    x: jax.Array
    """`X` by freedom of the tree and place, `(nv, r)`."""
    elimination: Elimination
    moving: Motion
    """Each freedom of a member's path, at the member's joint, axes (row, member, freedom of the path)."""
    tree: Tree


def at(model: Model, q: jax.Array, embedding: Embedding, execution: str = "levels") -> Place:
    """The nodes of the embedded model at `q`: their ports are the members."""
    p = node_plan(model.structure, embedding, execution)
    s = setup(model, q, execution=execution)
    kin = kinematics(model, s, positions=True)
    entries = constraint_rows(model, s, kin).entries
    assert entries is not None
    solved = elimination(p, entries)
    x = coefficients(p, solved, entries)
    position = s.layout.body_order(Parts(kin.roots.position, kin.rows.position))
    places = position, root_offsets(model, s)
    above = jax.tree.map(_with_zero(s), places)
    rows, tree = freedoms(model, s, kin), model.topology.body_of_velocity
    column, joint = pick((rows.column, (rows.position, take_rows(places[1], tree))), p.path)
    member, carrier = pick(places, p.body), take_rows(above, p.carrier % (model.num_bodies + 1))
    moving = column.shift(_offset(jax.tree.map(lambda a: a[:, :, None], member), joint))
    weights = pick(x, p.path)
    columns = jax.tree.map(lambda a: jnp.sum(a[:, :, :, None] * weights, axis=2), moving)
    held = _static(p.body >= 0, s)
    offset = _offset(member, jax.tree.map(lambda a: a[:, None], carrier)) * held
    inertias = world_inertias(s, kin)
    inertia = pick(s.layout.body_order(inertias), p.body)
    rotor = per_velocity(model.armature, jnp.zeros((model.nv, *s.batch), s.dtype))
    own, along = pick(x, p.freedom), pick(rotor, p.freedom)
    reflected = jnp.sum((own * along[:, :, None])[:, :, :, None] * own[:, :, None], axis=1)
    unit = _static((p.velocity < 0)[:, :, None] * np.eye(p.velocity.shape[1]), s)
    nodes = Node(offset, columns, reflected + unit, _static(p.port, s))
    which = np.searchsorted(model.topology.free_roots, np.array(p.tree.bases, dtype=int))
    return Place(p, x, solved, moving, Tree(p.order, nodes, inertia, free_bases(model, s, inertias, which)))


def _static(known: np.ndarray, s: Setup) -> jax.Array:
    """A known array with axes of length one for the batch."""
    return jnp.asarray(known.reshape(*known.shape, *(1,) * len(s.batch)), s.dtype)


def _with_zero(s: Setup):
    """With a row for the world."""
    return lambda a: jnp.concatenate([jnp.broadcast_to(a, (len(a), *s.batch)), jnp.zeros((1, *s.batch), s.dtype)])


def _offset(end: tuple[Vec3, Vec3], start: tuple[Vec3, Vec3]) -> Vec3:
    """Between places `(position in the tree, of the tree)`: the two differ separately, so that no digits are lost."""
    return (end[0] - start[0]) + (end[1] - start[1])


def tree_velocity(model: Model, q: jax.Array, place: Place, v: jax.Array) -> jax.Array:
    """The tree's velocities `X v + x_0`; `x_0` is what conditions that depend on time ask for."""
    plain = expanded(place.plan, place.x, v)
    if not rheonomic(model):
        return plain
    s = setup(model, q, plain)
    kin = kinematics(model, s, plain, positions=True, accelerations=True, gravity=True)
    rate = constraint_rows(model, s, kin, plain).rate
    assert rate is not None
    return plain - dependents(place.plan, place.elimination, rate)


def rheonomic(model: Model) -> bool:
    """Whether a condition may depend on time: one closed by a driven joint, or a user's own."""
    return bool(model.structure.conditions) or any(loop.closure.rheonomic for loop in model.structure.loops)


def bias_acceleration(model: Model, s: Setup, kin: Parts, place: Place, v: jax.Array) -> jax.Array:
    """`Xdot y` (and the rate of `x_0`): the tree's accelerations while the independent velocities stay, `(nv,)`."""
    bias = constraint_rows(model, s, kin, v).bias
    assert bias is not None
    return dependents(place.plan, place.elimination, bias)


def forward(model: Model, q, v, tau, external, embedding: Embedding, execution: str = "levels") -> jax.Array:
    """Embedded accelerations; `q` is the tree's configuration, `v` and `tau` are embedded."""
    place = at(model, q, embedding, execution)
    p = place.plan
    whole = tree_velocity(model, q, place, v)
    s = setup(model, q, whole, execution)
    kin = kinematics(model, s, whole, positions=True, accelerations=True, gravity=True)
    drift = bias_acceleration(model, s, kin, place, whole)
    forces = s.layout.body_order(net_forces(s, kin, world_inertias(s, kin), external))
    along = pick(drift, p.path)
    bias = jax.tree.map(lambda a: jnp.sum(a * along, axis=2), place.moving)
    rest = tau - reduced(p, place.x, passive_force(model, q, whole) + per_velocity(model.armature, drift) * drift)
    on_bases = take_rows(forces, np.array(p.tree.bases, dtype=int))
    return recursion(place.tree, Load(pick(forces, p.body), bias=bias), on_bases, rest).a
