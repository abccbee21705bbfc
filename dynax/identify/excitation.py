"""Motions that show the most of the parameters: periodic, at rest at both ends, within the limits of the robot.

    max log det A   or   min log tr A^-1,   A = sum_t Y' Y / T + delta I
    q_j(t) = c_j + s_j sum_k a_jk sin(k w t) + b_jk cos(k w t)        Fourier's series
    q_j(t) = c_j + s_j sum_k a_jk B(t / h - k)                        B-splines, cubic

The determinant is the volume of the ellipsoid in which the parameters are known, least in any units and for any base;
the trace adds their variances (Swevers et al. 1997; Gautier & Khalil 1992). That speed and acceleration are zero where
the period ends holds for all coefficients, of the series by `sum k a = 0` and `sum k^2 b = 0`, of splines since each
begins and ends within the period (de Boor 1978, chapter 9), and so do the limits of positions and speeds: the shape is
stretched by `s_j` until it touches one of them, or less, and moved into the range by `c_j`. Limits of forces are kept
by a penalty. The steps are Adam's (Kingma & Ba 2015), of a length that goes to zero; there are many optima, so start
from many places at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dynax.identify.regressors import regressor
from dynax.identify.terms import Term, checked, driven, parameter_vector
from dynax.linear.matrices import product
from dynax.linear.triangle import back_substituted, forward_substituted, triangle
from dynax.model import Model

FINER = 8
"""How many times an interval between samples is divided where limits are looked at."""
Criterion = Literal["determinant", "trace"]
LENGTH, FADE, FADE_SQUARE = 0.1, 0.9, 0.99
"""Of Adam's first step, and of what it remembers of slopes and of their squares."""
PENALTY = 100.0
"""Of the mean square of what forces exceed their limits by, as parts of these."""
WIDEST = np.pi
"""Range of a joint without limits to both sides of zero [rad, m]."""


