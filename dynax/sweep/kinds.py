"""Walks over nodes of several kinds: each kind has rows, and a step, of its own size.

By levels, like `levels`, but a level holds rows of each kind, and a run of levels with the same kinds is one scan. So a
node pays for what its own kind does: twenty hinges beside one body of twelve modes are hinges. What nodes hand one
another lies in *places*: the ports of the nodes of one level, those of one kind after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.sweep.links import linked
from dynax.sweep.scan import scan
from dynax.sweep.walk import Step

# Every run compiles steps of its own. Where kinds alternate more often, each level has all of them, some as padding.
MOST_RUNS = 4


class Kinds(tuple):
    """What nodes have, in rows: one entry for each kind."""


jax.tree_util.register_pytree_node(Kinds, lambda x: (list(x), None), lambda _, x: Kinds(x))


def each_kind(x: Any) -> tuple:
    """What nodes have, kind by kind, where there may be only one."""
    return x if isinstance(x, Kinds) else (x,)


class _Run(NamedTuple):
    levels: int
    kinds: tuple[tuple[int, int, int], ...]
    """Kind, how many rows of it each level has, and the first row of the run."""
    below: np.ndarray
    """For each level and place of the level before, who hands to it, `(levels, most children, places)`."""
    above: np.ndarray
    """For each level and node of it the place that it hangs on, `(levels, 1, nodes)`."""
    read: np.ndarray
    """The same, the number of places for a row that is no node."""
    straight: bool
    """Whether every node hands to the place of its own number, and hangs on it."""


class KindWalk:
    """`lax.scan` over runs of levels.

    Node `i` is of kind `kinds[i]` and hangs on `parents[i]`: a node and its port, or `(-1 - b, 0)` for base `b`.
    `ports` has for each kind how many ports a node has, `None` for a single one without an axis. All kinds occur.
    """

    def __init__(
        self,
        kinds: Sequence[int],
        parents: Sequence[tuple[int, int]],
        ports: Sequence[int | None],
        num_bases: int,
    ):
        self.ports, self.num_bases = tuple(ports), num_bases
        depth: list[int] = []
        for node, _ in parents:
            depth.append(0 if node < 0 else depth[node] + 1)
        levels = [[i for i, d in enumerate(depth) if d == level] for level in range(max(depth, default=-1) + 1)]
        present = [frozenset(kinds[i] for i in level) for level in levels]
        starts = [k for k in range(len(levels)) if k == 0 or present[k] != present[k - 1]]
        if len(starts) > MOST_RUNS:
            starts = [0]
        spans = list(zip(starts, [*starts[1:], len(levels)], strict=True))
        size = [1 if count is None else count for count in ports]
        rows: list[list[int]] = [[] for _ in ports]
        place: dict[tuple[int, int], int] = {(-1 - b, 0): b for b in range(num_bases)}
        number: dict[int, int] = {}
        shapes, most = [], num_bases
        for first, last in spans:
            held = sorted(frozenset().union(*present[first:last]))
            widths = {g: max(sum(kinds[i] == g for i in level) for level in levels[first:last]) for g in held}
            shapes.append(tuple((g, widths[g], len(rows[g])) for g in held))
            for level in levels[first:last]:
                entry = count = 0
                for g in held:
                    own = [i for i in level if kinds[i] == g]
                    for k, i in enumerate(own):
                        number[i] = count + k
                        place |= {(i, port): entry + size[g] * k + port for port in range(size[g])}
                    rows[g] += [*own, *[-1] * (widths[g] - len(own))]
                    entry, count = entry + size[g] * widths[g], count + widths[g]
                most = max(most, entry)
        self.places = most
        self.rows = Kinds(np.array(own, dtype=int) for own in rows)
        self.runs = tuple(
            self._run(levels[a:b], shape, parents, place, number) for (a, b), shape in zip(spans, shapes, strict=True)
        )

    def _run(self, levels, kinds, parents, place, number) -> _Run:
        nodes = sum(width for _, width, _ in kinds)
        handed: list[list[list[int]]] = [[[] for _ in range(self.places)] for _ in levels]
        same = np.arange(nodes) if nodes <= self.places else np.zeros(nodes, dtype=int)
        above = np.tile(same, (len(levels), 1)).astype(np.int32)
        read = np.full((len(levels), 1, nodes), self.places, dtype=np.int32)
        for k, level in enumerate(levels):
            for i in level:
                above[k, number[i]] = read[k, 0, number[i]] = place[parents[i]]
                handed[k][place[parents[i]]].append(number[i])
        most = max([1, *(len(own) for level in handed for own in level)])
        below = np.full((len(levels), most, self.places), nodes, dtype=np.int32)
        for k, level in enumerate(handed):
            for entry, own in enumerate(level):
                below[k, : len(own), entry] = own
        filled = all(len(level) == nodes for level in levels)
        straight = filled and nodes == self.places and bool((above == same).all())
        return _Run(len(levels), kinds, below, above[:, None], read, straight)

    def scatter(self, step: Step, base: Any, xs: Any) -> Any:
        """From the bases to the tips, see `Walk`."""
        rest = self.places - self.num_bases
        held = jax.tree.map(lambda a: jnp.concatenate([a, jnp.zeros((rest, *a.shape[1:]), a.dtype)]), base)
        found: list[list] = [[] for _ in self.ports]
        for run in self.runs:

            def level(held: Any, x: Any, run: _Run = run) -> tuple[Any, list]:
                above, below, own = x

                def of_parents(a: jax.Array) -> jax.Array:
                    return linked(a, above, below, complete=True)

                carried = held if run.straight else jax.tree.map(of_parents, held)
                moved, ys, first = [], [], 0
                for (kind, width, _), part in zip(run.kinds, own, strict=True):
                    mine = carried if run.straight and len(run.kinds) == 1 else _slice(carried, first, width)
                    motion, y = step(mine, part)
                    moved.append(motion if self.ports[kind] is None else jax.tree.map(_joined, motion))
                    ys.append(y)
                    first += width
                return jax.tree.map(lambda *a: self._filled(a), *moved), ys

            held, ys = scan(level, held, (*map(jnp.asarray, (run.above, run.below)), self._parts(run, xs)))
            for (kind, _, _), y in zip(run.kinds, ys, strict=True):
                found[kind].append(jax.tree.map(_joined, y))
        return _of_kinds(found)

    def gather(self, step: Step, zero: Any, xs: Any) -> tuple[Any, Any]:
        """From the tips to the bases, see `Walk`; `zero` is what one port receives."""
        sums = jax.tree.map(lambda a: jnp.zeros((self.places, *jnp.shape(a)), jnp.result_type(a)) + a, zero)
        found: list[list] = [[] for _ in self.ports]
        for run in reversed(self.runs):

            def level(sums: Any, x: Any, run: _Run = run) -> tuple[Any, list]:
                below, read, own = x
                handed, ys, first = [], [], 0
                for (kind, width, _), part in zip(run.kinds, own, strict=True):
                    count = self.ports[kind]
                    mine = _slice(sums, first, width * (1 if count is None else count))
                    first += width * (1 if count is None else count)
                    if count is not None:
                        mine = jax.tree.map(lambda a, s=(width, count): a.reshape(*s, *a.shape[1:]), mine)
                    given, y = step(mine, part)
                    handed.append(given)
                    ys.append(y)

                def total(*a: jax.Array) -> jax.Array:
                    every = a[0] if len(a) == 1 else jnp.concatenate(a)
                    return every if run.straight else linked(every, below, read)

                return jax.tree.map(total, *handed), ys

            sums, ys = scan(level, sums, (*map(jnp.asarray, (run.below, run.read)), self._parts(run, xs)), reverse=True)
            for (kind, _, _), y in zip(run.kinds, ys, strict=True):
                found[kind].insert(0, jax.tree.map(_joined, y))
        return jax.tree.map(lambda a: a[: self.num_bases], sums), _of_kinds(found)

    def _filled(self, moved: Sequence[jax.Array]) -> jax.Array:
        """The motions of a level's ports in all places."""
        rest = self.places - sum(len(a) for a in moved)
        every = [*moved, jnp.zeros((rest, *moved[0].shape[1:]), moved[0].dtype)] if rest else list(moved)
        return every[0] if len(every) == 1 else jnp.concatenate(every)

    def _parts(self, run: _Run, xs: Any) -> list:
        """The rows of a run, kind by kind, levels in front."""
        parts = []
        for kind, width, start in run.kinds:
            own = jax.tree.map(
                lambda x, kind=kind: x[kind] if isinstance(x, Kinds) else x, xs, is_leaf=lambda x: isinstance(x, Kinds)
            )
            parts.append(
                jax.tree.map(
                    lambda a, s=start, w=width: a[s : s + run.levels * w].reshape(run.levels, w, *a.shape[1:]), own
                )
            )
        return parts


def _slice(tree: Any, first: int, size: int) -> Any:
    return jax.tree.map(lambda a: a if (first, size) == (0, len(a)) else a[first : first + size], tree)


def _joined(a: jax.Array) -> jax.Array:
    return a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])


def _of_kinds(found: list[list]) -> Any:
    """Results of each kind, run after run; where a step has a tuple of results, a tuple of `Kinds`."""
    each = [own[0] if len(own) == 1 else jax.tree.map(lambda *a: jnp.concatenate(a), *own) for own in found]
    return tuple(map(Kinds, zip(*each, strict=True))) if type(each[0]) is tuple else Kinds(each)
