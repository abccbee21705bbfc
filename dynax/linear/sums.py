"""Sums of products over a short axis in front of those of a batch, a term at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.sweep.scan import scan
from dynax.sweep.sums import WRITTEN_OUT, summed


def by_terms(rows: jax.Array, x: jax.Array) -> jax.Array:
    """`sum_k x[k] rows[k]`, of rows `(n, ..., *batch)` and `(n, *batch)` or shapes that go with them, a term at a time:
    as a loop it is in one kernel with the rest, where a sum over an axis is in none, or is slow. So is its derivative.
    """
    nothing = jnp.zeros(jnp.broadcast_shapes(rows.shape[1:], x.shape[1:]), rows.dtype)
    return scan(lambda total, one: (total + one[0] * one[1], None), nothing, (rows, x))[0]


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


def across(rows: jax.Array, x: jax.Array) -> jax.Array:
    """`sum_k rows[..., k] x[k]`, of rows `(..., n, *batch)` and `(n, *batch)`, as one formula for up to so many terms
    that no loop has to read and write the sums: half of the time of a loop, or less."""
    axis = rows.ndim - x.ndim
    return summed(rows * x, axis) if len(x) <= WRITTEN_OUT else combined(jnp.moveaxis(rows, axis, 0), x)


def outer_products(left: jax.Array, right: jax.Array) -> jax.Array:
    """`sum_k left[k, i] right[k, j]`, shape `(i, j, *batch)`, a term at a time: a sum over the axis of all pairs is
    large soon, and then a library's."""

    def added(total: jax.Array, one: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + one[0][:, None] * one[1][None], None

    batch = jnp.broadcast_shapes(left.shape[2:], right.shape[2:])
    nothing = jnp.zeros((left.shape[1], right.shape[1], *batch), left.dtype)
    return scan(added, nothing, (left, right))[0]
