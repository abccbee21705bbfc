"""Nonlinear least squares on a manifold within a box: Levenberg and Marquardt's steps along the tangent space.

    min 1/2 |r(x)|^2      x+ = move(x, z)      low(x) <= z <= high(x)      (J'J + d) z = -J'r

`z` is zero where `x` rests on its limit and the slope presses on, and cut off at the limits; several dampings `d` are
tried at once, and the best is taken where it helps (Nocedal & Wright 2006, section 10.3; Kanzow, Yamashita & Fukushima
2004, "Levenberg-Marquardt methods with strong local convergence properties ... with convex constraints"). The damping
goes to zero with the residual: of many solutions a near one is found.

The derivative is that of the implicit function `J'r = 0`, with the whole curvature `H` of the sum of squares, whatever
the steps were: `dz = -H^+ d(J'r)`, of the solutions near by the nearest, with what rests on its limit moving with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.zeros import along_moving, is_zero
from dynax.linear.matrices import product
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.linear.solve import solve
from dynax.optimize.implicit import no_change
from dynax.optimize.result import Status
from dynax.sweep.scan import settled

RUNNING = -1
# Of the damping, by which those tried at once differ from the last one's, and the most, of the largest curvature.
FACTORS, MOST = (1e-3, 1e-2, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4), 1e10
FIRST = 1e-2
# How far to look about from where the slope is zero.
ASIDE = 1e-2


class Functions(NamedTuple):
    """Of the problem; of `params`, a pytree, and of `x`, another. All functions of modules, by which programs are
    known."""

    residual: Callable[[Any, Any], jax.Array]
    """`(params, x)`, shape `(m,)`."""
    move: Callable[[Any, Any, jax.Array], Any]
    """`(params, x, z)` with `z` of shape `(n,)`."""
    room: Callable[[Any, Any], tuple[jax.Array, jax.Array]]
    """`(params, x)`: how far each entry of `z` may go, down and up; zero on a limit."""


class Fit(NamedTuple):
    """A solution and what is known about it."""

    x: Any
    error: jax.Array
    """The largest entry of the residual."""
    status: jax.Array
    """A `Status`: `INFEASIBLE` where nothing near has a smaller sum of squares and the residual is not zero."""
    iterations: jax.Array


class _State(NamedTuple):
    x: Any
    damping: jax.Array
    count: jax.Array
    error: jax.Array
    status: jax.Array


def _held(low: jax.Array, high: jax.Array, slope: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What rests on a limit and presses on, or cannot move at all."""
    down = (low >= 0) & ((slope > 0) | (high <= 0))
    return down, ~down & (high <= 0) & (slope < 0)


