"""Tangents that are known to be zero: symbols in rules of primitives, and of `jax.custom_jvp` that asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad


def is_zero(tangent: Any) -> bool:
    """Whether a tangent is the symbol for zero."""
    return isinstance(tangent, ad.Zero | SymbolicZero)


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
