"""The static plan of an embedded model, and its embedding `v = X y + x_0` at a configuration (Jain, 25, 58 to 61).

    K v = 0    =>    Y1 v_dependent + Y2 v_independent = 0    =>    X = [1; -Y1^+ Y2]

Aggregate by aggregate: each has its own rows of `K`, a few dependent freedoms and its own small system. Which freedoms
are the dependent ones is static, or, in the course of a motion, data: a permutation of the aggregate's freedoms.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.constraints.rows import plan as row_plan
from dynax.embedding.aggregation import LAST, Aggregate, NodeTree, node_tree
from dynax.model import Model
from dynax.model.flexible import FlexibleModel, Member, entries_of, skeleton_of
from dynax.model.structure import Structure
from dynax.sweep import take_rows, walk
from dynax.topology import Topology
from dynax.tree.nodes import NodeOrder


class Embedding(NamedTuple):
    """What is static about an embedded model, beside its structure."""

    aggregates: tuple[Aggregate, ...]
    dependent: tuple[tuple[int, ...], ...]
    """For each aggregate the freedoms that follow from the others."""
    members: tuple[Member, ...] = ()
    """The bodies that bend, if the tree has any: its freedoms are then those of joints and modes."""
    alone: tuple[Aggregate, ...] = ()
    """The places of bodies that bend outside of all loops, which move together as an aggregate's bodies do."""


class Group(NamedTuple):
    """Aggregates of one shape, solved together: indices of rows and freedoms, one row per aggregate."""

    rows: np.ndarray
    freedoms: np.ndarray
    """The dependent ones, then the independent ones, `(aggregates, freedoms)`."""
    entries: np.ndarray
    """Where `Y` stands among the listed entries of `K`, `(aggregates, rows, freedoms)`."""
    dependent: int
    """How many freedoms are dependent."""
    preferred: np.ndarray
    """By what the length of a freedom's column counts where dependent ones are chosen: one, and `LAST` for modes."""


Columns = tuple[jax.Array, ...]
"""Other choices of the dependent freedoms: for each group a permutation of the freedoms of its aggregates, as matrices
of zeros and ones, shape `(aggregates, freedoms, freedoms)`; column `k` has its one at what is to be in place `k`."""


class Chart(NamedTuple):
    """Other independent freedoms than the model's own, for a part of a motion. Its velocities, accelerations and forces
    are theirs; where one of the model's own stood, one that took its place."""

    columns: Columns
    force: jax.Array
    """What the joints do besides, shape `(nv of the tree,)`: forces of the model's own freedoms, which are no longer
    coordinates."""


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
    """For each member the freedoms of its node that move it, -1 for padding, `(rows, m, w)`; of a tree with bodies that
    bend those of the skeleton."""
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
    """For each freedom of the tree its place among those of all groups, -1 if it is in none, `(nv,)`."""
    spread: np.ndarray
    """For each embedded velocity the entries of `X` by freedom and place that it multiplies, -1 for padding."""
    rows: NodeRows


@lru_cache(maxsize=64)
def node_plan(structure: Structure, embedding: Embedding, execution: str = "levels") -> NodePlan:
    topology = structure.topology
    tree, entries = (
        node_tree(topology, (*embedding.aggregates, *embedding.alone)),
        entries_of(topology, embedding.members),
    )
    size = sum(map(len, entries))
    dependent = {freedom for own in embedding.dependent for freedom in own}
    # Node by node, so that operators over nodes and vectors over freedoms have one order.
    nodes = sorted((*tree.members, *((root,) for root in tree.bases)), key=min)
    ordered = [j for node in nodes for b in node for j in entries[b]]
    independent = np.array([j for j in ordered if j not in dependent], dtype=int)
    rank = {int(j): i for i, j in enumerate(independent)}
    freedoms = [[j for body in bodies for j in entries[body]] for bodies in tree.members]
    own = [[rank[j] for j in node if j in rank] for node in freedoms]
    width = max([1, *(len(velocities) for velocities in own)])
    local, reach = np.full(size, -1), np.full((size, width), -1)
    for node, velocities in zip(freedoms, own, strict=True):
        for j in node:
            local[j] = velocities.index(rank[j]) if j in rank else -1
            reach[j, : len(velocities)] = velocities
    for root in tree.bases:  # each of a base's freedoms stands for itself
        for j in entries[root]:
            local[j], reach[j, 0] = 0, rank[j]
    roots = [rank[j] for root in tree.bases for j in entries[root]]
    groups = _groups(structure, embedding, entries)
    solved = np.full(size, -1)
    listed = np.concatenate([np.zeros(0, int), *(g.freedoms.reshape(-1) for g in groups)])
    solved[listed] = np.arange(len(listed))
    spread = [np.flatnonzero(reach.reshape(-1) == i).tolist() for i in range(len(independent))]
    rows = node_rows(topology, tree, own, roots, execution)
    return NodePlan(groups, independent, local, reach, solved, _padded(spread), rows)


def plan_of(model: Model | FlexibleModel, embedding: Embedding, execution: str = "levels") -> NodePlan:
    return node_plan(skeleton_of(model).structure, embedding, execution)


def _padded(rows: list[list[int]]) -> np.ndarray:
    """Lists of indices in rows, -1 for what they are shorter."""
    result = np.full((len(rows), max([1, *map(len, rows)])), -1)
    for row, values in zip(result, rows, strict=True):
        row[: len(values)] = values
    return result


