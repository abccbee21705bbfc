"""Linear systems of small matrices by elimination with partial pivoting.

Written as plain loops because the library's solvers of a batch wait for threads on a CPU, and two of them that wait at
once may do so for ever; and so that they can be in one kernel with what is around them.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.batching import trailing
from dynax.linear.each import SIDE_BY_SIDE, each, side_by_side, width_of
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.sweep.scan import scan, varying_as


def eliminated(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a^-1 b` for `(n, n, *batch)` and `(n, m, *batch)` by Gauss: rows stay where they are, pivots choose among them.

    Without those above each pivot, as Jordan has it: what is left of `b` is then rounding by the size of `a`, however
    badly it is conditioned, where with hard contacts of light links Jordan's left thousands of times as much.
    """
    n = len(a)
    index = np.arange(n).reshape(n, *(1,) * (a.ndim - 2))

    def pivot(state: tuple, k: jax.Array) -> tuple[tuple, jax.Array]:
        x, free = state
        column = lax.dynamic_index_in_dim(x, k, 1, keepdims=False)
        sizes = jnp.where(free, jnp.abs(column), -1.0)
        own = index == jnp.min(jnp.where(sizes == jnp.max(sizes, axis=0), index, n - 1), axis=0)
        row = _chosen(x, own)
        free = free & ~own
        part = jnp.where(free, column, 0.0) / lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        return (x - part[:, None] * row, free), row

    batch = jnp.broadcast_shapes(a.shape[2:], b.shape[2:])
    x = jnp.concatenate([jnp.broadcast_to(y, y.shape[:2] + batch) for y in (a, b)], axis=1)
    x = scan(pivot, (x, jnp.ones((n, *batch), bool)), np.arange(n))[1]

    def back(right: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
        column, below = lax.dynamic_index_in_dim(x, k, 1, keepdims=False), index[:, None]
        found = lax.dynamic_index_in_dim(right, k, 0, keepdims=False)
        found = found / lax.dynamic_index_in_dim(column, k, 0, keepdims=False)
        rest = jnp.where(below < k, right - column[:, None] * found, right)
        return jnp.where(below == k, found, rest), None

    return scan(back, x[:, n:], np.arange(n)[::-1])[0]


def _chosen(rows: jax.Array, own: jax.Array) -> jax.Array:
    """The one of rows `(n, c, *batch)` that is a sample's `own`. As a loop: a sum over rows is in no vectors."""
    return scan(lambda row, one: (jnp.where(one[1], one[0], row), None), jnp.zeros_like(rows[0]), (rows, own))[0]


def solved(a: jax.Array, b: jax.Array) -> jax.Array:
    """The same on a CPU by as many samples at a time as fill its vectors, of few one by one: of 15 rows 0.7 us side by
    side, 2.3 alone."""
    batch = a.shape[2:]
    size = math.prod(batch)
    if isinstance(size, int) and size < SIDE_BY_SIDE:
        return each(eliminated, batch, a, b)
    width = width_of(len(a) * (len(a) + b.shape[1]), a.dtype.itemsize)
    return side_by_side(eliminated, batch, a, b, width=width)


_solved = trailing(lambda _, a, b: solved(a, b))
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
