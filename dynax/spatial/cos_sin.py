"""Cosine and sine of an angle together, by additions and products alone.

XLA on a CPU calls the C library for each single number, so that a loop with a sine in it is not in vectors: of ten
hinges in a batch that was a fifth of the time of their forward dynamics. Here the angle is brought within an eighth of
a turn of the next multiple `n` of a quarter, by `pi / 2` in three parts of which the first times `n` is exact (Cody and
Waite 1980, Software Manual for the Elementary Functions, chapter 8), and the power series do the rest.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from dynax.spatial.components import Scalar

QUARTER = {
    "float32": (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
    "float64": (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21),
}
"""`pi / 2` as a sum of parts, the first two with as few bits as leave room for `n`."""
NEAR = 0.8
"""Just beyond an eighth of a turn [rad]. An angle so large that its own last digit is more than that is any angle; it
stays one, whatever was left of it."""


@jax.custom_jvp
def cos_sin(angle: Scalar) -> tuple[Scalar, Scalar]:
    """Both to the last digit or two of one, and of a large angle to its own last digit."""
    wide = "float64" if angle.dtype == jnp.float64 else "float32"
    n = jnp.round(angle * (2.0 / math.pi))
    rest = angle
    for part in QUARTER[wide]:
        rest = rest - n * part
    rest = jnp.clip(rest, -NEAR, NEAR)
    square = rest * rest
    cosine, sine = _series(square, 0), rest * _series(square, 1)
    n = n - 4.0 * jnp.round(0.25 * n)
    odd, half = jnp.abs(n) == 1.0, jnp.abs(n) == 2.0
    first, second = jnp.where(odd, sine, cosine), jnp.where(odd, cosine, sine)
    return jnp.where((n == 1.0) | half, -first, first), jnp.where((n == -1.0) | half, -second, second)


@cos_sin.defjvp
def _rate(primals: tuple, tangents: tuple) -> tuple[tuple[Scalar, Scalar], tuple[Scalar, Scalar]]:
    cosine, sine = cos_sin(primals[0])
    return (cosine, sine), (-sine * tangents[0], cosine * tangents[0])


def _series(x: Scalar, n: int) -> Scalar:
    """`sum_k (-x)^k / (2 k + n)!` until terms are lost in the rounding of the first."""
    least, terms = float(jnp.finfo(x.dtype).eps) / 8.0, [1.0]
    while abs(terms[-1]) * NEAR ** (2 * len(terms) - 2) > least:
        k = 2 * len(terms) + n
        terms.append(-terms[-1] / (k * (k - 1)))
    total = jnp.full_like(x, terms[-1])
    for term in terms[-2::-1]:
        total = term + x * total
    return total
