"""What is done entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynax.compile.gpu.rules import RULES, Rule, constant, each, rule
from dynax.compile.gpu.scalars import Scalars


def entrywise(operation: str) -> Rule:
    return lambda scalars, equation, args: each(scalars, operation, equation.outvars[0].aval.dtype, *args)


SIGNS = {
    "add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^", "not": "not", "neg": "negative", "max": "maximum",
    "min": "minimum", "convert_element_type": "cast", "rem": "remainder", "pow": "pow",
}  # fmt: skip
FUNCTIONS = (
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2"),
    *("log", "log1p", "expm1", "sqrt", "rsqrt", "cbrt", "erf", "abs", "sign", "floor", "ceil", "atan2", "is_finite"),
)
for _name, _operation in {**SIGNS, **{name: name for name in FUNCTIONS}}.items():
    RULES[_name] = entrywise(_operation)


@rule("square", "integer_pow", "one_minus_square")
def _power(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    dtype = equation.outvars[0].aval.dtype
    if equation.primitive.name == "one_minus_square":
        one = constant(scalars, dtype.type(1))
        return each(
            scalars, "*", dtype, each(scalars, "-", dtype, one, args[0]), each(scalars, "+", dtype, one, args[0])
        )
    exponent = equation.params.get("y", 2)
    result, power, left = None, args[0], abs(exponent)
    while left:
        if left % 2:
            result = power if result is None else each(scalars, "*", dtype, result, power)
        power, left = each(scalars, "*", dtype, power, power), left // 2
    one = np.broadcast_to(constant(scalars, dtype.type(1)), args[0].shape)
    if result is None:
        return one.copy()
    return each(scalars, "/", dtype, one, result) if exponent < 0 else result


@rule("logistic")
def _logistic(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    dtype = equation.outvars[0].aval.dtype
    one = constant(scalars, dtype.type(1))
    grown = each(scalars, "exp", dtype, each(scalars, "negative", dtype, args[0]))
    return each(scalars, "/", dtype, one, each(scalars, "+", dtype, one, grown))


@rule("round")
def _rounded(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    even = int(equation.params["rounding_method"]) == 1
    return each(scalars, "rint" if even else "round", equation.outvars[0].aval.dtype, args[0])


@rule("clamp")
def _clamped(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    dtype = equation.outvars[0].aval.dtype
    low, x, high = args
    return each(scalars, "minimum", dtype, each(scalars, "maximum", dtype, x, low), high)


@rule("select_n")
def _selected(scalars: Scalars, equation: Any, args: list[np.ndarray]) -> np.ndarray:
    which, *cases = args
    dtype = equation.outvars[0].aval.dtype
    if equation.invars[0].aval.dtype == bool:
        return each(scalars, "select", dtype, which, *reversed(cases))
    found = cases[-1]
    for k in reversed(range(len(cases) - 1)):
        limit = constant(scalars, equation.invars[0].aval.dtype.type(k))
        found = each(scalars, "select", dtype, each(scalars, "<=", bool, which, limit), cases[k], found)
    return found
