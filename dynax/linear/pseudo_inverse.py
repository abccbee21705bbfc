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

_times = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class PseudoInverse(NamedTuple):
    """The inverse of a matrix `A (m, n)` and what decided it."""

    matrix: jax.Array
    """`A+`, shape `(n, m)`."""
    rank: jax.Array
    """How many singular values count as more than zero, an integer."""
    singular_values: jax.Array
    """Of `A`, the largest first, shape `(min(m, n),)`; differentiable once, where they differ."""


def pseudo_inverse(a: jax.Array, tolerance: jax.Array | float | None = None) -> PseudoInverse:
    """The Moore-Penrose inverse of `a`, shape `(m, n)`; of zeros, or of nothing at all, it is zero.

    **Arguments:** `tolerance`: singular values up to this fraction of the largest count as zero; ten times `max(m, n)`
    units of rounding if not given. It has no derivative.
    """
    if tolerance is None:
        tolerance = 10 * max(a.shape) * float(jnp.finfo(a.dtype).eps)
    tolerance = jnp.asarray(tolerance, a.dtype)
    if 0 in a.shape:
        return PseudoInverse(a.T, jnp.zeros((), int), a.reshape(0))
    matrix, values = _inverse_and_values(a, tolerance)
    return PseudoInverse(matrix, jnp.sum(values > tolerance * values[0]), values)


@jax.custom_jvp
def _inverse_and_values(a: jax.Array, tolerance: jax.Array) -> tuple[jax.Array, jax.Array]:
    u, values, v = jnp.linalg.svd(a, full_matrices=False)
    kept = values > tolerance * values[0]
    inverse = jnp.where(kept, 1.0 / jnp.where(kept, values, 1.0), 0.0)
    return _times(v.T * inverse, u.T), values


@_inverse_and_values.defjvp
def _rates(primals, tangents):
    (a, _), (da, _) = primals, tangents
    x, values = _inverse_and_values(*primals)
    outside = da.T - _times(da.T, _times(a, x))  # dA^T (1 - A A+)
    beside = da.T - _times(_times(x, a), da.T)  # (1 - A+ A) dA^T
    rate = _times(_times(x, x.T), outside) + _times(beside, _times(x.T, x)) - _times(_times(x, da), x)
    return (x, values), (rate, jax.jvp(partial(jnp.linalg.svd, compute_uv=False), (a,), (da,))[1])
