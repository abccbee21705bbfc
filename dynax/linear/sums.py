"""Sums over a short axis in front of those of a batch.

JAX would transpose a sum that is written out term by term, each to an array of zeros around it, and add those up: what
a sum over an axis hands back is the same for all its terms.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

WRITTEN_OUT = 32
"""Terms up to which a sum is written out. XLA on a CPU puts the loop of a reduction inside of that over the batch,
which then runs sample by sample, or hands it to a library: six terms of 324 numbers in a batch of 128 take four times
as long as six additions."""

Tree = TypeVar("Tree")


def summed(tree: Tree, axis: int = 1) -> Tree:
    """Every leaf summed over an axis, counted from the front."""

    def total(a: jax.Array) -> jax.Array:
        if not 0 < a.shape[axis] <= WRITTEN_OUT:
            return jnp.sum(a, axis)
        return _summed.bind(a, axis=axis)

    return jax.tree.map(total, tree)


def _written_out(a: jax.Array, *, axis: int) -> jax.Array:
    return reduce(jnp.add, [lax.index_in_dim(a, k, axis, keepdims=False) for k in range(a.shape[axis])])


_summed = Primitive("dynax_sum")
_summed.def_impl(jax.jit(_written_out, static_argnames="axis"))


@_summed.def_abstract_eval
def _shape(a: Any, *, axis: int) -> Any:
    return a.update(shape=(*a.shape[:axis], *a.shape[axis + 1 :]), weak_type=False)


def _spread(bar: Any, a: Any, *, axis: int) -> list:
    if type(bar) is ad.Zero:
        return [ad.Zero(a.aval)]
    return [lax.broadcast_in_dim(bar, a.aval.shape, [k for k in range(a.aval.ndim) if k != axis])]


def _batched(arrays: tuple, axes: tuple, *, axis: int) -> tuple:
    (a,), (batch,) = arrays, axes
    own = axis + (batch <= axis)
    return _summed.bind(a, axis=own), batch - (own < batch)


ad.deflinear2(_summed, _spread)
batching.primitive_batchers[_summed] = _batched
mlir.register_lowering(_summed, mlir.lower_fun(_written_out, multiple_results=False))


def by_terms(rows: jax.Array, x: jax.Array) -> jax.Array:
    """`sum_k x[k] rows[k]`, of rows `(n, ..., *batch)` and `(n, *batch)` or shapes that go with them, a term at a time:
    as a loop it is in one kernel with the rest, where a sum over an axis is in none, or is slow. So is its derivative.
    """
    nothing = jnp.zeros(jnp.broadcast_shapes(rows.shape[1:], x.shape[1:]), rows.dtype)
    return lax.scan(lambda total, one: (total + one[0] * one[1], None), nothing, (rows, x))[0]


@jax.custom_jvp
def combined(rows: jax.Array, x: jax.Array) -> jax.Array:
    """The same, where its derivative is in no kernel."""
    return by_terms(rows, x)


@combined.defjvp
def _rate(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    """Sums over an axis, whose transposes are products."""
    (rows, x), (drows, dx) = primals, tangents
    x_beside, dx_beside = (y.reshape(len(y), *(1,) * (rows.ndim - y.ndim), *y.shape[1:]) for y in (x, dx))
    return combined(rows, x), jnp.sum(drows * x_beside + rows * dx_beside, axis=0)


def outer_products(left: jax.Array, right: jax.Array) -> jax.Array:
    """`sum_k left[k, i] right[k, j]`, shape `(i, j, *batch)`, a term at a time: a sum over the axis of all pairs is
    large soon, and then a library's."""

    def added(total: jax.Array, one: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + one[0][:, None] * one[1][None], None

    batch = jnp.broadcast_shapes(left.shape[2:], right.shape[2:])
    nothing = jnp.zeros((left.shape[1], right.shape[1], *batch), left.dtype)
    return lax.scan(added, nothing, (left, right))[0]
