"""Batches in tiles that fit the cache, on every core of a CPU or on the devices where the samples lie."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dynax.compile.tiles import LANES, NEAR, by_tiles, even_width, in_tiles
from dynax.contact.scene import Scene
from dynax.embedding.model import EmbeddedModel
from dynax.flexible.body import leaf_shapes
from dynax.model import Model
from dynax.model.flexible import FlexibleModel
from dynax.model.numbers import number_shapes

AXES = {"rotation": 3, "translation": 2, "radii": 1, "half": 1, "points": 2, "heights": 2, "offsets": 2}
"""Of the numbers of a scene, its model's aside, where they are not single ones."""


def batch(fn: Callable, *, tile: int | None = None, sharding: NamedSharding | None = None) -> Callable:
    """`jax.vmap(fn)` over the leading axis of all arrays, computed tile by tile on every core; the same results.

    On a CPU whole-batch intermediates leave the cache from about a thousand samples on; a tile at a time they do not.
    A process has one CPU device and uses one core, unless it asks for more of them before JAX starts, by
    `jax.config.update("jax_num_cpu_devices", n)`: then each takes its share of the batch.

    **Arguments:**

    - `fn`: a function of arrays (and pytrees of them). Of a model or a scene among the arguments those leaves are
      batched that have a leading batch axis; all others are shared by the samples, and so are the parameters of a
      `contact.Ground`.
    - `tile`: samples at a time, on each device; by default about a hundred on a CPU, the whole batch elsewhere.
    - `sharding`: how the batch axis lies on the devices, if on several; each then computes its own samples, and none
      speaks to another. Default: what the arrays show, else all CPU devices of the process. Arrays show nothing under
      `jax.jit` if the axes of the mesh are of type `Auto`: say it here.

    The last tile ends with the last sample and computes some of those before it again, so that one program serves every
    tile. Where a derivative is taken, and on the last of several devices, what is missing is filled up by repeating a
    sample; the surplus is dropped.
    """
    if tile is not None and tile < 1:
        raise ValueError(f"`tile` must be at least 1, got {tile}")

    @wraps(fn)
    def batched(*args: Any) -> Any:
        axes = tuple(batch_axes(arg) for arg in args)
        leaves, structure = jax.tree.flatten(args)
        varied = [axis == 0 for axis in structure.flatten_up_to(axes)]
        moving = [leaf for leaf, own in zip(leaves, varied, strict=True) if own]
        size = _length(moving)
        mapped = jax.vmap(lambda *leaves: fn(*structure.unflatten(leaves)), [0 if own else None for own in varied])

        # In a mesh of others types say how arrays vary over it, and where results begin as nothing they would not.
        run = in_tiles if jax.sharding.get_abstract_mesh().empty else by_tiles

        def tiled(*leaves: Any) -> Any:
            return _tiled(mapped, varied, leaves, tile, run)

        placed = sharding or sharding_of(moving) or over_all_cores(moving, size)
        if placed is None:
            return tiled(*leaves)
        # Tiles of the whole batch would cut across the devices and move samples between them.
        own = PartitionSpec(placed.spec[0])
        count = _shares(placed)
        full = -(-size // count) * count
        if full > size:
            index = np.minimum(np.arange(full), size - 1)
            leaves = [jnp.asarray(leaf)[index] if b else leaf for leaf, b in zip(leaves, varied, strict=True)]
        specs = tuple(own if b else PartitionSpec() for b in varied)
        # Carries of the walks start as constants, which the check of what varies over the devices would refuse.
        shared = jax.shard_map(tiled, mesh=placed.mesh, in_specs=specs, out_specs=own, check_vma=False)
        found = shared(*leaves)
        return found if full == size else jax.tree.map(lambda x: x[:size], found)

    return batched


def batch_axes(argument: Any) -> Any:
    """The axes of a batch in an argument, as `in_axes` of `jax.vmap`: a tree of it, 0 for what is batched."""
    if isinstance(argument, FlexibleModel):
        axes = _own_axes(argument.skeleton, number_shapes(argument.skeleton.structure))
        for member, body in zip(argument.members, argument.bodies, strict=True):
            axes += _own_axes(body, leaf_shapes(member.modes, len(body.node_names)))
    elif isinstance(argument, EmbeddedModel):
        axes = jax.tree.leaves(batch_axes(argument.tree), is_leaf=lambda x: x is None)
    elif isinstance(argument, Model):
        axes = _own_axes(argument, number_shapes(argument.structure))
    elif isinstance(argument, Scene):
        paths, _ = jax.tree_util.tree_flatten_with_path(dataclasses.replace(argument, model=None))
        axes = jax.tree.structure(argument.model).flatten_up_to(batch_axes(argument.model))
        axes += [_leading(path, leaf) for path, leaf in paths]
    else:
        return jax.tree.map(lambda _: 0, argument)
    return jax.tree.unflatten(jax.tree.structure(argument), axes)


def _leading(path: tuple, leaf: Any) -> int | None:
    """Of a number of a scene."""
    names = [key.name for key in path if hasattr(key, "name")]
    return 0 if "parameters" not in names and jnp.ndim(leaf) > AXES.get(names[-1], 0) else None


def _own_axes(model: Any, shapes: dict[str, tuple[int, ...]]) -> list[int | None]:
    """Of each leaf, 0 where it has more axes than `shapes` says."""
    paths, _ = jax.tree_util.tree_flatten_with_path(model)
    named = [(".".join(key.name for key in path), leaf) for path, leaf in paths]
    return [0 if jnp.ndim(leaf) > len(shapes[name]) else None for name, leaf in named]


def _length(moving: Sequence[Any]) -> int:
    for leaf in moving:
        if not jnp.ndim(leaf):
            raise ValueError("batch: an argument is a scalar, without a leading axis of samples; close over it instead")
    sizes = {leaf.shape[0] for leaf in moving}
    if len(sizes) != 1:
        raise ValueError(f"batch: the arrays have leading axes of different lengths: {sorted(sizes)}")
    return sizes.pop()


def _tiled(mapped: Callable, batched: Sequence[bool], leaves: Sequence[Any], tile: int | None, run: Callable) -> Any:
    """`mapped(*leaves)` by tiles of the samples on this device."""

    def with_part(part: Sequence[Any]) -> list:
        rest = iter(part)
        return [next(rest) if b else leaf for leaf, b in zip(leaves, batched, strict=True)]

    moving = [leaf for leaf, b in zip(leaves, batched, strict=True) if b]
    size = moving[0].shape[0]
    width = tile or default_tile(size)
    if width >= size:
        return mapped(*leaves)
    return run(lambda part: mapped(*with_part(part)), moving, width)


def sharding_of(arrays: Sequence[Any]) -> NamedSharding | None:
    """The sharding of the leading axis, of the first array that has one and shows it."""
    for leaf in arrays:
        hidden = isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array)
        sharding = jax.typeof(leaf).sharding if hidden else leaf.sharding
        if isinstance(sharding, NamedSharding) and sharding.spec and sharding.spec[0] is not None:
            return sharding
    return None


def over_all_cores(arrays: Sequence[Any], size: int) -> NamedSharding | None:
    """All CPU devices of the process, if it has several and nothing says where the arrays are to stay."""
    if jax.default_backend() != "cpu" or jax.process_count() > 1:
        return None
    devices = jax.local_devices()
    if len(devices) == 1 or size < LANES * len(devices) or not jax.sharding.get_abstract_mesh().empty:
        return None
    placed = (leaf for leaf in arrays if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer))
    if any(leaf.committed for leaf in placed):
        return None
    return NamedSharding(Mesh(np.array(devices), ("core",)), PartitionSpec("core"))


def _shares(sharding: NamedSharding) -> int:
    """Into how many parts the leading axis is cut."""
    first = sharding.spec[0]
    return math.prod(sharding.mesh.shape[name] for name in ((first,) if isinstance(first, str) else first))


def default_tile(size: int) -> int:
    """Samples whose working set stays in the cache, all of them where they are few or on an accelerator."""
    return size if jax.default_backend() != "cpu" or size < 2 * NEAR else even_width(NEAR, size)
