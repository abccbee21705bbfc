"""Symmetric positive definite systems whose rows fall into branches on a common stem, batch last.

Rows of different branches are not coupled, as of the legs of a robot. So each branch is eliminated by itself, all side
by side, and what they leave on the stem is solved there (Featherstone 2008, section 6.4, in blocks):

    S x_s = b_s - sum_k H_sk H_kk^-1 b_k        S = H_ss - sum_k H_sk H_kk^-1 H_ks        H_kk x_k = b_k - H_ks x_s
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.linear.gauss_jordan import gauss_jordan
from dynax.linear.sums import summed
from dynax.sweep import take_rows

WORTH = 0.6
"""Of the work on the whole matrix, up to which branches are taken."""


@dataclass(frozen=True)
class Branches:
    """Which rows of a matrix are where."""

    stem: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    """Of each branch, as many of each, filled up with -1."""

    @property
    def own(self) -> int:
        """Rows of a branch."""
        return len(self.rows[0])

    @property
    def size(self) -> int:
        return len(self.stem) + sum(row >= 0 for own in self.rows for row in own)

    @cached_property
    def index(self) -> np.ndarray:
        """For each branch its rows, then those of the stem, shape `(k, m)`; -1 for none."""
        return np.concatenate([np.array(self.rows), np.tile(np.array(self.stem, int), (len(self.rows), 1))], axis=1)

    @cached_property
    def places(self) -> np.ndarray:
        """Where each row of the matrix is among those of all branches and, after them, of the stem."""
        every = np.concatenate([np.array(self.rows).ravel(), np.array(self.stem, int)])
        return np.array([int(np.flatnonzero(every == row)[0]) for row in range(self.size)])

    def of(self, which: Iterable[int]) -> int | None:
        """The branch that holds some of these rows; none where all are of the stem."""
        found = {k for row in which for k, own in enumerate(self.rows) if row in own}
        assert len(found) <= 1
        return found.pop() if found else None

    def blocks(self, a: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of a matrix `(n, n, *batch)` those of the branches with the stem, whose own is left out, and ones where rows
        are none, shape `(k, m, m, *batch)`; and that of the stem, `(s, s, *batch)`."""
        n, index, own = len(a), self.index, self.own
        at = np.where((index[:, :, None] >= 0) & (index[:, None] >= 0), n * index[:, :, None] + index[:, None], -1)
        at[:, own:, own:] = -1
        flat = a.reshape(n * n, *a.shape[2:])
        ones = (np.eye(index.shape[1]) * (index < 0)[:, :, None]).astype(a.dtype)
        stem = np.array(self.stem, int)
        blocks = take_rows(flat, at) + ones.reshape(*ones.shape, *(1,) * (a.ndim - 2))
        return blocks, take_rows(flat, n * stem[:, None] + stem)

    def vectors(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of `(n, *batch)` the entries of the branches, zeros for the stem, `(k, m, *batch)`; and those of the stem."""
        index = self.index.copy()
        index[:, self.own :] = -1
        return take_rows(x, index), take_rows(x, np.array(self.stem, int))

    def solve(self, blocks: jax.Array, stem: jax.Array, b: jax.Array) -> jax.Array:
        """`x` of shape `(n, *batch)`, for blocks and a right side `(n, *batch)`."""
        of_branches, of_stem = self.vectors(b)
        left = eliminated(jnp.concatenate([blocks, of_branches[:, :, None]], axis=2), self.own)
        x = of_stem[:0]
        if len(stem):
            rest = summed(left[:, self.own :, self.own :], 0)
            x = gauss_jordan(stem + rest[:, :-1], (of_stem + rest[:, -1])[:, None])[:, 0]
        own = left[:, : self.own, -1]
        for k in range(len(stem)):
            own = own - left[:, : self.own, self.own + k] * x[k]
        return take_rows(jnp.concatenate([own.reshape(-1, *own.shape[2:]), x]), self.places)

    def powers(self, blocks: jax.Array, stem: jax.Array, rows: jax.Array) -> jax.Array:
        """`j H^-1 j^T` of rows `(r, k, m, *batch)`, each of one branch and the stem."""
        count, own = len(rows), self.own
        left = eliminated(jnp.concatenate([blocks, jnp.moveaxis(rows, 0, 2)], axis=2), own)
        found = sum(rows[:, :, i] * jnp.moveaxis(left[:, i, own + len(stem) :], 1, 0) for i in range(own))
        if not len(stem):
            return jnp.asarray(found)
        right = left[:, own:, own + len(stem) :]  # (k, s, r)
        right = jnp.moveaxis(right, 1, 0).reshape(len(stem), -1, *rows.shape[3:])
        x = gauss_jordan(stem + summed(left[:, own:, own : own + len(stem)], 0), right)
        along = summed(right * x, 0).reshape(-1, count, *rows.shape[3:])
        return found + jnp.moveaxis(along, 1, 0)


def eliminated(x: jax.Array, count: int) -> jax.Array:
    """Rows `(k, m, c, *batch)` with the first `count` columns made those of a unit matrix (Gauss and Jordan)."""
    own = np.eye(x.shape[1], dtype=bool)[:count].reshape(count, 1, -1, *(1,) * (x.ndim - 2))

    def pivot(x: jax.Array, k_own: tuple) -> tuple[jax.Array, None]:
        k, own = k_own
        row = lax.dynamic_index_in_dim(x, k, 1, keepdims=False)
        row = row / lax.dynamic_index_in_dim(row, k, 1, keepdims=False)[:, None]
        column = lax.dynamic_index_in_dim(x, k, 2, keepdims=False)
        return jnp.where(own, row[:, None], x - column[:, :, None] * row[:, None]), None

    return lax.scan(pivot, x, (np.arange(count), own))[0]


def branches_of(coupled: np.ndarray) -> Branches | None:
    """The branches of a matrix that is zero but where rows are coupled, shape `(n, n)`; none where that is not worth
    it."""
    n = len(coupled)
    coupled = coupled | coupled.T | np.eye(n, dtype=bool)
    stem = np.flatnonzero(coupled.all(axis=1))
    found: list[list[int]] = []
    left = set(range(n)) - set(map(int, stem))
    while left:
        reached, new = set(), {min(left)}
        while new:
            reached |= new
            new = {k for k in left - reached if coupled[k, sorted(new)].any()}
        found.append(sorted(reached))
        left -= reached
    own, s = max(map(len, found), default=0), len(stem)
    work = len(found) * own * (own + s) * (own + s + 1) + s * s * (s + 1)
    if len(found) < 2 or work > WORTH * n * n * (n + 1):
        return None
    rows = tuple((*rows, *(-1,) * (own - len(rows))) for rows in found)
    return Branches(tuple(map(int, stem)), rows)
