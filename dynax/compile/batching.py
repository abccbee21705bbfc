"""Plain `vmap` on the fast layout: batch axes last.

Algorithms are written for trailing batch axes, which keep the innermost loops contiguous; `jax.vmap` puts the new axis
first, which halves the speed. A function made here is a primitive of its own, whose batching rule moves the axis to
the end and back and whose differentiation rule is the plain derivative, or one that is given. So every composition of
`vmap`, `grad`, `jvp`, `jacfwd`, `jacrev` and `hessian` works, inside loops too.

On one CPU a large batch is computed a tile at a time, so that what is in work stays in the cache, and a tile, or one
state, in one kernel where that is possible.

It is a primitive, and not `custom_vmap` in `custom_jvp`, because JAX inlines those in places (a scan's loop invariants
in reverse mode) and then finds a batching rule which it cannot differentiate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from dynax.compile.one_kernel import in_one_kernel

Result = TypeVar("Result")
Rule = Callable[[tuple, tuple], tuple[Any, Any]]
"""`(primals, tangents) -> (value, tangent)`, where `is_zero` knows the tangents that are zero."""


def trailing(core: Callable[..., Result], rule: Rule | None = None) -> Callable[..., Result]:
    """`core(tree, *arrays)`, which accepts trailing batch axes on arrays and leaves, under `vmap`.

    Arrays may be trees of them, or `None`. Results are arrays, or trees of them, with the batch axes last. `rule` is
    the derivative, by default that of `core` itself.
    """
    compiled = jax.jit(core)  # traced once for all that ask for it: shapes, code, derivatives

    def differentiated(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        return along_moving(core, primals, tangents)

    function = _Batched(compiled, rule or differentiated)
    return wraps(core)(lambda *args: function(*args))


def batch_last(core: Callable[..., Result]) -> Callable[..., Result]:
    """`trailing`, compiled when it is called outside of `jit`."""
    return jax.jit(trailing(core))


class _Batched:
    """A function on trees as a call of the primitive on their leaves."""

    def __init__(self, core: Callable, rule: Rule) -> None:
        self.core, self.rule = core, rule

    def __call__(self, *args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        results = jax.tree.structure(jax.eval_shape(self.core, *args))
        found = _primitive.bind(*leaves, function=self, structure=structure, batch=())
        return results.unflatten(found)

    def on_leaves(self, structure: Any, leaves: Any) -> list:
        return jax.tree.leaves(self.core(*structure.unflatten(leaves)))


_primitive = Primitive("dynax_batch_last")
_primitive.multiple_results = True


# Parameters of the primitive: `structure` of the arguments, and the lengths of their batch axes, `batch`.


@_primitive.def_impl
def _evaluated(*leaves: jax.Array, function: _Batched, structure: Any, batch: tuple[int, ...]) -> list:
    return function.on_leaves(structure, leaves)


@_primitive.def_abstract_eval
def _shapes(*leaves: Any, function: _Batched, structure: Any, batch: tuple[int, ...]) -> list:
    found = jax.eval_shape(function.core, *structure.unflatten(leaves))
    return [jax.core.ShapedArray(x.shape, x.dtype) for x in jax.tree.leaves(found)]


def _batched(leaves: tuple, axes: tuple, *, function: _Batched, structure: Any, batch: tuple[int, ...]) -> tuple:
    size = next(leaf.shape[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None)
    # Every leaf gets the axis, of length one where it is the same for all, so that a second `vmap` finds its place.
    moved = [
        leaf[..., None] if axis is None else jnp.moveaxis(leaf, axis, -1)
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    tree, *arrays = structure.unflatten(moved)
    arrays = jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[:-1], size)), arrays)
    every = jax.tree.leaves((tree, *arrays))
    found = _primitive.bind(*every, function=function, structure=structure, batch=(*batch, size))
    return found, [x.ndim - 1 for x in found]


def _differentiated(
    leaves: tuple, rates: tuple, *, function: _Batched, structure: Any, batch: tuple[int, ...]
) -> tuple:
    value, rate = function.rule(structure.unflatten(leaves), structure.unflatten(rates))
    return jax.tree.leaves(value), jax.tree.leaves(rate)


batching.primitive_batchers[_primitive] = _batched
ad.primitive_jvps[_primitive] = _differentiated
_whole = mlir.lower_fun(_evaluated, multiple_results=True)


def _tiled(*leaves: jax.Array, function: _Batched, structure: Any, batch: tuple[int, ...]) -> list:
    """The same in one kernel, in a loop over tiles of the last batch axis if that is long."""

    def whole(leaves: Sequence[jax.Array]) -> list:
        return in_one_kernel(lambda *leaves: function.on_leaves(structure, leaves), leaves)

    if not batch:
        return whole(leaves)
    samples = math.prod(batch)
    found = jax.eval_shape(function.core, *structure.unflatten(leaves))
    results = sum(x.size for x in jax.tree.leaves(found)) / max(samples, 1)
    rows = jax.tree.leaves(structure.unflatten(leaves)[1:])[0].shape[0]  # of the configuration
    width = max(1, tile_width(rows, results) * batch[-1] // max(samples, 1))
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


_in_tiles = mlir.lower_fun(_tiled, multiple_results=True)


def _on_cpu(context: Any, *operands: Any, batch: tuple[int, ...], **parameters: Any) -> Any:
    # A loop over tiles of an axis that lies on several devices would move samples between them.
    alone = getattr(context.module_context.axis_context, "num_devices", None) == 1
    return (_in_tiles if alone else _whole)(context, *operands, batch=batch, **parameters)


mlir.register_lowering(_primitive, _whole)
mlir.register_lowering(_primitive, _on_cpu, platform="cpu")

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


def along_moving(core: Callable, primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """`jax.jvp` with respect to the leaves whose tangents are not zeros."""
    leaves, structure = jax.tree.flatten(primals)
    rates = jax.tree.leaves(tangents, is_leaf=is_zero)
    moving = [k for k, rate in enumerate(rates) if not is_zero(rate)]

    def of_moving(*values: jax.Array) -> Any:
        current = list(leaves)
        for k, value in zip(moving, values, strict=True):
            current[k] = value
        return core(*jax.tree.unflatten(structure, current))

    return jax.jvp(of_moving, tuple(leaves[k] for k in moving), tuple(rates[k] for k in moving))


def is_zero(tangent: Any) -> bool:
    """Whether a tangent is the symbol for zero."""
    return isinstance(tangent, ad.Zero)
