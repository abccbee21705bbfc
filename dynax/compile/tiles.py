"""Tiles: as many samples of a batch at a time as stay in the cache of a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from dynax.compile.zeros import along_moving

# Each of the hundreds of operations of a step takes a fixed time, so that narrower tiles are slower; what is wider
# leaves the cache (measured on robots of 2 to 127 freedoms).
NEAR = 112
# Bytes of a configuration of bodies that bend beyond which the matrices of a tile leave a 1 MB cache.
MOST_BYTES = 1024
# Samples that fill the widest registers; a loop over any other number ends one sample at a time, up to a third slower.
LANES = 16
# Rows of a multiple of this many samples fall on few sets of the cache (Jacobians of ANYmal's forward dynamics in
# float32: 4.0 us by 128, 2.7 to 2.9 by 80, 112, 144), and the compiler writes out loops over 64: half as long again.
CROWDED = 64
# Loops over so many samples are written out before the compiler makes vectors of them, and over more they are loops: 64
# states of a humanoid's forward dynamics in float32 take 117 us, and as 80 states 86, with a third less to compile.
WRITTEN_OUT = range(57, 80)


def width_of_blocks(rows: int, size: int) -> int:
    """Where rows are of matrices, as the modes of bodies that bend, in numbers of `size` bytes: if they are many the
    work on one is large beside the fixed time, so that tiles stay in the cache, however narrow. Ten bodies in float64:
    of 10 modes 15.0 us a state by 80 samples, 16.6 by 16; of 15 40.9 and 37.1; of 20 163 and 114."""
    return NEAR if rows * size <= MOST_BYTES else LANES


def even_width(near: int, size: int) -> int:
    """A width near `near` for `size` samples: the one by which the fewest are computed, of these the nearest."""
    around = (LANES * k for k in range(-(-5 * near // (7 * LANES)), 9 * near // (7 * LANES) + 1))
    widths = [w for w in around if w % CROWDED] or [LANES]
    return min(widths, key=lambda w: (-(-size // w) * w, abs(w - near)))


def along_tiles(function: Callable[[Any], Any], arrays: Any, width: int) -> Any:
    """`by_tiles` where no derivative will be asked for: the last tile ends with the last sample, and so computes some
    of those before it again. Nothing is filled up, and so nothing is copied, whatever the width."""
    traced, shapes = _traced(function, arrays, width)
    return _in_place(jaxpr_as_fun(traced), shapes, arrays, width)


def in_tiles(function: Callable[[Any], Any], arrays: Any, width: int) -> Any:
    """`along_tiles`, and `by_tiles` where a derivative is taken, of the arrays or of what `function` closes over.

    To fill up the last tile and to drop the surplus are copies of the batch: a humanoid's mass matrices in float64 take
    as long again with them.
    """
    arrays = jax.tree.map(jnp.asarray, arrays)
    traced, shapes = _traced(function, arrays, width)
    leaves, structure = jax.tree.flatten(arrays)

    def on(known: Sequence[jax.Array]) -> Callable[..., list]:
        return jaxpr_as_fun(traced.replace(consts=list(known)))

    @jax.custom_jvp
    def tiled(known: list, leaves: list) -> list:
        return jax.tree.leaves(_in_place(on(known), shapes, structure.unflatten(leaves), width))

    def rule(primals: tuple, tangents: tuple) -> tuple[list, list]:
        return along_moving(
            lambda known, leaves: by_tiles(lambda part: on(known)(*part), leaves, width), primals, tangents
        )

    tiled.defjvp(rule, symbolic_zeros=True)
    return jax.tree.unflatten(jax.tree.structure(shapes), tiled(list(traced.consts), leaves))


def _part(arrays: Any, start: jax.Array | int, width: int) -> Any:
    return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, width), arrays)


def _traced(function: Callable[[Any], Any], arrays: Any, width: int) -> tuple[Any, Any]:
    """The program of one tile and the shapes of its results."""
    return jax.make_jaxpr(function, return_shape=True)(jax.eval_shape(lambda: _part(arrays, 0, width)))


def _in_place(function: Callable[..., list], shapes: Any, arrays: Any, width: int) -> Any:
    """Of the leaves of each tile, where one after another puts its results."""
    size = jax.tree.leaves(arrays)[0].shape[0]

    def tile(k: jax.Array, results: list[jax.Array]) -> list[jax.Array]:
        start = jnp.minimum(k * width, size - width)
        found = function(*jax.tree.leaves(_part(arrays, start, width)))
        return [lax.dynamic_update_slice_in_dim(all_, own, start, 0) for all_, own in zip(results, found, strict=True)]

    nothing = [lax.empty((size, *x.shape[1:]), x.dtype) for x in jax.tree.leaves(shapes)]
    return jax.tree.unflatten(jax.tree.structure(shapes), lax.fori_loop(0, -(-size // width), tile, nothing))


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
