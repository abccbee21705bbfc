"""Output error: the parameters whose simulated motion is nearest to the measured one, by Gauss and Newton.

    min sum |missed(x_k, y_k) / noise|^2        x_{k+1} = step(x_k, u_k; p)        over p, and over where motions begin

Noise of the outputs biases it not: no measured signal enters the equations, as in a regressor all do (Ljung 1999,
section 7.4). A long motion has many minima, and derivatives that explode where it is unstable; a log is therefore cut
in segments that begin anywhere (Bock 1983), short ones first and longer ones from what these found.

The steps are those of Levenberg and Marquardt on triangles: that of a segment, `[J_z J_p r]` with its beginning `z`
first, says in its last rows what the segment knows about the parameters, and these rows of all segments make one
triangle more (Golub & Pereyra 1973). The Jacobian is exact, through every step of the rollout.

A parameter that the outputs hardly show follows every error of the others' linearisation, far out to where they show it
no more and it has no way back: logarithms to minus infinity ("evaporation", Transtrum & Sethna 2012). So steps are
damped by the longest column that there has been (More 1978), and not less than by a part of the longest of all, and
held to what the parameters may move in one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from dynax.identify.outputs import Build, Missed, Segments, begin, begun_at, missed_state, parted, slopes
from dynax.linear.matrices import product
from dynax.linear.triangle import back_substituted, triangle
from dynax.optimize.result import Status
from dynax.simulate.stepper import AbstractStepper

RUNNING = -1
FIRST, LEAST, MOST = 1e-3, 1e-9, 1e9
"""Dampings, as parts of the length of each column of the Jacobian, squared."""
FACTORS = (1e-3, 0.1, 10.0, 1e3)
"""Of the last damping, all tried at once."""
SHARE = 0.1
"""Of the longest column, per `scale`: no column counts as shorter where steps are damped."""
GONE = 1e-6
"""Of the longest that a column has been: a parameter whose column is shorter has run away."""
WALK = 4.0
"""Rounding may be so many times as far off as the deviation that the last bits of the state alone give it."""
PART = 0.25
"""Of a standard deviation, which rounding may hide: it makes them longer by 3 %."""


class OutputError(NamedTuple):
    """Parameters and what is known about them."""

    params: Any
    """A pytree as it was given."""
    q: jax.Array
    """Where the segments begin, shape `(S, nq)`."""
    v: jax.Array
    """Shape `(S, nv)`."""
    covariance: jax.Array
    """Of the parameters in the order of `ravel_pytree`, by the Jacobian at the end, shape `(p, p)`. What no output
    shows has a variance that is huge, but a number."""
    noise: jax.Array
    """Deviation of what is missed, in parts of `noise`: one, if that was right."""
    status: jax.Array
    """A `Status`: `CONVERGED` where the next step would be a small part of the standard deviations, or is no more than
    rounding and less than a quarter of them. In float32 it is more where the noise is of the size of the last bits,
    summed over a segment: for 100 steps about 1 rad there should be 1e-4 rad. `STALLED` where that is so because a
    parameter ran to where the outputs show it no more, as the logarithm of what should be zero does; `NOT_FINITE` where
    the motion or its derivative is not, at its start: take shorter segments, or a better start."""
    iterations: jax.Array

    @property
    def deviations(self) -> jax.Array:
        """Standard deviation of each parameter, shape `(p,)`."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))


def output_error(
    build: Build,
    params: Any,
    data: Segments,
    dt: ArrayLike,
    *,
    missed: Missed = missed_state,
    noise: ArrayLike = 1.0,
    free: bool = True,
    scale: Any = None,
    stepper: str | AbstractStepper = "semi_implicit",
    iterations: int = 50,
) -> OutputError:
    """The parameters whose rollouts are nearest to the measured motions; under `jit` and `vmap`.

    **Arguments:**

    - `build`: the model of given parameters, a JAX function: masses, friction, stiffness, bodies by
      `with_parameters` or `from_log_cholesky`, whatever is a leaf. Logarithms keep positive what must be. Or a pair of
      a model and its actuators, of `dx.actuate`, for the numbers of drives: their friction, lags, motors. These begin
      each segment in their initial state.
    - `params`: a pytree of floating arrays, where the search begins.
    - `data`: from `segments`; `dt`: step [s].
    - `missed`: `missed(model, q, v, measured)`, shape `(m,)`: what a state misses of a row of `data.measured`. Left
      out, that is the pair of `q` and `v`.
    - `noise`: deviation of each entry of that, of a shape that broadcasts to `(S, K + 1, m)`.
    - `free`: where segments begin is unknown too, near `data.q` and `data.v`; else they begin there, which is cheaper,
      and biased by the noise of these states.
    - `scale`: how far a step may move each parameter, a number or a pytree as `params`. Left out, one, or the size
      that the parameter has at the start where that is more: so that a mass may double and a logarithm move by one.
    - `stepper`: as for `rollout`.
    - `iterations`: at most so many.

    `status` tells how it ended; nothing is raised. Compiled once for each `build` and `missed`, so give the same
    functions again, not new ones of the same text. Derivatives of the result are not those of the optimum.
    """
    params = jax.tree.map(jnp.asarray, params)
    for leaf in jax.tree.leaves(params):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(f"`params` must be floating arrays, got {leaf.dtype}: a search moves by small steps")
    if scale is None:
        scale = jax.tree.map(lambda x: jnp.maximum(jnp.abs(x), 1.0), params)
    elif jax.tree.structure(scale) == jax.tree.structure(0.0):
        scale = jax.tree.map(lambda _: scale, params)
    scale = jax.tree.map(lambda x, most: jnp.broadcast_to(jnp.asarray(most, x.dtype), x.shape), params, scale)
    return _fitted(build, missed, free, stepper, iterations, params, scale, data, dt, noise)


