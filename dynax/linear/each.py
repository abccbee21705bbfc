"""A function of small matrices for trailing batch axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.tiles import CROWDED, LANES, by_tiles

SIDE_BY_SIDE = 48
"""Samples: with 16 the compiler makes no vectors of some loops (18 by 18: 2.7 us and 1.0 us for an elimination), with
32 less of them (a step of Newton's method of 27 freedoms: 5.2 us, and 3.5 us with 48)."""

ALL = np.iinfo(np.int32).max
"""Steps: until it is done."""

IN_CACHE = 2**18
"""Bytes of a matrix of all that are side by side: a quadruped's step takes 6.9 us by 32, 5.5 by 64, 4.7 by 128, which
wait longer for each other, but of many small loops each is started less often."""


def width_of(numbers: int, size: int) -> int:
    """How many matrices of so many numbers, of `size` bytes each, are side by side."""
    width = max(SIDE_BY_SIDE, IN_CACHE // max(1, numbers * size) // LANES * LANES)
    return width if width % CROWDED else width - LANES


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


def side_by_side(function: Callable, batch: tuple[int, ...], *arrays: Any, width: int = SIDE_BY_SIDE) -> Any:
    """The same for a `function` that takes the batch axes last itself: on a CPU `width` samples at a time.

    For loops over many small sums, which are in vectors over the samples alone, and until all of them are done: more
    samples would wait longer for each other.
    """
    size = math.prod(batch)
    if not batch or not isinstance(size, int) or jax.default_backend() != "cpu":  # of any size, if it is exported so
        return function(*arrays)
    leaves, structure = jax.tree.flatten(arrays)
    heads = [x.shape[: x.ndim - len(batch)] for x in leaves]
    whole = [jnp.broadcast_to(x, (*head, *batch)).reshape(*head, size) for x, head in zip(leaves, heads, strict=True)]

    def tile(own: list[jax.Array]) -> Any:
        found = function(*structure.unflatten([jnp.moveaxis(x, 0, -1) for x in own]))
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), found)

    parts = -(-size // width)
    if parts > 1:  # as many in each as fill its vectors
        width = min(width, -(-size // (parts * LANES)) * LANES)
    found = by_tiles(tile, [jnp.moveaxis(x, -1, 0) for x in whole], min(width, size))
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1).reshape(*x.shape[1:], *batch), found)


def in_rounds(advance: Callable[..., Any], rounds: Sequence[int], given: Any, state: Any, width: int) -> Any:
    """`advance(most, given, state)` until all are `state.done`, for trees with one batch axis, which is last.

    Each of the `rounds`, of so many steps, takes those that are not done, `width` side by side: they are looked for
    wherever they are, so that none waits for another that takes much longer. What is left after the last is taken to
    its end one by one, without a batch axis: few would wait long for each other. As it depends on its own steps alone
    where a sample is left to itself, the others change no digit of it.
    """
    size = state.done.shape[-1]
    width = min(width, size)

    def turned(x: Any, source: int, to: int) -> Any:
        return jax.tree.map(lambda x: jnp.moveaxis(x, source, to), x)

    given, state = turned((given, state), -1, 0)  # once: a sample is then a row, and not a column

    def left(state: Any) -> tuple[jax.Array, jax.Array]:
        """Those not done first, and how many they are."""
        # To sort numbers takes a twentieth of what it takes to sort flags with their places.
        return jnp.sort(jnp.arange(size) + size * state.done) % size, jnp.sum(~state.done)

    def one_round(carry: tuple) -> tuple:
        k, state = carry
        order, count = left(state)
        most = jnp.asarray(rounds, jnp.int32)[k]

        every = jnp.concatenate([order, size + jnp.arange(width)])  # what the last is filled up with is dropped

        def some(k: jax.Array, state: Any) -> Any:
            at = lax.dynamic_slice_in_dim(every, k * width, width)
            own = jax.tree.map(lambda x: jnp.take(x, at, axis=0, mode="clip"), (given, state))
            own = turned(advance(most, *turned(own, 0, -1)), -1, 0)
            return jax.tree.map(lambda x, new: x.at[at].set(new, mode="drop", unique_indices=True), state, own)

        return k + 1, lax.fori_loop(0, (count + width - 1) // width, some, state)

    carry = lax.while_loop(lambda x: (x[0] < len(rounds)) & ~jnp.all(x[1].done), one_round, (jnp.int32(0), state))
    state = carry[1]
    order, count = left(state)

    def one(k: jax.Array, state: Any) -> Any:
        own = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, order[k], keepdims=False), (given, state))
        own = advance(ALL, *own)
        return jax.tree.map(lambda x, new: lax.dynamic_update_index_in_dim(x, new, order[k], 0), state, own)

    return turned(lax.fori_loop(0, count, one, state), 0, -1)
