"""Linear complementarity problems of a few contacts (chapter 11.5).

    z = M x + d       x >= 0       z >= 0       x . z = 0       M positive semidefinite

They are the conditions of the least `1/2 x . M x + x . d` with `x >= 0` (11.43), and of Gauss's principle (11.44).
Where normals depend on each other `x` may not be unique, and `M x` and `z` are; or there may be none at all.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.linear.solve import solve

MOST = 40
"""Steps of the interior-point method. For up to 16 contacts 10 to 15 do."""
SOLVED = {"float64": 1e-9, "float32": 1e-3}
ROOTS = 1e3
"""How many times as wrong as `SOLVED` it may be where the interior-point method has ended well."""
CENTRED = {"float64": 1e-13, "float32": 1e-6}


class ComplementarityStatus(IntEnum):
    """How a complementarity problem was solved."""

    SOLVED = 0
    INFEASIBLE = 1
    """No forces keep what touches from going into each other: a disc in a slot that narrows."""


class Complementary(NamedTuple):
    """A solution of `0 <= x`, `0 <= z = M x + d`, `x . z = 0`."""

    x: jax.Array
    """Shape `(k,)`. Where it is not unique, one with forces shared evenly."""
    z: jax.Array
    status: jax.Array
    """A `ComplementarityStatus`."""


def complementary(m: jax.Array, d: jax.Array) -> Complementary:
    """The solution for `M` of shape `(k, k)` and `d` of shape `(k,)`.

    By an interior-point method, under `stop_gradient` (Mehrotra 1992; steps that come after it has converged would
    spoil what it found when `M` is singular, so there are none), and then exactly, for those `x` that are not zero.
    Derivatives are those with the same ones not zero.
    """
    size = jnp.sum(jnp.eye(len(d), dtype=m.dtype) * m, axis=1)
    scale = jnp.where(size > 0, 1.0 / jnp.sqrt(jnp.where(size > 0, size, 1.0)), 1.0)
    scaled, right = scale[:, None] * m * scale, scale * d
    near, slack = lax.stop_gradient(_interior(lax.stop_gradient(scaled), lax.stop_gradient(right)))
    active = near > slack
    own = jnp.where(active[:, None] & active, scaled, 0.0)
    y = jnp.where(active, near, 0.0)
    change = pseudo_inverse(own).matrix @ jnp.where(active, scaled @ y + right, 0.0)
    y = jnp.where(active, y - change, 0.0)
    z = scaled @ y + right
    wrong = jnp.max(jnp.maximum(jnp.maximum(-y, -z), jnp.abs(y * z)), initial=0.0)
    # Where both of a pair are nothing, which of them is chosen among roots of rounding.
    tolerance = SOLVED[d.dtype.name] * (1.0 + jnp.max(jnp.abs(right), initial=0.0))
    rest = jnp.maximum(jnp.abs(scaled @ near + right - slack), near * slack)
    found = jnp.max(rest, initial=0.0) <= tolerance
    solved = lax.stop_gradient((wrong <= tolerance) | (found & (wrong <= ROOTS * tolerance)))
    status = jnp.where(solved, ComplementarityStatus.SOLVED, ComplementarityStatus.INFEASIBLE)
    return Complementary(scale * y, z / scale, status)


def _interior(m: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`x` and `z`, both positive, whose product is next to nothing."""
    count = len(d)
    if not count:
        return d, d
    tolerance = CENTRED[d.dtype.name] * (1.0 + jnp.max(jnp.abs(d)))

    def reach(x: jax.Array, step: jax.Array) -> jax.Array:
        falls = step < 0
        return jnp.min(jnp.where(falls, -x / jnp.where(falls, step, 1.0), jnp.inf))

    def step(_, found: tuple) -> tuple:
        x, z = found
        rest, mean = m @ x + d - z, x @ z / count
        matrix = m + jnp.eye(count, dtype=m.dtype) * (z / x)

        def towards(product: jax.Array) -> tuple[jax.Array, jax.Array]:
            dx = solve(matrix, product / x - rest)
            return dx, m @ dx + rest

        dx, dz = towards(-x * z)
        length = jnp.minimum(1.0, jnp.minimum(reach(x, dx), reach(z, dz)))
        centre = ((x + length * dx) @ (z + length * dz) / count / mean) ** 3
        dx, dz = towards(centre * mean - x * z - dx * dz)
        length = jnp.minimum(1.0, 0.995 * jnp.minimum(reach(x, dx), reach(z, dz)))
        new, other = x + length * dx, z + length * dz
        going = (mean >= tolerance) | (jnp.max(jnp.abs(rest)) >= 10 * tolerance)
        good = going & jnp.all(jnp.isfinite(new) & jnp.isfinite(other) & (new > 0) & (other > 0))
        return jnp.where(good, new, x), jnp.where(good, other, z)

    return lax.fori_loop(0, MOST, step, (jnp.ones_like(d), jnp.ones_like(d)))
