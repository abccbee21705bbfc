"""What a batch-last function becomes in a program: one kernel, tile by tile, on every CPU that the program runs on.

A program for one CPU goes through the last batch axis in a loop over tiles. A program for several divides that axis
among them first, since XLA's partitioner would move samples between devices to run such a loop, and cannot look into
a kernel. Within `shard_map` that has been done: what is lowered there is for one device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.interpreters import mlir
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from dynax.compile.gpu import call as on_gpu
from dynax.compile.one_kernel import in_one_kernel
from dynax.compile.prepared import Lines
from dynax.compile.tiles import NEAR, WRITTEN_OUT, along_tiles, even_width, width_of_blocks


def in_many_kernels(context: Any, *operands: Any, function: Any, structure: Any, batch: tuple) -> Any:
    """The function as it is, for any platform."""
    if function.known:
        return operands[-1:]
    return _lowered(context, operands, lambda *leaves: function.on_leaves(structure, leaves))


def on_cpus(context: Any, *operands: Any, function: Any, structure: Any, batch: tuple) -> Any:
    """The function on one CPU, or its batch shared out among several."""

    def in_tiles(*leaves: jax.Array) -> list:
        whole = partial(function.on_leaves, structure)
        return tiled(whole, structure, len(batch), leaves, function.tile, function.lines)

    return _shared(in_tiles, context, *operands, function=function, structure=structure, batch=batch)


def on_gpus(context: Any, *operands: Any, function: Any, structure: Any, batch: tuple) -> Any:
    """The function on one GPU, in one kernel if that is possible, or its batch shared out among several. What is
    exported has no such kernels: they are no part of what JAX promises to read later."""
    options = getattr(context.module_context, "lowering_parameters", None)
    sizes_known = all(isinstance(n, int) and n for n in batch)
    if getattr(options, "for_export", False) or function.in_kernels or not sizes_known:
        return in_many_kernels(context, *operands, function=function, structure=structure, batch=batch)

    def by_threads(*leaves: jax.Array) -> list:
        sizes = tuple(_length(leaves, k) for k in range(-len(batch), 0))
        return on_gpu.called(partial(function.on_leaves, structure), leaves, sizes)

    return _shared(by_threads, context, *operands, function=function, structure=structure, batch=batch)


def _shared(
    on_one: Callable[..., list], context: Any, *operands: Any, function: Any, structure: Any, batch: tuple
) -> Any:
    count = _sharers(context)
    if count is None or function.known:
        return in_many_kernels(context, *operands, function=function, structure=structure, batch=batch)
    if count == 1:
        with without_mesh():
            return _lowered(context, operands, on_one)
    if not batch or not isinstance(batch[-1], int) or batch[-1] % count:
        return in_many_kernels(context, *operands, function=function, structure=structure, batch=batch)
    mesh = AbstractMesh((count,), ("core",), axis_types=(AxisType.Auto,))  # the devices of the program, in its order
    specs = tuple(_last(aval.ndim) if aval.shape[-1] > 1 else PartitionSpec() for aval in context.avals_in)
    results = tuple(_last(aval.ndim) for aval in context.avals_out)
    shared = jax.shard_map(
        lambda *leaves: tuple(on_one(*leaves)), mesh=mesh, in_specs=specs, out_specs=results, check_vma=False
    )
    with without_mesh():
        return _lowered(context, operands, lambda *leaves: list(shared(*leaves)))


def without_mesh() -> AbstractContextManager[Any]:
    """Programs are traced as for one device, whatever mesh is set: within `shard_map` a transpose would move its result
    to where its argument lies, which no kernel can, and devices are shared by a mesh of our own."""
    return jax.sharding.use_abstract_mesh(AbstractMesh((), ()))


def _last(ndim: int) -> PartitionSpec:
    return PartitionSpec(*(None,) * (ndim - 1), "core")


def _lowered(context: Any, operands: Sequence[Any], function: Callable[..., list]) -> Any:
    found = context.avals_out
    if all(0 in aval.shape for aval in found):  # of no samples nothing is computed
        function = lambda *_: [jnp.zeros(aval.shape, aval.dtype) for aval in found]  # noqa: E731
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


def tiled(
    function: Callable,
    structure: Any,
    batch_axes: int,
    leaves: Sequence[jax.Array],
    width: int | None,
    lines: Lines,
) -> list[jax.Array]:
    """`function(leaves)` in one kernel, and tile by tile where the batch is long.

    The last batch axes are made one where every leaf varies along all of them or along none. It is the last that is
    cut, and whatever the others hold comes along.
    """

    def whole(leaves: Sequence[jax.Array]) -> list:
        # To start a kernel takes long beside one state, whose derivative is longer.
        single = not batch_axes and lines is not Lines.DERIVATIVE
        return in_one_kernel(lambda *leaves: function(leaves), leaves, lines=lines, whole=single)

    batch = tuple(_length(leaves, k) for k in range(-batch_axes, 0))
    samples = math.prod(batch)
    if not batch or not isinstance(samples, int):  # a batch of unknown size, exported so
        return whole(leaves)
    alike = _alike(leaves, batch_axes)
    if alike > 1:
        one_axis = [_as_one_axis(x, alike) for x in leaves]
        flat = tiled(function, structure, batch_axes - alike + 1, one_axis, width, lines)
        return [_as_axes(x, batch[-alike:]) for x in flat]
    near = max(1, (width or _width(structure, leaves)) * batch[-1] // max(samples, 1))
    width = even_width(near, batch[-1])
    if batch[-1] < max(2 * near, width):  # as in a tile of `dx.batch`
        return _filled_up(whole, leaves, batch[-1]) if batch[-1] in WRITTEN_OUT else whole(leaves)
    moving = [x.shape[-1] > 1 for x in leaves]

    def one(tile: list) -> list:
        rest = iter(tile)
        own = [jnp.moveaxis(next(rest), 0, -1) if m else x for m, x in zip(moving, leaves, strict=True)]
        return [jnp.moveaxis(x, -1, 0) for x in whole(own)]

    # The batch leads outside of the loop, as `vmap` has it: what is turned is in the cache.
    parts = along_tiles(one, [jnp.moveaxis(x, -1, 0) for m, x in zip(moving, leaves, strict=True) if m], width)
    return [jnp.moveaxis(x, 0, -1) for x in parts]


def _filled_up(function: Callable, leaves: Sequence[jax.Array], size: int) -> list[jax.Array]:
    """With so many more samples, the last once more, that none of its loops is written out."""

    def filled(x: jax.Array) -> jax.Array:
        more = jnp.broadcast_to(x[..., -1:], (*x.shape[:-1], WRITTEN_OUT.stop - size))
        return jnp.concatenate([x, more], -1) if x.shape[-1] > 1 else x

    return [x[..., :size] for x in function([filled(x) for x in leaves])]


def _length(leaves: Sequence[jax.Array], axis: int) -> Any:
    """Of an axis of the batch, which is one in leaves that are the same for all."""
    return next((n for n in (x.shape[axis] for x in leaves) if not isinstance(n, int) or n != 1), 1)


def _alike(leaves: Sequence[jax.Array], batch_axes: int) -> int:
    """How many of the last axes the same leaves vary along."""
    varying = [[x.shape[-k] > 1 for x in leaves] for k in range(1, batch_axes + 1)]
    return next((k for k, own in enumerate(varying) if own != varying[0]), batch_axes)


def _width(structure: Any, leaves: Sequence[jax.Array]) -> int:
    tree, *arrays = structure.unflatten(leaves)
    if not getattr(tree, "rows_of_blocks", False):
        return NEAR
    configuration = jax.tree.leaves(arrays)[0]
    return width_of_blocks(len(configuration), configuration.dtype.itemsize)


def _as_one_axis(x: jax.Array, count: int) -> jax.Array:
    """The last `count` axes as one, the last of them the slowest: outermost, as `vmap` of `vmap` has it in memory."""
    head = x.ndim - count
    return jnp.transpose(x, (*range(head), *reversed(range(head, x.ndim)))).reshape(
        *x.shape[:head], math.prod(x.shape[head:])
    )


def _as_axes(x: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """The inverse."""
    head = x.ndim - 1
    axes = x.reshape(*x.shape[:head], *reversed(batch))
    return jnp.transpose(axes, (*range(head), *reversed(range(head, axes.ndim))))
