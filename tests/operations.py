"""How many operations a function takes, counted in its traced program: what a cost model says without a clock.

Counted are additions, multiplications, divisions, roots and the like on floating-point numbers, one for each entry of
the result; products of matrices as two for each product. Moving, choosing and comparing numbers is free. A cosine and a
sine are one each, as in the literature, however they are computed.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

ONE = {
    "add", "add_any", "sub", "mul", "div", "neg", "max", "min", "sqrt", "rsqrt", "exp", "exp2", "log", "sin", "cos",
    "tan", "tanh", "atan2", "asin", "acos", "pow", "integer_pow", "square", "abs", "sign",
}  # fmt: skip
"""Primitives of one operation for each entry of the result; signs and absolute values count as in the literature."""


def count(function: Any, *arguments: Any) -> int:
    """The floating-point operations of `function(*arguments)`."""
    return _of(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of(jaxpr: Any) -> int:
    return sum(_each(equation) for equation in jaxpr.eqns)


def _each(equation: Any) -> int:
    name, out = equation.primitive.name, equation.outvars[0].aval
    inner = [_of(part) for value in equation.params.values() for part in _programs(value)]
    if name == "scan":
        return equation.params["length"] * inner[0]
    if name == "cond":
        return max(inner)
    if name == "while":
        raise ValueError("a loop of unknown length has no count")
    if name == "custom_jvp_call" and "cos_sin" in equation.params["call_jaxpr"].jaxpr.debug_info.func_name:
        return sum(math.prod(x.aval.shape) for x in equation.outvars)
    if inner:
        # Of a call with its rules of differentiation the first is the function itself.
        return inner[0]
    if not jnp.issubdtype(getattr(out, "dtype", jnp.int32), jnp.floating):
        return 0
    size = math.prod(out.shape)
    if name in ONE:
        return size
    if name in ("reduce_sum", "cumsum", "reduce_max", "reduce_min", "dynax_sum"):
        return math.prod(equation.invars[0].aval.shape) - (0 if name == "cumsum" else size)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2 * size * math.prod(equation.invars[0].aval.shape[k] for k in contracted)
    return 0


def _programs(value: Any) -> list[Any]:
    """The programs in a parameter of a primitive."""
    if hasattr(value, "jaxpr"):
        return [value.jaxpr]
    if hasattr(value, "eqns"):
        return [value]
    if isinstance(value, tuple | list):
        return [part for one in value for part in _programs(one)]
    return []
