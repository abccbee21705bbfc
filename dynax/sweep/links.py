"""Rows looked up by a table that is data, in a way whose transpose is a look-up too.

In a loop over the levels of a tree each row reads that of its parent, or the sum of those of its children, and who they
are is another table in each round. JAX transposes a look-up by data to a scatter, as in `rows`. Here both tables come
along, each of which says where the other's rows are read, and the transpose looks up by the other one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def linked(a: jax.Array, table: jax.Array, inverse: jax.Array, *, complete: bool = False) -> jax.Array:
    """`sum_k a[table[k]]`, rows `(m, ...)` of `a` of shape `(n, ...)`.

    **Arguments:** `table`, shape `(k, m)`, `n` for no row, which `complete` says there is not; `inverse`, shape
    `(l, n)`: who reads each row, `m` for none. Rows that `inverse` leaves out have no derivative.
    """
    return _linked.bind(a, table, inverse, complete=(complete, False))


def _rows(a: jax.Array, table: jax.Array, inverse: jax.Array, *, complete: tuple[bool, bool]) -> jax.Array:
    padded = a if complete[0] else jnp.concatenate([a, jnp.zeros_like(a[:1])])
    total = padded[table[0]]
    for k in range(1, table.shape[0]):
        total = total + padded[table[k]]
    return total


_linked = Primitive("dynax_links")
_linked.def_impl(jax.jit(_rows, static_argnames="complete"))


@_linked.def_abstract_eval
def _shape(a: Any, table: Any, inverse: Any, *, complete: tuple[bool, bool]) -> Any:
    return a.update(shape=(table.shape[1], *a.shape[1:]), weak_type=False)


def _transposed(bar: Any, a: Any, table: jax.Array, inverse: jax.Array, *, complete: tuple[bool, bool]) -> list:
    if type(bar) is ad.Zero:
        return [ad.Zero(a.aval), None, None]
    return [_linked.bind(bar, inverse, table, complete=complete[::-1]), None, None]


def _batched(arrays: tuple, axes: tuple, **params: Any) -> tuple:
    (a, *tables), (batch, *others) = arrays, axes
    if any(axis is not None for axis in others):
        return jax.vmap(partial(_rows, **params), in_axes=axes)(*arrays), 0
    return _linked.bind(jnp.moveaxis(a, batch, -1), *tables, **params), a.ndim - 1


ad.defjvp(_linked, lambda rate, a, *tables, **params: _linked.bind(rate, *tables, **params), None, None)
ad.primitive_transposes[_linked] = _transposed
batching.primitive_batchers[_linked] = _batched
mlir.register_lowering(_linked, mlir.lower_fun(_rows, multiple_results=False))
