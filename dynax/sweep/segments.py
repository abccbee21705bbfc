"""Segment execution: one scan along each maximal unbranched run of bodies, runs of equal rank and length side by side.

No row is padding and no index is read at run time, so it is the fastest where it compiles quickly: chains, and robots
with a few long limbs. Every distinct pair of rank and length compiles a body of its own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.sweep.scan import scan
from dynax.sweep.walk import Step, Walk


class SegmentWalk(Walk):
    """`lax.scan` along segments, grouped by rank (how many branchings lie above) and length."""

    def __init__(self, parents: tuple[int, ...], num_bases: int):
        super().__init__(parents, num_bases)
        children: list[list[int]] = [[] for _ in parents]
        for body, parent in enumerate(parents):
            if parent >= 0:
                children[parent].append(body)
        rank: dict[int, int] = {}
        groups: dict[tuple[int, int], list[list[int]]] = {}
        for body, parent in enumerate(parents):
            if parent >= 0 and len(children[parent]) == 1:
                continue
            run = [body]
            while len(children[run[-1]]) == 1:
                run.append(children[run[-1]][0])
            level = 0 if parent < 0 else rank[parent] + 1
            rank.update(dict.fromkeys(run, level))
            groups.setdefault((level, len(run)), []).append(run)
        self.groups = [np.array(groups[key]).T for key in sorted(groups)]  # each (length, lanes)
        self.start = np.cumsum([0, *(group.size for group in self.groups)])
        self.where = {int(body): g for g, group in enumerate(self.groups) for body in group[-1]}
        rows = np.concatenate([group.reshape(-1) for group in self.groups]) if self.groups else np.zeros(0, dtype=int)
        self._set_rows(rows)

    def _cut(self, x: Any, g: int) -> Any:
        shape = self.groups[g].shape
        return jax.tree.map(lambda a: a[self.start[g] : self.start[g + 1]].reshape(shape + a.shape[1:]), x)

    def _join(self, parts: list[Any]) -> Any:
        flat = [jax.tree.map(lambda a: a.reshape((a.shape[0] * a.shape[1], *a.shape[2:])), part) for part in parts]
        return flat[0] if len(flat) == 1 else jax.tree.map(lambda *a: jnp.concatenate(a), *flat)

    def _lane(self, body: int) -> tuple[int, int]:
        """The group whose runs end at `body`, and its lane there."""
        g = self.where[body]
        return g, int(np.flatnonzero(self.groups[g][-1] == body)[0])

    def scatter(self, step: Step, base: Any, xs: Any) -> Any:
        ends: list[Any] = []
        parts = []
        for g, group in enumerate(self.groups):
            above = [self.parents[body] for body in group[0]]
            carries = []
            for parent in above:
                source, index = (
                    (base, -1 - parent) if parent < 0 else (ends[self._lane(parent)[0]], self._lane(parent)[1])
                )
                carries.append(jax.tree.map(lambda a, i=index: a[i], source))
            carry = jax.tree.map(lambda *a: jnp.stack(a), *carries)
            end, ys = scan(step, carry, self._cut(xs, g))
            ends.append(end)
            parts.append(ys)
        return self._join(parts)

    def gather(self, step: Step, zero: Any, xs: Any) -> tuple[Any, Any]:
        parts: list[Any] = [None] * len(self.groups)
        received: dict[int, list[Any]] = {}
        for g in reversed(range(len(self.groups))):
            group = self.groups[g]
            starts = [_total(received.get(int(body), []), zero) for body in group[-1]]
            start = jax.tree.map(lambda *a: jnp.stack(a), *starts)
            handed, parts[g] = scan(step, start, self._cut(xs, g), reverse=True)
            for lane, body in enumerate(group[0]):
                received.setdefault(self.parents[body], []).append(jax.tree.map(lambda a, k=lane: a[k], handed))
        bases = [_total(received.get(-1 - b, []), zero) for b in range(self.num_bases)]
        return jax.tree.map(lambda *a: jnp.stack(a), *bases), self._join(parts)


def _total(terms: list[Any], zero: Any) -> Any:
    total = zero
    for term in terms:
        total = jax.tree.map(jnp.add, total, term)
    return jax.tree.map(jnp.asarray, total)
