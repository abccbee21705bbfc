"""A log made ready: filtered without delay, differentiated, and refused where it is spoilt.

Forces and angles go through the same filter, forwards and backwards, so that neither comes late: what one of them
loses alone would be taken for a parameter (Gautier 1997; Swevers, Verdonck & De Schutter 2007).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dynax.identify.terms import driven
from dynax.model import Model
from dynax.model.configuration import difference, integrate, normalize
from dynax.routes.inverse_dynamics import inverse_dynamics

ENDS = 3.0
"""How long the filter takes to settle, in periods of its cut-off."""
UNEVEN = 0.1
"""Of a sampling time, what two of them may differ by."""
BEYOND = 5.0
"""How far a joint may be beyond its limits, in parts of its range: in degrees it is further."""
JUMP = 3.0
"""From sample to sample [rad, m]: what a joint never does, and an encoder that begins again after a turn does."""
FAR = 100.0
"""How many times a joint's force may be what the model needs, and less: a unit that is wrong by a thousand is more."""
LOOKED_AT = 200
"""Samples that the model is asked about."""


class Log(NamedTuple):
    """Samples of a motion and of the forces that made it."""

    time: np.ndarray
    """Shape `(T,)` [s]."""
    q: jax.Array
    """Shape `(T, nq)`."""
    v: jax.Array
    """Shape `(T, nv)`, as `a` and `tau`."""
    a: jax.Array
    tau: jax.Array