class Excitation(NamedTuple):
    """A periodic motion and what it shows."""

    period: jax.Array
    """[s]"""
    offset: jax.Array
    """Shape `(nv,)`."""
    coefficients: jax.Array
    """Of the sines, then of the cosines, by harmonics, shape `(2, harmonics, nv)`; or of splines, `(splines, nv)`."""
    log_determinant: jax.Array
    """Of the mean of `Y' Y` over time, and `delta`."""
    variance: jax.Array
    """The trace of the inverse of that: the sum of the parameters' variances where a sample stands for all."""
    force: jax.Array
    """The largest joint force at a sample, as a part of what is allowed: above one where the penalty did not do."""

    def at(self, time: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
        """`q, v, a` at some times [s] of shape `(T,)`, each of shape `(T, nv)`."""
        clock = jnp.asarray(time, self.offset.dtype)
        made = _series if self.coefficients.ndim == 3 else _splines
        q, v, a = (product(x, self.coefficients.reshape(-1, len(self.offset))) for x in made(self, clock))
        return self.offset + q, v, a


def _series(motion: Excitation, time: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sines, then cosines, and their rates, each of shape `(T, 2 harmonics)`."""
    speed = 2.0 * jnp.pi / motion.period * jnp.arange(1, motion.coefficients.shape[1] + 1, dtype=time.dtype)
    sine, cosine = jnp.sin(speed * time[:, None]), jnp.cos(speed * time[:, None])
    q, turned = jnp.concatenate([sine, cosine], axis=1), jnp.concatenate([cosine, -sine], axis=1)
    speeds = jnp.concatenate([speed, speed])
    return q, speeds * turned, -(speeds**2) * q


def _splines(motion: Excitation, time: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Cubic B-splines side by side, which are four intervals wide, and their rates, each of shape `(T, splines)`."""
    count = len(motion.coefficients)
    rate = (count + 3) / motion.period
    away = rate * jnp.mod(time, motion.period)[:, None] - jnp.arange(count, dtype=time.dtype) - 2.0
    sign, far, near = jnp.sign(away), jnp.maximum(2.0 - jnp.abs(away), 0.0), jnp.maximum(1.0 - jnp.abs(away), 0.0)
    q = (far**3 - 4.0 * near**3) / 6.0
    return q, -0.5 * rate * sign * (far**2 - 4.0 * near**2), rate**2 * (far - 4.0 * near)


def excitation(
    model: Model,
    columns: Sequence[int],
    key: jax.Array,
    *,
    period: ArrayLike,
    harmonics: int = 5,
    splines: int | None = None,
    samples: int = 100,
    terms: Sequence[Term] = ("inertias",),
    criterion: Criterion = "determinant",
    noise: ArrayLike = 1.0,
    position: ArrayLike = 0.9,
    speed: ArrayLike = 0.9,
    force: ArrayLike = 0.9,
    delta: float = 1e-9,
    iterations: int = 400,
) -> Excitation:
    """A motion that shows the parameters well, from a random one; of many, by `vmap` over `key`, take the best.

    **Arguments:**

    - `columns`: of the regressor with `terms`, that are independent: `identifiability(model, terms=terms).base`.
    - `period`: [s]; `harmonics`: how many, two or more; `samples`: at how many times the regressor is looked at.
    - `splines`: how many B-splines, instead of harmonics: two or more.
    - `criterion`: `"determinant"`, or `"trace"` for the sum of the variances in the units of the parameters, which
      minds what shows the least and gives the better condition.
    - `noise`: deviation of each joint's force, shape `(nv,)`; what is measured well counts more.
    - `position`, `speed`, `force`: parts of `position_limits` (about the middle of the range), `velocity_limits` and
      `effort_limits` that may be used, scalars or `(nv,)`. The first two hold always, on a grid eight times as fine as
      the samples; whether the last does, tells `force` of the result. A joint without limits of positions has a
      half-turn, or a length of pi, to both sides.
    - `delta`: what is known before, as a part of what one sample could tell.
    - `iterations`: steps, all of which are taken.

    `ValueError` for a model with coordinates that velocities do not simply add to, as quaternions or a free base.
    """
    terms = checked(terms)
    if model.nq != model.nv or len(driven(model)) < model.nv:
        raise ValueError("`model` must have joints alone whose velocities are the rates of their coordinates")
    if harmonics < 2:
        raise ValueError(f"`harmonics` is {harmonics}: one alone cannot begin and end at rest, give two or more")
    if splines is not None and splines < 2:
        raise ValueError(f"`splines` is {splines}: one alone only goes there and back, give two or more")
    if criterion not in get_args(Criterion):
        raise ValueError(f"`criterion` is {criterion!r}, expected one of {', '.join(map(repr, get_args(Criterion)))}")
    parts = tuple(jnp.asarray(x, model.mass.dtype) for x in (period, noise, position, speed, force, delta))
    rest = _at_rest(harmonics) if splines is None else np.eye(splines)
    of = (model, tuple(int(k) for k in columns), key, parts, jnp.asarray(rest, model.mass.dtype))
    return _excited(*of, samples, terms, criterion, iterations)


def _at_rest(harmonics: int) -> np.ndarray:
    """Coefficients `(2, harmonics, 2 harmonics - 2)` of series whose first and second derivative are zero at zero."""
    k = np.arange(1, harmonics + 1)
    found = np.zeros((2, harmonics, 2, harmonics - 1))
    for which, row in enumerate((k, k**2)):
        # Divided by the harmonic, so that all of them have speeds of one size.
        found[which, :, which] = np.linalg.svd((row / k)[None])[2][1:].T / k[:, None]
    return found.reshape(2, harmonics, 2 * (harmonics - 1))


@partial(jax.jit, static_argnums=(1, 5, 6, 7))
def _excited(
    model: Model, columns: tuple[int, ...], key: jax.Array, parts: tuple, rest: jax.Array, samples: int,
    terms: tuple[Term, ...], criterion: Criterion, iterations: ArrayLike,
) -> Excitation:  # fmt: skip
    period, noise, position, speed, force, delta = parts
    dtype, n = model.mass.dtype, model.nv
    values, own = parameter_vector(model, terms), np.asarray(columns)
    limits = model.position_limits
    low, high = jnp.moveaxis(jnp.where(jnp.isfinite(limits), limits, jnp.sign(limits) * WIDEST), 1, 0)
    middle, half = 0.5 * (low + high), 0.5 * position * (high - low)
    most = speed * model.velocity_limits
    fine = period * jnp.arange(samples * FINER, dtype=dtype) / (samples * FINER)
    time = fine[::FINER]

    def motion(x: dict[str, jax.Array]) -> Excitation:
        zero = jnp.zeros((), dtype)
        shape = Excitation(period, jnp.zeros(n, dtype), product(rest, x["shape"]), zero, zero, zero)
        q, v, _ = shape.at(fine)
        top, bottom = jnp.max(q, axis=0), jnp.min(q, axis=0)
        stretch = jnp.minimum(2.0 * half / (top - bottom), most / jnp.max(jnp.abs(v), axis=0))
        stretch = stretch * jax.nn.sigmoid(x["size"])
        free = 2.0 * half - stretch * (top - bottom)
        offset = middle - half - stretch * bottom + jax.nn.sigmoid(x["place"]) * free
        return shape._replace(offset=offset, coefficients=stretch * shape.coefficients)

    def over(r: jax.Array, b: jax.Array) -> jax.Array:
        return back_substituted(r, forward_substituted(r, b))

    def cost(x: dict[str, jax.Array]) -> tuple[jax.Array, Excitation]:
        found = motion(x)
        y = jax.vmap(partial(regressor, model, terms=terms))(*found.at(time))
        share = jnp.abs(product(y, values)) / (force * model.effort_limits)
        rows = (y[:, :, own] / jnp.broadcast_to(noise, (n,))[:, None]).reshape(-1, len(own)) / samples**0.5
        r = triangle(lax.stop_gradient(jnp.concatenate([rows, jnp.sqrt(delta) * jnp.eye(len(own), dtype=dtype)])))
        known = 2.0 * jnp.sum(jnp.log(jnp.diagonal(r)))
        # d log det A = tr A^-1 dA and d tr A^-1 = -tr A^-2 dA, of A = Y'Y: slopes without those of the triangle.
        slope = over(r, lax.stop_gradient(rows).T)
        inverse = back_substituted(r, jnp.eye(len(own), dtype=dtype))
        variance = jnp.sum(inverse**2)
        if criterion == "trace":
            slope = over(r, slope) / variance
        moved = 2.0 * jnp.sum(slope.T * (rows - lax.stop_gradient(rows)))
        excess = jnp.mean(jnp.maximum(share - 1.0, 0.0) ** 2)
        found = found._replace(log_determinant=known, variance=variance, force=jnp.max(share))
        return PENALTY * excess - moved, found

    slope = jax.grad(cost, has_aux=True)

    def improve(k: jax.Array, state: tuple) -> tuple:
        x, mean, square = state
        d, _ = slope(x)
        mean = jax.tree.map(lambda m, d: FADE * m + (1.0 - FADE) * d, mean, d)
        square = jax.tree.map(lambda s, d: FADE_SQUARE * s + (1.0 - FADE_SQUARE) * d**2, square, d)
        done = k.astype(dtype)
        length = LENGTH * 0.5 * (1.0 + jnp.cos(jnp.pi * done / jnp.asarray(iterations, dtype)))
        first, second = 1.0 - FADE ** (done + 1.0), 1.0 - FADE_SQUARE ** (done + 1.0)

        def moved(x: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
            return x - length * (m / first) / (jnp.sqrt(s / second) + jnp.asarray(1e-8, dtype))

        return jax.tree.map(moved, x, mean, square), mean, square

    one, two = jax.random.split(key)
    x: dict[str, Any] = {
        "shape": jax.random.normal(one, (rest.shape[-1], n), dtype),
        "size": jnp.full(n, 3.0, dtype),
        "place": jax.random.normal(two, (n,), dtype),
    }
    none = jax.tree.map(jnp.zeros_like, x)
    x, _, _ = lax.fori_loop(0, iterations, improve, (x, none, none))
    return cost(x)[1]
