"""Stumpff's functions, of which exponentials of turns and displacements are made: smooth through zero, and closed under
differentiation.

    c_n(x) = sum_k (-x)^k / (2k + n)!        c_0(a^2) = cos a     c_1(a^2) = sin(a) / a
    c_n = 1/n! - x c_(n+2)                   dc_n/dx = (n c_(n+2) - c_(n+1)) / 2

Stumpff (1959), Himmelsmechanik I; Danby (1988), Fundamentals of Celestial Mechanics, section 6.9.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp

from dynax.spatial.components import Scalar
from dynax.spatial.cos_sin import cos_sin

FAR = 2.5
"""Up to here by series, beyond by sine and cosine, which have lost no more than a digit there."""


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def stumpff(x: Scalar, count: int) -> tuple[Scalar, ...]:
    """The first `count` of them, four or more, at `x >= 0`; derivatives of any order are as exact as values."""
    far = x > FAR
    near = jnp.where(far, 0.0, x)
    first = [1.0 / math.factorial(n) for n in range(count)]
    series = [*first[:-2], _series(near, count - 2), _series(near, count - 1)]
    for n in range(count - 3, -1, -1):
        series[n] = first[n] - near * series[n + 2]
    safe = jnp.where(far, x, 1.0)
    angle = jnp.sqrt(safe)
    cosine, sine = cos_sin(angle)
    exact = [cosine, sine / angle]
    for n in range(2, count):
        exact.append((first[n - 2] - exact[n - 2]) / safe)
    return tuple(jnp.where(far, a, b) for a, b in zip(exact, series, strict=True))


@stumpff.defjvp
def _rule(count: int, primals: tuple, tangents: tuple) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    c, half = stumpff(primals[0], count + 2), 0.5 * tangents[0]
    return c[:count], tuple((n * c[n + 2] - c[n + 1]) * half for n in range(count))


def _series(x: Scalar, n: int) -> Scalar:
    """Terms until they are lost in the rounding of the first."""
    terms = [1.0 / math.factorial(n)]
    while terms[-1] * FAR ** len(terms) > 1e-17 * terms[0]:
        terms.append(1.0 / math.factorial(n + 2 * len(terms)))
    total = jnp.full_like(x, terms[-1])
    for term in terms[-2::-1]:
        total = term - x * total
    return total