class _Fit(NamedTuple):
    triangle: jax.Array
    squares: jax.Array
    status: jax.Array
    iterations: jax.Array


class _State(NamedTuple):
    x: jax.Array
    z: jax.Array
    damping: jax.Array
    longest: tuple[jax.Array, jax.Array]
    """Columns of the Jacobian, of beginnings and parameters."""
    fit: _Fit


def _step(triangles: jax.Array, scales: tuple[jax.Array, jax.Array], most: jax.Array, damping: jax.Array) -> tuple:
    """The step `(dx, dz)` of least squares with rows of the damping, `dx` no longer than `most`, the triangle of the
    parameters, and how much of the residual lies along columns, squared; from the triangles of segments
    `(S, n + p + 1, n + p + 1)`."""
    along_z, along_x = scales
    n, p, root = along_z.shape[1], len(along_x), jnp.sqrt(damping)

    def damped(own: jax.Array, along: jax.Array) -> jax.Array:
        rows = jnp.pad(root * jnp.diag(along), ((0, 0), (0, own.shape[1] - len(along))))
        return triangle(jnp.concatenate([own, rows]))

    each = jax.vmap(damped)(triangles, along_z)
    both = damped(each[:, n:, n:].reshape(-1, p + 1), along_x)
    dx = jnp.clip(-back_substituted(both[:p, :p], both[:p, p]), -most, most)
    right = each[:, :n, -1] + product(each[:, :n, n:-1], dx)
    dz = -jax.vmap(back_substituted)(each[:, :n, :n], right) if n else right
    return dx, dz, both[:p, :p], jnp.sum(both[:p, p] ** 2) + jnp.sum(each[:, :n, -1] ** 2)


