"""The static plan of the nodes of a model with bodies that bend: which there are, what each hangs on, and where its
freedoms stand in `v` and in the skeleton."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dynax.model.flexible import Member, places
from dynax.sweep.kinds import Kinds, KindWalk
from dynax.topology import Topology
from dynax.tree.nodes import NodeOrder


class Blocks(NamedTuple):
    """The static part of nodes of one size: bodies that bend, in rows, -1 for padding."""

    member: np.ndarray
    path: np.ndarray
    """Bodies of the skeleton whose offsets lead from the carrier's point to the node's, `(rows, w)`."""
    freedom: np.ndarray
    """The freedoms of the joint, `(rows, k)`."""
    mode: np.ndarray
    """Modes counted through all bodies, `(rows, m)`."""
    pair: np.ndarray
    """Where their pairs stand among the modal masses, `(rows, m, m)`."""
    velocity: np.ndarray
    """Entries of `v`, those of the joint and then the modes, `(rows, r)`."""
    place: np.ndarray
    """The frame and the nodes as counted in `State.columns`, `(rows, t)`."""
    body: np.ndarray
    """Those in the skeleton, and after them the body of the joint, `(rows, t + 1)`."""
    paths: np.ndarray
    """As `path`, from the node's point to each place, `(rows, t, w)`."""
    port: np.ndarray
    """Which places carry something; `t` is the first node, which no mode moves, `(rows, p)`."""
    clamped: bool
    """Whether no mode moves the frames either, against their first nodes."""
    loaded: np.ndarray
    """Those of the places that have a mass of their own in any row."""


class Carried(NamedTuple):
    """Pairs of nodes of two kinds, of which one carries the other: free bases are the kind before all others."""

    kinds: tuple[int, int]
    """Of the one that carries, and of the one that is carried."""
    port: np.ndarray
    """Of the one that carries, through which it does, counted through all of its kind."""
    row: np.ndarray
    """Of the one that is carried."""


class Plan(NamedTuple):
    """The static part of the nodes: hinges of rigid bodies, then bodies that bend by their numbers of freedoms."""

    order: NodeOrder
    bases: np.ndarray
    """Which free roots stand alone, counted among them."""
    slot: np.ndarray
    """For each row of hinges its slot, -1 for padding."""
    path: np.ndarray
    """As in `Blocks`, for the first hinges of joints, `(rows, w)`."""
    last: np.ndarray
    """The body of the last hinge of a joint, -1 for other hinges."""
    blocks: tuple[Blocks, ...]
    point: tuple[np.ndarray, ...]
    """For each kind the bodies of the skeleton at whose joints nodes have their points, -1 for the world."""
    carried: tuple[Carried, ...]


# Sizes of bodies that bend which are told apart; where there are more, all are padded to the largest.
MOST_SIZES = 3


