"""Calls, branches, and loops: those of a known count are written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dynax.compile.gpu.rules import constant, each, read, rule
from dynax.compile.gpu.scalars import Scalars


@rule("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call")
def _called(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> list:
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    program = next(equation.params[name] for name in names if name in equation.params)
    return read(program, scalars, args)


@rule("dynax_batch_last")
def _of_a_sample(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> list:
    function, structure = equation.params["function"], equation.params["structure"]
    if function.known:
        return args[-1:]
    avals = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
    program = jax.make_jaxpr(lambda *leaves: function.on_leaves(structure, leaves))(*avals)
    return read(program, scalars, args)


@rule("scan")
def _written_out(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> list:
    p = equation.params
    body = getattr(p["jaxpr"], "jaxpr", p["jaxpr"])
    # What is carried has the same axes inside and outside; versions of JAX count it in different ways.
    carried = sum(x.aval.ndim == y.aval.ndim for x, y in zip(equation.outvars, body.outvars, strict=True))
    sliced = sum(x.aval.ndim > y.aval.ndim for x, y in zip(equation.invars, body.invars, strict=True))
    fixed = len(args) - carried - sliced
    constants, carry, xs = args[:fixed], args[fixed : fixed + carried], args[fixed + carried :]
    rows: list[Any] = [None] * p["length"]
    for k in reversed(range(p["length"])) if p["reverse"] else range(p["length"]):
        found = read(p["jaxpr"], scalars, [*constants, *carry, *(x[k] for x in xs)])
        carry, rows[k] = found[:carried], found[carried:]
    shapes = [v.aval.shape for v in equation.outvars[carried:]]
    ys = [np.stack([row[j] for row in rows]) if rows else np.zeros(shape, np.int64) for j, shape in enumerate(shapes)]
    return [*carry, *ys]


@rule("while")
def _repeated(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> list:
    p = equation.params
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    outer, inner, carry = args[:first], args[first:second], args[second:]
    dtypes = [v.aval.dtype for v, x in zip(equation.outvars, carry, strict=True) for _ in range(x.size)]
    flat = [int(number) for x in carry for number in x.reshape(-1)]
    index, loop = scalars.loop(dtypes, flat)
    shapes = [x.shape for x in carry]
    own = _as_arrays(loop.variables, shapes)
    (goes_on,) = read(p["cond_jaxpr"], scalars, [*outer, *own])
    nexts = [int(number) for x in read(p["body_jaxpr"], scalars, [*inner, *own]) for number in x.reshape(-1)]
    return _as_arrays(scalars.close(index, int(goes_on), nexts), shapes)


def _as_arrays(numbers: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    rest = iter(numbers)
    return [np.array(list(itertools.islice(rest, math.prod(shape))), np.int64).reshape(shape) for shape in shapes]


@rule("cond")
def _branches(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> list:
    which, *rest = args
    found = [read(branch, scalars, rest) for branch in equation.params["branches"]]
    result = []
    for k, variable in enumerate(equation.outvars):
        own = found[-1][k]
        for case in reversed(range(len(found) - 1)):
            limit = constant(scalars, equation.invars[0].aval.dtype.type(case))
            here = each(scalars, "<=", bool, which, limit)
            own = each(scalars, "select", variable.aval.dtype, here, found[case][k], own)
        result.append(own)
    return result
