"""Walks of an unbranched chain in logarithmic depth: all prefixes, or all suffixes, of an associative product.

Where a step of a walk is the product with an element of a monoid, N bodies take `O(log N)` products one after the
other, each of many bodies at once (Blelloch 1990, "Prefix sums and their applications"). That is more arithmetic than
walking and less waiting: for long chains in small batches on wide machines.

Rows go in blocks of `RADIX`: the blocks are walked side by side, their totals are the same task again, and every row is
multiplied by what lies before its block. For 128 rows that is 20 products one after the other, 5 of them compiled;
`jax.lax.associative_scan` has 13 and 13, and products are large here: compile time is what this choice saves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Product = Callable[[Any, Any], Any]
"""`product(near, far)` of rows of elements, `near` on the side of the base; it must be associative."""

RADIX = 8


def is_chain(parents: tuple[int, ...]) -> bool:
    """Whether the forest is one unbranched chain, bodies in order, on whatever base."""
    return len(parents) > 0 and parents[0] < 0 and parents[1:] == tuple(range(len(parents) - 1))


def prefixes(product: Product, unit: Any, xs: Any) -> Any:
    """In row i the product of rows 0 to i: what a scatter carries to body i.

    `unit` is one row of the element that changes nothing.
    """
    rows = jax.tree.leaves(xs)[0].shape[0]
    length = min(RADIX, rows)
    blocks = -(-rows // length)

    def cut(x: jax.Array, one: jax.Array) -> jax.Array:
        filled = jnp.concatenate([x, jnp.broadcast_to(one, (blocks * length - rows, *x.shape[1:]))])
        return jnp.swapaxes(filled.reshape(blocks, length, *x.shape[1:]), 0, 1)

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        carry = product(carry, x)
        return carry, carry

    def pasted(y: jax.Array) -> jax.Array:
        return jnp.swapaxes(y, 0, 1).reshape(blocks * length, *y.shape[2:])[:rows]

    start = jax.tree.map(lambda one, x: jnp.broadcast_to(one, (blocks, *x.shape[1:])), unit, xs)
    totals, inside = jax.lax.scan(step, start, jax.tree.map(cut, xs, unit))
    if blocks == 1:
        return jax.tree.map(pasted, inside)
    before = of_parents(unit, prefixes(product, unit, totals))
    return jax.tree.map(pasted, jax.vmap(product, in_axes=(None, 0))(before, inside))


def suffixes(product: Product, unit: Any, xs: Any) -> Any:
    """In row i the product of rows i to the last: what a gather hands from body i to its parent."""

    def flip(x: Any) -> Any:
        return jax.tree.map(lambda a: a[::-1], x)

    return flip(prefixes(lambda far, near: product(near, far), unit, flip(xs)))


def of_parents(base: Any, ys: Any) -> Any:
    """In row i what row i - 1 holds, in row 0 what the base does (one row of it)."""
    return jax.tree.map(lambda b, y: jnp.concatenate([jnp.broadcast_to(b, y[:1].shape), y[:-1]]), base, ys)


def of_children(ys: Any) -> Any:
    """In row i what row i + 1 holds, zeros in the last."""
    return jax.tree.map(lambda y: jnp.concatenate([y[1:], jnp.zeros_like(y[:1])]), ys)
