"""Body execution: one scan over the bodies, depth first, which hands on through few places.

What a body hands on waits in a place until the last of its children has read it; then the place is free for another.
The largest branch comes last, so that even a tree of thousands needs no more than the logarithm of their number. No row
is padding, and what is in work stays in the nearest cache. Where every operation is a kernel of its own, its many
steps are too many: there go by levels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.sweep.rows import read_place
from dynax.sweep.scan import scan
from dynax.sweep.walk import Step, Walk

# Bodies up to which each has a place of its own for what its children hand on, which costs little memory. Measured, not
# derived: how the arrays of a tile meet in the nearest cache hangs on their sizes, and in few places the gradient of a
# humanoid takes 6.8 us, in these 4.8. From some hundreds of bodies on, few places are the faster by a third.
FEW = 64


class BodyWalk(Walk):
    """`lax.scan` over bodies."""

    def __init__(self, parents: tuple[int, ...], num_bases: int):
        super().__init__(parents, num_bases)
        children, order = _depth_first(parents)
        self._set_rows(np.array(order, dtype=int))
        # The places of the bases come first, then one that stays zero: what tips receive.
        nothing, places, free = num_bases, num_bases + 1, []
        place, above, own, opens = {}, [], [], []
        for body in order:
            parent = parents[body]
            last = parent >= 0 and children[parent][0] == body
            above.append(place[parent] if parent >= 0 else -1 - parent)
            opens.append(last)  # on the way back it is the first that adds to its parent
            if last:
                free.append(place[parent])
            if not free:
                free.append(places)
                places += 1
            place[body] = free.pop()
            own.append(place[body] if children[body] else nothing)
            if not children[body]:
                free.append(place[body])
        # Outward a body reads the place `above` and writes to `put`; inward it reads `own` and adds to `parent`, which
        # it overwrites where it `opens` it.
        self.above, self.put = _index(above), _index([place[body] for body in order])
        self.places = self.sums = places
        self.own, self.parent, self.opens = _index(own), self.above, np.array(opens, dtype=bool)
        if len(parents) <= FEW:
            self.sums = num_bases + len(parents)
            self.own = _index(range(num_bases, self.sums))
            self.parent = _index(num_bases + self.inverse[p] if p >= 0 else -1 - p for p in (parents[b] for b in order))
            self.opens = np.zeros(len(parents), dtype=bool)

    def scatter(self, step: Step, base: Any, xs: Any) -> Any:
        def start(a: jax.Array) -> jax.Array:
            return jnp.concatenate([a, jnp.zeros((self.places - self.num_bases, *a.shape[1:]), a.dtype)])

        def body(held: Any, x: Any) -> tuple[Any, Any]:
            above, put, x = x
            carry, y = step(_read(held, above), x)
            return jax.tree.map(lambda a, new: lax.dynamic_update_slice_in_dim(a, new, put, 0), held, carry), y

        along = jnp.asarray(self.above), jnp.asarray(self.put), _single(xs)
        return _joined(scan(body, jax.tree.map(start, base), along)[1])

    def gather(self, step: Step, zero: Any, xs: Any) -> tuple[Any, Any]:
        def start(a: Any) -> jax.Array:
            return jnp.zeros((self.sums, *jnp.shape(a)), jnp.result_type(a)) + a

        def body(held: Any, x: Any) -> tuple[Any, Any]:
            own, parent, opens, x = x
            carry, y = step(_read(held, own), x)

            def add(a: jax.Array, new: jax.Array) -> jax.Array:
                before = lax.dynamic_slice_in_dim(a, parent, 1, 0)
                total = jnp.where(opens, jnp.zeros((), a.dtype), before) + new
                return lax.dynamic_update_slice_in_dim(a, total, parent, 0)

            return jax.tree.map(add, held, carry), y

        along = jnp.asarray(self.own), jnp.asarray(self.parent), jnp.asarray(self.opens), _single(xs)
        held, ys = scan(body, jax.tree.map(start, zero), along, reverse=True)
        return jax.tree.map(lambda a: a[: self.num_bases], held), _joined(ys)


def _depth_first(parents: tuple[int, ...]) -> tuple[list[list[int]], list[int]]:
    """The children of each body, those with the most descendants first, and the order that takes them last."""
    children: list[list[int]] = [[] for _ in parents]
    size = [1] * len(parents)
    for body in reversed(range(len(parents))):
        if parents[body] >= 0:
            children[parents[body]].append(body)
            size[parents[body]] += size[body]
    for own in children:
        own.sort(key=lambda body: -size[body])
    waiting, order = [body for body in reversed(range(len(parents))) if parents[body] < 0], []
    while waiting:
        order.append(waiting.pop())
        waiting.extend(children[order[-1]])
    return children, order


def _index(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), dtype=np.int32)


def _read(held: Any, place: jax.Array) -> Any:
    """One place; as a slice XLA would read it after the next carry is written, and copy all places in every step."""
    return jax.tree.map(lambda a: read_place(a, place), held)


def _single(xs: Any) -> Any:
    return jax.tree.map(lambda a: a[:, None], xs)


def _joined(ys: Any) -> Any:
    return jax.tree.map(lambda a: a[:, 0], ys)
