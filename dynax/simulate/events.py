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

from dynax.sweep.scan import settled

HALVINGS = {"float64": 60, "float32": 32}
NEAR = {"float64": 1e-4, "float32": 1e-2}
"""Of a step: how far apart the states are that say how fast a guard falls."""
CORRECTIONS = 3


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
    states: Any
    """After each small step, leaves of shape `(budget, ...)`."""
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

    # The search for an event has no derivatives, by what `flow` and `guards` close over neither.
    flow, of_flow = jax.closure_convert(flow, state, dt)
    guards, of_guards = jax.closure_convert(guards, state)

    def search_flow(state: Any, h: jax.Array) -> Any:
        return flow(state, h, *lax.stop_gradient(of_flow))

    def search_guards(state: Any) -> jax.Array:
        return guards(state, *lax.stop_gradient(of_guards))

    def micro(carry: tuple, _) -> tuple[tuple, tuple]:
        time, state = carry
        left = jnp.minimum(dt, duration - time)
        fixed, longest = lax.stop_gradient((state, left))
        found = _first(search_flow, search_guards, fixed, longest)
        which = jnp.argmin(found)
        happens = (found[which] <= longest) & (longest > 0)

        # A slope that is near enough: with each correction one more derivative is right, and what it lacks is less.
        at = lax.stop_gradient(jnp.where(happens, found[which], longest))
        beside = NEAR[longest.dtype.name] * longest
        low, high = lax.map(
            lambda h: search_guards(search_flow(fixed, h))[which], at + beside * jnp.array([-1.0, 1.0], kind)
        )
        rate = (high - low) / (2 * beside)

        def correct(found: tuple, _) -> tuple[tuple, None]:
            """The state at the time so far, and a better time."""
            h, _, _ = found
            moved = flow(state, h, *of_flow)
            value = guards(moved, *of_guards)[which]
            # Found to rounding already: what would go far is the jump of a guard.
            falls = happens & (rate < 0) & (jnp.abs(value) <= 1e-3 * longest * jnp.abs(rate))
            return (h - jnp.where(falls, value / jnp.where(falls, rate, 1.0), 0.0), h, moved), None

        h = jnp.where(happens, at, left)
        begin = settled(lambda found: correct(found, None)[0], (h, h, state))
        (_, h, moved), _ = lax.scan(correct, begin, None, length=CORRECTIONS + 1)
        state = lax.cond(happens, lambda moved: jump(moved, which), lambda moved: moved, moved)
        time = time + h
        return (time, state), (time, jnp.where(happens, which, -1), state)

    begin = settled(lambda at: micro(at, None)[0], (jnp.zeros((), kind), state))
    (time, state), (times, which, states) = lax.scan(micro, begin, None, length=budget)
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in (time, *jax.tree.leaves(state))]))
    short = lax.stop_gradient(duration - time) > 1e-6 * lax.stop_gradient(dt)
    status = jnp.where(finite, jnp.where(short, EventStatus.BUDGET, EventStatus.FINISHED), EventStatus.NOT_FINITE)
    return EventRun(time, state, jnp.sum(which >= 0), times, which, states, status)


def _first(flow: Callable, guards: Callable, state: Any, longest: jax.Array) -> jax.Array:
    """For each guard when it becomes negative, infinity if not by the end.

    What has just jumped stands at zero and rises, by rounding a little below zero perhaps. So the search begins at the
    end and halves the time until the guard is positive; one that never is falls at once.
    """
    count, halvings = len(jax.eval_shape(guards, state)), HALVINGS[longest.dtype.name]
    nothing, ends = jnp.zeros(count, longest.dtype), jnp.full(count, longest)

    def look(found: tuple) -> tuple:
        """Once more at each guard, all at their own times: first at the end and at the beginning, so that `flow` stands
        here once."""
        k, low, high, never, begins = found
        middle = jnp.where(never, 0.5 * high, 0.5 * (low + high))
        h = jnp.where(k == 0, ends, jnp.where(k == 1, nothing, middle))
        value = jax.vmap(lambda h, i: guards(flow(state, h))[i])(h, jnp.arange(count))
        below = value < 0
        searched = (
            jnp.where(below | never & (k < 2), low, middle),
            jnp.where(below, middle, high),
            never & below,
        )
        low, high, never = (jnp.where(k < 2, old, new) for old, new in zip((low, high, never), searched, strict=True))
        high = jnp.where((k == 0) & ~below, jnp.inf, high)
        return k + 1, low, high, never, jnp.where(k == 1, value <= 0, begins)

    def going(found: tuple) -> jax.Array:
        k, _, high, *_ = found
        return (k == 0) | ((k < 2 * halvings + 2) & jnp.any(high < jnp.inf))

    every = jnp.ones(count, bool)
    _, _, high, never, begins = lax.while_loop(going, look, settled(look, (0, nothing, ends, every, ~every)))
    return jnp.where(never & begins & (high < jnp.inf), 0.0, high)
