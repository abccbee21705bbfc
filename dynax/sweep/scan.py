"""`lax.scan` whose first carry may be constant where what comes out of a step varies over devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def scan(step: Callable, start: Any, xs: Any, *, reverse: bool = False) -> tuple[Any, Any]:
    """`lax.scan(step, start, xs)`.

    Within `jax.shard_map` a carry must vary over the same devices in every step, the first one included.
    """
    if jax.sharding.get_abstract_mesh().manual_axes:
        zeros = [jnp.zeros_like(x, shape=(), dtype=jnp.float32) for x in jax.tree.leaves((start, xs))]
        nothing = sum(zeros, jnp.zeros(()))
        start = jax.tree.map(lambda x: x + nothing.astype(x.dtype), start)
    return lax.scan(step, start, xs, reverse=reverse)
