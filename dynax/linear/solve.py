"""Linear systems of small matrices by elimination with partial pivoting.

Written as plain loops because the library's solvers of a batch wait for threads on a CPU, and two of them that wait at
once may do so for ever; and so that they can be in one kernel with what is around them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.batching import trailing
from dynax.linear.each import each, side_by_side
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.sweep.scan import varying_as


def eliminated(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a^-1 b` for `(n, n)` and `(n, m)` by Gauss: rows stay where they are and pivots choose among them.

    Without those above each pivot, as Jordan has it: what is left of `b` is then rounding by the size of `a`, however
    badly it is conditioned, where with hard contacts of light links Jordan's left thousands of times as much.
    """
    n = len(a)
    index = jnp.arange(n)

    def pivot(state: tuple, k: jax.Array) -> tuple[tuple, jax.Array]:
        x, free = state
        column = lax.dynamic_index_in_dim(x, k, 1, keepdims=False)
        sizes = jnp.where(free, jnp.abs(column), -1.0)
        first = jnp.min(jnp.where(sizes == jnp.max(sizes), index, n - 1))
        free = free & (index != first)
        row = lax.dynamic_index_in_dim(x, first, 0, keepdims=False)
        part = jnp.where(free, column, 0.0) / lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        return (x - part[:, None] * row, free), first

    (x, _), order = lax.scan(pivot, (jnp.concatenate([a, b], axis=1), jnp.ones(n, bool)), index)
    x = x[order]

    def back(found: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
        row = lax.dynamic_index_in_dim(x, k, 0, keepdims=False)
        rest = row[n:] - jnp.sum(row[:n, None] * found, axis=0)
        return jnp.where((index == k)[:, None], rest / lax.dynamic_index_in_dim(row, k, 0, keepdims=False), found), None

    return lax.scan(back, jnp.zeros_like(x[:, n:]), index[::-1])[0]


_solved = trailing(lambda _, a, b: each(eliminated, a.shape[2:], a, b))
_definite = trailing(lambda _, a, b: side_by_side(gauss_jordan, a.shape[2:], a, b))


def solve(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a^-1 b` for `(..., n, n)` and `(..., n, m)`, or for one matrix and `(n,)`, as `jnp.linalg.solve` gives it."""
    if a.ndim > 2 or b.ndim > 2:
        lead = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if a.size == 0 or b.size == 0:
            return jnp.zeros((*lead, *b.shape[-2:]), b.dtype)
        one, other = (jnp.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, b))
        return jax.vmap(solve)(one, other).reshape(*lead, *b.shape[-2:])
    if a.size == 0 or b.size == 0:
        return jnp.zeros(b.shape, b.dtype)
    a, b = varying_as((), (a, b))
    right = b if b.ndim == 2 else b[:, None]
    found = lax.custom_linear_solve(
        lambda x: jnp.matmul(a, x, precision=lax.Precision.HIGHEST),
        right.astype(a.dtype),
        lambda _, y: _solved((), a, y),
        lambda _, y: _solved((), a.T, y),
    )
    return found if b.ndim == 2 else found[:, 0]


def solve_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a^-1 b` for `(n, n, *batch)` and `(n, *batch)`, with all derivatives."""
    a, b = varying_as((), (a, b))
    return lax.custom_linear_solve(
        lambda x: jnp.sum(a * x, axis=1),
        b,
        lambda _, y: _solved((), a, y[:, None])[:, 0],
        lambda _, y: _solved((), jnp.swapaxes(a, 0, 1), y[:, None])[:, 0],
    )


def solve_definite(a: jax.Array, b: jax.Array) -> jax.Array:
    """The same for one symmetric positive definite matrix and `(n, m)`, in a fifth of the time."""
    return lax.custom_linear_solve(
        lambda x: jnp.matmul(a, x, precision=lax.Precision.HIGHEST), b, lambda _, y: _definite((), a, y), symmetric=True
    )


def inverse(a: jax.Array) -> jax.Array:
    """`a^-1` of matrices `(..., n, n)`."""
    return solve(a, jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape))
