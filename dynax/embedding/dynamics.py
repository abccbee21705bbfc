"""Forward dynamics of an embedded model in O(n): the quantities of its nodes, and the recursion over them.

Arrays have the axes of the batch last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.articulated import base_accelerations, root_forces
from dynax.algorithms.frames import root_offsets
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
from dynax.embedding.node import (
    NodeGains,
    NodeRows,
    accelerated,
    carried,
    factorized,
    innovated,
    moved,
)
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.model import Model
from dynax.spatial import ArticulatedInertia, Force, Mat3, Motion, RigidInertia, Vec3
from dynax.sweep import take_rows
from dynax.tree.bodies import net_forces, passive_force, per_velocity, world_inertias
from dynax.tree.freedoms import freedoms
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, setup


class Place(NamedTuple):
    """A configuration: everything that does not depend on velocity."""

    x: jax.Array
    """`X` by freedom of the tree and place, `(nv, r)`."""
    elimination: Elimination
    moving: Motion
    """Each freedom of a member's path, at the member's joint, axes (row, member, freedom of the path)."""
    nodes: NodeRows
    rotation: Mat3
    """Of the bases."""
    bases: RigidInertia
    """Of the bases, world axes about their origins."""
    armature: jax.Array
    """Of the bases' freedoms, shape `(k, 6)`."""


def at(model: Model, q: jax.Array, embedding: Embedding) -> Place:
    """The nodes of the embedded model at `q`."""
    p = node_plan(model.structure, embedding)
    s = setup(model, q)
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
    nodes = NodeRows(offset, inertia, columns, reflected + unit, _static(p.port, s))
    which = np.searchsorted(model.topology.free_roots, np.array(p.tree.bases, dtype=int))
    rotation, bases = take_rows((s.root_rotation, inertias.roots), which)
    own = take_rows(rotor, p.independent[p.roots])
    return Place(x, solved, moving, nodes, rotation, bases, own.reshape(-1, 6, *own.shape[1:]))


def _static(known: np.ndarray, s: Setup) -> jax.Array:
    """A known array with axes of length one for the batch."""
    return jnp.asarray(known.reshape(*known.shape, *(1,) * len(s.batch)), s.dtype)


def _with_zero(s: Setup):
    """With a row for the world."""
    return lambda a: jnp.concatenate([jnp.broadcast_to(a, (len(a), *s.batch)), jnp.zeros((1, *s.batch), s.dtype)])


def _offset(end: tuple[Vec3, Vec3], start: tuple[Vec3, Vec3]) -> Vec3:
    """Between places `(position in the tree, of the tree)`: the two differ separately, so that no digits are lost."""
    return (end[0] - start[0]) + (end[1] - start[1])


def base_inertias(place: Place, handed: ArticulatedInertia) -> jax.Array:
    """The articulated inertias of the bases in their own axes, `(6, 6, k)`, from what nodes hand to the members of
    bases."""
    total = (jax.tree.map(lambda a: a[1:, 0], handed) + place.bases).rotate(place.rotation.T)
    rows = jnp.stack([jnp.stack(jnp.broadcast_arrays(*row)) for row in total.rows])
    eye = jnp.eye(6, dtype=rows.dtype).reshape(6, 6, *(1,) * (rows.ndim - 2))
    return rows + eye * jnp.moveaxis(place.armature, 1, 0)[None]


def base_members(p: NodePlan, rotation: Mat3, root: jax.Array) -> Motion:
    """What the walk outward starts from: motions of the bases, each the first member of its node, from `(6 k,)`."""
    bases, rest = base_accelerations(rotation, root), p.body.shape[1] - 1
    return jax.tree.map(lambda a: jnp.pad(a[:, None], ((0, 0), (0, rest), *((0, 0),) * (a.ndim - 1))), bases)


