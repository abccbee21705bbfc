"""What a step with contact has to solve, from where things are: rows of contacts and stops, and how they shall move.

A contact that is apart may close within the step, one that overlaps shall open within the time `relaxation` at most,
and one that is hit bounces:

    u_hat = -gap / dt        u_hat = -gap / (dt + relaxation)        u_hat = -e n . u, if that is more
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.batching import trailing, with_derivatives_of
from dynax.contact.coulomb import Impact, along_normals, mobilities, times
from dynax.contact.motion import Placed, candidate_materials, carried, contacts_at, frames_and_rows
from dynax.contact.scene import Scene
from dynax.contact.stops import stop_materials, stops_at


class Chosen(NamedTuple):
    """The problem of a step, and what its rows are."""

    problem: Impact
    frames: jax.Array
    """Of the contacts as rows, the normal last, shape `(c, 3, 3)`."""
    rows: jax.Array | None
    """The candidates that take part, shape `(c,)`; `None` for all. Stops do all."""
    signs: jax.Array
    """Of the stops, as `contact.stops` has them."""
    penetration: jax.Array
    crowded: jax.Array


class Numbers(NamedTuple):
    """Of the stepper."""

    relaxation: float
    softness: float
    most: int


def problem(
    scene: Scene,
    numbers: Numbers,
    q: jax.Array,
    at: Placed,
    v: jax.Array,
    free: jax.Array,
    inertia: jax.Array,
    dt: jax.Array,
) -> Chosen:
    """What is to be solved, where the velocity without contact is `free`."""
    touch, ends = contacts_at(scene, at), stops_at(scene, q, at)
    material, moved = candidate_materials(scene, q.dtype), jnp.asarray(carried(scene), q.dtype)
    rows, crowded = _nearest(touch.gap, numbers.most)
    near, friction, bounce, signs = touch, material.friction, material.restitution, moved
    if rows is not None:
        near, friction, bounce, signs = jax.tree.map(lambda x: x[rows], (touch, friction, bounce, signs))
    frames, jacobian = frames_and_rows(scene, near, q, at, signs)
    stops = ends.jacobian.astype(q.dtype)
    normals = jnp.concatenate([jacobian[:, 2], stops])
    mobility = mobilities(inertia, normals)
    # What does not move takes no part; where nothing can, there is nothing to solve.
    mobility = jnp.where(mobility > 0, mobility, 1.0)
    gap = jnp.concatenate([near.gap, ends.gap])
    bounce = jnp.concatenate([bounce, stop_materials(scene, q.dtype).restitution])
    target = _target(gap, bounce, _along(normals, v), _along(normals, free), dt, numbers.relaxation)
    friction = jnp.concatenate([friction, jnp.zeros_like(ends.gap)])
    found = Impact(inertia, free, v, jacobian, target, numbers.softness * mobility, mobility, friction, stops)
    return Chosen(found, frames, rows, ends.sign, jnp.max(-touch.gap, initial=0.0), crowded)


def _nearest(gaps: jax.Array, most: int) -> tuple[jax.Array | None, jax.Array]:
    """The contacts that take part, and whether there is no room for some that should."""
    if len(gaps) <= most:
        return None, jnp.zeros((), bool)
    gaps = lax.stop_gradient(gaps)
    rows = lax.top_k(-gaps, most + 1)[1]
    return rows[:-1], gaps[rows[-1]] < 0


_products = trailing(lambda _, rows, x: times(rows, x))


@with_derivatives_of(lambda rows, v: rows @ v)
def _along(rows: jax.Array, v: jax.Array) -> jax.Array:
    return _products((), rows, v)


def _target(gap, bounce, before, coming, dt, relaxation: float) -> jax.Array:
    """The velocities at which there is no force, shape `(k, 3)`, of normal velocities before and without contact."""
    apart = -gap / (dt + jnp.where(gap < 0, relaxation, 0.0))
    hit = lax.stop_gradient((gap + dt * coming < 0) & (before < 0) & (bounce > 0))
    return along_normals(jnp.where(hit, jnp.maximum(apart, -bounce * before), apart))
