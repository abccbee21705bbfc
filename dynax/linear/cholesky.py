"""Cholesky's factor of small matrices in plain loops, for the reasons of `linear.solve`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.batching import trailing
from dynax.linear.each import each
from dynax.linear.solve import solve


def _factored(a: jax.Array) -> jax.Array:
    index = jnp.arange(len(a))

    def column(rest: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        own = lax.dynamic_index_in_dim(rest, k, 1, keepdims=False)
        own = jnp.where(index < k, 0.0, own / jnp.sqrt(lax.dynamic_index_in_dim(own, k, 0, keepdims=False)))
        return rest - own[:, None] * own, own

    return lax.scan(column, a, index)[1].T


_factor = trailing(lambda _, a: each(_factored, a.shape[2:], a))


@jax.custom_jvp
def _cholesky(a: jax.Array) -> jax.Array:
    return _factor((), a)


@_cholesky.defjvp
def _rate(primals, tangents):
    (a,), (da,) = primals, tangents
    root = _cholesky(a)
    inner = solve(root, solve(root, 0.5 * (da + da.T)).T)
    half = jnp.tril(inner) - 0.5 * jnp.diag(jnp.diagonal(inner))
    return root, jnp.matmul(root, half, precision=lax.Precision.HIGHEST)


def cholesky(a: jax.Array) -> jax.Array:
    """`L`, lower triangular, with `a = L L^T`, for symmetric positive definite matrices `(..., n, n)`."""
    if a.size == 0:
        return a
    if a.ndim > 2:
        return jax.vmap(cholesky)(a.reshape(-1, *a.shape[-2:])).reshape(a.shape)
    return _cholesky(a)
