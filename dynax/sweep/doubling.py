"""Scatter of an associative product over a forest in logarithmic depth, by pointer doubling (Wyllie 1979).

Every row holds the product along a stretch of its path towards the base and points at the row where the stretch ends.
In each round it takes up what that row holds, and points where that row points: stretches double, and `ceil(log2 d)`
rounds are enough for depth `d`. All rows take part in a round, so it is more arithmetic than walking.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.sweep.associative import Product


def paths(product: Product, base: Any, xs: Any, parents: tuple[int, ...]) -> Any:
    """In row i the product of its base and of all rows on the way from there to row i, itself included.

    `parents[i]` is `-1 - b` where row i hangs on base `b`; `base` has a row for each.
    """
    above = np.array(parents, dtype=int)
    while len(rows := np.flatnonzero(above >= 0)):
        met = product(jax.tree.map(lambda x, at=above[rows]: x[at], xs), jax.tree.map(lambda x, at=rows: x[at], xs))
        xs = jax.tree.map(lambda x, y, at=rows: x.at[at].set(y), xs, met)
        above[rows] = above[above[rows]]
    return product(jax.tree.map(lambda b: b[-1 - above], base), xs)


def of_parents(base: Any, ys: Any, parents: tuple[int, ...]) -> Any:
    """In row i what its parent holds, or its base."""
    above = np.array(parents, dtype=int)
    count = len(jax.tree.leaves(base)[0])
    index = np.where(above < 0, -1 - above, above + count)
    return jax.tree.map(lambda b, y: jnp.concatenate([b, y])[index], base, ys)


# The same for arrays whose rows lie on the last axis, small ones: rows are fetched by products with 0/1 matrices, which
# XLA on a CPU computes once, where it would compute what goes into a gather anew for every use. Negative parents are
# bases.


def combined(x: jax.Array, relation: np.ndarray) -> jax.Array:
    """`sum over rows j of x[..., j] relation[j, i]`."""
    found = jnp.matmul(x.reshape(-1, x.shape[-1]), jnp.asarray(relation, x.dtype), precision=lax.Precision.HIGHEST)
    return found.reshape(*x.shape[:-1], relation.shape[1])


def path_products(product: Callable[[jax.Array, jax.Array], jax.Array], x: jax.Array, parents: tuple[int, ...]):
    """In matrix i of `(k, k, n)` the product of all on the way from its base to it, itself included."""
    for above in _strides(parents):
        rooted = jnp.asarray(np.eye(len(x))[:, :, None] * (above < 0), x.dtype)
        x = product(combined(x, _onto(above).T) + rooted, x)
    return x


def path_totals(
    shift: Callable[[jax.Array, jax.Array], jax.Array], x: jax.Array, position: jax.Array, parents: tuple[int, ...]
):
    """In row i the sum of what it carries, itself included; `shift(x, offset)` takes rows to where others stand.

    **Arguments:** `x`: shape `(.., .., n)`. `position`: where the rows stand, shape `(k, n)`.
    """
    rounds = _strides(parents)
    if not rounds:
        return x
    fetch = np.concatenate([_onto(np.maximum(above, 0)).T for above in rounds], axis=1)
    offsets = jnp.tile(position, len(rounds)) - combined(position[None], fetch)[0]
    for above, offset in zip(rounds, jnp.split(offsets, len(rounds), axis=1), strict=True):
        x = x + combined(shift(x, offset), _onto(above))
    return x


def _strides(parents: tuple[int, ...]) -> list[np.ndarray]:
    """The rows 1, 2, 4, ... above each row, negative where there is none, until there is none for any."""
    above, strides = np.array(parents, dtype=int), []
    while (above >= 0).any():
        strides.append(above)
        above = np.where(above >= 0, above[above], -1)
    return strides


def _onto(above: np.ndarray) -> np.ndarray:
    """`[i, j]`: one where row j is above row i."""
    return np.equal.outer(above, np.arange(len(above))).astype(float)