def butterworth(x: ArrayLike, cutoff: float, dt: float, *, order: int = 4) -> jax.Array:
    """Signals without what is faster than `cutoff` [Hz], and without delay; `x`, shape `(T, ...)`, every `dt` [s].

    Butterworth's low-pass filter of an even `order`, forwards and backwards, so that the amplitude at the cut-off is a
    half; ends are continued by reflection, and settle within some `3 / cutoff`.
    """
    if not 0.0 < cutoff < 0.5 / dt:
        raise ValueError(f"`cutoff` must lie between 0 and half the sampling rate, {0.5 / dt:g} Hz, got {cutoff:g}")
    if order % 2 or order < 2:
        raise ValueError(f"`order` must be even, got {order}")
    x = jnp.asarray(x)
    edge = min(len(x) - 1, int(np.ceil(ENDS / (cutoff * dt))))
    mirrored = (2.0 * x[0] - x[edge:0:-1], x, 2.0 * x[-1] - x[-2 : -2 - edge : -1])
    long = jnp.concatenate(mirrored)
    # The bilinear transform of each pair of poles, `s^2 + 2 zeta w s + w^2`, with the cut-off where it was.
    w = float(np.tan(np.pi * cutoff * dt))
    for k in range(order // 2):
        zeta = float(np.sin(np.pi * (2 * k + 1) / (2 * order)))
        head = 1.0 + 2.0 * zeta * w + w * w
        poles = 2.0 * (w * w - 1.0) / head, (1.0 - 2.0 * zeta * w + w * w) / head
        for _ in range(2):
            long = _second_order(long, w * w / head, *poles)[::-1]
    return long[edge : edge + len(x)]


def _second_order(x: jax.Array, gain: float, a1: float, a2: float) -> jax.Array:
    """`y = gain (x + 2 x' + x'') - a1 y' - a2 y''`, primes for samples before, at rest on the first of them."""

    def step(state: tuple, now: jax.Array) -> tuple[tuple, jax.Array]:
        x1, x2, y1, y2 = state
        y = gain * (now + 2.0 * x1 + x2) - a1 * y1 - a2 * y2
        return (now, x1, y, y1), y

    return lax.scan(step, (x[0],) * 4, x)[1]


def prepare(
    model: Model,
    time: ArrayLike,
    q: ArrayLike,
    tau: ArrayLike,
    *,
    cutoff: float,
    every: int = 1,
    order: int = 4,
) -> Log:
    """The log of a robot as regressors want it: filtered, with velocities and accelerations, every so many samples.

    Quaternions may be among the coordinates, of whichever sign: they are followed from sample to sample, filtered as
    the other coordinates are, and brought to length one. Derivatives are central differences of the filtered motion,
    along the tangent. What the filter's ends may have spoilt, `3 / cutoff` on both, is left out.

    **Arguments:**

    - `time`: shape `(T,)` [s], evenly spaced to a tenth; `q`: shape `(T, nq)`; `tau`: shape `(T, nv)`.
    - `cutoff`: of the filter [Hz], above what the motion has and below what it shakes with; `order` of it.
    - `every`: one sample in so many is kept; filtered neighbours say the same.

    Raises `ValueError` that names the column for what is not finite, stands still, jumps, is not known by time, or
    leaves the limits of its joint by far (`resample` mends samples that are lost); warns of forces that are far from
    all that the model needs for this motion, as in other units they are.
    """
    t, dt = _checked(model, np.asarray(time, float), np.asarray(q, float), np.asarray(tau, float), cutoff)
    q, tau = continuous(model, jnp.asarray(q)), butterworth(tau, cutoff, dt, order=order)
    q = jax.vmap(lambda q: normalize(model, q))(butterworth(q, cutoff, dt, order=order))
    steps = jax.vmap(lambda a, b: difference(model, a, b))(q[:-1], q[1:]) / dt
    v = 0.5 * (steps[:-1] + steps[1:])
    a = (steps[1:] - steps[:-1]) / dt
    trim = int(np.ceil(ENDS / (cutoff * dt)))
    inner = slice(trim, len(t) - 2 - trim, every)
    log = Log(t[1:-1][inner], q[1:-1][inner], v[inner], a[inner], tau[1:-1][inner])
    _warn_of_units(model, log)
    return log


def continuous(model: Model, q: jax.Array) -> jax.Array:
    """The same configurations, `(T, nq)`, with quaternions that keep their sign from sample to sample."""
    if model.nq == model.nv:
        return q

    def follow(before: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
        here = integrate(model, before, difference(model, before, now))
        return here, here

    return jnp.concatenate([q[:1], lax.scan(follow, q[0], q[1:])[1]])


def _warn_of_units(model: Model, log: Log) -> None:
    rows = slice(None, None, max(1, len(log.time) // LOOKED_AT))
    needed = jax.vmap(lambda q, v, a: inverse_dynamics(model, q, v, a))(log.q[rows], log.v[rows], log.a[rows])
    size, needed = (np.sqrt(np.mean(np.square(np.asarray(x)), axis=0)) for x in (log.tau[rows], needed))
    # What hardly needs a force has that of its friction.
    ratio = size / np.maximum(needed, needed.max(initial=0.0) / FAR)
    for j in driven(model):
        if not 1.0 / FAR < ratio[j] < FAR:
            name = model.joint_names[model.topology.body_of_velocity[j]]
            warnings.warn(
                f"`tau` of joint {name!r} is {ratio[j]:.1e} times what the model needs for this `q`: are they in N m "
                "(N) and rad (m)?",
                stacklevel=3,
            )


def _checked(model: Model, t: np.ndarray, q: np.ndarray, tau: np.ndarray, cutoff: float) -> tuple[np.ndarray, float]:
    """The time and its step; `ValueError` for what no estimate should see."""
    count = len(t)
    for name, x, width in (("q", q, model.nq), ("tau", tau, model.nv)):
        if x.shape != (count, width):
            raise ValueError(f"`{name}` has shape {x.shape}, expected {(count, width)}: a row for each entry of `time`")
    if not np.all(np.isfinite(t)):
        raise ValueError(f"`time` is not finite at sample {int(np.argmin(np.isfinite(t)))}")
    steps = np.diff(t)
    if len(steps) and steps.min() <= 0.0:
        k = int(np.argmax(steps <= 0.0))
        raise ValueError(f"`time` does not grow from sample {k} to {k + 1}: {t[k]:g} s to {t[k + 1]:g} s")
    for what, x, slices in (("q", q, model.q_slice), ("tau", tau, model.v_slice)):
        for joint in model.joint_names:
            own = x[:, slices(joint)]
            for k in range(own.shape[1]):
                name = f"`{what}` of joint {joint!r}" + (f", entry {k}," if own.shape[1] > 1 else "")
                bad = ~np.isfinite(own[:, k])
                if bad.any():
                    raise ValueError(f"{name} is not finite at sample {int(np.argmax(bad))}, and at {bad.sum()} in all")
    if len(steps) and cutoff * np.median(steps) >= 0.5:
        raise ValueError(
            f"`time` steps by {np.median(steps):g} s, too slow for a filter of {cutoff:g} Hz: is it in seconds?"
        )
    least = 2 * int(np.ceil(ENDS / (cutoff * np.median(steps)))) + 3 if len(steps) else 3
    if count < least:
        raise ValueError(
            f"the log has {count} samples: a filter of {cutoff:g} Hz needs {least} to settle; is `time` in s?"
        )
    dt = float(np.median(steps))
    if np.max(np.abs(steps - dt)) > UNEVEN * dt:
        k = int(np.argmax(np.abs(steps - dt)))
        raise ValueError(
            f"`time` steps by {steps[k]:g} s from sample {k}, and by {dt:g} s elsewhere: put it on an even clock by "
            "`identify.resample`"
        )
    for joint in np.unique(model.topology.body_of_velocity[driven(model)]):
        name = model.joint_names[joint]
        if np.ptp(q[:, model.q_slice(name)], axis=0).max() == 0.0:
            raise ValueError(f"`q` of joint {name!r} is constant: nothing of its drive can be seen (dx.fix_joints?)")
        if np.ptp(tau[:, model.v_slice(name)], axis=0).max() == 0.0:
            raise ValueError(f"`tau` of joint {name!r} is constant: is it recorded?")
    limits = np.asarray(model.position_limits, float)
    for joint in model.joint_names:
        own, (low, high) = q[:, model.q_slice(joint)], limits[model.q_slice(joint)].T
        beyond = np.max(np.maximum(own - high, low - own), axis=0, initial=-np.inf)
        if np.any(beyond > BEYOND * (high - low)):
            raise ValueError(
                f"`q` of joint {joint!r} goes to {np.max(np.abs(own)):.3g}, far beyond its limits, {low[0]:.3g} to "
                f"{high[0]:.3g}: is it in rad (m)?"
            )
    jumps = np.abs(np.asarray(jax.vmap(lambda a, b: difference(model, a, b))(q[:-1], q[1:])))
    for joint in model.joint_names:
        own = jumps[:, model.v_slice(joint)].max(axis=1, initial=0.0)
        k = int(np.argmax(own))
        if own[k] > JUMP:
            raise ValueError(
                f"`q` of joint {joint!r} jumps by {own[k]:.3g} from sample {k} to {k + 1}: does its encoder start "
                "again after a turn (np.unwrap), or were samples lost?"
            )
    return t, dt


def delay(first: ArrayLike, second: ArrayLike, dt: float, *, most: float) -> float:
    """How much later `second` is than `first` [s], signals of shape `(T,)` every `dt` [s] that are alike but for that.

    The shift after which they differ by the least variance, between samples by the parabola through the best three.

    **Arguments:** `most`: the longest delay that is tried, either way [s]. `ValueError` if the best one is no shorter.
    """
    x, y = np.asarray(first, float), np.asarray(second, float)
    reach = int(np.ceil(most / dt)) + 1
    if x.shape != y.shape or x.ndim != 1 or len(x) < 4 * reach:
        raise ValueError(
            f"`first` and `second` must be signals of one length, at least {4 * reach} samples, got shapes {x.shape} "
            f"and {y.shape}"
        )
    # All over the same samples of the first.
    inner = x[reach : len(x) - reach]
    misfit = np.array([np.var(y[k : k + len(inner)] - inner) for k in range(2 * reach + 1)])
    k = int(np.argmin(misfit))
    if k in (0, 2 * reach):
        raise ValueError(f"the best delay is the longest tried: increase `most`, {most:g} s")
    before, here, after = misfit[k - 1 : k + 2]
    bent = before - 2.0 * here + after
    return float((k - reach + (0.5 * (before - after) / bent if bent else 0.0)) * dt)
