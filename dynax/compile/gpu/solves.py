"""Linear systems, written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynax.compile.gpu.rules import constant, each, read, rule
from dynax.compile.gpu.scalars import Scalars


@rule("custom_linear_solve")
def _solved(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> list:
    programs, counts = equation.params["jaxprs"], equation.params["const_lengths"]
    first = counts.matvec + counts.vecmat
    constants, right = args[first : first + counts.solve], args[sum(counts) :]
    return read(programs.solve, scalars, [*constants, *right])


@rule("cholesky")
def _factor(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    dtype = equation.outvars[0].aval.dtype
    a, size = args[0], args[0].shape[-1]
    result = np.full(a.shape, scalars.constant(0, dtype))
    for j in range(size):
        for i in range(j, size):
            total = a[..., i, j]
            for k in range(j):
                product = each(scalars, "*", dtype, result[..., i, k], result[..., j, k])
                total = each(scalars, "-", dtype, total, product)
            if i == j:
                result[..., j, j] = each(scalars, "sqrt", dtype, total)
            else:
                result[..., i, j] = each(scalars, "/", dtype, total, result[..., j, j])
    return result


@rule("triangular_solve")
def _by_substitution(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    p, dtype = equation.params, equation.outvars[0].aval.dtype
    a, b = args
    left, turned = p["left_side"], p["transpose_a"]
    # With `x a = b` the other way round, `a.T x.T = b.T`.
    rows = b if left else np.swapaxes(b, -1, -2)
    a = np.swapaxes(a, -1, -2) if bool(turned) == left else a
    lower = p["lower"] != (bool(turned) == left)
    size = a.shape[-1]
    one = constant(scalars, np.ones((), dtype))
    x = rows.copy()
    for i in range(size) if lower else reversed(range(size)):
        total = rows[..., i, :]
        for k in range(i) if lower else range(i + 1, size):
            total = each(scalars, "-", dtype, total, each(scalars, "*", dtype, a[..., i, k, None], x[..., k, :]))
        x[..., i, :] = each(scalars, "/", dtype, total, one if p["unit_diagonal"] else a[..., i, i, None])
    return x if left else np.swapaxes(x, -1, -2)
