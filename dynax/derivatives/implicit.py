"""The derivative of what is found by solving equations: a linear system with the factor that found it.

With `F(P, q, v, x) = tau` at the solution `x`, the tangent solves `F_x dx = dtau - F_P dP - F_q dq - F_v dv`. The two
ways through this system, there and transposed, are written by whoever made the factor, and are one function each: a
gradient is one call of the second, and the system itself is traced for second derivatives only. Those differentiate the
system as it is written, not the factor, as a `custom_linear_solve` whose unknowns include the changes of `P, q, v`.
They are one array there, since the transpose refuses a right side of which a part is known, as `dtau` is when only `q`
moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.batching import linear, trailing


class Change(NamedTuple):
    """Changes of the leaves `P`, of `q` and `v` where they move, and of the right side or of what is found."""

    leaves: tuple
    q: jax.Array | None
    """In the tangent space."""
    v: jax.Array | None
    last: jax.Array

    def packed(self) -> jax.Array:
        """All in one array, shape `(size, *batch)`."""
        batch = self.last.shape[1:]
        heads = [part.shape[: part.ndim - len(batch)] for part in jax.tree.leaves(self)]
        rows = [
            part.reshape(math.prod(head), *batch).astype(self.last.dtype)
            for part, head in zip(jax.tree.leaves(self), heads, strict=True)
        ]
        return jnp.concatenate(rows) if len(rows) > 1 else rows[0]

    def unpacked(self, rows: jax.Array) -> Change:
        """What `packed` has packed, given one with or without the batch axes as the pattern."""
        parts, structure = jax.tree.flatten(self)
        shapes = [part.shape[: part.ndim - self.last.ndim + 1] for part in parts]
        sizes = [math.prod(shape) for shape in shapes]
        return structure.unflatten(
            rows[end - size : end].reshape(*shape, *rows.shape[1:]).astype(part.dtype)
            for part, shape, size, end in zip(parts, shapes, sizes, np.cumsum(sizes), strict=True)
        )

    def like(self, v: jax.Array) -> Callable[[Any, Any, jax.Array], Change]:
        """The function `(known, at, bar)` that has the shapes of these, and the batch axes of `bar` beyond those of
        `v`."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self)
        axes = v.ndim
        return lambda _, __, bar: jax.tree.map(lambda x: jnp.zeros((*x.shape, *bar.shape[axes:]), x.dtype), shapes)


def solution(
    right: Change,
    system: Callable[..., jax.Array],
    forward: Callable[..., jax.Array],
    backward: Callable[..., Change],
    exact_backward: Callable[..., Change] | None = None,
    seen: Callable[[tuple], tuple] = tuple,
) -> Callable[[Any, Any], jax.Array]:
    """`dx` from `(known, at)` for the right side, for trailing batch axes, with all its derivatives.

    **Arguments:**

    - `right`: the right side.
    - `system(known, at, change)`: what the equations change by, all of it differentiable by `at`.
    - `forward(known, at, right)`: `dx`; `known` has what solves the system at the point `at`.
    - `backward(known, at, bar)`: its transpose; cotangents of all parts of `right`, from that of `dx`.
    - `exact_backward`: the same, where second derivatives of it are had for less than those of `system`.
    - `seen((known, at))`: what `backward` takes of these, as for `linear`.
    """
    whole = trailing(system)

    def exact(known: Any, at: Any, right: Change) -> jax.Array:
        def equations(rows: jax.Array) -> jax.Array:
            x = right.unpacked(rows)
            return x._replace(last=whole(known, at, x)).packed()

        def solve(_, rows: jax.Array) -> jax.Array:
            b = right.unpacked(rows)
            return b._replace(last=there(known, at, b)).packed()

        def solve_transpose(_, rows: jax.Array) -> jax.Array:
            c = right.unpacked(rows)
            along = back(known, at, c.last)
            kept = c._replace(last=jnp.zeros_like(c.last))
            return jax.tree.map(jnp.add, kept, along).packed()

        return right.unpacked(lax.custom_linear_solve(equations, right.packed(), solve, solve_transpose)).last

    like, like_transpose = (lambda known, at, right: right.last), right.like(right.last)
    there, back = linear(forward, backward, exact, like, exact_backward, seen, like_transpose)
    return lambda known, at: there(known, at, right)
