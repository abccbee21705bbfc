"""The Moore-Penrose inverse of a matrix whose rank does not change nearby, with its exact derivative.

    dA+ = -A+ dA A+ + A+ A+^T dA^T (1 - A A+) + (1 - A+ A) dA^T A+^T A+       (Golub & Pereyra 1973, eq. 4.12)

The rule knows `A+` as a product of matrices alone: it divides neither by differences of singular values, as the
derivative of their decomposition does, nor by those that the rank leaves out, and it applies to itself for higher
derivatives. Where the rank changes `A+` jumps; the rule then gives the derivative at the rank that was found.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.batching import trailing
from dynax.linear.each import each
from dynax.linear.orthogonal import decompose
from dynax.linear.singular_values import singular_values

_times = partial(jnp.einsum, "ij...,jk...->ik...", precision=lax.Precision.HIGHEST)


class PseudoInverse(NamedTuple):
    """The inverse of a matrix `A (m, n)` and what decided it."""

    matrix: jax.Array
    """`A+`, shape `(n, m)`."""
    rank: jax.Array
    """How many rows count as independent, an integer."""
    singular_values: jax.Array
    """Of `A`, the largest first, shape `(min(m, n),)`; differentiable once, where they differ."""
    pivots: jax.Array
    """What is left of the rows as they are made orthogonal, the longest first, shape `(min(m, n),)`: those that count,
    then the longest of those that do not. About as large as the singular values; without derivative."""


def pseudo_inverse(a: jax.Array, tolerance: jax.Array | float | None = None) -> PseudoInverse:
    """The Moore-Penrose inverse of `a`, shape `(m, n)`; of zeros, or of nothing at all, it is zero.

    **Arguments:** `tolerance`: rows of which no more than this fraction of the longest is left beside the others count
    as combinations of them; ten times `max(m, n)` units of rounding if not given. It has no derivative.
    """
    if tolerance is None:
        tolerance = 10 * max(a.shape) * float(jnp.finfo(a.dtype).eps)
    if 0 in a.shape:
        return PseudoInverse(a.T, jnp.zeros((), int), a.reshape(0), a.reshape(0))
    matrix, kept, pivots = _inverse(a, jnp.asarray(tolerance, a.dtype))
    return PseudoInverse(matrix, jnp.sum(kept > 0.5).astype(int), singular_values(a), pivots)


def _of_one(a: jax.Array, tolerance: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    found = decompose(a, tolerance[0])
    return found.inverse, found.kept.astype(a.dtype), found.pivots


_decomposed = trailing(lambda _, a, tolerance: each(_of_one, a.shape[2:], a, tolerance))


@jax.custom_jvp
def _inverse(a: jax.Array, tolerance: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return _decomposed((), a, tolerance[None])


@_inverse.defjvp
def _rates(primals, tangents):
    (a, _), (da, _) = primals, tangents
    x, kept, pivots = _inverse(*primals)
    return (x, kept, pivots), (_rate(a, x, da), jnp.zeros_like(kept), jnp.zeros_like(pivots))


@jax.custom_jvp
def known_inverse(a: jax.Array, x: jax.Array) -> jax.Array:
    """`A+` which is known to be `x`, with its derivative; shapes `(m, n, *batch)` and `(n, m, *batch)`."""
    return x


@known_inverse.defjvp
def _known_rate(primals, tangents):
    x = known_inverse(*primals)
    return x, _rate(primals[0], x, tangents[0])


def _rate(a: jax.Array, x: jax.Array, da: jax.Array) -> jax.Array:
    back, xt = jnp.swapaxes(da, 0, 1), jnp.swapaxes(x, 0, 1)
    outside = back - _times(back, _times(a, x))  # dA^T (1 - A A+)
    beside = back - _times(_times(x, a), back)  # (1 - A+ A) dA^T
    return _times(_times(x, xt), outside) + _times(beside, _times(xt, x)) - _times(_times(x, da), x)
