"""Symmetric positive definite systems whose rows fall into branches, which carry branches again, batch last.

Rows of different branches are not coupled, as of the legs of a robot, or of the arms on its trunk. So branches are
eliminated by themselves, those that grow from the same level side by side, from the ends inward, and what they leave on
those that carry them, the rows `s`, is added there (Featherstone 2008, section 6.4, in blocks):

    S x_s = b_s - sum_k H_sk H_kk^-1 b_k        S = H_ss - sum_k H_sk H_kk^-1 H_ks        H_kk x_k = b_k - H_ks x_s
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.linear.gauss_jordan import eliminated
from dynax.sweep import take_rows
from dynax.sweep.sums import summed

WORTH = 0.6
"""Of the work on the whole matrix, up to which branches are taken."""
PAIRS_FROM = 4
"""Rows of a branch from which two are eliminated at a time: of a humanoid's step 3 % less; of three rows 8 % more of a
quadruped's."""


@dataclass(frozen=True)
class Level:
    """Branches that grow from those of the level before."""

    rows: tuple[tuple[int, ...], ...]
    """Of each branch, as many of each, filled up with -1."""
    parents: tuple[int, ...]
    """Of each branch, of the level before; of the first level none."""

    @property
    def own(self) -> int:
        """Rows of a branch."""
        return len(self.rows[0])


