"""Motion with events: smooth between them, at each of them a jump, and derivatives that know when they happen.

A fixed number of small steps each goes as far as the next event, `h`, or the end, whichever comes first. When an event
happens is found without derivatives, by halving; two corrections by Newton's method on the same flow then carry those
of the time of the event, the first the first ones, the second the second ones too. What is left of the time after it
depends on it, and so the derivative of the jump, the "saltation", comes out by itself (Kong et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

HALVINGS = {"float64": 60, "float32": 32}


class EventStatus(IntEnum):
    """How a motion with events came to its end."""

    FINISHED = 0
    BUDGET = 1
    """The steps ran out before the end: too few, or events without end in a finite time (Zeno)."""
    NOT_FINITE = 2


class EventRun(NamedTuple):
    """A motion with events."""

    time: jax.Array
    """Where it ended [s]."""
    state: Any
    events: jax.Array
    """How many there were."""
    times: jax.Array
    """After each small step, shape `(budget,)`."""
    which: jax.Array
    """The guard whose event ended each small step, -1 for none."""
    status: jax.Array
    """An `EventStatus`."""


def run_events(
    flow: Callable[[Any, jax.Array], Any],
    guards: Callable[[Any], jax.Array],
    jump: Callable[[Any, jax.Array], Any],
    start: Any,
    duration: Any,
    dt: Any,
    budget: int,
) -> EventRun:
    """The motion from `start` for `duration` [s].

    **Arguments:**

    - `flow(state, h)`: the state after `h` seconds without an event, such as a step of a stepper; smooth, and the state
      itself for `h = 0`.
    - `guards(state)`: shape `(g,)`, positive or zero where the motion may be. An event is where one of them becomes
      negative, and one that is negative, or zero and falling, at the beginning is one at once.
    - `jump(state, i)`: the state after the event of guard `i`.
    - `dt`: the longest step. What becomes negative and positive again within one is not seen.
    - `budget`: steps at most, with one for each event.

    Works under `jit`, `vmap`, `jvp`, `vjp` and twice over. Events that happen at the same time happen one after
    another, each in a step of no length.
    """
    if budget < 1:
        raise ValueError(f"`budget` is {budget}, expected the number of steps at most")
    state = jax.tree.map(jnp.asarray, start)
    kind = jnp.result_type(float, *jax.tree.leaves(state))
    duration, dt = jnp.asarray(duration, kind), jnp.asarray(dt, kind)

    def micro(carry: tuple, _) -> tuple[tuple, tuple]:
        time, state = carry
        left = jnp.minimum(dt, duration - time)
        fixed, longest = lax.stop_gradient((state, left))
        found = _first(flow, guards, fixed, longest)
        which = jnp.argmin(found)
        happens = (found[which] <= longest) & (longest > 0)
        h = jnp.where(happens, found[which], longest)
        for _ in range(2):
            value, rate = jax.jvp(lambda h: guards(flow(state, h))[which], (h,), (jnp.ones_like(h),))
            falls = happens & (rate < 0)
            h = h - jnp.where(falls, value / jnp.where(falls, rate, 1.0), 0.0)
        h = jnp.where(happens, h, left)
        moved = flow(state, h)
        after = jump(moved, which)
        state = jax.tree.map(lambda a, b: jnp.where(happens, a, b), after, moved)
        time = time + h
        return (time, state), (time, jnp.where(happens, which, -1))

    (time, state), (times, which) = lax.scan(micro, (jnp.zeros((), kind), state), None, length=budget)
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in (time, *jax.tree.leaves(state))]))
    short = lax.stop_gradient(duration - time) > 1e-6 * lax.stop_gradient(dt)
    status = jnp.where(finite, jnp.where(short, EventStatus.BUDGET, EventStatus.FINISHED), EventStatus.NOT_FINITE)
    return EventRun(time, state, jnp.sum(which >= 0), times, which, status)


def _first(flow: Callable, guards: Callable, state: Any, longest: jax.Array) -> jax.Array:
    """For each guard when it becomes negative, infinity if not by the end.

    What has just jumped stands at zero and rises, by rounding a little below zero perhaps. So the search begins at the
    end and halves the time until the guard is positive; one that never is falls at once.
    """
    begin = guards(state)
    count, halvings = len(begin), HALVINGS[longest.dtype.name]

    def at(h: jax.Array) -> jax.Array:
        """Each guard at its own time."""
        return jax.vmap(lambda h, k: guards(flow(state, h))[k])(h, jnp.arange(count))

    ends = jnp.full(count, longest)
    below = at(ends) < 0
    low = lax.fori_loop(0, halvings, lambda _, h: jnp.where(at(h) < 0, 0.5 * h, h), ends)
    never = at(low) < 0
    high = jnp.minimum(2.0 * low, ends)

    def halve(_, bracket: tuple) -> tuple:
        low, high = bracket
        middle = 0.5 * (low + high)
        beyond = at(middle) < 0
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    _, high = lax.fori_loop(0, halvings, halve, (low, high))
    return jnp.where(below, jnp.where(never & (begin <= 0), 0.0, high), jnp.inf)
