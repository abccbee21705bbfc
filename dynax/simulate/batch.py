"""Batches in tiles that fit the cache, on one device or several."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from dynax.compile.batching import by_tiles, even_width, tile_width
from dynax.embedding.model import EmbeddedModel
from dynax.model import Model

_MODELS = Model | EmbeddedModel


def batch(fn: Callable, *, tile: int | None = None, sharding: NamedSharding | None = None) -> Callable:
    """`jax.vmap(fn)` over the leading axis of all arrays, computed tile by tile; the same results.

    On a CPU whole-batch intermediates leave the cache from about a thousand samples on; a tile at a time they do not.

    **Arguments:**

    - `fn`: a function of arrays (and pytrees of them). A `Model` among the arguments is shared by the batch, unless its
      leaves have a leading batch axis of their own.
    - `tile`: samples at a time, on each device; default from the size of the model on a CPU, the whole batch elsewhere.
    - `sharding`: how the batch axis lies on the devices, if on several; each then computes its own samples, and none
      speaks to another. Default: what the arrays show. They show nothing under `jax.jit` if the axes of the mesh are of
      type `Auto`: say it here.

    The last tile is filled up by repeating a sample, so that one program serves every tile; the surplus is dropped.
    """
    if tile is not None and tile < 1:
        raise ValueError(f"`tile` must be at least 1, got {tile}")

    @wraps(fn)
    def batched(*args: Any) -> Any:
        axes = tuple(None if isinstance(arg, _MODELS) and arg.mass.ndim == 1 else 0 for arg in args)
        moving = [arg for arg, axis in zip(args, axes, strict=True) if axis == 0]
        sizes = {leaf.shape[0] for leaf in jax.tree.leaves(moving)}
        if len(sizes) != 1:
            raise ValueError(f"batch: the arrays have leading axes of different lengths: {sorted(sizes)}")

        def tiled(*args: Any) -> Any:
            return _tiled(jax.vmap(fn, in_axes=axes), axes, tile, args)

        placed = sharding or sharding_of(moving)
        if placed is None:
            return tiled(*args)
        # Tiles of the whole batch would cut across the devices and move samples between them.
        own, shared = PartitionSpec(placed.spec[0]), PartitionSpec()
        specs = tuple(shared if axis is None else own for axis in axes)
        # Carries of the walks start as constants, which the check of what varies over the devices would refuse.
        return jax.shard_map(tiled, mesh=placed.mesh, in_specs=specs, out_specs=own, check_vma=False)(*args)

    return batched


def _tiled(mapped: Callable, axes: tuple, tile: int | None, args: tuple) -> Any:
    """`mapped(*args)` by tiles of the samples on this device."""
    moving = [arg for arg, axis in zip(args, axes, strict=True) if axis == 0]
    size = jax.tree.leaves(moving)[0].shape[0]
    width = tile or default_tile(mapped, axes, args, size)
    if width >= size:
        return mapped(*args)

    def one(part: list) -> Any:
        rest = iter(part)
        return mapped(*(next(rest) if axis == 0 else arg for arg, axis in zip(args, axes, strict=True)))

    return by_tiles(one, moving, width)


def sharding_of(arrays: Any) -> NamedSharding | None:
    """The sharding of the leading axis, of the first array that has one and shows it."""
    for leaf in jax.tree.leaves(arrays):
        hidden = isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array)
        sharding = jax.typeof(leaf).sharding if hidden else leaf.sharding
        if isinstance(sharding, NamedSharding) and sharding.spec and sharding.spec[0] is not None:
            return sharding
    return None


def default_tile(mapped: Callable, axes: tuple, args: tuple, size: int) -> int:
    """Samples whose working set stays in the cache: fewer for larger robots, all of them on an accelerator."""
    if jax.default_backend() != "cpu":
        return size
    rows = max((arg.nq for arg in args if isinstance(arg, _MODELS)), default=8)
    width = tile_width(rows, 0.0)
    if width >= size:
        return width
    # Asked of a tile as it will be, if its results are few: so nothing is traced twice.

    def tiled(arg: Any) -> Any:
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct((width, *a.shape[1:]), jnp.result_type(a)), arg)

    shapes = [tiled(arg) if axis == 0 else arg for arg, axis in zip(args, axes, strict=True)]
    results = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(mapped, *shapes))) / width
    return even_width(tile_width(rows, results), size)
