"""A line that XLA's fusion does not cross.

XLA on a CPU fuses long scalar formulas into their consumers again and again: a reverse-mode derivative of two stages
takes much longer to compile than of each alone (here 12 s instead of 5 s). It computes what goes into a gather first.
`lax.optimization_barrier` does not help, it is gone before fusion.
"""

from __future__ import annotations

import math
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dynax.sweep.rows import copied, take_rows

T = TypeVar("T")


def apart(a: jax.Array) -> jax.Array:
    """One array, computed before anything that uses it."""
    if not a.ndim or not a.size:
        return a
    if len(a) > 1:
        return copied(a)
    # To look up one row is a slice, which is computed again wherever it is used.
    rows = a.reshape(-1, *a.shape[-1:]) if a.ndim > 1 else a
    return (copied(rows) if len(rows) > 1 else take_rows(rows, np.zeros(2, int))[:1]).reshape(a.shape)


def fenced(tree: T, batch: tuple[int, ...]) -> T:
    """The same arrays, computed before anything that uses them; batch axes trail."""
    leaves, structure = jax.tree.flatten(tree)
    heads = [x.shape[: x.ndim - len(batch)] for x in leaves]
    sizes = [math.prod(head) for head in heads]
    rows = jnp.concatenate(
        [
            jnp.broadcast_to(x, (*head, *batch)).reshape(size, *batch)
            for x, head, size in zip(leaves, heads, sizes, strict=True)
        ]
    )
    parts = jnp.split(copied(rows), np.cumsum(sizes)[:-1])
    return structure.unflatten(part.reshape(*head, *batch) for part, head in zip(parts, heads, strict=True))
