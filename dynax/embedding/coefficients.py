"""The static plan of an embedded model, and its embedding `v = X y + x_0` at a configuration (Jain, 25, 58 to 61).

    K v = 0    =>    Y1 v_dependent + Y2 v_independent = 0    =>    X = [1; -Y1^+ Y2]

Aggregate by aggregate: each has its own rows of `K`, a few dependent freedoms and its own small system.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.constraints.rows import plan as row_plan
from dynax.embedding.aggregation import Aggregate, NodeTree, node_tree
from dynax.model.structure import Structure
from dynax.sweep import take_rows, walk
from dynax.topology import Topology
from dynax.tree.nodes import NodeOrder


class Embedding(NamedTuple):
    """What is static about an embedded model, beside its structure."""

    aggregates: tuple[Aggregate, ...]
    dependent: tuple[tuple[int, ...], ...]
    """For each aggregate the freedoms that follow from the others."""


class Group(NamedTuple):
    """Aggregates of one shape, solved together: indices of rows and freedoms, one row per aggregate."""

    rows: np.ndarray
    dependent: np.ndarray
    independent: np.ndarray
    solved_for: np.ndarray
    """Where `Y1` stands among the listed entries of `K`, `(aggregates, rows, dependent)`."""
    given: np.ndarray
    """Where `Y2` stands."""


class NodeRows(NamedTuple):
    """The rows of a walk over nodes, each some bodies of a tree that move together."""

    tree: NodeTree
    body: np.ndarray
    """Members by row of the walk, -1 for padding, `(rows, m)`."""
    carrier: np.ndarray
    """The body that carries each row's node, -1 for the world."""
    port: np.ndarray
    velocity: np.ndarray
    """The embedded velocities of each row, -1 for padding, `(rows, r)`."""
    path: np.ndarray
    """For each member the freedoms of its node that move it, -1 for padding, `(rows, m, w)`."""
    freedom: np.ndarray
    """The freedoms of each row's node, -1 for padding, `(rows, f)`."""
    order: NodeOrder


def node_rows(
    topology: Topology, tree: NodeTree, own: list[list[int]], roots: list[int], execution: str = "levels"
) -> NodeRows:
    """The rows of nodes whose velocities are `own`, `roots` those of the bases."""
    freedoms = [
        [j for body in bodies for j in range(topology.v_start[body], topology.v_start[body + 1])]
        for bodies in tree.members
    ]
    width = max([1, *(len(velocities) for velocities in own)])
    most = max([1, *(len(bodies) for bodies in tree.members)])
    paths = [
        [[j for j in node if topology.support[body, topology.body_of_velocity[j]]] for body in bodies]
        for node, bodies in zip(freedoms, tree.members, strict=True)
    ]
    longest = max([1, *(len(path) for node in paths for path in node)])
    rows = walk(tree.parents, 1 + len(tree.bases), execution)
    count = len(rows.rows)
    body, velocity = np.full((count, most), -1), np.full((count, width), -1)
    path, port, carrier = np.full((count, most, longest), -1), np.zeros((count, most)), np.full(count, -1)
    for row, node in enumerate(rows.rows):
        if node < 0:
            continue
        body[row, : len(tree.members[node])] = tree.members[node]
        velocity[row, : len(own[node])] = own[node]
        port[row, tree.ports[node]] = 1.0
        carrier[row] = tree.parent_bodies[node]
        for k, member in enumerate(paths[node]):
            path[row, k, : len(member)] = member
    freedom = _padded([freedoms[node] if node >= 0 else [] for node in rows.rows])
    return NodeRows(tree, body, carrier, port, velocity, path, freedom, NodeOrder(rows, velocity, np.array(roots, int)))


class NodePlan(NamedTuple):
    groups: tuple[Group, ...]
    independent: np.ndarray
    """The tree's freedoms that stay: entry `i` of an embedded velocity is that of freedom `independent[i]`. In the
    order of the tree, but that those of one aggregate follow one another."""
    local: np.ndarray
    """For each freedom of the tree its place among its node's independent ones, -1 if it is dependent, `(nv,)`."""
    reach: np.ndarray
    """For each freedom of the tree and place, the embedded velocity that moves it, -1 for none, `(nv, r)`."""
    solved: np.ndarray
    """For each freedom of the tree its place among all dependent ones, group by group, -1 if it is none, `(nv,)`."""
    spread: np.ndarray
    """For each embedded velocity the entries of `X` by freedom and place that it multiplies, -1 for padding."""
    rows: NodeRows