def _improved(f: Functions, params: Any, most: int, tolerance: jax.Array, s: _State) -> _State:
    low, high = f.room(params, s.x)
    n, dtype = len(low), low.dtype

    def residual(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = f.residual(params, f.move(params, s.x, z))
        return found, found

    J, r = jax.jacfwd(residual, has_aux=True)(jnp.zeros_like(low))
    tiny, eps = jnp.finfo(dtype).tiny, float(jnp.finfo(dtype).eps)
    slope, now = product(J.T, r), jnp.sum(r * r)
    down, up = _held(low, high, slope)
    free = 1.0 - (down | up).astype(dtype)
    J, slope = J * free, slope * free
    normal, eye = product(J.T, J), jnp.eye(n, dtype=dtype)
    scale = jnp.maximum(jnp.max(jnp.diagonal(normal), initial=0.0), tiny)
    flat = jnp.max(jnp.abs(slope), initial=0.0) <= eps**0.5 * jnp.sqrt(scale * now)

    dampings = s.damping * jnp.asarray(FACTORS, dtype)
    shifts = (dampings + 10.0 * n * eps) * scale
    steps = -solve(normal + shifts[:, None, None] * eye, jnp.broadcast_to(slope[:, None], (len(shifts), n, 1)))[..., 0]
    # Where the slope is zero and a step aside helps nevertheless, above all one that the residual does not feel to
    # first order, it is a saddle: go on there, as from an arm that is stretched out.
    some = jnp.asarray(np.random.default_rng(0).normal(size=(n, len(FACTORS) // 4)), dtype)
    least = eps**0.5 * scale
    unfelt = least * solve(normal + least * eye, some)
    aside = jnp.concatenate([some, unfelt], axis=1).T
    aside = ASIDE * aside / jnp.maximum(jnp.max(jnp.abs(aside), axis=1, keepdims=True), tiny)
    trials, values = jax.vmap(lambda z: _tried(f, params, s.x, jnp.clip(z, low, high)))(
        jnp.where(flat, jnp.concatenate([aside, -aside]), steps)
    )
    best = jnp.argmin(values)
    better = values[best] < now * jnp.where(flat, 1.0 - eps**0.5, 1.0)

    error, finite = jnp.max(jnp.abs(r), initial=0.0), jnp.isfinite(now) & jnp.all(jnp.isfinite(J))
    status = jnp.where(~better & (dampings[-1] > MOST), int(Status.STALLED), RUNNING)
    status = jnp.where(flat & ~better, int(Status.INFEASIBLE), status)
    status = jnp.where(error <= tolerance, int(Status.CONVERGED), status)
    status = jnp.where(finite, status, int(Status.NOT_FINITE))
    status = jnp.where((status == RUNNING) & (s.count == most), int(Status.ITERATIONS), status)
    moves = better & (status == RUNNING)
    damping = jnp.where(better, jnp.maximum(dampings[best], eps), dampings[-1])
    return _State(
        jax.tree.map(lambda now, new: jnp.where(moves, new[best], now), s.x, trials),
        jnp.where(flat, FIRST, damping),
        s.count + 1,
        error,
        status,
    )


def _tried(f: Functions, params: Any, x: Any, z: jax.Array) -> tuple[Any, jax.Array]:
    new = f.move(params, x, z)
    value = jnp.sum(f.residual(params, new) ** 2)
    return new, jnp.where(jnp.isfinite(value), value, jnp.inf)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _fitted(f: Functions, most: int, params: Any, x: Any, tolerance: jax.Array) -> Fit:
    far = jnp.full((), jnp.inf, tolerance.dtype)
    start = _State(x, jnp.full((), FIRST, far.dtype), jnp.zeros((), int), far, jnp.full((), RUNNING, int))

    def improved(s: _State) -> _State:
        return _improved(f, params, most, tolerance, s)

    done = lax.while_loop(lambda s: s.status == RUNNING, improved, settled(improved, start))
    return Fit(done.x, done.error, done.status, done.count - 1)


least_squares = jax.jit(_fitted, static_argnums=(0, 1))
"""`least_squares(functions, iterations, params, x, tolerance)`: the solution near `x`, a `Fit`.

Derivatives by `params`; NaN where the solver has not come to rest."""


@partial(_fitted.defjvp, symbolic_zeros=True)
def _fitted_rate(f: Functions, most: int, primals: tuple, tangents: tuple) -> tuple[Fit, Fit]:
    params, dparams = primals[0], tangents[0]
    found = _fitted(f, most, *primals)
    still = jax.tree.map(no_change, found)
    if all(is_zero(d) for d in jax.tree.leaves(dparams, is_leaf=is_zero)):
        return found, still
    x, (low, high) = found.x, f.room(params, found.x)
    zero = jnp.zeros_like(low)

    def slope(params: Any, z: jax.Array) -> jax.Array:
        return jax.grad(lambda z: 0.5 * jnp.sum(f.residual(params, f.move(params, x, z)) ** 2))(z)

    curvature = jax.jacfwd(lambda z: slope(params, z))(zero)
    down, up = _held(low, high, slope(params, zero))
    free = 1.0 - (down | up).astype(zero.dtype)
    push, (dlow, dhigh) = along_moving(lambda p: (slope(p, zero), f.room(p, x)), (params,), (dparams,))[1]
    bound = jnp.where(down, dlow, jnp.where(up, dhigh, 0.0))
    known = pseudo_inverse(free[:, None] * curvature * free, float(jnp.finfo(zero.dtype).eps) ** 0.5).matrix
    z = bound - product(known, free * (push + product(curvature, bound)))
    rest = (found.status == Status.CONVERGED) | (found.status == Status.INFEASIBLE)
    # A product, since the transpose of a choice would be zero where it refuses.
    z = jnp.where(rest, 1.0, jnp.nan).astype(zero.dtype) * z
    dx = jax.jvp(lambda z: f.move(params, x, z), (zero,), (z,))[1]
    return found, still._replace(x=dx)
