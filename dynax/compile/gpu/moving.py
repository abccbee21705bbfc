"""What only moves numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynax.compile.gpu.rules import RULES, constant, rule
from dynax.compile.gpu.scalars import Scalars


def moving(**rules: Callable[..., Any]) -> None:
    """Of one array, from its equation's parameters."""
    for name, own in rules.items():
        RULES[name] = lambda scalars, equation, args, own=own: own(args[0], **equation.params)


def _broadcast(x: np.ndarray, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> np.ndarray:
    spread = [1] * len(shape)
    for size, axis in zip(x.shape, broadcast_dimensions, strict=True):
        spread[axis] = size
    return np.broadcast_to(x.reshape(spread), shape).copy()


def _sliced(x: np.ndarray, *, start_indices: Any, limit_indices: Any, strides: Any) -> np.ndarray:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


moving(
    broadcast_in_dim=_broadcast,
    reshape=lambda x, *, new_sizes, **_: x.reshape(new_sizes),
    squeeze=lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    expand_dims=lambda x, *, dimensions: np.expand_dims(x, tuple(dimensions)),
    transpose=lambda x, *, permutation: np.transpose(x, permutation),
    slice=_sliced,
    rev=lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    split=lambda x, *, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    unstack=lambda x, *, axis, **_: [np.take(x, k, axis) for k in range(x.shape[axis])],
    copy=lambda x: x,
    name=lambda x, **_: x,
    stop_gradient=lambda x, **_: x,
    dynax_apart=lambda x, **_: x,
)


@rule("optimization_barrier")
def _barrier(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> list:
    return args


@rule("concatenate")
def _concatenated(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(args, equation.params["dimension"])


@rule("stack")
def _stacked(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    return np.stack(args, equation.params["axis"])


@rule("iota")
def _counted(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    shape, axis = equation.params["shape"], equation.params["dimension"]
    own = np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return constant(scalars, np.broadcast_to(own, shape).astype(equation.params["dtype"]))


@rule("pad")
def _padded(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    x, filling = args
    for axis, (low, high, inner) in enumerate(equation.params["padding_config"]):
        size = x.shape[axis]
        long = max(0, (size - 1) * (inner + 1) + 1) if size else 0
        wide = np.full((*x.shape[:axis], max(low, 0) + long + max(high, 0), *x.shape[axis + 1 :]), int(filling))
        at = [slice(None)] * x.ndim
        at[axis] = slice(max(low, 0), max(low, 0) + long, inner + 1)
        wide[tuple(at)] = x
        at[axis] = slice(max(-low, 0), wide.shape[axis] - max(-high, 0))
        x = wide[tuple(at)]
    return x


@rule("dynax_rows")
def _rows(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    places, axis = equation.params["places"], equation.params["axis"]
    zero = scalars.constant(0, equation.invars[0].aval.dtype)
    found = np.take(args[0], np.maximum(places.index, 0), axis)
    found[(slice(None),) * axis + (places.missing,)] = zero
    return found
