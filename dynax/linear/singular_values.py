"""Singular values of small matrices by one-sided Jacobi rotations (Hestenes 1958).

Rotations of pairs of columns make all columns orthogonal; their lengths are then the singular values, small ones with
as many digits as large ones have (Demmel & Veselic 1992). Half of the columns meets the other half in each round, all
pairs at once, then the columns move on as in a tournament, so that each has met every other after a sweep of `n - 1`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.batching import trailing
from dynax.linear.each import each

# Convergence is quadratic in the end: a matrix of 40 columns takes eight sweeps.
MOST_SWEEPS = 24


class SingularVectors(NamedTuple):
    """`A = sum_i left_i right_i^T` of a matrix `A (m, n)`, `n <= m`."""

    left: jax.Array
    """Orthogonal, as long as their singular values, the longest first, shape `(n, m)`."""
    right: jax.Array
    """Orthonormal, shape `(n, n)`."""
    values: jax.Array
    """Shape `(n,)`."""


def _rotated(a: jax.Array) -> SingularVectors:
    m, n = a.shape
    half, rounding = (n + 1) // 2, float(jnp.finfo(a.dtype).eps)
    # Columns stand as rows, with the rotations beside them; an odd number meets one of zeros, which stays.
    rows = jnp.concatenate([a.T, jnp.eye(n, dtype=a.dtype)], axis=1)
    rows = jnp.concatenate([rows, jnp.zeros((2 * half - n, m + n), a.dtype)])
    onward = _tournament(half)

    def meet(state: tuple, _) -> tuple[tuple, None]:
        rows, worst = state
        p, q = rows[:half], rows[half:]
        alpha, beta = (jnp.sum(x[:, :m] ** 2, axis=1) for x in (p, q))
        gamma = jnp.sum(p[:, :m] * q[:, :m], axis=1)
        product = jnp.sqrt(alpha) * jnp.sqrt(beta)
        skew = jnp.abs(gamma) > rounding * product
        zeta = (beta - alpha) / (2.0 * jnp.where(skew, gamma, 1.0))
        t = jnp.where(zeta < 0.0, -1.0, 1.0) / (jnp.abs(zeta) + jnp.sqrt(1.0 + zeta * zeta))
        t = jnp.where(skew, t, 0.0)[:, None]
        c = 1.0 / jnp.sqrt(1.0 + t * t)
        s = c * t
        rows = jnp.concatenate([c * p - s * q, s * p + c * q])[onward]
        cosine = jnp.where(skew, jnp.abs(gamma) / jnp.where(skew, product, 1.0), 0.0)
        return (rows, jnp.maximum(worst, jnp.max(cosine))), None

    def sweep(state: tuple) -> tuple:
        rows, _, count = state
        rows, worst = lax.scan(meet, (rows, jnp.zeros((), a.dtype)), length=2 * half - 1)[0]
        return rows, worst, count + 1

    def unfinished(state: tuple) -> jax.Array:
        # Cosines that are this small at the beginning of a sweep are gone after it, which squares them.
        return (state[1] > 0.1 * rounding**0.5) & (state[2] < MOST_SWEEPS)

    rows = lax.while_loop(unfinished, sweep, (rows, jnp.ones((), a.dtype), jnp.zeros((), int)))[0]
    lengths = jnp.sqrt(jnp.sum(rows[:, :m] ** 2, axis=1))
    index = jnp.arange(2 * half)
    # What was the row of zeros at the beginning has nothing beside it either: it goes last.
    empty = jnp.sum(rows[:, m:] ** 2, axis=1) < 0.5
    ranked = jnp.where(empty, -1.0, lengths)
    before = (ranked[None] > ranked[:, None]) | ((ranked[None] == ranked[:, None]) & (index[None] < index[:, None]))
    place = jnp.sum(before.astype(a.dtype), axis=1)
    order = (place[None] == index[:, None].astype(a.dtype)).astype(a.dtype)[:n]
    rows = jnp.sum(order[:, :, None] * rows[None], axis=1)
    return SingularVectors(rows[:, :m], rows[:, m:], jnp.sum(order * lengths, axis=1))


def _tournament(half: int) -> np.ndarray:
    """Where each place takes its column from for the next round: the first stays, the others go round."""
    top, bottom = np.arange(half), half + np.arange(half)
    if half == 1:
        return np.array([0, 1])
    return np.concatenate([top[:1], bottom[:1], top[1:-1], bottom[1:], top[-1:]])


_vectors = trailing(lambda _, a: each(_rotated, a.shape[2:], a))


def singular_vectors(a: jax.Array) -> SingularVectors:
    """Of one matrix `(m, n)`, `0 < n <= m`; not differentiable."""
    return _vectors((), a)


@jax.custom_jvp
def singular_values(a: jax.Array) -> jax.Array:
    """Of one matrix, the largest first, shape `(min(m, n),)`; differentiable once, where they differ."""
    if 0 in a.shape:
        return a.reshape(0)
    return singular_vectors(a if a.shape[0] >= a.shape[1] else a.T).values


@singular_values.defjvp
def _rate(primals, tangents):
    (a,), (da,) = primals, tangents
    if 0 in a.shape:
        return a.reshape(0), da.reshape(0)
    tall = a.shape[0] >= a.shape[1]
    left, right, values = singular_vectors(a if tall else a.T)
    units = left / jnp.where(values > 0.0, values, 1.0)[:, None]
    rate = jnp.sum(units * (right @ (da.T if tall else da)), axis=1)
    return values, rate
