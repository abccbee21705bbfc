"""The stationary Riccati equation and its closed loop, by doubling.

    X = A' X (1 + G X)^-1 A + H        closed loop: (1 + G X)^-1 A

Each round of the doubling goes from `k` steps to `2 k`, so that it converges quadratically and keeps the structure:

    A+ = A W A     G+ = G + A W G A'     H+ = H + A' H W A     W = (1 + G H)^-1       X = lim H

(Chu, Fan, Lin & Wang 2004, "Structure-preserving algorithms for periodic discrete-time algebraic Riccati equations").
The equation in continuous time, `A' X + X A - X G X + H = 0`, becomes one of these by Cayley's transformation (Chu, Fan
& Lin 2005, "A structure-preserving doubling algorithm for continuous-time algebraic Riccati equations").
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dynax.linear.matrices import product, symmetric
from dynax.linear.solve import inverse, solve

# Doublings: 2^40 steps of a mode which loses a part in 1e11 at each are enough.
ROUNDS = 40


def _size(a: jax.Array) -> jax.Array:
    return jnp.max(jnp.sum(jnp.abs(a), axis=-1))


def lyapunov(a: jax.Array, w: jax.Array) -> jax.Array:
    """The `X` of `X = a' X a + w` (Smith 1968), all powers of `a` gone; not finite where `a` is not stable."""
    eps = jnp.finfo(a.dtype).eps

    def double(state: tuple) -> tuple:
        x, a, count = state
        return x + product(a.T, product(x, a)), product(a, a), count + 1

    x, rest, _ = lax.while_loop(
        lambda s: (_size(s[1]) > eps) & (_size(s[1]) < 1 / eps) & (s[2] < ROUNDS), double, (w, a, 0)
    )
    return jnp.where(_size(rest) <= eps, x, jnp.nan)


def _residual(a: jax.Array, g: jax.Array, h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`A' X (1 + G X)^-1 A + H - X` and the closed loop."""
    loop = solve(jnp.eye(len(a), dtype=a.dtype) + product(g, x), a)
    return symmetric(product(a.T, product(x, loop)) + h) - x, loop


def _doubled(a: jax.Array, g: jax.Array, h: jax.Array) -> jax.Array:
    eye, eps = jnp.eye(len(a), dtype=a.dtype), jnp.finfo(a.dtype).eps

    def double(state: tuple) -> tuple:
        a, g, h, _, count = state
        both = solve(eye + product(g, h), jnp.concatenate([a, g], axis=1))
        wa, wg = both[:, : len(a)], both[:, len(a) :]
        more = symmetric(product(a.T, product(h, wa)))
        return product(a, wa), symmetric(g + product(a, product(wg, a.T))), h + more, _size(more), count + 1

    def unfinished(state: tuple) -> jax.Array:
        _, _, h, more, count = state
        return (more > eps * _size(h)) & (count < ROUNDS)

    start = a, g, h, jnp.asarray(jnp.inf, a.dtype), 0
    x = lax.while_loop(unfinished, double, start)[2]
    # A step of Newton's takes out what rounding has left.
    miss, loop = _residual(a, g, h, x)
    return x + symmetric(lyapunov(loop, miss))


@jax.custom_jvp
def stationary(a: jax.Array, g: jax.Array, h: jax.Array) -> jax.Array:
    """The `X` whose closed loop is stable, for symmetric positive semidefinite `G`, `H`; not finite where there is
    none."""
    return _doubled(a, g, h)


@stationary.defjvp
def _rate(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    a, g, h = primals
    x = stationary(a, g, h)
    push = jax.jvp(lambda a, g, h: _residual(a, g, h, x)[0], primals, tangents)[1]
    loop = _residual(a, g, h, x)[1]
    change = lax.custom_linear_solve(
        lambda y: y - product(loop.T, product(y, loop)),
        push,
        lambda _, b: lyapunov(loop, b),
        lambda _, b: lyapunov(loop.T, b),
    )
    return x, change


def stationary_in_time(a: jax.Array, g: jax.Array, h: jax.Array) -> jax.Array:
    """The `X` of `a' X + X a - X g X + h = 0` whose closed loop `a - g X` is stable, as `stationary`."""
    eye = jnp.eye(len(a), dtype=a.dtype)
    # Larger than any eigenvalue of `a` and about those of the closed loop.
    shift = lax.stop_gradient(_size(a) + jnp.sqrt(_size(g) * _size(h)))
    shift = jnp.where(shift > 0, shift, 1.0)
    back = inverse(a - shift * eye)
    across = inverse(a - shift * eye + product(g, product(back.T, h)))
    return stationary(
        eye + 2.0 * shift * across,
        symmetric(2.0 * shift * product(product(back, g), across.T)),
        symmetric(2.0 * shift * product(across.T, product(h, back))),
    )
