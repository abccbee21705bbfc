"""What a step with contact ends with: the state, the impulses, and how well it went."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.alart_curnier import LEFT, TOO_MUCH, UNSOLVED, Remembered
from dynax.contact.scene import Scene
from dynax.contact.solving import After
from dynax.simulate.touching_problem import Chosen
from dynax.simulate.trajectory import TouchReport, TouchStatus
from dynax.simulate.turning import Turning


class Touched(NamedTuple):
    """A step with contact."""

    q: jax.Array
    v: jax.Array
    impulses: jax.Array
    """On the second body of each candidate, in world axes, shape `(k, 3)` [N s]."""
    stops: jax.Array
    """Of stops along their coordinates, in the order of `scene.limited` and `scene.stops`, shape `(l,)` [N s, N m s];
    negative at upper limits, of cones and of ropes."""
    report: TouchReport
    remembered: Remembered
    """Where the solution of the next step is sought first; of candidates, and then of stops."""


def ended(scene: Scene, q: jax.Array, chosen: Chosen, axes: Turning, found: After) -> Touched:
    of_contacts, of_stops = jnp.split(found.impulses, [len(chosen.frames)])
    impulses = jnp.einsum("kia,ki->ka", chosen.frames, of_contacts)
    if chosen.rows is not None:
        impulses = jnp.zeros((len(scene.candidates), 3), q.dtype).at[chosen.rows].set(impulses)
    q, v = axes.ended(scene.model, q, chosen.problem.begin, found.v)
    remembered = lax.stop_gradient(_of_candidates(scene, chosen, found.remembered))
    return Touched(q, v, impulses, chosen.signs * of_stops[:, 2], _report(chosen, found), remembered)


def nothing(scene: Scene, dtype: Any) -> Remembered:
    """What is remembered where there was no step."""
    count = len(scene.candidates) + len(scene.limited) + len(scene.stops)
    return Remembered(jnp.zeros(scene.nv, dtype), jnp.zeros((count, 3), dtype))


def of_chosen(chosen: Chosen, before: Remembered | None) -> Remembered | None:
    """What is remembered of the contacts that take part."""
    if before is None or chosen.rows is None:
        return before
    count = len(before.impulses) - len(chosen.signs)
    own = before.impulses[chosen.rows], before.impulses[count:]
    return before._replace(impulses=jnp.concatenate(own))


def _of_candidates(scene: Scene, chosen: Chosen, found: Remembered) -> Remembered:
    if chosen.rows is None:
        return found
    of_contacts, of_stops = jnp.split(found.impulses, [len(chosen.rows)])
    every = jnp.zeros((len(scene.candidates), 3), of_contacts.dtype).at[chosen.rows].set(of_contacts)
    return found._replace(impulses=jnp.concatenate([every, of_stops]))


def _report(chosen: Chosen, found: After) -> TouchReport:
    v, impulses, unbalanced, gives, work, *_ = found
    wrong = (
        (~jnp.all(jnp.isfinite(v)), TouchStatus.NOT_FINITE),
        (gives > TOO_MUCH, TouchStatus.TOO_SOFT),
        (chosen.crowded, TouchStatus.CROWDED),
        (unbalanced > UNSOLVED * LEFT[v.dtype.name], TouchStatus.NOT_SOLVED),
    )
    status = jnp.select([case for case, _ in wrong], [int(kind) for _, kind in wrong], int(TouchStatus.SOLVED))
    pressing = jnp.sum(impulses[:, 2] > 0, dtype=jnp.int32)
    told = TouchReport(pressing, chosen.penetration, work, unbalanced, status.astype(jnp.int32))
    return lax.stop_gradient(told)