@lru_cache(maxsize=64)
def node_plan(structure: Structure, embedding: Embedding, execution: str = "levels") -> NodePlan:
    topology = structure.topology
    tree = node_tree(topology, embedding.aggregates)
    dependent = {freedom for own in embedding.dependent for freedom in own}
    # Node by node, so that operators over nodes and vectors over freedoms have one order.
    nodes = sorted((*tree.members, *((root,) for root in tree.bases)), key=min)
    ordered = [j for node in nodes for b in node for j in range(topology.v_start[b], topology.v_start[b + 1])]
    independent = np.array([j for j in ordered if j not in dependent], dtype=int)
    rank = {int(j): i for i, j in enumerate(independent)}
    freedoms = [
        [j for body in bodies for j in range(topology.v_start[body], topology.v_start[body + 1])]
        for bodies in tree.members
    ]
    own = [[rank[j] for j in node if j in rank] for node in freedoms]
    width = max([1, *(len(velocities) for velocities in own)])
    local, reach = np.full(topology.nv, -1), np.full((topology.nv, width), -1)
    for node, velocities in zip(freedoms, own, strict=True):
        for j in node:
            local[j] = velocities.index(rank[j]) if j in rank else -1
            reach[j, : len(velocities)] = velocities
    for root in tree.bases:  # each of a base's freedoms stands for itself
        for j in range(topology.v_start[root], topology.v_start[root + 1]):
            local[j], reach[j, 0] = 0, rank[j]
    roots = [rank[j] for root in tree.bases for j in range(topology.v_start[root], topology.v_start[root + 1])]
    groups = _groups(structure, embedding)
    solved = np.full(topology.nv, -1)
    listed = np.concatenate([np.zeros(0, int), *(g.dependent.reshape(-1) for g in groups)])
    solved[listed] = np.arange(len(listed))
    entries = [np.flatnonzero(reach.reshape(-1) == i).tolist() for i in range(len(independent))]
    return NodePlan(
        groups, independent, local, reach, solved, _padded(entries), node_rows(topology, tree, own, roots, execution)
    )


def _padded(rows: list[list[int]]) -> np.ndarray:
    """Lists of indices in rows, -1 for what they are shorter."""
    result = np.full((len(rows), max([1, *map(len, rows)])), -1)
    for row, values in zip(result, rows, strict=True):
        row[: len(values)] = values
    return result


def _groups(structure: Structure, embedding: Embedding) -> tuple[Group, ...]:
    topology, start = structure.topology, row_plan(structure).start
    shapes: dict[tuple[int, int, int], list[tuple]] = {}
    for aggregate, dependent in zip(embedding.aggregates, embedding.dependent, strict=True):
        rows = [row for k in aggregate.conditions for row in range(start[k], start[k + 1])]
        mine = [j for body in aggregate.bodies for j in range(topology.v_start[body], topology.v_start[body + 1])]
        free = [j for j in mine if j not in dependent]
        shapes.setdefault((len(rows), len(dependent), len(free)), []).append((rows, dependent, free))
    groups = []
    for shape, members in shapes.items():
        if shape[1]:
            index = (np.array([m[k] for m in members], int).reshape(len(members), n) for k, n in enumerate(shape))
            rows, dependent, free = index
            y1, y2 = (row_plan(structure).entry[rows[:, :, None], of[:, None]] for of in (dependent, free))
            groups.append(Group(rows, dependent, free, y1, y2))
    return tuple(groups)


class Elimination(NamedTuple):
    """`Y1 = Q R` of each group's aggregates."""

    orthogonal: tuple[jax.Array, ...]
    """`Q`, shape `(aggregates, rows, dependent)`."""
    upper: tuple[jax.Array, ...]


