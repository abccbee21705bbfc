"""A log whose samples were lost, came late, or have two clocks, on one even clock.

Between neighbours stands the cubic with the slopes of the parabolas through three samples (Hermite): exact for
parabolas however uneven the clock is, and local, so that a sample that is wrong spoils what is beside it alone.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax.typing import ArrayLike

from dynax.identify.log import continuous
from dynax.model import Model
from dynax.model.configuration import normalize

TWICE = 0.1
"""Of the usual step: what follows a sample within it is the same sample again."""


def resample(
    model: Model,
    time: ArrayLike,
    q: ArrayLike,
    tau: ArrayLike,
    *,
    most: float,
    step: float | None = None,
    tau_time: ArrayLike | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`time`, `q` and `tau` on an even clock, as `prepare` wants them.

    Rows that are not finite count as lost, and so does one that follows another within a tenth of a step.

    **Arguments:**

    - `time`: of `q`, shape `(T,)` [s]; `q`: shape `(T, nq)`, quaternions of whichever sign; `tau`: shape `(T, nv)`.
    - `most`: the longest gap that is bridged [s], well below half a period of the fastest that the motion has.
    - `step`: of the new clock [s]; left out, the usual one of `time`.
    - `tau_time`: where `tau` has a clock of its own, shape `(K,)` with `tau` `(K, nv)`.

    Raises `ValueError` that names the column for a longer gap, and for a clock that goes back.
    """
    parts = []
    for name, t, what, x, slices in (
        ("time", time, "q", q, model.q_slice),
        ("time" if tau_time is None else "tau_time", time if tau_time is None else tau_time, "tau", tau, model.v_slice),
    ):
        columns = [
            f"`{what}` of joint {joint!r}" for joint in model.joint_names for _ in range(*slices(joint).indices(10**9))
        ]
        parts.append(_kept(name, np.asarray(t, float), what, np.asarray(x, float), columns, most))
    (t, path), (own, forces) = parts
    path = np.asarray(continuous(model, jax.numpy.asarray(path)), float)
    step = float(np.median(np.diff(t))) if step is None else step
    begin, end = max(t[0], own[0]), min(t[-1], own[-1])
    if not 0.0 < step < end - begin:
        raise ValueError(f"`step` is {step:g} s, for what `q` and `tau` have together, {begin:g} s to {end:g} s")
    # A last sample is not lost to rounding.
    clock = begin + step * np.arange(int((end - begin) / step + TWICE) + 1)
    turned = jax.vmap(lambda q: normalize(model, q))(_cubic(t, path)(clock))
    return clock, np.asarray(turned), _cubic(own, forces)(clock)


def _kept(
    name: str, t: np.ndarray, what: str, x: np.ndarray, columns: list[str], most: float
) -> tuple[np.ndarray, np.ndarray]:
    """The rows that are there, each once."""
    if x.shape != (len(t), len(columns)):
        raise ValueError(f"`{what}` has shape {x.shape}, expected {(len(t), len(columns))}: a row for each of `{name}`")
    rows = np.flatnonzero(np.isfinite(t) & np.isfinite(x).all(axis=1))
    steps = np.diff(t[rows])
    if len(steps) and steps.min() < 0.0:
        k = int(np.argmax(steps < 0.0))
        one, other = rows[k : k + 2]
        raise ValueError(f"`{name}` goes back from sample {one} to {other}: {t[one]:g} s to {t[other]:g} s")
    rows = rows[np.append(True, steps > TWICE * np.median(steps))] if len(steps) else rows
    if len(rows) < 3:
        raise ValueError(f"`{what}` has {len(rows)} samples, expected three at least")
    steps = np.diff(t[rows])
    k = int(np.argmax(steps))
    if steps[k] > most:
        between = slice(rows[k] + 1, rows[k + 1])
        lost = np.flatnonzero(~np.isfinite(x[between]).all(axis=0))
        raise ValueError(
            f"{columns[lost[0]] if len(lost) else f'`{what}`'} has a gap of {steps[k]:g} s after sample {rows[k]}, at "
            f"{t[rows[k]]:g} s, longer than `most`, {most:g} s: take the parts on both sides (`compress(onto=)`)"
        )
    return t[rows], x[rows]


def _cubic(t: np.ndarray, x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    h = np.diff(t)[:, None]
    d = np.diff(x, axis=0) / h
    bent = np.diff(d, axis=0) / (h[1:] + h[:-1])
    slopes = np.concatenate([d[:1] - h[:1] * bent[:1], d[:-1] + h[:-1] * bent, d[-1:] + h[-1:] * bent[-1:]])

    def at(time: np.ndarray) -> np.ndarray:
        k = np.clip(np.searchsorted(t, time, side="right") - 1, 0, len(h) - 1)
        s = (time - t[k])[:, None] / h[k]
        cubic = h[k] * ((slopes[k] - d[k]) * (1.0 - s) - (slopes[k + 1] - d[k]) * s)
        return x[k] + s * (x[k + 1] - x[k]) + s * (1.0 - s) * cubic

    return at