def _with_last_bits(missed: Missed, model: Any, q: jax.Array, v: jax.Array, measured: Any) -> jax.Array:
    """What a state misses, and by how much that changes with the last bits of the state: with 8 more of them cut off,
    in parts of `2^8`."""
    info = jnp.finfo(q.dtype)
    cut = partial(lax.reduce_precision, exponent_bits=info.nexp, mantissa_bits=info.nmant - 8)
    here = missed(model, q, v, measured)
    return jnp.concatenate([here, (missed(model, cut(q), cut(v), measured) - here) / 2**8])


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _fitted(build: Build, missed: Missed, free: bool, stepper, most, params, scale, data: Segments, dt, noise):
    (x0, unravel), (farthest, _) = ravel_pytree(params), ravel_pytree(scale)
    dtype, nv = x0.dtype, data.v.shape[1]
    eps = float(jnp.finfo(dtype).eps)
    noise = jnp.asarray(noise, dtype)
    n, p = 2 * nv if free else 0, x0.size

    def of(x: jax.Array) -> Any:
        return build(unravel(x))

    def kept(rows: jax.Array) -> jax.Array:
        """Of motions that begin as measured, the beginning misses nothing that a parameter could help."""
        return rows if free else rows[:, 1:]

    def all_residuals(x: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What is missed, and how much of it the last bits of each state are worth."""
        both = jax.vmap(partial(begun_at, of, partial(_with_last_bits, missed), stepper, dt, x))(z, *data)
        r, bits = jnp.split(both, 2, axis=-1)
        return kept(r / noise), kept(bits / noise)

    def squared(x: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What is missed, and how far rounding may be from it."""
        r, bits = all_residuals(x, z)
        steps = jnp.arange(0 if free else 1, bits.shape[1] + (0 if free else 1), dtype=dtype)
        return jnp.sum(r * r), WALK**2 * jnp.sum(steps[:, None] * bits**2)

    def improved(s: _State) -> _State:
        J, r = slopes(of, missed, stepper, s.x, s.z, data, dt)
        J, r = kept(J / jnp.broadcast_to(noise, r.shape)[..., None]), kept(r / noise)
        rows = jnp.concatenate([J, r[..., None]], axis=-1)
        triangles = jax.vmap(triangle)(rows.reshape(len(rows), -1, n + p + 1))
        now = jnp.sum(r * r)
        lengths = jnp.sum(triangles[:, :, :-1] ** 2, axis=1)
        lengths = jnp.sqrt(lengths[:, :n]), jnp.sqrt(jnp.sum(lengths[:, n:], axis=0))
        longest = jax.tree.map(jnp.maximum, s.longest, lengths)
        away = jnp.any(lengths[1] < GONE * longest[1])
        lengths, scales = jax.tree.map(lambda a: jnp.where(a > 0.0, a, 1.0), (lengths, longest))

        # With hardly any damping, for what is known at the end; what no output shows counts as known by rounding.
        _, _, known, along = _step(triangles, lengths, farthest, jnp.asarray(eps, dtype))
        least = SHARE * jnp.max(longest[1] * farthest, initial=0.0) / farthest
        scales = scales[0], jnp.maximum(scales[1], least)
        dampings = s.damping * jnp.asarray(FACTORS, dtype)
        dx, dz, _, _ = jax.vmap(partial(_step, triangles, scales, farthest))(dampings)
        values, rounding = jax.vmap(lambda dx, dz: squared(s.x + dx, s.z + dz))(dx, dz)
        values = jnp.where(jnp.isfinite(values), values, jnp.inf)
        # Near the optimum squares differ by their rounding, and the least damped step is good nevertheless.
        best = jnp.argmax(values <= jnp.min(values) + 16.0 * eps * now)
        better = values[best] <= now * (1.0 + 16.0 * eps)

        variance = now / max(count - p - s.z.size, 1)
        tolerance = max(1e-6, eps**0.5)
        # Each step rounds the state. These errors are as good as random: after `k` steps they have `sqrt(k)` times the
        # deviation of one, all rows of a segment the squares `sum k bits_k^2`, and no more lies along columns, though
        # motions are smooth and much of it does. At the optimum it is there as well: nobody can ask for less. Where it
        # is more than a part of a standard deviation for each column, the optimum is not seen, and not claimed.
        unseen = jnp.minimum(rounding[best], PART**2 * (p + s.z.size) * variance)
        rest = (along <= tolerance**2 * variance) | (along <= unseen) | (now <= eps**1.5 * count)
        status = jnp.where(~better & (dampings[-1] > MOST), int(Status.STALLED), RUNNING)
        status = jnp.where(s.fit.iterations == most, int(Status.ITERATIONS), status)
        status = jnp.where(rest, jnp.where(away, int(Status.STALLED), int(Status.CONVERGED)), status)
        status = jnp.where(jnp.isfinite(now) & jnp.all(jnp.isfinite(J)), status, int(Status.NOT_FINITE))
        going = status == RUNNING
        moves = better & going
        return _State(
            jnp.where(moves, s.x + dx[best], s.x),
            jnp.where(moves, s.z + dz[best], s.z),
            jnp.maximum(jnp.where(better, dampings[best], dampings[-1]), LEAST),
            longest,
            _Fit(known, now, status, s.fit.iterations + going.astype(int)),
        )

    z0 = jnp.zeros((len(data.q), n), dtype)
    count = jax.eval_shape(all_residuals, x0, z0)[0].size
    zero = jnp.zeros((), dtype)
    fit = _Fit(jnp.zeros((p, p), dtype), zero, jnp.asarray(RUNNING), jnp.zeros((), int))
    none = jnp.zeros((len(data.q), n), dtype), jnp.zeros(p, dtype)
    start = _State(x0, z0, jnp.asarray(FIRST, dtype), none, fit)
    done = lax.while_loop(lambda s: s.fit.status == RUNNING, improved, start)
    x, z, fit = done.x, done.z, done.fit
    q, v = jax.vmap(partial(begin, parted(of(x))[0]))(data.q, data.v, z)
    variance = fit.squares / max(count - p - z.size, 1)
    inverse = back_substituted(fit.triangle, jnp.eye(p, dtype=dtype))
    covariance = variance * product(inverse, inverse.T)
    return OutputError(unravel(x), q, v, covariance, jnp.sqrt(variance), fit.status, fit.iterations)
