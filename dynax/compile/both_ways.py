"""Functions whose first derivatives are in kernels of their own, one there and one back.

The derivative of `trailing` is that of the function itself, equation by equation: once it is transposed nothing holds
it together any more, and a CPU runs, and its compiler makes, a kernel for each few of them. Here the derivative along
what moves is one function, and its transpose another one, each of which is one kernel where the function itself is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from dynax.compile.batching import is_zero, linear, trailing

Result = TypeVar("Result")


def both_ways(core: Callable[..., Result]) -> Callable[..., Result]:
    """`trailing(core)`, of `(tree, *arrays)`, the first array a vector."""

    @lru_cache(maxsize=512)
    def along(structure: Any, moving: tuple[int, ...]) -> Callable:
        def of_moving(tree: list, arrays: list) -> tuple[Callable, list[jax.Array]]:
            leaves = [*tree, *arrays]
            batch = arrays[0].shape[1:]

            def function(*values: jax.Array) -> Any:
                current = list(leaves)
                for k, value in zip(moving, values, strict=True):
                    current[k] = value
                return core(*structure.unflatten(current))

            # What is the same for all samples has a derivative for each of them.
            return function, [_full(leaves[k], batch) for k in moving]

        def there(tree: list, arrays: list, rates: list) -> Any:
            return jax.jvp(*of_moving(tree, arrays), rates)[1]

        def back(tree: list, arrays: list, bar: Any) -> list:
            function, values = of_moving(tree, arrays)
            return list(jax.vjp(function, *values)[1](bar))

        def like(tree: list, arrays: list, rates: list) -> Any:
            function, values = of_moving(tree, arrays)
            return function(*values)

        return linear(there, back, there, like)[0]

    def rule(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(primals)
        rates = jax.tree.leaves(tangents, is_leaf=is_zero)
        moving = tuple(k for k, rate in enumerate(rates) if not is_zero(rate))
        count = len(jax.tree.leaves(primals[0]))
        batch = leaves[count].shape[1:]
        full = [_full(rates[k], batch) for k in moving]
        return function(*primals), along(structure, moving)(leaves[:count], leaves[count:], full)

    function = trailing(core, rule)
    return function


def _full(leaf: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    return jnp.broadcast_to(leaf, leaf.shape[: leaf.ndim - len(batch)] + batch)