@lru_cache(maxsize=64)
def plan(topology: Topology, members: tuple[Member, ...], full: bool | None = None) -> Plan:
    """In the full form, the split one, or by default the full one but for free bases, which are closed by themselves: a
    node for hinge and modes each takes nearly twice the time of one for both."""
    at, start, slots = places(topology, members), topology.v_start, topology.slots
    inside = [m.held >= 0 and (m.held not in topology.free_roots if full is None else full) for m in members]
    owner = {body: k for k, member in enumerate(members) for body in (member.frame, *member.nodes)}
    points = {member.held: k for k, member in enumerate(members) if inside[k]}
    bases = [k for k, root in enumerate(topology.free_roots) if int(root) not in points and int(root) not in owner]
    joints = [
        range(start[m.held], start[m.held + 1]) if own else range(0) for m, own in zip(members, inside, strict=True)
    ]
    sizes = sorted({(len(joint), member.modes) for joint, member in zip(joints, members, strict=True)})
    if len(sizes) > MOST_SIZES:
        sizes = [tuple(np.max(sizes, axis=0).tolist())]
    slots_of: dict[int, list[int]] = {}
    for slot, k in enumerate(slots.body):
        slots_of.setdefault(int(topology.carried[k]), []).append(slot)
    place: dict[int, tuple[int, int]] = {-1: (-1, 0)}
    place |= {int(topology.free_roots[k]): (-2 - b, 0) for b, k in enumerate(bases)}
    made: list[tuple[int, int]] = []  # kind, and slot or member
    parents, used = [], []
    for body, parent in enumerate(topology.parents):
        if body in place or (body in owner and (inside[owner[body]] or body != members[owner[body]].frame)):
            continue
        if body in points or body in owner:
            k = points.get(body, owner.get(body, -1))
            size = next(j for j, s in enumerate(sizes) if s >= (len(joints[k]), members[k].modes) or len(sizes) == 1)
            own = (members[k].frame, *members[k].nodes, members[k].held)
            free = [t for t, b in enumerate(own) if b >= 0 and set(topology.children[b]) - set(own)]
            free = free if inside[k] else [t for t in free if t < len(own) - 1]
            place |= {own[t]: (len(made), port) for port, t in enumerate(free)}
            used.append((k, [t if t < len(own) - 1 else -2 for t in free]))
            made.append((1 + size, k))
            parents.append(place[parent])
            continue
        above = place[parent]
        for slot in slots_of[body]:
            made.append((0, slot))
            parents.append(above)
            above = (len(made) - 1, 0)
        place[body] = above

    def path(body: int) -> list[int]:
        found = [body]
        while (up := topology.parents[found[-1]]) in owner:
            found.append(up)
        return found

    ports = dict(used)
    members_of = [[k for kind, k in made if kind == 1 + j] for j in range(len(sizes))]
    counts = [max([0, *(len(ports[k]) for k in own)]) for own in members_of]
    rigid = [None] if any(kind == 0 for kind, _ in made) else []
    walk = KindWalk([kind - 1 + len(rigid) for kind, _ in made], parents, (*rigid, *counts), 1 + len(bases))
    rows = [np.where(r >= 0, np.array([k for _, k in made], int)[r], -1) for r in walk.rows]
    hinges = rows.pop(0) if rigid else np.zeros(0, int)
    hinge_body = [int(topology.carried[slots.body[s]]) if s >= 0 else -1 for s in hinges]
    first = [path(b) if s >= 0 and slots.first[s] else [] for s, b in zip(hinges, hinge_body, strict=True)]
    last = np.array([b if s >= 0 and slots.last[s] else -1 for s, b in zip(hinges, hinge_body, strict=True)], int)
    most = at.modes_v.shape[1]
    where = {b: k for k, b in enumerate(b for m in members for b in (m.frame, *m.nodes))}

    def blocks(own: np.ndarray, size: tuple[int, int]) -> Blocks:
        bending = [members[k] if k >= 0 else None for k in own]
        widest = max(len(m.nodes) for m in bending if m is not None) + 1
        freedom = table([joints[k] if k >= 0 else [] for k in own], size[0])
        mode = table([range(most * k, most * k + members[k].modes) if k >= 0 else [] for k in own], size[1])
        pair = np.where(
            (mode[:, :, None] >= 0) & (mode[:, None] >= 0), most * mode[:, :, None] + mode[:, None] % most, -1
        )
        velocity = np.where(freedom >= 0, at.v[freedom], -1), np.where(mode >= 0, at.modes_v.reshape(-1)[mode], -1)
        body = table([(m.frame, *m.nodes) if m else [] for m in bending], widest)
        held = [
            m.held if m and own else -1 for m, own in zip(bending, [k >= 0 and inside[k] for k in own], strict=True)
        ]
        spots = [path(int(b)) if b >= 0 else [] for b in body.reshape(-1)]
        paths = table(spots, max(map(len, spots)))
        pairs = list(zip(bending, body, strict=True))
        port = table([[t if t >= 0 else widest for t in ports[k]] if k >= 0 else [] for k in own])
        return Blocks(
            own, table([path(h) if h >= 0 else [] for h in held]), freedom, mode, pair,
            np.concatenate(velocity, axis=1),
            np.array([[where.get(int(b), -1) for b in row] for row in body]), np.column_stack([body, held]),
            paths.reshape(*body.shape, -1), port,
            widest > 1 and all(m is None or m.clamped for m in bending),
            np.array([t for t in range(1, widest) if any(m and row[t] in m.loaded for m, row in pairs)], int),
        )  # fmt: skip

    point: list[int] = []
    """Of each node: its joint, or that of what carries it."""
    for (kind, k), (up, _) in zip(made, parents, strict=True):
        if kind == 0:
            point.append(int(topology.carried[slots.body[k]]))
        elif inside[k]:
            point.append(members[k].held)
        elif up >= 0:
            point.append(point[up])
        else:
            point.append(-1 if up == -1 else int(topology.free_roots[bases[-2 - up]]))

    made_of = tuple(blocks(own, size) for own, size in zip(rows, sizes, strict=True))
    velocity = np.where(hinges >= 0, slots.velocity[hinges], -1)
    velocity = np.where(velocity >= 0, at.v[velocity], -1)
    roots = [at.v[j] for k in bases for j in range(start[topology.free_roots[k]], start[topology.free_roots[k] + 1])]
    order = NodeOrder(walk, Kinds([*[velocity] * len(rigid), *(b.velocity for b in made_of)]), np.array(roots, int))
    joint = tuple(np.where(r >= 0, np.array([*point, -1])[r], -1) for r in walk.rows)
    return Plan(
        order, np.array(bases, int), hinges, table(first), last, made_of, joint, _carried(walk, parents, len(bases))
    )


def _carried(walk: KindWalk, parents: list[tuple[int, int]], num_bases: int) -> tuple[Carried, ...]:
    """Each node with all that carry it."""
    where = {int(i): (1 + kind, row) for kind, own in enumerate(walk.rows) for row, i in enumerate(own) if i >= 0}
    where |= {-2 - b: (0, b) for b in range(num_bases)}
    width = [1, *(1 if count is None else count for count in walk.ports)]
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i in range(len(parents)):
        up, port = parents[i]
        while up != -1:
            kind, row = where[up]
            found.setdefault((kind, where[i][0]), []).append((width[kind] * row + port, where[i][1]))
            up, port = parents[up] if up >= 0 else (-1, 0)
    return tuple(Carried(kinds, *np.array(own, int).T) for kinds, own in sorted(found.items()))


def table(rows, width: int | None = None) -> np.ndarray:
    """Lists of indices in rows, -1 for what they are shorter."""
    found = np.full((len(rows), max([0, *map(len, rows)]) if width is None else width), -1)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = list(values)
    return found
