"""Rows of arrays, looked up in a way whose transpose is a look-up too.

To look up rows is linear, and its transpose adds up what was asked of the same row. JAX makes a scatter of it, of which
XLA on a CPU makes a loop over single rows that no other loop is fused with, and that cannot be inside one kernel. Where
the places are known when a program is made, the transpose is a sum of look-ups: of those who asked first for each row,
of those who asked second, and so on.
"""

from __future__ import annotations

from functools import cached_property, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

FEW = 6
"""How often rows are asked for before those that are asked for more often are added up by themselves: as often as the
freedoms of a free joint ask for those of its body."""


class Places:
    """Which rows, -1 for zeros: what a compiled program depends on."""

    def __init__(self, index: np.ndarray) -> None:
        self.index = np.asarray(index, np.int32)
        self._key = self.index.tobytes()

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and self._key == other._key

    def __repr__(self) -> str:
        return f"<{len(self.index)} places>"

    @cached_property
    def missing(self) -> np.ndarray:
        return self.index < 0


def take_rows(x: Any, index: np.ndarray) -> Any:
    """Rows `index` of every leaf, zeros where it is negative; the leaves themselves when nothing moves."""
    places = Places(np.asarray(index).reshape(-1))

    def take(a: jax.Array) -> jax.Array:
        if len(places.index) == a.shape[0] and np.array_equal(places.index, np.arange(len(places.index))):
            return a
        if places.missing.all():
            return jnp.zeros((len(places.index), *a.shape[1:]), a.dtype)
        return _taken.bind(a, places=places, axis=0)

    found = jax.tree.map(take, x)
    shape = np.shape(index)
    return found if len(shape) == 1 else jax.tree.map(lambda a: a.reshape(*shape, *a.shape[1:]), found)


def take_entries(x: jax.Array, start: np.ndarray, count: int) -> tuple[jax.Array, ...]:
    """`count` entries from each `start` on: the first ones of all, the second ones of all, and so on."""
    return tuple(take_rows(x, start + k) for k in range(count))


def copied(a: jax.Array) -> jax.Array:
    """All rows in their order, a look-up like any other to the compiler."""
    return _taken.bind(a, places=Places(np.arange(len(a))), axis=0)


def _take(a: jax.Array, *, places: Places, axis: int) -> jax.Array:
    rest = tuple(k for k in range(a.ndim) if k != axis)
    found = lax.gather(
        a,
        np.maximum(places.index, 0)[:, None],
        lax.GatherDimensionNumbers(offset_dims=rest, collapsed_slice_dims=(axis,), start_index_map=(axis,)),
        tuple(1 if k == axis else size for k, size in enumerate(a.shape)),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    if not places.missing.any():
        return found
    mask = places.missing.reshape([-1 if k == axis else 1 for k in range(a.ndim)])
    return jnp.where(mask, jnp.zeros((), a.dtype), found)


def _added(bar: jax.Array, places: Places, axis: int, count: int) -> jax.Array:
    """What was asked of each of `count` rows, added up."""
    asking = [np.flatnonzero(places.index == row) for row in range(count)]
    few = [own if len(own) <= FEW else own[:0] for own in asking]
    rounds = [[own[k] if k < len(own) else -1 for own in few] for k in range(max(map(len, few), default=0))]
    many = [row for row, own in enumerate(asking) if len(own) > FEW]

    def looked_up(a: jax.Array, index: Any) -> jax.Array:
        return _taken.bind(a, places=Places(index), axis=axis)

    if not rounds and not many:
        return jnp.zeros((*bar.shape[:axis], count, *bar.shape[axis + 1 :]), bar.dtype)
    sums = [reduce(jnp.add, (looked_up(bar, index) for index in rounds))] if rounds else []
    if not many:
        return sums[0]
    order = np.arange(count) if rounds else np.full(count, -1)
    order[many] = (count if rounds else 0) + np.arange(len(many))
    sums += [_total(looked_up(bar, asking[row]), axis) for row in many]
    return looked_up(lax.concatenate(sums, axis), order)


def _total(a: jax.Array, axis: int) -> jax.Array:
    """The sum over an axis that stays, by halves: a library's reduction cannot be in one kernel."""
    while (size := a.shape[axis]) > 1:
        half = size // 2
        first, second = (lax.slice_in_dim(a, k * half, (k + 1) * half, axis=axis) for k in (0, 1))
        rest = [lax.slice_in_dim(a, 2 * half, size, axis=axis)] if size % 2 else []
        a = lax.concatenate([first + second, *rest], axis)
    return a


_taken = Primitive("dynax_rows")
_taken.def_impl(jax.jit(_take, static_argnames=("places", "axis")))


@_taken.def_abstract_eval
def _shape(a: Any, *, places: Places, axis: int) -> Any:
    return a.update(shape=(*a.shape[:axis], len(places.index), *a.shape[axis + 1 :]), weak_type=False)


def _transposed(bar: Any, a: Any, *, places: Places, axis: int) -> list:
    return [ad.Zero(a.aval) if type(bar) is ad.Zero else _added(bar, places, axis, a.aval.shape[axis])]


def _batched(arrays: tuple, axes: tuple, *, places: Places, axis: int) -> tuple:
    (a,), (batch,) = arrays, axes
    return _taken.bind(a, places=places, axis=axis + (batch <= axis)), batch


ad.deflinear2(_taken, _transposed)
batching.primitive_batchers[_taken] = _batched
mlir.register_lowering(_taken, mlir.lower_fun(_take, multiple_results=False))


def read_place(a: jax.Array, place: jax.Array) -> jax.Array:
    """One row `(1, ...)` at a place that is known when the program runs, as the first of two equal rows.

    A single row would be a slice, which XLA on a CPU reads again in each loop that needs it.
    """
    return _read.bind(a, place)


def _two_rows(a: jax.Array, place: jax.Array) -> jax.Array:
    return a[jnp.stack([place, place])][:1]


_read = Primitive("dynax_place")
_read.def_impl(jax.jit(_two_rows))


@_read.def_abstract_eval
def _row_shape(a: Any, place: Any) -> Any:
    return a.update(shape=(1, *a.shape[1:]), weak_type=False)


def _written(bar: Any, a: Any, place: jax.Array) -> list:
    if type(bar) is ad.Zero:
        return [ad.Zero(a.aval), None]
    nothing = jnp.zeros(a.aval.shape, a.aval.dtype)
    return [lax.dynamic_update_slice_in_dim(nothing, bar, place, 0), None]


def _read_batched(arrays: tuple, axes: tuple) -> tuple:
    (a, place), (batch, other) = arrays, axes
    if other is not None:
        return jax.vmap(_two_rows, in_axes=(batch, other), out_axes=0)(a, place), 0
    return _read.bind(jnp.moveaxis(a, batch, -1), place), a.ndim - 1


ad.defjvp(_read, lambda rate, a, place: _read.bind(rate, place), None)
ad.primitive_transposes[_read] = _written
batching.primitive_batchers[_read] = _read_batched
mlir.register_lowering(_read, mlir.lower_fun(_two_rows, multiple_results=False))
