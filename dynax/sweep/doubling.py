"""Scatter of an associative product over a forest in logarithmic depth, by pointer doubling (Wyllie 1979).

Every row holds the product along a stretch of its path towards the base and points at the row where the stretch ends.
In each round it takes up what that row holds, and points where that row points: stretches double, and `ceil(log2 d)`
rounds are enough for depth `d`. All rows take part in a round, so it is more arithmetic than walking.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
