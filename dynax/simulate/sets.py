"""Motion of a scene from event to event (Featherstone 2008, chapter 11.5, Table 11.1): rigid, rubbing or not."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.rigid import gaps_at, normals_at
from dynax.contact.rubbing import (
    LAWS,
    PRESSES_IN,
    Held,
    Rubbed,
    begun,
    frictions,
    rubbing_dynamics,
    settled_with_friction,
    slips,
)
from dynax.contact.scene import Scene
from dynax.contact.sets import Sets, held_dynamics, settled
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.simulate.events import EventStatus, run_events
from dynax.simulate.runge_kutta import THIRD
from dynax.simulate.stepper import closed

NONE = {"float64": 1e-9, "float32": 1e-3}
"""A negative force that is none, by the largest."""
OFF = 1e-4
"""A speed along the normal that what is held does not have [m/s]."""
SAME = 1e-6
"""Of the longest step: events nearer to each other are at the same time."""


class SceneStatus(IntEnum):
    """How a motion from event to event came to its end, the worst of what happened."""

    FINISHED = 0
    ENERGY_GAINED = 1
    """In an impact, by its law."""
    INFEASIBLE = 2
    """Forces or impulses that keep shapes apart do not exist."""
    BUDGET = 3
    """The steps ran out before the end."""
    JAMMED = 4
    """Friction pressed in something that slid (Painleve): no force, or more than one, keeps shapes apart there, and
    what follows is not the motion of rigid bodies."""
    NOT_FINITE = 5


class SceneRun(NamedTuple):
    """A motion from event to event; rows after each small step."""

    time: jax.Array
    """Shape `(budget,)` [s]; from the end on always the same."""
    q: jax.Array
    v: jax.Array
    current: jax.Array
    """Which candidates, and then stops, touch and stay, shape `(budget, k + l)`."""
    active: jax.Array
    """Which of them hold as equations."""
    stuck: jax.Array
    """Which of these stick, none without friction."""
    which: jax.Array
    """What ended each small step, shape `(budget,)`: below `m = k + l` the contact that is gained, or left by its
    shape; from `m` on the one whose force came to its end; from `2 m` on the one that began to slide or came to rest,
    and from `3 m` on the one that jams; the last one is the beginning, and -1 nothing."""
    solved: jax.Array
    """How many complementarity problems of forces were solved: one at the beginning, one for each event."""
    cut: jax.Array
    """How many events had an impact that came too slowly to bounce."""
    status: jax.Array
    """A `SceneStatus`."""


class _State(NamedTuple):
    time: jax.Array
    q: jax.Array
    v: jax.Array
    sets: Any
    left: jax.Array
    """Whose force came to its end in the last event, and in those at the same time, shape `(k + l,)`."""
    last: jax.Array
    """When that was."""
    told: jax.Array
    """Problems solved, impacts cut, and the status."""


def run_scene(
    scene: Scene,
    q: Any,
    v: Any,
    tau: jax.Array | Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    duration: Any,
    dt: Any,
    budget: int,
    *,
    law: str = "newton",
    friction: bool = False,
    rest: float = 1e-3,
    reach: float = 1e-6,
) -> SceneRun:
    """The motion for `duration` [s], with steps of order 3 between events. Contacts hold as equations while they press;
    impacts, forces that come to their end, and corners that leave a face are events.

    With `friction` contacts stick or slide by Coulomb's law, with the friction of their materials: slip that comes to
    its end, and forces that leave the cone, are events too. Where slip turns in space as it ends, it is stopped to
    first order in the last step; and where it begins in space out of rest at once, the direction in which it does is
    taken as given by derivatives.

    **Arguments:**

    - `tau`: joint forces, shape `(nv,)`, or `tau(time, q, v)`.
    - `dt`: the longest step [s].
    - `budget`: steps at most, with one for each event.
    - `law`: of impacts, as `contact.impact` has it; with friction `"newton"` is the `"coulomb"` of
      `contact.frictional_impact`.
    - `rest`: what meets more slowly does not bounce [m/s]; it ends bounces that are without end in a finite time.
    - `reach`: how far apart shapes are that touch no longer, or in each other that meet anew [m]; steps that let what
      is held drift so far are too long, and then that is an event.

    Derivatives know when events happen, as those of `run_events`. For float64.
    """
    model = cast(Model, scene.model)
    if closed(model):
        raise ValueError(
            f"model {model.name!r} has loops, gears or conditions, which motion from event to event does not keep"
        )
    if law not in LAWS:
        raise ValueError(f"`law` is {law!r}, expected one of {', '.join(map(repr, LAWS))}")
    q, v = as_state(scene.model, q=q, v=v)
    dt = jnp.asarray(dt, q.dtype)
    count = len(scene.candidates) + len(scene.limited) + len(scene.stops)

    def torque(time: jax.Array, q: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.asarray(tau(time, q, v) if callable(tau) else tau, q.dtype)

    def dynamics(s: _State) -> tuple[jax.Array, jax.Array, list[jax.Array]]:
        """Accelerations, normal forces, and what of friction may come to its end."""
        force = torque(s.time, s.q, s.v)
        if not friction:
            found = held_dynamics(scene, s.q, s.v, force, s.sets.active)
            return found.a, found.forces, []
        found = rubbing_dynamics(scene, s.q, s.v, force, s.sets)
        return found.a, found.forces, _of_friction(scene, s, found)

    def flow(s: _State, h: jax.Array) -> _State:
        if friction:
            s = s._replace(sets=begun(scene, s.q, s.v, s.sets))

        def rate(q: jax.Array, v: jax.Array, delay: jax.Array) -> jax.Array:
            return dynamics(s._replace(time=s.time + delay, q=q, v=v))[0]

        # An event is found a little after it has happened, and a step that looked there would see another face.
        moved = THIRD.flow(model, s.q, s.v, rate, h)
        return s._replace(time=s.time + h, q=moved[0], v=moved[1])

    def guards(s: _State) -> jax.Array:
        gaps, rates = gaps_at(scene, s.q), normals_at(scene, s.q) @ s.v
        _, forces, of_friction = dynamics(s)
        none = NONE[q.dtype.name] * lax.stop_gradient(jnp.max(jnp.abs(forces), initial=0.0))
        return jnp.concatenate([
            jnp.where(s.sets.current, reach - jnp.abs(gaps), gaps),
            # Where a shape has run off a face its normal is another, and so its force: not force it is that ends there.
            jnp.where(s.sets.active & (jnp.abs(rates) <= OFF), forces + none, 1.0),
            *of_friction,
            jnp.where(s.told[:1] == 0, -1.0, 1.0).astype(q.dtype),  # which contacts there are is asked first
        ])  # fmt: skip

    def jump(s: _State, which: jax.Array) -> _State:
        # Of several that are about to be left each has an event of its own, and stays left by the next one.
        at_once = lax.stop_gradient(s.time - s.last) <= SAME * dt
        left = (jnp.arange(count) == which - count) | (at_once & s.left)
        given = scene, s.q, s.v, torque(s.time, s.q, s.v), left
        if friction:
            freed = (jnp.arange(count) == which - 2 * count) & s.sets.stuck
            found = settled_with_friction(*given, freed, law, rest, reach)
        else:
            found = settled(*given, law, rest, reach)
        wrong = jnp.maximum(jnp.asarray(STRUCK)[found.struck], jnp.asarray(PRESSED)[found.pressed])
        wrong = jnp.maximum(wrong, jnp.where(found.jammed, SceneStatus.JAMMED, SceneStatus.FINISHED))
        told = jnp.stack([s.told[0] + 1, s.told[1] + found.cut, jnp.maximum(s.told[2], wrong)])
        return _State(s.time, found.q, found.v, found.sets, left, s.time, told.astype(s.told.dtype))

    none = jnp.zeros(count, bool)
    zero = jnp.zeros((), q.dtype)
    nothing = Held.none(count, q.dtype) if friction else Sets(none, none)
    start = _State(zero, q, v, nothing, none, zero - dt, jnp.zeros(3, jnp.int32))
    run = run_events(flow, guards, jump, start, duration, dt, budget)
    end = jnp.asarray(ENDS)[run.status]
    s = run.states
    solved, cut, status = run.state.told
    stuck = s.sets.stuck if friction else jnp.zeros_like(s.sets.active)
    return SceneRun(
        run.times, s.q, s.v, s.sets.current, s.sets.active, stuck, run.which, solved, cut, jnp.maximum(status, end)
    )


def _of_friction(scene: Scene, s: _State, found: Rubbed) -> list[jax.Array]:
    """What sticks has friction in reserve, what slides goes on, and is not pressed in."""
    none = NONE[s.q.dtype.name] * lax.stop_gradient(jnp.max(jnp.abs(found.forces), initial=0.0))
    slides = s.sets.active & ~s.sets.stuck & (frictions(scene, s.q.dtype) > 0)
    reserve = jnp.where(s.sets.stuck, found.spare + none, 1.0)
    told = s.told[2] >= SceneStatus.JAMMED
    return [
        jnp.where(slides, slips(scene, s.q, s.v, s.sets), reserve),
        jnp.where(told, 1.0, found.hold - PRESSES_IN),
    ]


def _by(names: dict[int, SceneStatus]) -> list[int]:
    return [int(names.get(k, SceneStatus.FINISHED)) for k in range(max(names) + 1)]


STRUCK = _by({1: SceneStatus.INFEASIBLE, 2: SceneStatus.BUDGET, 3: SceneStatus.ENERGY_GAINED})
PRESSED = _by({1: SceneStatus.INFEASIBLE})
ENDS = _by({EventStatus.BUDGET: SceneStatus.BUDGET, EventStatus.NOT_FINITE: SceneStatus.NOT_FINITE})
