"""Products of the rows of all freedoms as products of matrices, for a batch.

Rows are vectors of one freedom each, in world axes. Taken to one point, their components become matrices `(k, nv)`, and
every pair of rows is one entry of a product, which for more than a few freedoms beats elementwise formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.spatial import Force, Motion, Vec3


def components(*vectors: Motion | Force | Vec3) -> jax.Array:
    """`(k, nv, *batch)` from the components of vectors, one after another."""
    return jnp.stack(jnp.broadcast_arrays(*jax.tree.leaves(vectors)))


def materialized(function: Callable[[Any], Any], rows: Any) -> Any:
    """`function(rows)`, arrays `(k, nv, *batch)` from trees of `(nv, *batch)`, in a loop over two halves of the rows.

    A loop is the only border over which XLA on a CPU does not pull formulas into the products that use them, where they
    would be computed once for every partner, or read across the batch.
    """
    n = jax.tree.leaves(rows)[0].shape[0]
    half = -(-n // 2)
    index = np.minimum(np.arange(2 * half), n - 1)
    halves = jax.tree.map(lambda a: a[index].reshape(2, half, *a.shape[1:]), rows)
    result = lax.map(function, halves)
    return jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], 2 * half, *a.shape[3:])[:, :n], result)


def batch_leading(a: jax.Array) -> jax.Array:
    """`(batch, m, n)` from `(m, n, *batch)`, as the library's products want it."""
    return jnp.moveaxis(a.reshape(*a.shape[:2], math.prod(a.shape[2:])), -1, 0)


def batch_trailing(a: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """The inverse of `batch_leading`."""
    return jnp.moveaxis(a, 0, -1).reshape(*a.shape[1:], *batch)


def product(left: jax.Array, right: jax.Array) -> jax.Array:
    """`sum_k left[k, i] right[k, j]` for every member of the batch, which leads."""
    return jnp.matmul(jnp.swapaxes(left, 1, 2), right, precision=lax.Precision.HIGHEST)
