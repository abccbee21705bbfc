"""The recursions over a tree of blocks, whatever their size (Jain, SKO): rigid, flexible and aggregated bodies alike.

Node `k` has blocks `E(p, k)` to its parent, `M(k)`, `H(k)`, padded with zeros to one size; `^T` is `*` of the papers.

    accumulate   inward    y(k) = x(k) + sum over children of E y                     phi x
    distribute   outward   y(k) = x(k) + E^T y(p)                                     phi* x
    composite    inward    R(k) = M(k) + sum over children of E R E^T                 Lyapunov's equation
    compliance   outward   Y(k) = X(k) + E^T Y(p) E                                   its dual; Upsilon for psi
    riccati      inward    P(k) = M(k) + sum over children of E P+ E^T                Riccati's equation
                           D = H P H^T + armature    G = P H^T D^-1    tau = G H
                           P+ = (1 - tau) P (1 - tau)^T + G armature G^T

The last is the form of Joseph: nothing is subtracted from `P`, so `P+` stays positive semidefinite to rounding.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.linear.solve import solve
from dynax.sweep import walk

Parents = tuple[int, ...]


def mul(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a @ b` over leading axes, in full precision on every device."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def transpose(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, -1, -2)


def _inward(parents: Parents, step, zero: jax.Array, xs):
    plan = walk(parents)
    return plan.restore(plan.gather(step, zero, plan.arrange(xs))[1])


def _outward(parents: Parents, step, zero: jax.Array, xs):
    plan = walk(parents)
    return plan.restore(plan.scatter(step, zero[None], plan.arrange(xs)))


@partial(jax.jit, static_argnames="parents")
def accumulate(parents: Parents, e: jax.Array, x: jax.Array) -> jax.Array:
    """`phi x` for `x` of shape `(n, s, m)`, with `phi = (1 - E)^-1` and blocks `e (n, s, s)`."""

    def step(handed: jax.Array, own) -> tuple[jax.Array, jax.Array]:
        block, value = own
        total = value + handed
        return mul(block, total), total

    zero = jnp.zeros(x.shape[1:], jnp.result_type(e, x))
    return _inward(parents, step, zero, (e.astype(zero.dtype), x.astype(zero.dtype)))


@partial(jax.jit, static_argnames="parents")
def distribute(parents: Parents, e: jax.Array, x: jax.Array) -> jax.Array:
    """`phi* x`, shapes as in `accumulate`."""

    def step(above: jax.Array, own) -> tuple[jax.Array, jax.Array]:
        block, value = own
        total = value + mul(transpose(block), above)
        return total, total

    zero = jnp.zeros(x.shape[1:], jnp.result_type(e, x))
    return _outward(parents, step, zero, (e.astype(zero.dtype), x.astype(zero.dtype)))


@partial(jax.jit, static_argnames="parents")
def composite(parents: Parents, e: jax.Array, m: jax.Array) -> jax.Array:
    """`R`, the blocks on the diagonal of `phi M phi*`, shape `(n, s, s)`; `M` need not be symmetric."""

    def step(handed: jax.Array, own) -> tuple[jax.Array, jax.Array]:
        block, value = own
        total = value + handed
        return mul(mul(block, total), transpose(block)), total

    return _inward(parents, step, jnp.zeros_like(m, shape=m.shape[1:]), (e, m))


@partial(jax.jit, static_argnames="parents")
def compliance(parents: Parents, e: jax.Array, x: jax.Array) -> jax.Array:
    """`Y`, the blocks on the diagonal of `phi* X phi`, shape `(n, s, s)`; `X` need not be symmetric."""

    def step(above: jax.Array, own) -> tuple[jax.Array, jax.Array]:
        block, value = own
        total = value + mul(mul(transpose(block), above), block)
        return total, total

    return _outward(parents, step, jnp.zeros_like(x, shape=x.shape[1:]), (e, x))


class Riccati(NamedTuple):
    """What the articulated recursion finds, `n` blocks of each."""

    P: jax.Array
    P_plus: jax.Array
    D: jax.Array
    """Zero in the padding."""
    G: jax.Array


@partial(jax.jit, static_argnames="parents")
def riccati(
    parents: Parents, e: jax.Array, m: jax.Array, h: jax.Array, armature: jax.Array, freedoms: np.ndarray
) -> Riccati:
    """Articulated inertias and gains.

    **Arguments:**

    - `e`, `m`: shape `(n, s, s)`; `m` symmetric.
    - `h`: shape `(n, r, s)`; `armature`: symmetric, shape `(n, r, r)`.
    - `freedoms`: which of the `r` rows of each node are freedoms and not padding, shape `(n, r)`. `D` must be positive
      definite on them.
    """
    plan = walk(parents)
    eye = jnp.eye(h.shape[1], dtype=h.dtype)

    def step(handed: jax.Array, own) -> tuple[jax.Array, Riccati]:
        block, inertia, hinge, rotor, free = own
        p = inertia + handed
        image = mul(p, transpose(hinge))
        d = mul(hinge, image) + rotor
        # Padding, and whole rows of it, divide by one.
        gain = transpose(solve(d + eye * (1.0 - free)[..., None], transpose(image)))
        passed = jnp.eye(p.shape[-1], dtype=p.dtype) - mul(gain, hinge)
        plus = mul(mul(passed, p), transpose(passed)) + mul(mul(gain, rotor), transpose(gain))
        plus = 0.5 * (plus + transpose(plus))
        return mul(mul(block, plus), transpose(block)), Riccati(p, plus, d, gain)

    xs = (e, m, h, armature, jnp.asarray(freedoms, h.dtype))
    return plan.restore(plan.gather(step, jnp.zeros_like(m, shape=m.shape[1:]), plan.arrange(xs))[1])
