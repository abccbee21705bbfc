"""Loops with bodies that bend, embedded in the tree (Jain, EMBED-ABA; Jain and Rodriguez, FLEX-CC).

The tree's freedoms are those of joints and modes, the skeleton's follow from them, and those from the independent ones:

    v_skeleton = X_f v_tree        v_tree = X v        so that places move with the columns of X_f X

A node is an aggregate as of rigid bodies: the bodies that loops tie together, with all places of those that bend; where
no loop is, the places of one body, its modes the freedoms. What bodies weigh in motion with their frames is rigid
inertia at ports. With `W = X` at the modes, `h` their momentum at the frame, `m` their mass, they add to the node

    M_bx = A* h W        M_xx = U* h W + (h W)* U + W* m W
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.articulated import Tree, recursion
from dynax.algorithms.factor import Factor
from dynax.bodies.flexible import Modal
from dynax.bodies.node import Node
from dynax.constraints.residual import rows_at
from dynax.embedding.coefficients import (
    Chart,
    Embedding,
    NodePlan,
    dependents,
    node_plan,
    pick,
    plan_of,
    reduced,
)
from dynax.embedding.coefficients import expanded as expanded_tree
from dynax.embedding.dynamics import Moving, Place, coordinates, inverse, motion_of, placed, solved, tree_velocity
from dynax.embedding.dynamics import at as place_at
from dynax.embedding.flexible import (
    State,
    bending,
    expanded,
    inertias_at,
    moving,
    on_frames,
    on_modes,
    passive,
    state,
)
from dynax.embedding.flexible import inverse as inverse_of_tree
from dynax.embedding.flexible import reduced as onto_tree
from dynax.embedding.flexible_loops import rows_of
from dynax.model.flexible import FlexibleModel
from dynax.model.kinds import extend
from dynax.model.structure import Structure
from dynax.spatial import Force, Motion
from dynax.sweep import take_rows
from dynax.sweep.sums import summed
from dynax.tree.bodies import per_velocity
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.nodes import Load
from dynax.tree.setup import Setup, setup


class InNodes(NamedTuple):
    """The bodies that bend of each node, in rows, -1 for padding."""

    member: np.ndarray
    port: np.ndarray
    """Which port its frame is."""


@lru_cache(maxsize=64)
def in_nodes(structure: Structure, embedding: Embedding, execution: str) -> InNodes:
    body = node_plan(structure, embedding, execution).rows.body
    found = [
        [(k, int(np.argmax(row == m.frame))) for k, m in enumerate(embedding.members) if m.frame in row] for row in body
    ]
    most = max(map(len, found))
    padded = np.array([own + [(-1, 0)] * (most - len(own)) for own in found]).reshape(len(body), most, 2)
    return InNodes(padded[:, :, 0], padded[:, :, 1])


def nodes_of(
    model: FlexibleModel, at: State, s: Setup, kin: Parts, p: NodePlan, x: jax.Array, b: InNodes
) -> tuple[Motion, Tree]:
    """How the skeleton's freedoms move the places of their nodes, and the tree of nodes, for `X` by entry of the tree's
    velocities and place."""
    own = inertias_at(at, s, kin)
    modal = bending(model, own, s, kin)
    inertias = Parts(*(a + b for a, b in zip(own.rigid, on_frames(model, s, modal.inertia), strict=True)))
    whole = expanded(model, at.bodies, at.columns[:, :, :, None], x)
    columns, tree = placed(model.skeleton, s, kin, p.rows, whole, inertias)
    assert isinstance(tree.nodes, Node)
    weights = at.bodies.modes(x, model.places.modes_v)
    return columns, tree._replace(nodes=_with_modes(tree.nodes, modal, weights, b))


def _with_modes(node: Node, modal: Modal, weights: jax.Array, b: InNodes) -> Node:
    """Nodes with the modes' momentum and mass; `weights` has axes (body, mode, freedom)."""
    rows = np.arange(len(b.port))[:, None]
    column, offset = jax.tree.map(lambda a: a[rows, b.port], (node.column, node.offset))
    coupling, mass, w = pick((modal.coupling, modal.mass, weights), b.member)  # axes (row, body, ...)
    along: Force = summed(jax.tree.map(lambda a: a[:, :, :, None] * w, coupling), 2)
    left, right = (jax.tree.map(lambda a, k=k: jnp.expand_dims(a, k), x) for k, x in ((3, column), (2, along)))
    mixed = left.dot(right)
    own = summed(w[:, :, :, :, None] * summed(mass[:, :, :, :, None] * w[:, :, None], 3)[:, :, :, None], 2)
    phi = summed(along.shift_to_parent(jax.tree.map(lambda a: a[:, :, None], offset)))
    return node._replace(coupling=phi, mass=node.mass + summed(mixed + jnp.swapaxes(mixed, 2, 3) + own))


