"""Sums and the like, written out."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from dynax.compile.gpu.rules import NotReadError, along, constant, each, rule
from dynax.compile.gpu.scalars import Scalars

REDUCED = {
    "reduce_sum": ("+", 0), "reduce_prod": ("*", 1), "reduce_max": ("maximum", None), "reduce_min": ("minimum", None),
    "reduce_and": ("&", True), "reduce_or": ("|", False),
}  # fmt: skip


@rule(*REDUCED)
def _reduced(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    operation, start = REDUCED[equation.primitive.name]
    dtype = equation.outvars[0].aval.dtype
    axes = equation.params["axes"]
    rest = [k for k in range(args[0].ndim) if k not in axes]
    kept, summed = ([args[0].shape[k] for k in own] for own in (rest, axes))
    x = np.transpose(args[0], (*rest, *axes)).reshape(*kept, math.prod(summed))
    if not x.shape[-1]:
        if start is None:
            raise NotReadError("the largest of nothing")
        return np.full(x.shape[:-1], scalars.constant(start, dtype))
    return along(scalars, operation, dtype, x, x.ndim - 1)


@rule("dynax_sum")
def _summed(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    return along(scalars, "+", equation.outvars[0].aval.dtype, args[0], equation.params["axis"])


@rule("argmax", "argmin")
def _first_best(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    (axis,) = equation.params["axes"]
    better = ">" if equation.primitive.name == "argmax" else "<"
    value, index = equation.invars[0].aval.dtype, equation.params["index_dtype"]
    parts = [np.take(args[0], k, axis) for k in range(args[0].shape[axis])]
    best, place = parts[0], np.full(parts[0].shape, scalars.constant(0, index))
    for k, part in enumerate(parts[1:], 1):
        first = each(scalars, better, bool, part, best)
        if np.issubdtype(value, np.floating):  # what is not a number counts as the largest, as in JAX
            odd = each(scalars, "!=", bool, part, part)
            usual = each(scalars, "==", bool, best, best)
            first = each(scalars, "|", bool, first, each(scalars, "&", bool, odd, usual))
            first = each(scalars, "&", bool, first, usual)
        best = each(scalars, "select", value, first, part, best)
        place = each(scalars, "select", index, first, constant(scalars, np.asarray(k, index)), place)
    return place


@rule("cumsum", "cumprod", "cummax", "cummin")
def _running(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    operation = {"cumsum": "+", "cumprod": "*", "cummax": "maximum", "cummin": "minimum"}[equation.primitive.name]
    dtype, axis = equation.outvars[0].aval.dtype, equation.params["axis"]
    parts = [np.take(args[0], k, axis) for k in range(args[0].shape[axis])]
    parts = parts[::-1] if equation.params["reverse"] else parts
    found = list(itertools.accumulate(parts, lambda a, b: each(scalars, operation, dtype, a, b)))
    return np.stack(found[::-1] if equation.params["reverse"] else found, axis) if found else args[0]


@rule("dot_general")
def _products(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    a, b = args
    dtype = equation.outvars[0].aval.dtype
    rest_a = [k for k in range(a.ndim) if k not in (*left, *left_batch)]
    rest_b = [k for k in range(b.ndim) if k not in (*right, *right_batch)]
    batch = tuple(a.shape[k] for k in left_batch)
    rows, columns = (tuple(x.shape[k] for k in rest) for x, rest in ((a, rest_a), (b, rest_b)))
    summed = math.prod(a.shape[k] for k in left)
    a = np.transpose(a, (*left_batch, *rest_a, *left)).reshape(*batch, math.prod(rows), 1, summed)
    b = np.transpose(b, (*right_batch, *rest_b, *right)).reshape(*batch, 1, math.prod(columns), summed)
    shape = (*batch, *rows, *columns)
    if not summed:
        return np.full(shape, scalars.constant(0, dtype))
    terms = each(scalars, "*", dtype, a, b)
    return along(scalars, "+", dtype, terms, terms.ndim - 1).reshape(shape)
