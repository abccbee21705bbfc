"""A program of JAX for one sample, read as a program of scalars.

An array is an array of the indices of its numbers: what only moves numbers about is done here, and costs nothing when
the program runs. Loops over known counts are written out, other loops stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from dynax.compile.gpu.scalars import Scalars


class NotReadError(Exception):
    """A program has something that a kernel cannot have."""


def read(program: Any, scalars: Scalars, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program, arrays of numbers like its arguments."""
    known = [constant(scalars, x) for x in getattr(program, "consts", ())]
    return _results(getattr(program, "jaxpr", program), scalars, [*known, *arguments])


def constant(scalars: Scalars, value: Any) -> np.ndarray:
    dtype = jnp.result_type(value)
    if dtype.name not in TYPES:
        raise NotReadError(f"numbers of type {dtype}")
    own = np.asarray(value)
    found = [scalars.constant(x, dtype) for x in own.reshape(-1)]
    return np.array(found, np.int64).reshape(own.shape)


TYPES = ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64")


def _results(jaxpr: Any, scalars: Scalars, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    known: dict[Any, np.ndarray] = dict(zip((*jaxpr.constvars, *jaxpr.invars), arguments, strict=True))

    def told(atom: Any) -> np.ndarray:
        if isinstance(atom, Literal):
            own: Any = atom.aval
            return constant(scalars, np.asarray(atom.val).astype(own.dtype))
        return known[atom]

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        own = RULES.get(name)
        if own is None:
            raise NotReadError(f"the operation {name!r}")
        odd = [str(x.aval) for x in equation.outvars if x.aval.dtype.name not in TYPES]
        if odd:
            raise NotReadError(f"{odd[0]}, of the operation {name!r}")
        found = own(scalars, equation, [told(x) for x in equation.invars])
        found = found if isinstance(found, list) else [found]
        for variable, value in zip(equation.outvars, found, strict=True):
            assert value.shape == variable.aval.shape, (name, value.shape, variable.aval)
            known[variable] = value
    return [told(x) for x in jaxpr.outvars]


Rule = Callable[[Scalars, Any, list[np.ndarray]], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def entered(own: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, own))
        return own

    return entered


def each(scalars: Scalars, operation: str, dtype: Any, *arrays: np.ndarray, detail: Any = None) -> np.ndarray:
    """One operation, entry by entry."""
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    columns = (np.broadcast_to(x, shape).reshape(-1).tolist() for x in arrays)
    found = [scalars.of(operation, dtype, *own, detail=detail) for own in zip(*columns, strict=True)]
    return np.array(found, np.int64).reshape(shape)


def along(scalars: Scalars, operation: str, dtype: Any, x: np.ndarray, axis: int) -> np.ndarray:
    """One operation over an axis."""
    parts = [np.take(x, k, axis) for k in range(x.shape[axis])]
    total = parts[0]
    for part in parts[1:]:
        total = each(scalars, operation, dtype, total, part)
    return total
