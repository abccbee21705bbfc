"""Aggregation: the sub-graphs that loops tie together, as nodes of a tree (Jain, AGG-COND, AGG-FIND).

The bodies that a condition moves against one another, with all bodies on the paths between them, become one node; what
carries them all, their closest common ancestor, becomes its parent. Sub-graphs that share a body are merged, disjoint
ones kept apart. The nodes then form a tree again: each hangs on one body of its parent node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dynax.topology import Topology

WORLD = -1

LAST = 1e-3
"""Modes stay independent where columns of joints are longer than this part of the longest."""


class Aggregate(NamedTuple):
    """A path-induced sub-graph whose bodies all hang, in the end, on one."""

    parent: int
    """The body that carries it, -1 for the world; never a member."""
    bodies: tuple[int, ...]
    """Members, parents first."""
    conditions: tuple[int, ...]
    """Which conditions tie them."""


def ancestors(topology: Topology, body: int) -> list[int]:
    """The body, its ancestors and the world."""
    path = [body]
    while path[-1] != WORLD:
        path.append(topology.parents[path[-1]])
    return path


def enclosing(topology: Topology, bodies: Iterable[int]) -> tuple[int, set[int]]:
    """What carries all of `bodies` without being one of them, and the bodies on the paths from it to them."""
    members = set(bodies)
    paths = [ancestors(topology, topology.parents[body]) for body in members]
    shared = set(paths[0]).intersection(*paths[1:])
    # Ancestors common to all parents lie on one path: the lowest is the first of any.
    parent = next(body for body in paths[0] if body in shared and body not in members)
    between = {body for path in paths for body in path[: path.index(parent)]}
    return parent, members | between


def aggregates(topology: Topology, moved: Sequence[Iterable[int]]) -> tuple[Aggregate, ...]:
    """The aggregates of conditions, each given by the bodies whose joints it ties."""
    found: list[tuple[set[int], list[int]]] = []
    for condition, bodies in enumerate(moved):
        pending, members = [condition], set(bodies)
        if not members:
            continue
        while True:
            _, members = enclosing(topology, members)
            touching = [other for other in found if other[0] & members]
            if not touching:
                break
            for other in touching:
                members |= other[0]
                pending += other[1]
                found.remove(other)
        found.append((members, pending))
    made = [
        Aggregate(enclosing(topology, members)[0], tuple(sorted(members)), tuple(sorted(own))) for members, own in found
    ]
    return tuple(sorted(made, key=lambda a: a.bodies))


class NodeTree(NamedTuple):
    """The aggregated tree: a node for each aggregate and each body outside of them, parents first."""

    members: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...]
    """The parent node, or `-1 - b` for base `b`: the world, then the free roots that stand alone."""
    parent_bodies: tuple[int, ...]
    """The body that carries each node, -1 for the world."""
    ports: tuple[int, ...]
    """Which member of its node that body is; 0 for a base."""
    bases: tuple[int, ...]
    """The free roots that are bases."""


def node_tree(topology: Topology, made: Sequence[Aggregate]) -> NodeTree:
    """The nodes, in the order of their last members' parents."""
    owner = {body: aggregate for aggregate in made for body in aggregate.bodies}
    bases = [int(body) for body in topology.free_roots if int(body) not in owner]
    groups: list[tuple[int, tuple[int, ...]]] = [(a.parent, a.bodies) for a in made]
    groups += [
        (topology.parents[body], (body,))
        for body in range(topology.num_bodies)
        if body not in owner and body not in bases
    ]
    # A node comes after the one that holds its parent.
    place: dict[int, tuple[int, int]] = {WORLD: (-1, 0)}
    place.update({body: (-2 - k, 0) for k, body in enumerate(bases)})
    members, parents, carriers, ports = [], [], [], []
    waiting = sorted(groups, key=lambda group: group[1])
    while waiting:
        ready = [group for group in waiting if group[0] in place]
        for parent, bodies in ready:
            node, port = place[parent]
            for k, body in enumerate(bodies):
                place[body] = (len(members), k)
            members.append(bodies)
            parents.append(node)
            carriers.append(parent)
            ports.append(port)
        waiting = [group for group in waiting if group[1] not in members]
    return NodeTree(tuple(members), tuple(parents), tuple(carriers), tuple(ports), tuple(bases))


def independent_columns(
    matrix: np.ndarray, keep: Sequence[int], tolerance: float = 1e-8, last: Sequence[int] = ()
) -> tuple[list[int], int]:
    """Which columns to solve for so that the rest are free, by pivoting, and the rank: none of those in `keep`, and of
    those in `last` where no other serves.

    Columns are orthogonalised one by one, the longest first (QR with pivoting).
    """
    rest = np.array(matrix, dtype=np.float64)
    largest = np.linalg.norm(rest, axis=0).max(initial=0.0)
    rank = int(np.linalg.matrix_rank(rest, tol=tolerance * max(largest, 1e-300))) if rest.size else 0
    chosen: list[int] = []
    for _ in range(rank):
        lengths = np.linalg.norm(rest, axis=0)
        lengths[list(keep)] = 0.0
        first = lengths.copy()
        first[list(last)] = 0.0
        best = int(np.argmax(first if first.max() > LAST * largest else lengths))
        if lengths[best] <= tolerance * largest:
            break
        chosen.append(best)
        unit = rest[:, best] / lengths[best]
        rest = rest - np.outer(unit, unit @ rest)
    return sorted(chosen), rank
