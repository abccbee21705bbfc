"""What a batch-last function becomes in a program: one kernel, tile by tile, on every CPU that the program runs on.

A program for one CPU goes through the last batch axis in a loop over tiles. A program for several divides that axis
among them first, since XLA's partitioner would move samples between devices to run such a loop, and cannot look into
a kernel. Within `shard_map` that has been done: what is lowered there is for one device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.interpreters import mlir
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from dynax.compile.one_kernel import in_one_kernel
from dynax.compile.tiles import by_tiles, even_width, tile_width, width_of_blocks


def in_many_kernels(context: Any, *operands: Any, function: Any, structure: Any, batch: tuple) -> Any:
    """The function as it is, for any platform."""
    return _lowered(context, operands, lambda *leaves: function.on_leaves(structure, leaves))


def on_cpus(context: Any, *operands: Any, function: Any, structure: Any, batch: tuple) -> Any:
    """The function on one CPU, or its batch shared out among several."""
    count = _sharers(context)
    if count is None:
        return in_many_kernels(context, *operands, function=function, structure=structure, batch=batch)

    def in_tiles(*leaves: jax.Array) -> list:
        return tiled(lambda leaves: function.on_leaves(structure, leaves), structure, len(batch), leaves)

    if count == 1:
        return _lowered(context, operands, in_tiles)
    if not batch or not isinstance(batch[-1], int) or batch[-1] % count:
        return in_many_kernels(context, *operands, function=function, structure=structure, batch=batch)
    mesh = AbstractMesh((count,), ("core",), axis_types=(AxisType.Auto,))  # the devices of the program, in its order
    specs = tuple(_last(aval.ndim) if aval.shape[-1] > 1 else PartitionSpec() for aval in context.avals_in)
    results = tuple(_last(aval.ndim) for aval in context.avals_out)
    shared = jax.shard_map(
        lambda *leaves: tuple(in_tiles(*leaves)), mesh=mesh, in_specs=specs, out_specs=results, check_vma=False
    )
    return _lowered(context, operands, lambda *leaves: list(shared(*leaves)))


def _last(ndim: int) -> PartitionSpec:
    return PartitionSpec(*(None,) * (ndim - 1), "core")


def _lowered(context: Any, operands: Sequence[Any], function: Callable[..., list]) -> Any:
    # What varies over the devices of a `shard_map` is settled; a trace that asks again would refuse constant carries.
    plain = [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in context.avals_in]
    return mlir.lower_fun(function, multiple_results=True)(context.replace(avals_in=plain), *operands)


def _sharers(context: Any) -> int | None:
    """How many devices share what is lowered, one where it is the part of a single one; `None` if not known."""
    axes = context.module_context.axis_context
    manual = getattr(axes, "manual_axes", None)
    if manual is not None:
        return 1 if manual == frozenset(axes.mesh.axis_names) else None
    return getattr(axes, "num_devices", None)


def tiled(function: Callable, structure: Any, batch_axes: int, leaves: Sequence[jax.Array]) -> list[jax.Array]:
    """`function(leaves)` in one kernel, in a loop over tiles of the last batch axis if that is long."""

    def whole(leaves: Sequence[jax.Array]) -> list:
        return in_one_kernel(lambda *leaves: function(leaves), leaves)

    found = jax.eval_shape(function, leaves)
    batch = found[0].shape[found[0].ndim - batch_axes :] if found else ()
    samples = math.prod(batch)
    if not batch or not isinstance(samples, int):  # a batch of unknown size, exported so
        return whole(leaves)
    results = sum(x.size for x in found) / max(samples, 1)
    tree, *arrays = structure.unflatten(leaves)
    first = jax.tree.leaves(arrays)[0]  # the configuration
    rows = first.shape[0]
    blocks = getattr(tree, "rows_of_blocks", False)
    width = width_of_blocks(rows, first.dtype.itemsize) if blocks else tile_width(rows, results)
    width = max(1, width * batch[-1] // max(samples, 1))
    if batch[-1] <= 2 * width:  # as in a tile of `dx.batch`
        return whole(leaves)
    width = even_width(width, batch[-1])
    moving = [x.shape[-1] > 1 for x in leaves]

    def one(tile: list) -> list:
        rest = iter(tile)
        own = [jnp.moveaxis(next(rest), 0, -1) if m else x for m, x in zip(moving, leaves, strict=True)]
        return [jnp.moveaxis(x, -1, 0) for x in whole(own)]

    # The batch leads outside of the loop, as `vmap` has it: what is turned is in the cache.
    parts = by_tiles(one, [jnp.moveaxis(x, -1, 0) for m, x in zip(moving, leaves, strict=True) if m], width)
    return [jnp.moveaxis(x, 0, -1) for x in parts]
