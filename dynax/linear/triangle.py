"""The triangle of a tall matrix by reflections, `A = Q R` without `Q` (Golub & Van Loan 2013, section 5.2).

In plain loops, for the reasons of `linear.solve`. `A^T A = R^T R` without the squares that cost half of the digits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dynax.linear.matrices import product

# Rows reflected together with the triangle of those before: what they take stays in the cache.
ROWS = 256


def triangle(a: jax.Array) -> jax.Array:
    """`R`, upper triangular with no negative diagonal, shape `(n, n)`, of `a`, shape `(m, n)`; not differentiable where
    columns depend on one another."""
    m, n = a.shape
    rows = min(max(m, 1), ROWS)
    blocks = jnp.pad(a, ((0, -m % rows), (0, 0))).reshape(-1, rows, n)
    found, _ = lax.scan(lambda r, block: (_reflected(r, block), None), jnp.zeros((n, n), a.dtype), blocks)
    return jnp.where(jnp.diagonal(found) < 0.0, -1.0, 1.0)[:, None] * found


def _reflected(r: jax.Array, block: jax.Array) -> jax.Array:
    """The triangle of `r`, which is one, above `block`: each reflection mixes one row of the first with the second."""
    index = jnp.arange(r.shape[1])

    def reflect(state: tuple, k: jax.Array) -> tuple[tuple, None]:
        r, block = state
        row = lax.dynamic_index_in_dim(r, k, 0, keepdims=False)
        column = lax.dynamic_index_in_dim(block, k, 1, keepdims=False)
        head = lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        below = jnp.sum(column * column)
        some = below > 0.0
        length = jnp.sqrt(jnp.where(some, head * head + below, 1.0))
        first = head + jnp.where(head < 0.0, -length, length)
        shares = jnp.where(some, 2.0 / jnp.where(some, first * first + below, 1.0), 0.0)
        shares = shares * (first * row + product(column, block))
        shares = jnp.where(index < k, 0.0, shares)
        block = jnp.where(index == k, 0.0, block - column[:, None] * shares)
        return (lax.dynamic_update_index_in_dim(r, row - first * shares, k, 0), block), None

    return lax.scan(reflect, (r, block), index)[0][0]


def back_substituted(r: jax.Array, b: jax.Array) -> jax.Array:
    """`r^-1 b` of an upper triangular matrix `(n, n)`, for `b` of shape `(n, ...)`."""
    return _substituted(r, b, reverse=True)


def forward_substituted(r: jax.Array, b: jax.Array) -> jax.Array:
    """`r^-T b` of the same."""
    return _substituted(r.T, b, reverse=False)


def _substituted(a: jax.Array, b: jax.Array, reverse: bool) -> jax.Array:
    def entry(x: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
        row = lax.dynamic_index_in_dim(a, k, 0, keepdims=False)
        known = jnp.tensordot(row, x, axes=1, precision=lax.Precision.HIGHEST)
        own = lax.dynamic_index_in_dim(b, k, 0, keepdims=False) - known
        return lax.dynamic_update_index_in_dim(x, own / row[k], k, 0), None

    return lax.scan(entry, jnp.zeros_like(b), jnp.arange(len(a)), reverse=reverse)[0]
