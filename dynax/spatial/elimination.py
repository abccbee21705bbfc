"""Systems of a few unknowns, with any leading batch axes, written out: no library, and no loop.

The library's solvers of a batch wait for threads on a CPU, and two of them that wait at once may do so for ever.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def solve_small(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a^-1 b` for `(..., n, n)` and `(..., n, m)` by elimination without pivoting: for `a` positive definite, or
    triangular."""
    n = a.shape[-1]
    x = jnp.concatenate([a, b], axis=-1)
    for k in range(n):
        row = x[..., k, :] / x[..., k, k : k + 1]
        unit = jnp.zeros(n, a.dtype).at[k].set(1.0)
        x = x - (x[..., :, k] - unit)[..., None] * row[..., None, :]
    return x[..., n:]


def orthonormal_basis(columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`Q`, `(..., n, n)`, whose first `k` columns span those given, `(..., n, k)`, and `R`, `(..., k, k)`, upper
    triangular: by reflections (Golub & Van Loan 2013, section 5.2)."""
    n, k = columns.shape[-2:]
    q = jnp.broadcast_to(jnp.eye(n, dtype=columns.dtype), (*columns.shape[:-2], n, n))
    r = columns
    for j in range(k):
        below = jnp.where(jnp.arange(n) >= j, r[..., j], 0.0)
        length = jnp.sqrt(jnp.sum(below * below, axis=-1))
        unit = jnp.zeros(n, columns.dtype).at[j].set(1.0)
        v = below + (jnp.where(below[..., j] < 0.0, -1.0, 1.0) * length)[..., None] * unit
        square = jnp.sum(v * v, axis=-1)
        scaled = v * jnp.where(square > 0.0, 2.0 / jnp.where(square > 0.0, square, 1.0), 0.0)[..., None]
        r = r - scaled[..., :, None] * jnp.sum(v[..., :, None] * r, axis=-2)[..., None, :]
        q = q - jnp.sum(q * v[..., None, :], axis=-1)[..., :, None] * scaled[..., None, :]
    return q, r[..., :k, :]
