"""Entries at places that may be known only when the program runs: one of few is chosen then."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynax.compile.gpu.rules import NotReadError, along, constant, each, rule
from dynax.compile.gpu.scalars import Scalars

LARGEST_TABLE = 64
"""Entries among which one is chosen by a number that is known only when the program runs."""


def chosen(scalars: Scalars, dtype: Any, entries: Sequence[np.ndarray], place: int) -> np.ndarray:
    """`entries[place]`, one of few where the place is not known; places outside are those nearest."""
    known = scalars.value(place)
    if known is not None:
        return entries[int(np.clip(int(known), 0, len(entries) - 1))]
    if len(entries) > LARGEST_TABLE:
        raise NotReadError(f"one of {len(entries)} entries")
    found = entries[-1]
    integer = scalars.numbers[place].dtype
    for k in reversed(range(len(entries) - 1)):
        here = np.array(scalars.of("<=", bool, place, scalars.constant(k, integer)))
        found = each(scalars, "select", dtype, here, entries[k], found)
    return found


def _window(scalars: Scalars, dtype: Any, x: np.ndarray, starts: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size == x.shape[axis]:
            continue
        at = [slice(None)] * x.ndim
        entries = []
        for first in range(x.shape[axis] - size + 1):
            at[axis] = slice(first, first + size)
            entries.append(x[tuple(at)])
        x = chosen(scalars, dtype, entries, start)
    return x


@rule("dynamic_slice")
def _window_at(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    x, *starts = args
    sizes = equation.params["slice_sizes"]
    return _window(scalars, equation.invars[0].aval.dtype, x, [int(s) for s in starts], sizes)


@rule("dynamic_update_slice")
def _with_window(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    x, new, *starts = args
    places = [int(s) for s in starts]
    for axis, (size, whole) in enumerate(zip(new.shape, x.shape, strict=True)):
        if size == whole:
            places[axis] = scalars.constant(0, np.int32)
    ranges = [range(n - m + 1) for n, m in zip(x.shape, new.shape, strict=True)]
    known = [scalars.value(place) for place in places]
    dtype = equation.invars[0].aval.dtype
    result = x.copy()
    options = [
        [int(np.clip(int(own), 0, len(r) - 1))] if own is not None else list(r)
        for own, r in zip(known, ranges, strict=True)
    ]
    if np.prod([len(own) for own in options]) > LARGEST_TABLE:
        raise NotReadError("one of many entries written")
    for corner in itertools.product(*options):
        at = tuple(slice(c, c + m) for c, m in zip(corner, new.shape, strict=True))
        here = _all_at(scalars, places, known, corner, ranges)
        result[at] = new if here is None else each(scalars, "select", dtype, here, new, result[at])
    return result


def _all_at(scalars: Scalars, places: list, known: list, corner: tuple, ranges: list) -> np.ndarray | None:
    """Whether the places that are not known, moved inside, are those of a corner."""
    result = None
    for place, own, c, r in zip(places, known, corner, ranges, strict=True):
        if own is not None:
            continue
        integer = scalars.numbers[place].dtype
        sign = "<=" if c == 0 else ">=" if c == len(r) - 1 else "=="
        here = np.array(scalars.of(sign, bool, place, scalars.constant(c, integer)))
        if len(r) == 1:
            continue
        result = here if result is None else each(scalars, "&", bool, result, here)
    return result


@rule("gather")
def _gathered(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    x, indices = args
    p = equation.params
    numbers, sizes = p["dimension_numbers"], p["slice_sizes"]
    if numbers.operand_batching_dims:
        raise NotReadError("a look-up in batches")
    dtype = equation.invars[0].aval.dtype
    room = [x.shape[axis] - sizes[axis] for axis in numbers.start_index_map]
    filling = _filling(dtype, p["fill_value"]) if "FILL" in str(p["mode"]) else None
    shape = equation.outvars[0].aval.shape
    offset = numbers.offset_dims
    result = np.zeros(shape, np.int64)
    outer = [k for k in range(len(shape)) if k not in offset]
    zero = scalars.constant(0, np.int32)
    for place in np.ndindex(*indices.shape[:-1]):
        starts = [zero] * x.ndim
        for k, axis in enumerate(numbers.start_index_map):
            starts[axis] = int(indices[(*place, k)])
        found = _window(scalars, dtype, x, starts, sizes)
        if filling is not None:
            own = _inside(scalars, [int(n) for n in indices[place]], room)
            found = each(scalars, "select", dtype, own, found, constant(scalars, filling))
        at: list[Any] = [slice(None)] * len(shape)
        for k, own in zip(outer, place, strict=True):
            at[k] = own
        result[tuple(at)] = np.squeeze(found, tuple(numbers.collapsed_slice_dims))
    return result


def _filling(dtype: Any, value: Any) -> np.ndarray:
    """What JAX finds outside of an array where it does not look for the nearest entry."""
    if value is None:
        whole = np.iinfo(dtype) if dtype.kind in "iu" else None
        value = (
            True if dtype.kind == "b" else np.nan if whole is None else whole.max if dtype.kind == "u" else whole.min
        )
    return np.asarray(value, dtype)


def _inside(scalars: Scalars, places: Sequence[int], room: Sequence[int]) -> np.ndarray:
    """Whether places are from zero to what there is room for."""
    result = scalars.constant(True, bool)
    for place, last in zip(places, room, strict=True):
        integer = scalars.numbers[place].dtype
        for sign, end in ((">=", 0), ("<=", last)):
            here = scalars.of(sign, bool, place, scalars.constant(end, integer))
            result = scalars.of("&", bool, result, here)
    return np.array(result)


@rule("scatter", "scatter-add", "scatter_add")
def _scattered(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    x, indices, updates = args
    numbers = equation.params["dimension_numbers"]
    if numbers.operand_batching_dims or "CLIP" in str(equation.params["mode"]):
        raise NotReadError("entries written in batches, or at the nearest place")
    dtype = equation.invars[0].aval.dtype
    adds = equation.primitive.name != "scatter"
    windows = [k for k in range(updates.ndim) if k in numbers.update_window_dims]
    outer = [k for k in range(updates.ndim) if k not in windows]
    kept = [k for k in range(x.ndim) if k not in numbers.inserted_window_dims]
    result = x.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        at: list[Any] = [slice(None)] * updates.ndim
        for k, own in zip(outer, place, strict=True):
            at[k] = own
        new = updates[tuple(at)]
        sizes = [1] * x.ndim
        for k, axis in enumerate(kept):
            sizes[axis] = new.shape[k]
        starts = [scalars.value(int(own)) for own in indices[place]]
        axes = numbers.scatter_dims_to_operand_dims
        options = [
            [int(s)] if s is not None else list(range(x.shape[axis] - sizes[axis] + 1))
            for s, axis in zip(starts, axes, strict=True)
        ]
        if np.prod([len(own) for own in options]) > LARGEST_TABLE:
            raise NotReadError("one of many entries written")
        for corner in itertools.product(*options):
            first = [0] * x.ndim
            for axis, own in zip(axes, corner, strict=True):
                first[axis] = own
            if any(not 0 <= f <= n - s for f, n, s in zip(first, x.shape, sizes, strict=True)):
                continue  # what falls outside is dropped
            window = tuple(slice(f, f + s) for f, s in zip(first, sizes, strict=True))
            own = result[window]
            value = new.reshape(own.shape)
            value = each(scalars, "+", dtype, own, value) if adds else value
            for s, number, c in zip(starts, indices[place], corner, strict=True):
                if s is None:
                    integer = scalars.numbers[int(number)].dtype
                    here = np.array(scalars.of("==", bool, int(number), scalars.constant(c, integer)))
                    value = each(scalars, "select", dtype, here, value, own)
            result[window] = value
    return result


@rule("dynax_links")
def _linked(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    a, table, _ = args
    dtype = equation.invars[0].aval.dtype
    rows = list(a)
    if not equation.params["complete"][0]:
        rows.append(np.full(a.shape[1:], scalars.constant(0, dtype)))
    found = [np.stack([chosen(scalars, dtype, rows, int(x)) for x in own]) for own in table]
    return along(scalars, "+", dtype, np.stack(found), 0)


@rule("dynax_place")
def _row_at(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    a, place = args
    return chosen(scalars, equation.invars[0].aval.dtype, list(a), int(place))[None]
