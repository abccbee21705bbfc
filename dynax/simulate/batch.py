"""Batches in tiles that fit the cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp

from dynax.model import Model

# Bodies times samples of a tile on a CPU: what keeps the working set of a sweep in a 1 MB cache.
ROWS_PER_TILE = 4096


def batch(fn: Callable, *, tile: int | None = None) -> Callable:
    """`jax.vmap(fn)` over the leading axis of all arrays, computed tile by tile; the same results.

    On a CPU whole-batch intermediates leave the cache from about a thousand samples on; a tile at a time they do not.

    **Arguments:**

    - `fn`: a function of arrays (and pytrees of them). A `Model` among the arguments is shared by the batch, unless its
      leaves have a leading batch axis of their own.
    - `tile`: samples at a time; default from the size of the model on a CPU, the whole batch elsewhere.

    The last tile is filled up by repeating a sample, so that one program serves every tile; the surplus is dropped.
    """
    if tile is not None and tile < 1:
        raise ValueError(f"`tile` must be at least 1, got {tile}")

    @wraps(fn)
    def batched(*args: Any) -> Any:
        axes = tuple(None if isinstance(arg, Model) and arg.mass.ndim == 1 else 0 for arg in args)
        mapped = jax.vmap(fn, in_axes=axes)
        moving = [arg for arg, axis in zip(args, axes, strict=True) if axis == 0]
        sizes = {leaf.shape[0] for leaf in jax.tree.leaves(moving)}
        if len(sizes) != 1:
            raise ValueError(f"batch: the arrays have leading axes of different lengths: {sorted(sizes)}")
        size = sizes.pop()
        width = tile or default_tile(args, size)
        if width >= size:
            return mapped(*args)
        count = -(-size // width)
        index = jnp.minimum(jnp.arange(count * width), size - 1)
        tiles = jax.tree.map(lambda a: jnp.asarray(a)[index].reshape(count, width, *a.shape[1:]), moving)

        def one(part: list) -> Any:
            rest = iter(part)
            return mapped(*(next(rest) if axis == 0 else arg for arg, axis in zip(args, axes, strict=True)))

        results = jax.lax.map(one, tiles)
        return jax.tree.map(lambda a: a.reshape(count * width, *a.shape[2:])[:size], results)

    return batched


def default_tile(args: tuple, size: int) -> int:
    """Samples whose working set stays in the cache: fewer for larger robots, all of them on an accelerator."""
    if jax.default_backend() != "cpu":
        return size
    bodies = max((arg.num_bodies for arg in args if isinstance(arg, Model)), default=8)
    return int(min(512, max(32, ROWS_PER_TILE // bodies)))
