"""The order in which bodies and joints are eliminated, and where that fills the matrix: from the graph alone, once.

    [I   P T] [ a      ]
    [T^T P^T  0  ] [-lambda]        one node for each body and for each joint        (Featherstone 2008, section 8.13)

The node with the fewest neighbours goes next; its neighbours then become neighbours of one another. A body may always
go: its block is its inertia, and what eliminated joints add to it. A joint's block is zero until bodies are gone. It
has full rank when both of its bodies are, or one, provided that what hangs together with that body neither stands on
the ground nor is held by another such joint. On a tree this order is that of the articulated-body algorithm.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

GROUND = -1


class Plan(NamedTuple):
    """Static indices for a matrix of blocks; the last slot of the storage takes what is padding."""

    slots: dict[tuple[int, int], int]
    """Where the block of two nodes is stored, filled ones included; bodies are nodes first, then joints."""
    order: np.ndarray
    """The nodes as they are eliminated, `(m,)`."""
    later: np.ndarray
    """For each of them its neighbours at that moment, `m` for padding, `(m, w)`."""
    left: np.ndarray
    """The slots of their blocks in its column, `(m, w)`."""
    right: np.ndarray
    """And in its row."""
    pairs: np.ndarray
    """The slots of the blocks among them, `(m, w, w)`."""
    operations: int
    """How many products of blocks the elimination takes."""


class _Parts:
    """Eliminated bodies that hang together by eliminated joints."""

    def __init__(self, bodies: int):
        self.part = list(range(bodies))
        self.grounded = [False] * bodies
        self.half: list[int | None] = [None] * bodies
        """The body that is not yet eliminated on which a joint of the part hangs."""

    def of(self, body: int) -> int:
        while self.part[body] != body:
            body = self.part[body]
        return body

    def merge(self, a: int, b: int) -> None:
        a, b = self.of(a), self.of(b)
        if a != b:
            self.part[b] = a
            self.grounded[a] |= self.grounded[b]
            self.half[a] = self.half[b] if self.half[a] is None else self.half[a]

    def held(self, part: int) -> bool:
        return self.grounded[part] or self.half[part] is not None

    def regular(self, ends: tuple[int, int], gone: set[int]) -> bool:
        """Whether the joint between `ends` has a block of full rank now."""
        there = [end for end in ends if end in gone or end == GROUND]
        parts = [self.of(end) for end in there if end != GROUND]
        if len(there) == 2 and len(parts) == 2:
            a, b = parts
            if a == b:
                return True
            return not ((self.half[a] is not None and self.held(b)) or (self.half[b] is not None and self.held(a)))
        if len(there) == 2:
            return self.half[parts[0]] is None
        return bool(parts) and not self.held(parts[0])

    def eliminate_joint(self, ends: tuple[int, int], gone: set[int]) -> None:
        own = [end for end in ends if end in gone]
        if GROUND in ends:
            self.grounded[self.of(own[0])] = True
        elif len(own) == 2:
            self.merge(*own)
        else:
            self.half[self.of(own[0])] = next(end for end in ends if end not in gone)

    def eliminate_body(self, body: int) -> None:
        for part in {self.of(b) for b, half in enumerate(self.half) if half == body and self.of(b) == b}:
            self.half[part] = None
            self.merge(body, part)


@lru_cache(maxsize=64)
def elimination(num_bodies: int, joints: tuple[tuple[int, int], ...]) -> Plan:
    """The plan for bodies and joints `(predecessor, successor)`, -1 for the ground."""
    size = num_bodies + len(joints)
    neighbours: list[set[int]] = [set() for _ in range(size)]
    for k, ends in enumerate(joints):
        for body in ends:
            if body != GROUND:
                neighbours[num_bodies + k].add(body)
                neighbours[body].add(num_bodies + k)
    parts, waiting, gone = _Parts(num_bodies), set(range(size)), set()
    order, later, operations = [], [], 0
    while waiting:
        ready = [node for node in waiting if node < num_bodies or parts.regular(joints[node - num_bodies], gone)]
        node = min(ready, key=lambda node: (len(neighbours[node]), node))
        if node < num_bodies:
            parts.eliminate_body(node)
            gone.add(node)
        else:
            parts.eliminate_joint(joints[node - num_bodies], gone)
        around = sorted(neighbours[node])
        for other in around:
            neighbours[other] |= set(around)
            neighbours[other] -= {node, other}
        waiting.remove(node)
        order.append(node)
        later.append(around)
        operations += len(around) * (1 + len(around))
    slots: dict[tuple[int, int], int] = {}
    for node, around in zip(order, later, strict=True):
        for a in (node, *around):
            for b in (node, *around):
                slots.setdefault((a, b), len(slots))
    width, last = max([1, *(len(around) for around in later)]), len(slots)
    after, left, right = np.full((size, width), size), np.full((size, width), last), np.full((size, width), last)
    pairs = np.full((size, width, width), last)
    for row, (node, around) in enumerate(zip(order, later, strict=True)):
        for i, a in enumerate(around):
            after[row, i], left[row, i], right[row, i] = a, slots[a, node], slots[node, a]
            for j, b in enumerate(around):
                pairs[row, i, j] = slots[a, b]
    return Plan(slots, np.array(order, dtype=int), after, left, right, pairs, operations)
