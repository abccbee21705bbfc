"""Small symmetric positive definite systems with the batch last, by elimination."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def gauss_jordan(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a^-1 b` for symmetric positive definite `a`, shapes `(n, n, *batch)` and `(n, m, *batch)`, one loop over pivots.

    Written out because library solvers want the batch in front, which costs more than the solution (n is 6 here).
    """
    n = a.shape[0]
    batch = jnp.broadcast_shapes(a.shape[2:], b.shape[2:])
    x = jnp.concatenate([jnp.broadcast_to(y, y.shape[:2] + batch) for y in (a, b)], axis=1)
    own = jnp.eye(n, dtype=bool).reshape((n, n, 1) + (1,) * len(batch))

    def pivot(x: jax.Array, k_own) -> tuple[jax.Array, None]:
        k, own = k_own
        row = lax.dynamic_index_in_dim(x, k, 0, keepdims=False)
        row = row / lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        column = lax.dynamic_index_in_dim(x, k, 1, keepdims=False)
        # Its own row is put there: made by a difference, `x - (pivot - 1) row`, it loses the digits of a large pivot.
        return jnp.where(own, row[None], x - column[:, None] * row[None]), None

    return lax.scan(pivot, x, (jnp.arange(n), own))[0][:, n:]
