"""A function of small matrices for trailing batch axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def each(function: Callable, batch: tuple[int, ...], *arrays: Any) -> Any:
    """`function(*arrays)` of one sample, for arrays, and trees of them, with the batch axes last.

    Axes of length one are of what is the same for all samples.

    On a CPU one sample after another, each in the cache as long as it takes: to keep the samples side by side in every
    step of a factorisation costs more than their wide registers gain (twice for 18 by 24, measured). On an accelerator
    all at once.
    """
    if not batch:
        return function(*arrays)
    size = math.prod(batch)
    leaves, structure = jax.tree.flatten(arrays)
    heads = [x.shape[: x.ndim - len(batch)] for x in leaves]
    varying = [math.prod(x.shape) != math.prod(head) for x, head in zip(leaves, heads, strict=True)]

    def leading(x: jax.Array, head: tuple[int, ...]) -> jax.Array:
        return jnp.moveaxis(jnp.broadcast_to(x, (*head, *batch)).reshape(*head, size), -1, 0)

    def of_one(own: list[jax.Array]) -> Any:
        rest = iter(own)
        every = zip(leaves, heads, varying, strict=True)
        return function(*structure.unflatten(next(rest) if moves else x.reshape(head) for x, head, moves in every))

    given = [leading(x, head) for x, head, moves in zip(leaves, heads, varying, strict=True) if moves]
    if not given:  # a batch of one, or of none that differ
        found = jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), of_one([]))
    else:
        one_by_one = jax.default_backend() == "cpu"
        found = lax.map(of_one, given) if one_by_one else jax.vmap(of_one)(given)
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1).reshape(*x.shape[1:], *batch), found)