def _groups(structure: Structure, embedding: Embedding, entries: list[list[int]]) -> tuple[Group, ...]:
    start, listed = row_plan(structure).start, row_plan(structure).entry
    if embedding.members:  # whose rows list all they have
        size = sum(map(len, entries))
        listed = np.arange(len(listed) * size).reshape(-1, size)
    modes = [j for member in embedding.members for j in entries[member.frame]]
    shapes: dict[tuple[int, int, int], list[tuple]] = {}
    for aggregate, dependent in zip(embedding.aggregates, embedding.dependent, strict=True):
        rows = [row for k in aggregate.conditions for row in range(start[k], start[k + 1])]
        mine = [j for body in aggregate.bodies for j in entries[body]]
        free = [j for j in mine if j not in dependent]
        shapes.setdefault((len(rows), len(dependent), len(free)), []).append((rows, dependent, free))
    groups = []
    for shape, members in shapes.items():
        if shape[1]:
            index = (np.array([m[k] for m in members], int).reshape(len(members), n) for k, n in enumerate(shape))
            rows, *own = index
            freedoms = np.concatenate(own, axis=1)
            preferred = np.where(np.isin(freedoms, modes), LAST, 1.0)
            groups.append(Group(rows, freedoms, listed[rows[:, :, None], freedoms[:, None]], shape[1], preferred))
    return tuple(groups)


class Elimination(NamedTuple):
    """`Y1 = Q R` of each group's aggregates."""

    orthogonal: tuple[jax.Array, ...]
    """`Q`, shape `(aggregates, rows, dependent)`."""
    upper: tuple[jax.Array, ...]
    given: tuple[jax.Array, ...]
    """`Y2`."""
    columns: tuple[jax.Array | None, ...]
    """What was chosen to be dependent, if not what is by default."""


def elimination(p: NodePlan, entries: jax.Array, columns: Columns | None = None) -> Elimination:
    """From the listed entries of the Jacobian of the conditions.

    By the modified Gram-Schmidt process, in small steps over all aggregates of a shape and the batch at once: library
    factorisations take one small matrix after the other.
    """
    orthogonal, upper, given = [], [], []
    choice = (None,) * len(p.groups) if columns is None else columns
    for g, chosen in zip(p.groups, choice, strict=True):
        y = pick(entries, g.entries)
        if chosen is not None:
            y = jnp.sum(y[:, :, :, None] * chosen[:, None], axis=2)
        q, r = orthonormal(y[:, :, : g.dependent])
        orthogonal.append(q)
        upper.append(r)
        given.append(y[:, :, g.dependent :])
    return Elimination(tuple(orthogonal), tuple(upper), tuple(given), choice)


def orthonormal(rest: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`Q` and `R` of matrices `(aggregates, rows, columns)`."""
    units, rows = [], []
    for k in range(rest.shape[2]):
        length = jnp.sqrt(jnp.sum(rest[:, :, 0] ** 2, axis=1))
        unit = rest[:, :, 0] / length[:, None]
        along = jnp.sum(unit[:, :, None] * rest[:, :, 1:], axis=1)
        rest = rest[:, :, 1:] - unit[:, :, None] * along[:, None]
        units.append(unit)
        left = jnp.zeros_like(length, shape=(len(length), k, *length.shape[1:]))
        rows.append(jnp.concatenate([left, length[:, None], along], axis=1))
    return jnp.stack(units, axis=2), jnp.stack(rows, axis=1)


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


def _listed(g: Group, solved: jax.Array, free: jax.Array, columns: jax.Array | None) -> jax.Array:
    """Rows of a group's freedoms, `(all of them, m)`, from those of the dependent and of the independent ones."""
    own = jnp.concatenate([solved, jnp.broadcast_to(free, (len(solved), *free.shape[1:]))], axis=1)
    if columns is not None:
        own = jnp.sum(columns[:, :, :, None] * own[:, None], axis=2)
    return own.reshape(g.freedoms.size, *own.shape[2:])


def dependents(p: NodePlan, e: Elimination, right: jax.Array) -> jax.Array:
    """`Y1^+ right` at the dependent freedoms, zero elsewhere: shape `(nv,)` from `(nc,)`."""
    batch = right.shape[1:]
    found = [jnp.zeros_like(right, shape=(1, *batch))]
    for k, g in enumerate(p.groups):
        own = _solved(e.orthogonal[k], e.upper[k], pick(right, g.rows)[:, :, None])
        still = jnp.zeros_like(right, shape=(1, g.freedoms.shape[1] - g.dependent, 1, *batch))
        found.append(_listed(g, own, still, e.columns[k])[:, 0])
    return take_rows(jnp.concatenate(found), p.solved + 1)


def multipliers(p: NodePlan, e: Elimination, force: jax.Array, count: int) -> jax.Array:
    """`dependents` transposed: what `count` conditions bear of forces on the dependent freedoms, shape `(nc,)`."""
    right = jax.ShapeDtypeStruct((count, *force.shape[1:]), force.dtype)
    return jax.linear_transpose(lambda right: dependents(p, e, right), right)(force)[0]


def coefficients(p: NodePlan, e: Elimination, entries: jax.Array) -> jax.Array:
    """`X` by freedom of the tree and place within its node, shape `(nv, r)`."""
    width, batch = p.reach.shape[1], entries.shape[1:]
    units = jnp.eye(width, dtype=entries.dtype).reshape(width, width, *(1,) * len(batch))
    units = jnp.broadcast_to(units, (width, width, *batch))
    found = [units]
    for k, g in enumerate(p.groups):
        own = -_solved(e.orthogonal[k], e.upper[k], e.given[k])
        # An aggregate's independent freedoms stand at its first places, in order.
        own = jnp.pad(own, ((0, 0), (0, 0), (0, width - own.shape[2]), *((0, 0),) * len(batch)))
        found.append(_listed(g, own, units[None, : g.freedoms.shape[1] - g.dependent], e.columns[k]))
    return take_rows(jnp.concatenate(found), np.where(p.solved < 0, p.local, width + p.solved))


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
