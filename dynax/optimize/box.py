"""The choice at a knot whose control has limits: a small quadratic program by projected Newton steps.

    min 1/2 u'Gu + g'u     lower <= u <= upper

Each round minimises along one control after another, which finds what rests on its limits, and takes Newton's step in
the others, cut off at the limits and shortened until it helps (Tassa, Mansard & Todorov 2014, "Control-limited
differential dynamic programming"; Bertsekas 1982). Gains are those of what is free.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.optimize.lqr import LQ, Choice, Descent, half_inverse, times, transposed
from dynax.sweep.scan import scan

# Each round holds or lets go what it must; few need more than two. Steps are tried side by side.
EXTRA_ROUNDS = 4
STEPS = (1.0, 0.5, 0.25, 0.125, 0.03125)


def boxed(G: jax.Array, H: jax.Array, g: jax.Array, limits: tuple[jax.Array, jax.Array]) -> Choice:
    """As `minimum` of `lqr`, for trailing batch axes, with limits `(m, *batch)` of `u` where `x` is zero."""
    low, high = limits
    m = len(g)
    eye = jnp.eye(m, dtype=G.dtype).reshape(m, m, *(1,) * (g.ndim - 1))

    def free(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        slope = times(G, u) + g
        held = ((u <= low) & (slope > 0)) | ((u >= high) & (slope < 0))
        return (~held).astype(G.dtype), slope

    def solved(own: jax.Array, b: jax.Array) -> jax.Array:
        """`-G^-1 b` among what is free, zero elsewhere."""
        w = half_inverse(own[:, None] * own[None] * G + (1.0 - own) * eye)
        right = b * (own if b.ndim == own.ndim else own[:, None])
        return -times(transposed(w), times(w, right))

    def along(u: jax.Array, at: tuple) -> tuple[jax.Array, None]:
        row, unit, lower, upper, linear = at
        best = jnp.sum(unit * u, axis=0) - (jnp.sum(row * u, axis=0) + linear) / jnp.sum(unit * row, axis=0)
        return jnp.where(unit > 0, jnp.clip(best, lower, upper), u), None

    def round_(u: jax.Array, _: jax.Array) -> tuple[jax.Array, None]:
        u, _ = scan(along, u, (G, eye, low, high, g))
        own, slope = free(u)
        step = solved(own, slope)
        best, least = u, jnp.zeros(u.shape[1:], u.dtype)
        for t in STEPS:
            trial = jnp.clip(u + t * step, low, high)
            change = trial - u
            gain = jnp.sum(change * (slope + 0.5 * times(G, change)), axis=0)
            best, least = jnp.where(gain < least, trial, best), jnp.minimum(gain, least)
        return best, None

    u, _ = scan(round_, jnp.clip(jnp.zeros_like(g), low, high), jnp.arange(m + EXTRA_ROUNDS))
    own, _ = free(u)
    K = solved(own, H)
    return Choice(
        K, u, jnp.all(jnp.isfinite(K), axis=(0, 1)) & jnp.all(jnp.isfinite(u), axis=0), jnp.sum(g * u, axis=0)
    )


def cut_off(lq: LQ, policy: Descent, limits: tuple[jax.Array, jax.Array]) -> jax.Array:
    """The cost from zero under a policy that is cut off at the limits, for trailing batch axes."""

    def step(now: tuple, at: tuple) -> tuple[tuple, None]:
        (x, cost), ((A, B, c, Q, S, R, q, r), K, k, limits) = now, at
        u = jnp.clip(times(K, x) + k, *limits)
        cost = cost + jnp.sum(x * (q + 0.5 * times(Q, x) + times(S, u)), axis=0)
        cost = cost + jnp.sum(u * (r + 0.5 * times(R, u)), axis=0)
        return (times(A, x) + times(B, u) + c, cost), None

    zero = jnp.zeros_like(lq.q[-1])
    stages = lq._replace(Q=lq.Q[:-1], q=lq.q[:-1])
    (x, cost), _ = scan(step, (zero, jnp.sum(zero, axis=0)), (stages, policy.K, policy.k, limits))
    return cost + jnp.sum(x * (lq.q[-1] + 0.5 * times(lq.Q[-1], x)), axis=0)