def embedded_order(p: NodePlan, rates: jax.Array, root: jax.Array) -> jax.Array:
    """Velocities by row and place, and those of the bases, as one vector."""
    return take_rows(jnp.concatenate([rates.reshape(-1, *rates.shape[2:]), root]), p.place)


def tree_velocity(model: Model, q: jax.Array, embedding: Embedding, place: Place, v: jax.Array) -> jax.Array:
    """The tree's velocities `X v + x_0`; `x_0` is what conditions that depend on time ask for."""
    p = node_plan(model.structure, embedding)
    plain = expanded(p, place.x, v)
    if not rheonomic(model):
        return plain
    s = setup(model, q, plain)
    kin = kinematics(model, s, plain, positions=True, accelerations=True, gravity=True)
    rate = constraint_rows(model, s, kin, plain).rate
    assert rate is not None
    return plain - dependents(p, place.elimination, rate)


def rheonomic(model: Model) -> bool:
    """Whether a condition may depend on time: one closed by a driven joint, or a user's own."""
    return bool(model.structure.conditions) or any(loop.closure.rheonomic for loop in model.structure.loops)


def bias_acceleration(
    model: Model, s: Setup, kin: Parts, embedding: Embedding, place: Place, v: jax.Array
) -> jax.Array:
    """`Xdot y` (and the rate of `x_0`): the tree's accelerations while the independent velocities stay, `(nv,)`."""
    bias = constraint_rows(model, s, kin, v).bias
    assert bias is not None
    return dependents(node_plan(model.structure, embedding), place.elimination, bias)


def forward(model: Model, q, v, tau, external, embedding: Embedding) -> jax.Array:
    """Embedded accelerations; `q` is the tree's configuration, `v` and `tau` are embedded."""
    p = node_plan(model.structure, embedding)
    place = at(model, q, embedding)
    whole = tree_velocity(model, q, embedding, place, v)
    s = setup(model, q, whole)
    kin = kinematics(model, s, whole, positions=True, accelerations=True, gravity=True)
    drift = bias_acceleration(model, s, kin, embedding, place, whole)
    forces = s.layout.body_order(net_forces(s, kin, world_inertias(s, kin), external))
    along = pick(drift, p.path)
    bias = jax.tree.map(lambda a: jnp.sum(a * along, axis=2), place.moving)
    rest = tau - reduced(p, place.x, passive_force(model, q, whole) + per_velocity(model.armature, drift) * drift)

    def inward(handed: tuple, x: tuple) -> tuple[tuple, tuple[NodeGains, jax.Array]]:
        (inertia, z), (node, force, motion, torque) = handed, x
        inertia = inertia + node.inertia
        total, gains = factorized(inertia, node)
        z, w = innovated(z + force + inertia @ motion, node, gains, torque)
        return (total, z), (gains, w)

    zero = jnp.zeros((p.body.shape[1], *s.batch), s.dtype)
    xs = place.nodes, pick(forces, p.body), bias, pick(rest, p.velocity)
    (inertia, z), (gains, w) = p.walk.gather(inward, (ArticulatedInertia.zero(zero), Force.zero(zero)), xs)
    root = rest[p.roots]
    if len(p.roots):
        own = take_rows(forces, np.array(p.tree.bases, dtype=int)) + jax.tree.map(lambda a: a[1:, 0], z)
        push = (root - root_forces(place.rotation, own)).reshape(-1, 6, *s.batch)
        found = gauss_jordan(base_inertias(place, inertia), jnp.moveaxis(push, 0, 1)[:, None])[:, 0]
        root = jnp.moveaxis(found, 1, 0).reshape(root.shape)

    def outward(members: Motion, x: tuple) -> tuple[Motion, jax.Array]:
        node, gains, motion, w = x
        parent = carried(members, node)
        rates = accelerated(parent, gains, w)
        return moved(parent, node, rates) + motion, rates

    rates = p.walk.scatter(outward, base_members(p, place.rotation, root), (place.nodes, gains, bias, w))
    return embedded_order(p, rates, root)
