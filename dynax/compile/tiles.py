"""Tiles: as many samples of a batch at a time as stay in the cache of a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Rows times samples of a tile on a CPU: what keeps the working set of a sweep in a 1 MB cache. A row is a coordinate; a
# function with many results, a Jacobian, counts for twice their root, up to a limit (measured on panda and talos).
ROWS_PER_TILE = 4096
# Beyond it little is gained, and what the gradient of a small robot keeps for its backward walk leaves the cache.
WIDEST_TILE = 256
# Where the results are as few as the coordinates, or nearly: large robots leave the cache anyway, and each of the
# hundreds of operations of a step takes a fixed time.
NARROWEST_TILE = 128
MOST_ROWS_OF_RESULTS = 64
# Samples that fill the widest registers; a loop over any other number ends one sample at a time, up to a third slower.
LANES = 16


def tile_width(rows: int, results: float) -> int:
    """How many samples make a tile, a multiple of 32: fewer for larger robots and for functions with many results."""
    counted = max(1, rows, min(2.0 * math.sqrt(results), MOST_ROWS_OF_RESULTS))
    least = NARROWEST_TILE if results <= 4 * rows else 2 * LANES
    return 2 * LANES * math.ceil(min(WIDEST_TILE, max(least, ROWS_PER_TILE / counted)) / (2 * LANES))


def width_of_blocks(rows: int, size: int) -> int:
    """The same where rows are of matrices, as the modes of bodies that bend, in numbers of `size` bytes: the work on
    one is large beside the fixed time, so that tiles stay in the cache, however narrow. Ten bodies of 20 modes in
    float64: 804 us a state by 64 samples, 304 by 16; of 6 in float32: 18.9 by 128, 16.0 by 64."""
    return LANES * math.ceil(min(WIDEST_TILE, 4.0 * ROWS_PER_TILE / (max(1, rows) * size)) / LANES)


def even_width(width: int, size: int) -> int:
    """A width near `width`, a multiple of `LANES`, for `size` samples: one that divides them if there is any.

    What is filled up is copied before, and cut off in a copy of all results after: for a Jacobian a fifth of the time.
    """
    near = (w * LANES for w in range(-(-width // (2 * LANES)), 3 * width // (2 * LANES) + 1))
    dividing = [w for w in near if size % w == 0]
    if dividing:
        return min(dividing, key=lambda w: abs(math.log(w / width)))
    equal = -(-size // -(-size // width))  # so that little is filled up
    return -(-equal // LANES) * LANES


def by_tiles(function: Callable[[Any], Any], arrays: Any, width: int) -> Any:
    """`function(arrays)`, `width` samples at a time: trees of arrays with a leading batch axis, to such trees.

    The last tile is filled up with the last sample, so that one program serves every tile.
    """
    size = jax.tree.leaves(arrays)[0].shape[0]
    count = -(-size // width)
    index = np.minimum(np.arange(count * width), size - 1)

    def split(x: Any) -> jax.Array:
        x = jnp.asarray(x)
        filled = x if count * width == size else x[index]
        return filled.reshape(count, width, *x.shape[1:])

    results = lax.map(function, jax.tree.map(split, arrays))
    return jax.tree.map(lambda x: x.reshape(count * width, *x.shape[2:])[:size], results)
