"""Bodies that can exist: the pseudo-inertia, and coordinates in which every vector is a body.

    J = [[S, h], [h', m]]      S = tr(I) / 2 - I = integral of x x'      a body of positive density is J > 0
    J = U U'      U = e^alpha [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3], [0, 0, 0, 1]]

Wensing, Kim & Slotine (2018, "Linear matrix inequalities for physically consistent inertial parameter identification");
Rucker & Wensing (2022, "Smooth parameterization of rigid-body inertia").
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def pseudo_inertia(parameters: ArrayLike) -> jax.Array:
    """`J`, shape `(..., 4, 4)`, of `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the origin, shape `(..., 10)`."""
    m, hx, hy, hz, xx, yy, zz, xy, yz, xz = jnp.moveaxis(jnp.asarray(parameters), -1, 0)
    half = 0.5 * (xx + yy + zz)
    rows = (half - xx, -xy, -xz, hx), (-xy, half - yy, -yz, hy), (-xz, -yz, half - zz, hz), (hx, hy, hz, m)
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def from_pseudo_inertia(matrix: ArrayLike) -> jax.Array:
    """`[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]`, shape `(..., 10)`, of `J`, shape `(..., 4, 4)`."""
    j = jnp.asarray(matrix)
    x, y, z = j[..., 0, 0], j[..., 1, 1], j[..., 2, 2]
    moments = y + z, x + z, x + y, -j[..., 0, 1], -j[..., 1, 2], -j[..., 0, 2]
    return jnp.stack([j[..., 3, 3], j[..., 0, 3], j[..., 1, 3], j[..., 2, 3], *moments], axis=-1)


def from_log_cholesky(coordinates: ArrayLike) -> jax.Array:
    """Inertial parameters of `[alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3]`: those of a body, whatever they are.

    Shape `(..., 10)` both. All bodies of positive density come of exactly one; zero is the unit body, with `J` one.
    `dx.parameters` has the same about the body of a model instead.
    """
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = jnp.moveaxis(jnp.asarray(coordinates), -1, 0)
    o, i = jnp.zeros_like(alpha), jnp.ones_like(alpha)
    rows = (jnp.exp(d1), s12, s13, t1), (o, jnp.exp(d2), s23, t2), (o, o, jnp.exp(d3), t3), (o, o, o, i)
    u = jnp.exp(alpha)[..., None, None] * jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
    return from_pseudo_inertia(_times(u, jnp.swapaxes(u, -1, -2)))


def to_log_cholesky(parameters: ArrayLike) -> jax.Array:
    """The coordinates of a body, the inverse of `from_log_cholesky`; NaN for parameters that no body has."""
    # Of the matrix turned round, the lower factor turned round is the upper one.
    u = cholesky4(pseudo_inertia(parameters)[..., ::-1, ::-1])[..., ::-1, ::-1]
    last = u[..., 3, 3]
    u = u / last[..., None, None]
    d = [jnp.log(u[..., k, k]) for k in range(3)]
    shears = u[..., 0, 1], u[..., 1, 2], u[..., 0, 2]
    return jnp.stack([jnp.log(last), *d, *shears, *(u[..., k, 3] for k in range(3))], axis=-1)


def cholesky4(a: jax.Array) -> jax.Array:
    """`L`, lower, with `a = L L'`, of matrices `(..., 4, 4)`, all at once; NaN where one is not positive definite."""
    n = a.shape[-1]
    l: list[list[jax.Array]] = [[jnp.zeros_like(a[..., 0, 0])] * n for _ in range(n)]
    for j in range(n):
        rest = a[..., j, j] - sum((l[j][k] ** 2 for k in range(j)), start=l[0][n - 1])
        l[j][j] = jnp.sqrt(jnp.where(rest > 0.0, rest, jnp.nan))
        for i in range(j + 1, n):
            l[i][j] = (a[..., i, j] - sum((l[i][k] * l[j][k] for k in range(j)), start=l[0][n - 1])) / l[j][j]
    return jnp.stack([jnp.stack(row, axis=-1) for row in l], axis=-2)


def solve4(l: jax.Array, b: jax.Array) -> jax.Array:
    """`L^-1 b` of lower triangular matrices `(..., 4, 4)`, for `b` of shape `(..., 4, m)`."""
    rows: list[jax.Array] = []
    for i in range(l.shape[-1]):
        known = sum((l[..., i, k, None] * rows[k] for k in range(i)), start=jnp.zeros_like(b[..., i, :]))
        rows.append((b[..., i, :] - known) / l[..., i, i, None])
    return jnp.stack(rows, axis=-2)


def _times(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
