"""Factors of a mass matrix that keep its branch-induced sparsity (Featherstone 2008, sections 6.4 and 6.5).

Row `k` of a mass matrix is nonzero, left of the diagonal, only at the ancestors of freedom `k` in the tree of freedoms.
Eliminated from the tips inwards, `H = L^T L` and `H = L^T D L` fill nothing in: `L` has the pattern of the lower
triangle of `H`. (A Cholesky factor `L L^T` begins at the base and does fill in.) One scan over the rows, each step
reading and writing its ancestors only: O(n d^2) for `n` freedoms of depth at most `d`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

Parents = tuple[int, ...]


@lru_cache(maxsize=512)
def ancestors(parents: Parents) -> np.ndarray:
    """The ancestors of each row, nearest first, padded with `n`, shape `(n, d)`."""
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        if not -1 <= parent < row:
            raise ValueError(f"row {row} has parent {parent}: parents must come before their children")
        paths.append([parent, *paths[parent]] if parent >= 0 else [])
    depth = max((len(path) for path in paths), default=0)
    return np.array([path + [len(parents)] * (depth - len(path)) for path in paths], int).reshape(len(parents), depth)


def _pattern(parents: Parents) -> np.ndarray:
    """Where the lower triangle may be nonzero."""
    n = len(parents)
    mask = np.zeros((n, n + 1), dtype=bool)
    np.put_along_axis(mask, ancestors(parents), True, axis=1)
    return mask[:, :n] | np.eye(n, dtype=bool)


def _as_parents(parents: Sequence[int], size: int) -> Parents:
    known = tuple(int(p) for p in parents)
    if len(known) != size:
        raise ValueError(f"{len(known)} parents for {size} rows; `model.topology.expanded_parents` has one per freedom")
    return known


@partial(jax.tree_util.register_dataclass, data_fields=["lower", "diagonal"], meta_fields=["parents"])
@dataclass(frozen=True)
class SparseFactor:
    """`H = L^T L`, or `H = L^T D L` with a unit `L`. Made by `factor_ltl` and `factor_ltdl`.

    The products and solutions are those of table 6.5, for vectors `(n,)`.
    """

    lower: jax.Array
    """`L`, shape `(n, n)`; exact zeros wherever the tree has no path."""
    diagonal: jax.Array | None
    """`D`, shape `(n,)`, or `None` where there is none."""
    parents: Parents

    def apply(self, x: jax.Array) -> jax.Array:
        """`L x`."""
        return self._own * x + jnp.sum(self._rows * self._above(x), axis=1)

    def apply_transpose(self, x: jax.Array) -> jax.Array:
        """`L^T x`."""
        n, index = len(self.parents), ancestors(self.parents)
        handed = jnp.zeros(n + 1, self.lower.dtype).at[index].add(self._rows * x[:, None])
        return self._own * x + handed[:n]

    def solve_lower(self, x: jax.Array) -> jax.Array:
        """`L^-1 x`, from the base to the tips."""
        n = len(self.parents)

        def step(y: jax.Array, row) -> tuple[jax.Array, None]:
            k, index, entries, own = row
            return y.at[k].set((y[k] - entries @ y[index]) / own), None

        return lax.scan(step, self._padded(x), self._scanned)[0][:n]

    def solve_transpose(self, x: jax.Array) -> jax.Array:
        """`L^-T x`, from the tips to the base."""
        n = len(self.parents)

        def step(y: jax.Array, row) -> tuple[jax.Array, None]:
            k, index, entries, own = row
            value = y[k] / own
            return y.at[k].set(value).at[index].add(-entries * value), None

        return lax.scan(step, self._padded(x), self._scanned, reverse=True)[0][:n]

    def solve(self, x: jax.Array) -> jax.Array:
        """`H^-1 x`: `L^-T` first, then `L^-1`."""
        inner = self.solve_transpose(x)
        return self.solve_lower(inner if self.diagonal is None else inner / self.diagonal)

    @property
    def _own(self) -> jax.Array:
        return jnp.diagonal(self.lower)

    @property
    def _rows(self) -> jax.Array:
        """The entries of each row at its ancestors, `(n, d)`, zeros in the padding."""
        index, n = ancestors(self.parents), len(self.parents)
        picked = jnp.take_along_axis(self.lower, np.minimum(index, max(n - 1, 0)), axis=1)
        return jnp.where(index < n, picked, 0.0)

    def _above(self, x: jax.Array) -> jax.Array:
        return self._padded(x)[ancestors(self.parents)]

    def _padded(self, x: jax.Array) -> jax.Array:
        return jnp.append(jnp.asarray(x, self.lower.dtype), 0.0)

    @property
    def _scanned(self):
        n = len(self.parents)
        return jnp.arange(n), jnp.asarray(ancestors(self.parents)), self._rows, self._own


@partial(jax.jit, static_argnames=("parents", "unit"))
def _factor(matrix: jax.Array, *, parents: Parents, unit: bool) -> SparseFactor:
    n, index = len(parents), ancestors(parents)
    # A row and a column of zeros for the padding; nothing of the upper triangle is read.
    h = jnp.pad(jnp.where(_pattern(parents), matrix, 0.0), ((0, 1), (0, 1)))

    def eliminate(h: jax.Array, row) -> tuple[jax.Array, jax.Array]:
        k, above = row
        pivot = h[k, k]
        entries = h[k, above] / pivot
        change = jnp.where(above[:, None] >= above[None, :], entries[:, None] * entries[None, :] * pivot, 0.0)
        h = h.at[above[:, None], above[None, :]].add(-change)
        # In the factor, the row is divided by its pivot (LTDL) or by the root of it (LTL).
        return h.at[k, above].set(entries if unit else entries * jnp.sqrt(pivot)), pivot

    h, pivots = lax.scan(eliminate, h, (jnp.arange(n), jnp.asarray(index)), reverse=True)
    own = jnp.ones(n, matrix.dtype) if unit else jnp.sqrt(pivots)
    lower = jnp.where(_pattern(parents) & ~np.eye(n, dtype=bool), h[:n, :n], 0.0) + jnp.diag(own)
    return SparseFactor(lower, pivots if unit else None, parents)


def factor_ltl(matrix: ArrayLike, parents: Sequence[int]) -> SparseFactor:
    """`H = L^T L` with `L` lower triangular, without fill-in (Featherstone 2008, table 6.3).

    **Arguments:**

    - `matrix`: symmetric positive definite, shape `(n, n)`; left of the diagonal, nonzeros of row `k` stand at
      ancestors of `k` alone, as in `mass_matrix`. Only the lower triangle is read.
    - `parents`: the parent of each row, -1 for none (static): `model.topology.expanded_parents`.
    """
    matrix = jnp.asarray(matrix)
    return _factor(matrix, parents=_as_parents(parents, len(matrix)), unit=False)


def factor_ltdl(matrix: ArrayLike, parents: Sequence[int]) -> SparseFactor:
    """`H = L^T D L` with `L` unit lower triangular and no square root (section 6.5); arguments as `factor_ltl`."""
    matrix = jnp.asarray(matrix)
    return _factor(matrix, parents=_as_parents(parents, len(matrix)), unit=True)


def sparse_product(matrix: ArrayLike, x: ArrayLike, parents: Sequence[int]) -> jax.Array:
    """`H x` from the lower triangle of `H` alone, O(n d) (table 6.5); as `factor_ltl`, with `x` of shape `(n,)`."""
    matrix, x = jnp.asarray(matrix), jnp.asarray(x)
    known = _as_parents(parents, len(matrix))
    lower = SparseFactor(jnp.where(_pattern(known), matrix, 0.0), None, known)
    return lower.apply(x) + lower.apply_transpose(x) - jnp.diagonal(matrix) * x


def reduced_parents(parents: Sequence[int], kept: Sequence[bool]) -> np.ndarray:
    """The parent array of the kept rows, each hung on its nearest kept ancestor (section 9.1, figure 9.1).

    With it the mass matrix of the joints whose forces are given factors without fill-in.
    """
    place: dict[int, int] = {-1: -1}
    reduced: list[int] = []
    for row, (parent, keep) in enumerate(zip(parents, kept, strict=True)):
        place[row] = place[int(parent)]
        if keep:
            place[row] = len(reduced)
            reduced.append(place[int(parent)])
    return np.array(reduced, dtype=int)
