"""Independent rows of small matrices, many at once: the complete orthogonal decomposition.

    A = B^T G C      A^+ = C^T G^-1 B      C (k, n) and B (k, m) with orthonormal rows, or zeros beyond the rank

Rows are orthogonalised one after another, the longest of what is left first, until what is left is short: that is `C`
(Golub & Van Loan 2013, section 5.4). The other rows are combinations of those, `A = R^T C`, and the rows of `R` are
orthogonalised in their turn, `R = L B`. Each is orthogonalised twice, which is enough (Giraud et al. 2005).

It is plain loops, and no library: on a CPU the library's factorisations of a batch wait for threads, and two of them
that wait at once may do so for ever. As loops they can be in one kernel as well.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Decomposition(NamedTuple):
    """Of a matrix `A (m, n)`, with `k = min(m, n)`."""

    rows: jax.Array
    """`C`, orthonormal rows that span those of the matrix, then zeros; shape `(k, n)`."""
    solved: jax.Array
    """`G^-1 B`, shape `(k, m)`: `C x = G^-1 B y` are the least squares of `A x = y`."""
    pivots: jax.Array
    """How long each row was when it was chosen, by its weight, from the longest on, and of those left out, `(k,)`."""
    kept: jax.Array
    """Which of them count, booleans `(k,)`."""

    @property
    def inverse(self) -> jax.Array:
        """`A^+`, shape `(n, m)`."""
        return times(self.rows.T, self.solved)


def times(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a b`, row by row of `b`."""

    def add(found: jax.Array, x: tuple) -> tuple[jax.Array, None]:
        left, right = x
        return found + left[:, None] * right, None

    return lax.scan(add, jnp.zeros((a.shape[0], b.shape[1]), a.dtype), (a.T, b))[0]


def apply(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(a * x, axis=1)


def apply_transpose(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(a * x[:, None], axis=0)


def decompose(a: jax.Array, least: jax.Array, weights: jax.Array | None = None) -> Decomposition:
    """The decomposition; rows of which no more than `least` of the longest one's length is left count as combinations
    of the others. `weights` say how much a row's length counts for that, and for nothing else, shape `(m,)`."""
    m, n = a.shape
    weights = jnp.ones(m, a.dtype) if weights is None else weights
    size, dtype = min(m, n), a.dtype
    index = jnp.arange(m)

    def choose(state: tuple, k: jax.Array) -> tuple[tuple, tuple]:
        rest, chosen, longest, alive = state
        squares = jnp.sum(rest * rest, axis=1) * weights * weights
        first = jnp.min(jnp.where(squares == jnp.max(squares), index, m))
        hot = (index == first).astype(dtype)
        row = lax.dynamic_index_in_dim(rest, first, 0, keepdims=False)
        for _ in range(2):
            row = row - apply_transpose(chosen, apply(chosen, row))
        length = jnp.sqrt(jnp.sum(row * row))
        pivot = length * lax.dynamic_index_in_dim(weights, first, 0, keepdims=False)
        longest = jnp.where(k == 0, pivot, longest)
        alive = alive & (pivot > least * longest)
        row = jnp.where(alive, row / jnp.where(alive, length, 1.0), 0.0)
        rest = (rest - apply(rest, row)[:, None] * row) * (1.0 - hot)[:, None]
        return (rest, _set(chosen, row, k), longest, alive), (pivot, alive)

    start = a, jnp.zeros((size, n), dtype), jnp.zeros((), dtype), jnp.ones((), bool)
    (_, rows, _, _), (pivots, kept) = lax.scan(choose, start, jnp.arange(size))

    def orthogonalise(state: tuple, x: tuple) -> tuple[tuple, None]:
        basis, combined = state
        k, row, mixed, own = x
        for _ in range(2):
            shares = apply(basis, row)
            row = row - apply_transpose(basis, shares)
            mixed = mixed - apply_transpose(combined, shares)
        length = jnp.sqrt(jnp.sum(row * row))
        inverse = jnp.where(own, 1.0 / jnp.where(own, length, 1.0), 0.0)
        return (_set(basis, row * inverse, k), _set(combined, mixed * inverse, k)), None

    xs = jnp.arange(size), times(rows, a.T), jnp.eye(size, dtype=dtype), kept
    empty = jnp.zeros((size, m), dtype), jnp.zeros((size, size), dtype)
    (basis, lower), _ = lax.scan(orthogonalise, empty, xs)
    return Decomposition(rows, times(lower.T, basis), pivots, kept)


def _set(rows: jax.Array, row: jax.Array, k: jax.Array) -> jax.Array:
    return lax.dynamic_update_index_in_dim(rows, row, k, 0)