@extend(place_at, FlexibleModel)
def _(model, q, embedding, execution="levels", chart: Chart | None = None) -> Place:
    at, p = state(model, q), plan_of(model, embedding, execution)
    s = setup(model.skeleton, at.q, execution=execution)
    kin = kinematics(model.skeleton, s, positions=True)
    c = coordinates(rows_of(model, at, s, kin, q, None), p, chart)
    b = in_nodes(model.skeleton.structure, embedding, execution)
    return Place(c, *nodes_of(model, at, s, kin, p, c.x, b))


@extend(motion_of, FlexibleModel)
def _(model, q, v, embedding, chart: Chart | None = None) -> Moving:
    c = coordinates(rows_at(model, q), plan_of(model, embedding), chart)
    whole = tree_velocity(model, q, c, v)
    bias = rows_at(model, q, whole).bias
    assert bias is not None
    return Moving(c, whole, dependents(c.plan, c.elimination, bias))


@extend(solved, FlexibleModel)
def _(model, q, v, tau, external, embedding, execution="levels", chart: Chart | None = None):
    skeleton, p = model.skeleton, plan_of(model, embedding, execution)
    at = state(model, q)
    s = setup(skeleton, at.q, execution=execution)
    c = coordinates(rows_of(model, at, s, kinematics(skeleton, s, positions=True), q, None), p, chart)
    whole = tree_velocity(model, q, c, v)
    at = state(model, q, whole)
    s = setup(skeleton, at.q, at.v, execution)
    kin = kinematics(skeleton, s, at.v, at.drift, positions=True, accelerations=True, gravity=True)
    bias = rows_of(model, at, s, kin, q, whole).bias
    assert bias is not None
    drift = dependents(p, c.elimination, bias)
    # All forces are those of the motion in which the independent velocities stay; what comes on top is found.
    m = moving(model, at, drift, external, execution)
    rotors = per_velocity(skeleton.armature, at.v) * expanded(model, at.bodies, at.columns, drift)
    needed = onto_tree(model, at.bodies, at.columns, rotors) + passive(model, at) + on_modes(model, m.modal)
    rest = tau - reduced(p, c.x, needed if chart is None else needed - chart.force)
    forces = m.setup.layout.body_order(m.forces)
    b = in_nodes(skeleton.structure, embedding, execution)
    _, tree = nodes_of(model, at, m.setup, m.kin, p, c.x, b)
    on_bases = take_rows(forces, np.array(p.rows.tree.bases, dtype=int))
    found = recursion(tree, Load(pick(forces, p.rows.body)), on_bases, rest)
    a = found.a * found.roots.definite() if p.rows.tree.bases else found.a
    return a, Factor(tree.order, tree.bases.rotation, tree.nodes, found.gains, found.roots)


@extend(inverse, FlexibleModel)
def _(model, q, v, a, external, embedding, chart: Chart | None = None, execution="levels") -> jax.Array:
    c, tree_v, drift = motion_of(model, q, v, embedding, chart)
    whole = drift if a is None else drift + expanded_tree(c.plan, c.x, a)
    force = inverse_of_tree(model, q, tree_v, whole, external)
    return reduced(c.plan, c.x, force if chart is None else force - chart.force)