def elimination(p: NodePlan, entries: jax.Array) -> Elimination:
    """From the listed entries of the Jacobian of the conditions.

    By the modified Gram-Schmidt process, in small steps over all aggregates of a shape and the batch at once: library
    factorisations take one small matrix after the other.
    """
    orthogonal, upper = [], []
    for g in p.groups:
        rest = entries[g.solved_for]
        units, rows = [], []
        for k in range(g.dependent.shape[1]):
            length = jnp.sqrt(jnp.sum(rest[:, :, 0] ** 2, axis=1))
            unit = rest[:, :, 0] / length[:, None]
            along = jnp.sum(unit[:, :, None] * rest[:, :, 1:], axis=1)
            rest = rest[:, :, 1:] - unit[:, :, None] * along[:, None]
            units.append(unit)
            left = jnp.zeros_like(length, shape=(len(length), k, *length.shape[1:]))
            rows.append(jnp.concatenate([left, length[:, None], along], axis=1))
        orthogonal.append(jnp.stack(units, axis=2))
        upper.append(jnp.stack(rows, axis=1))
    return Elimination(tuple(orthogonal), tuple(upper))


def _solved(q: jax.Array, r: jax.Array, right: jax.Array) -> jax.Array:
    """`Y1^+ right` for `right` of shape `(aggregates, rows, m)`: one column of `Q` after the other keeps all digits."""
    parts: list[jax.Array] = []
    for k in range(q.shape[2]):
        own = jnp.sum(q[:, :, k, None] * right, axis=1)
        right = right - q[:, :, k, None] * own[:, None]
        parts.append(own)
    for k in reversed(range(len(parts))):
        parts[k] = parts[k] / r[:, k, k, None]
        for above in range(k):
            parts[above] = parts[above] - r[:, above, k, None] * parts[k]
    return jnp.stack(parts, axis=1)


def dependents(p: NodePlan, e: Elimination, right: jax.Array) -> jax.Array:
    """`Y1^+ right` at the dependent freedoms, zero elsewhere: shape `(nv,)` from `(nc,)`."""
    found = [
        _solved(q, r, right[g.rows][:, :, None]).reshape(g.dependent.size, *right.shape[1:])
        for g, q, r in zip(p.groups, e.orthogonal, e.upper, strict=True)
    ]
    return take_rows(jnp.concatenate([jnp.zeros_like(right, shape=(1, *right.shape[1:])), *found]), p.solved + 1)


def coefficients(p: NodePlan, e: Elimination, entries: jax.Array) -> jax.Array:
    """`X` by freedom of the tree and place within its node, shape `(nv, r)`."""
    width, batch = p.reach.shape[1], entries.shape[1:]
    units = jnp.eye(width, dtype=entries.dtype).reshape(width, width, *(1,) * len(batch))
    found = [jnp.broadcast_to(units, (width, width, *batch))]
    for g, q, r in zip(p.groups, e.orthogonal, e.upper, strict=True):
        own = -_solved(q, r, entries[g.given])
        # An aggregate's independent freedoms stand at its first places, in order.
        fill = ((0, 0), (0, 0), (0, width - own.shape[2]), *((0, 0),) * len(batch))
        found.append(jnp.pad(own, fill).reshape(g.dependent.size, width, *batch))
    return take_rows(jnp.concatenate(found), np.where(p.local >= 0, p.local, width + p.solved))


def expanded(p: NodePlan, x: jax.Array, y: jax.Array) -> jax.Array:
    """`X y`, shape `(nv,)`, from embedded `(embedded nv,)`."""
    return jnp.sum(x * pick(y, p.reach), axis=1)


def reduced(p: NodePlan, x: jax.Array, force: jax.Array) -> jax.Array:
    """`X^T force`, shape `(embedded nv,)`."""
    entries = x * force[:, None]
    return jnp.sum(pick(entries.reshape(-1, *entries.shape[2:]), p.spread), axis=1)


def pick(tree, index: np.ndarray):
    """Rows of every leaf by an array of indices of any shape, zeros where they are negative."""
    picked = take_rows(tree, index.reshape(-1))
    return jax.tree.map(lambda a: a.reshape(*index.shape, *a.shape[1:]), picked)


def dense(p: NodePlan, x: jax.Array) -> jax.Array:
    """`X` as a matrix, shape `(nv, embedded nv)`."""
    size = len(p.independent)
    rows = np.arange(len(p.reach))[:, None]
    return jnp.zeros((len(p.reach), size + 1), x.dtype).at[rows, p.reach].add(x)[:, :size]
