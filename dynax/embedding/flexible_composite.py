"""The mass matrix of a model with bodies that bend, from composite bodies (Jain and Rodriguez, FLEX-CRB, eqs. 47-50).

The recursion over the nodes without its elimination. What hangs on a port is a rigid body while its freedoms rest, ten
numbers, and the force that a freedom needs goes inward by shifts alone, since all ports of a node move with it:

    inward    R = M_bb + sum R_m        X = M_bx + sum R_m U_m        M_kk = M_xx + sum U_m* R_m U_m
    pairs     M_jk = U_m* phi X_k       where node j carries node k through its port m

Arrays have the axes of the batch last.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.articulated import Tree
from dynax.algorithms.frames import root_offsets
from dynax.bodies.base import Bases
from dynax.compile.fence import apart
from dynax.embedding.flexible import Inertias, State, at_rest, flat, inertias_at
from dynax.embedding.flexible_nodes import nodes
from dynax.embedding.flexible_plan import plan
from dynax.model.flexible import FlexibleModel
from dynax.spatial import Force, Motion, RigidInertia, Sym3, Vec3
from dynax.sweep import take_rows
from dynax.sweep.kinds import KindWalk
from dynax.tree.freedoms import root_columns
from dynax.tree.layout import Parts
from dynax.tree.nodes import NodesOfKinds
from dynax.tree.setup import Setup

Columns = list[jax.Array]
"""Those of `M_kk` from the diagonal on, shape `(rows, r - k)`."""


def composite(model: FlexibleModel, q: jax.Array) -> jax.Array:
    """The mass matrix `(nv, nv, *batch)`."""
    at, s, kin = at_rest(model, q)
    return composed(model, at, s, kin, inertias_at(at, s, kin))


def composed(model: FlexibleModel, at: State, s: Setup, kin: Parts, inertias: Inertias) -> jax.Array:
    """The same, of a state whose kinematics and inertias are known."""
    p = plan(model.skeleton.topology, model.members)
    forces, own, columns = _walked(nodes(model, at, s, kin, inertias, p), s, p.bases)
    topology, position = model.tree.topology, s.layout.body_order(Parts(*(k.position for k in kin)))
    bases = topology.free_roots[p.bases]
    point = bases, *p.point
    # Under the frame of a body on the world positions are relative to it, but the point of its node is the world's.
    welded = np.isin(np.argmax(topology.support, axis=1), np.setdiff1d(topology.free_roots, bases))
    if welded.any():
        position = position + take_rows(root_offsets(model.tree, s), np.where(welded, np.arange(len(welded)), -1))
    velocity = [p.order.roots.reshape(-1, 6), *(v.reshape(len(v), -1) for v in p.order.velocity)]
    found, where = [], []
    for of_kind, entry in zip(own, velocity, strict=True):
        found += of_kind
        where += [(entry[:, k, None], entry[:, k:]) for k in range(len(of_kind))]
    for (above, below), port, row in p.carried:
        carrier = port // (len(columns[above].angular.x) // len(velocity[above]))
        far, near = (take_rows(position, b) for b in (point[below][row], point[above][carrier]))
        force = take_rows(forces[below], row).shift_to_parent(jax.tree.map(lambda a, b: (a - b)[:, None], far, near))
        force, column = jax.tree.map(apart, force), take_rows(columns[above], port)
        found.append(_new_axis(column, 1).dot(_new_axis(force, 2)))
        where.append((velocity[below][row][:, :, None], velocity[above][carrier][:, None]))
    return _placed(found, where, model.nv)


def _walked(tree: Tree, s: Setup, which: np.ndarray) -> tuple[list[Force], list[Columns], list[Motion]]:
    """Of the bases and then of each kind of nodes: `X`, `M_kk`, and how the freedoms move each port."""

    def inward(handed: RigidInertia, x: tuple) -> tuple[RigidInertia, tuple]:
        node, inertia = x
        total = handed if inertia is None else handed + inertia
        return node.handed(node.inertia(total)), node.coupled(total)

    walk, kinds = tree.order.walk, tree.nodes
    assert isinstance(walk, KindWalk)
    assert isinstance(kinds, NodesOfKinds)
    zero = jnp.zeros(s.batch, s.dtype)
    nothing = RigidInertia(zero, Vec3.zero(zero), Sym3.zero(zero))
    handed, found = walk.gather(inward, nothing, (kinds, tree.inertia))
    made = [_of_bases(tree.bases, jax.tree.map(lambda a: a[1:], handed), s, which)]
    for ports, node, force, own in zip(walk.ports, kinds, *found, strict=True):
        if ports is None:  # hinges
            made.append((_new_axis(force, 1), [own[:, None]], _new_axis(node.column.motion(), 1)))
        else:
            made.append((force, own, flat(node.column, 2)))
    forces, owns, columns = zip(*made, strict=True)
    return list(forces), list(owns), list(columns)


def _of_bases(bases: Bases, handed: RigidInertia, s: Setup, which: np.ndarray) -> tuple[Force, Columns, Motion]:
    six = jax.tree.map(lambda a: take_rows(a.reshape(-1, 6, *a.shape[1:]), which), root_columns(s))
    force = _new_axis(handed + bases.inertia, 1) @ six
    own = []
    for k, armature in enumerate(bases.armature):
        below, pulled = jax.tree.map(lambda a, k=k: a[:, k:], six), jax.tree.map(lambda a, k=k: a[:, k, None], force)
        own.append(below.dot(pulled).at[:, 0].add(armature))
    return force, own, six


def _new_axis(tree, axis: int):
    return jax.tree.map(lambda a: jnp.expand_dims(a, axis), tree)


def _placed(found: Columns, where: list[tuple[np.ndarray, np.ndarray]], size: int) -> jax.Array:
    """The symmetric matrix whose entries at rows and columns `where` are those `found`, of freedoms that there are."""
    place, count = np.full((size, size), -1), 0
    for row, column in (np.broadcast_arrays(*pair) for pair in where):
        index = count + np.arange(row.size).reshape(row.shape)
        real = (row >= 0) & (column >= 0)
        place[row[real], column[real]] = place[column[real], row[real]] = index[real]
        count += row.size
    axes = [np.broadcast(*pair).ndim for pair in where]
    batch = jnp.broadcast_shapes(*(a.shape[n:] for a, n in zip(found, axes, strict=True)))
    rows = [jnp.broadcast_to(a, (*a.shape[:n], *batch)).reshape(-1, *batch) for a, n in zip(found, axes, strict=True)]
    return take_rows(jnp.concatenate(rows), place)
