"""Loops whose first carry may be constant where what comes out of a step varies over devices.

Within `jax.shard_map` a carry must vary over the same devices in every step, the first one included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def scan(step: Callable, start: Any, xs: Any, *, reverse: bool = False) -> tuple[Any, Any]:
    """`lax.scan(step, start, xs)`."""
    return lax.scan(step, varying_as(xs, start), xs, reverse=reverse)


def settled(step: Callable[[Any], Any], start: Any) -> Any:
    """`start` for a loop of `step`, varying over all devices over which what comes out of a step does."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return start
    return varying_as(step(start), start)  # of which the compiler keeps nothing


def varying_as(others: Any, tree: Any) -> Any:
    """The same arrays, varying over all devices over which any of them, or any of the others, do."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return tree
    zeros = [jnp.zeros_like(x, shape=(), dtype=jnp.float32) for x in jax.tree.leaves((others, tree))]
    nothing = sum(zeros, jnp.zeros(()))

    def spread(x: jax.Array) -> jax.Array:
        zero = nothing.astype(jnp.result_type(x))
        return x | zero if zero.dtype == bool else x + zero

    return jax.tree.map(spread, tree)
