"""Sums over a short axis in front of those of a batch."""

from __future__ import annotations

from functools import reduce
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

WRITTEN_OUT = 32
"""Terms up to which a sum is written out. XLA on a CPU puts the loop of a reduction inside of that over the batch,
which then runs sample by sample, or hands it to a library: six terms of 324 numbers in a batch of 128 take four times
as long as six additions."""

Tree = TypeVar("Tree")


def summed(tree: Tree, axis: int = 1) -> Tree:
    """Every leaf summed over an axis, counted from the front."""

    def total(a: jax.Array) -> jax.Array:
        if not 0 < a.shape[axis] <= WRITTEN_OUT:
            return jnp.sum(a, axis)
        return reduce(jnp.add, [lax.index_in_dim(a, k, axis, keepdims=False) for k in range(a.shape[axis])])

    return jax.tree.map(total, tree)