@dataclass(frozen=True)
class Branches:
    """Which rows of a matrix are where."""

    levels: tuple[Level, ...]

    @property
    def size(self) -> int:
        return sum(row >= 0 for level in self.levels for own in level.rows for row in own)

    @cached_property
    def index(self) -> tuple[np.ndarray, ...]:
        """Of each level for each branch its rows, then those of all that carry it, shape `(k, m)`; -1 for none."""
        found: list[np.ndarray] = []
        for level in self.levels:
            own = np.array(level.rows, int)
            found.append(np.concatenate([own, found[-1][list(level.parents)]], axis=1) if found else own)
        return tuple(found)

    @cached_property
    def children(self) -> tuple[np.ndarray, ...]:
        """Of each level for each branch those of the next one that grow from it, as many for each; -1 for none."""
        found = []
        for level, later in zip(self.levels, [*self.levels[1:], Level(((),), ())], strict=True):
            own = [[k for k, p in enumerate(later.parents) if p == parent] for parent in range(len(level.rows))]
            most = max(map(len, own))
            found.append(np.array([[*x, *[-1] * (most - len(x))] for x in own], int).reshape(len(own), most))
        return tuple(found)

    @cached_property
    def places(self) -> np.ndarray:
        """Where each row of the matrix is among those of all branches."""
        every = np.concatenate([np.array(level.rows).ravel() for level in self.levels])
        return np.array([int(np.flatnonzero(every == row)[0]) for row in range(self.size)])

    def of(self, which: Iterable[int]) -> tuple[int, int]:
        """The level and the branch farthest out that holds some of these rows; the first one where there are none."""
        some = set(which)
        found = [[k for k, own in enumerate(level.rows) if some & set(own)] for level in self.levels]
        assert max(map(len, found)) <= 1
        return max(((d, own[0]) for d, own in enumerate(found) if own), default=(0, 0))

    def blocks(self, a: jax.Array) -> tuple[jax.Array, ...]:
        """Of a matrix `(n, n, *batch)` those of each level, `(k, m, m, *batch)`: the rows and columns of its branches,
        with ones where these are none."""
        return tuple(self._block(a, level.own, index) for level, index in zip(self.levels, self.index, strict=True))

    def _block(self, a: jax.Array, own: int, index: np.ndarray) -> jax.Array:
        n = len(a)
        at = np.where((index[:, :, None] >= 0) & (index[:, None] >= 0), n * index[:, :, None] + index[:, None], -1)
        at[:, own:, own:] = -1
        missing = (index < 0) & (np.arange(index.shape[1]) < own)
        ones = (np.eye(index.shape[1]) * missing[:, :, None]).astype(a.dtype)
        return take_rows(a.reshape(n * n, *a.shape[2:]), at) + ones.reshape(*ones.shape, *(1,) * (a.ndim - 2))

    def solve(self, blocks: Sequence[jax.Array], b: jax.Array) -> jax.Array:
        """`x` of shape `(n, *batch)`, for blocks and a right side `(n, *batch)`."""
        left: list[jax.Array] = []
        for d in reversed(range(len(self.levels))):
            own = self.levels[d].own
            at = np.where(np.arange(self.index[d].shape[1]) < own, self.index[d], -1)
            x = jnp.concatenate([blocks[d], take_rows(b, at)[:, :, None]], axis=2)
            if left:
                x = x + self._summed(d, left[-1][:, self.levels[d + 1].own :, self.levels[d + 1].own :])
            left.append(_of_branches(x, own))
        found: list[jax.Array] = []
        whole = jnp.zeros((1, 0, *b.shape[1:]), b.dtype)
        for d, (level, rest) in enumerate(zip(self.levels, reversed(left), strict=True)):
            x, carrying = rest[:, : level.own, -1], self._of_parents(d, whole)
            for k in range(carrying.shape[1]):
                x = x - rest[:, : level.own, level.own + k] * carrying[:, k][:, None]
            found.append(x.reshape(-1, *x.shape[2:]))
            carrying = jnp.broadcast_to(carrying, (len(x), carrying.shape[1], *x.shape[2:]))
            whole = jnp.concatenate([x, carrying], axis=1)
        return take_rows(jnp.concatenate(found), self.places)

    def powers(self, blocks: Sequence[jax.Array], rows: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        """`j H^-1 j^T` of rows `(r, k, m, *batch)` of each level, each of one branch and what carries it."""
        parts: list[jax.Array] = []
        rest: Any = None
        for d in reversed(range(len(self.levels))):
            own, m = self.levels[d].own, self.index[d].shape[1]
            x, columns = blocks[d], jnp.moveaxis(rows[d], 0, 2)
            if rest is not None:
                inner = self.levels[d + 1].own
                x = x + self._summed(d, rest[:, inner:, inner : inner + m])
                of_children = jnp.moveaxis(take_rows(rest[:, inner:, inner + m :], self.children[d]), 1, 2)
                count = of_children.shape[2] * of_children.shape[3]
                of_children = of_children.reshape(*columns.shape[:2], count, *columns.shape[3:])
                columns = jnp.concatenate([columns, of_children], axis=2)
            rest = _of_branches(jnp.concatenate([x, columns], axis=2), own)
            parts.append(summed(jnp.moveaxis(columns[:, :own] * rest[:, :own, m:], 1, 0), 0))
        found: list[jax.Array] = []
        for d, part in enumerate(reversed(parts)):
            if d:
                slots = self.children[d - 1].ravel()
                before = found[-1][:, len(rows[d - 1]) :].reshape(len(slots), *part.shape[1:])
                part = part + take_rows(before, np.argsort(np.where(slots < 0, len(slots), slots))[: len(part)])
            found.append(part)
        return tuple(jnp.moveaxis(x[:, : len(own)], 1, 0) for x, own in zip(found, rows, strict=True))

    def _summed(self, d: int, of_children: jax.Array) -> jax.Array:
        """Of each branch of a level the sum over those that grow from it."""
        if len(self.levels[d].rows) == 1:
            return summed(of_children, 0)[None]
        return summed(jnp.moveaxis(take_rows(of_children, self.children[d]), 1, 0), 0)

    def _of_parents(self, d: int, whole: jax.Array) -> jax.Array:
        return whole if len(whole) == 1 else take_rows(whole, np.array(self.levels[d].parents, int))


def _of_branches(x: jax.Array, own: int) -> jax.Array:
    """Of each branch its own rows eliminated, the first ones, and what they leave on those that carry it."""
    return eliminated(x, own, pairs=own >= PAIRS_FROM)


def branches_of(coupled: np.ndarray) -> Branches | None:
    """The branches of a matrix that is zero but where rows are coupled, shape `(n, n)`; none where that is not worth
    it."""
    n = len(coupled)
    coupled = coupled | coupled.T | np.eye(n, dtype=bool)
    levels: list[Level] = []
    grown = [(-1, own) for own in apart(coupled, range(n))]
    while grown:
        rows, later = [], []
        for k, (_, every) in enumerate(grown):
            stem = [row for row in every if coupled[row, every].all()]
            rest = [row for row in every if row not in stem]
            rows.append(stem if stem and rest else every)
            later += [(k, own) for own in apart(coupled, rest)] if stem else []
        most = max(map(len, rows), default=0)
        filled = tuple((*own, *(-1,) * (most - len(own))) for own in rows)
        levels.append(Level(filled, tuple(parent for parent, _ in grown) if levels else ()))
        grown = later
    found = Branches(tuple(levels))
    sizes = ((len(level.rows), level.own, index.shape[1]) for level, index in zip(levels, found.index, strict=True))
    work = sum(k * own * m * (m + 1) for k, own, m in sizes)
    return found if work < WORTH * n * n * (n + 1) else None


def apart(coupled: np.ndarray, rows: Iterable[int]) -> list[list[int]]:
    """Those of the rows that are coupled, through others of them too."""
    left, found = set(rows), []
    while left:
        reached, new = set(), {min(left)}
        while new:
            reached |= new
            new = {k for k in left - reached if coupled[k, sorted(new)].any()}
        found.append(sorted(reached))
        left -= reached
    return found
