"""Tiles: as many samples of a batch at a time as stay in the cache of a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Each of the hundreds of operations of a step takes a fixed time, so that narrower tiles are slower; what is wider
# leaves the cache (measured on robots of 2 to 127 freedoms).
WIDEST_TILE = 128
# Where results are many, as Jacobians. Rows of 1 kB and more fall on few sets of the cache: those of panda's forward
# dynamics take 2.6 us by 64 samples in float64, 3.3 by 128, 5.0 by 256; in float32 1.3 by 128, 1.7 by 256.
BYTES_OF_ROW = 512
# Rows of matrices times samples of a tile, in bytes of a number each: what keeps them in a 1 MB cache.
BYTES_OF_BLOCKS = 16384
# Samples that fill the widest registers; a loop over any other number ends one sample at a time, up to a third slower.
LANES = 16


def tile_width(rows: int, results: float, size: int) -> int:
    """How many samples make a tile, for functions of configurations of `rows` numbers of `size` bytes with `results`
    numbers: fewer where these are many."""
    return WIDEST_TILE if results <= 4 * rows else min(WIDEST_TILE, BYTES_OF_ROW // size)


def width_of_blocks(rows: int, size: int) -> int:
    """The same where rows are of matrices, as the modes of bodies that bend, in numbers of `size` bytes: the work on
    one is large beside the fixed time, so that tiles stay in the cache, however narrow. Ten bodies of 20 modes in
    float64: 804 us a state by 64 samples, 304 by 16; of 6 in float32: 18.9 by 128, 16.0 by 64."""
    return LANES * math.ceil(min(WIDEST_TILE, BYTES_OF_BLOCKS / (max(1, rows) * size)) / LANES)


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
