"""What a step with contact has to solve, from where things are: rows of contacts and stops, and how they shall move.

A contact that is apart may close within the step, one that overlaps shall open within the time `relaxation` at most,
and one that is hit bounces:

    u_hat = -gap / dt        u_hat = -gap / (dt + relaxation)        u_hat = -e n . u, if that is more

Where two bodies turn, normals and speeds at points change within the step, and they may come nearer by more than
`dt n . u`. What that would be if all went on as before is added to the gap, and normals are those halfway there, as far
as sides turn. Of what overlaps a part of how near turning may bring them comes apart at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.algorithms.frames import forward_kinematics
from dynax.compile.batching import trailing
from dynax.contact.branching import Rows, mobilities_of, rows_of
from dynax.contact.coulomb import Impact, along_normals, mobilities
from dynax.contact.grouping import Parts, groups_of
from dynax.contact.mobility import mobilities_by, trees_of
from dynax.contact.motion import (
    Touch,
    asked,
    candidate_bodies,
    candidate_materials,
    carried,
    contacts_and_ends,
    contacts_at,
    frames_and_rows,
)
from dynax.contact.placing import Placed
from dynax.contact.scene import Scene
from dynax.contact.shapes import EZ, Sphere, unit
from dynax.contact.stop_rows import StopRows
from dynax.contact.stops import stop_materials, stops_at
from dynax.embedding.model import tree_of
from dynax.linear.sums import across
from dynax.model import Model
from dynax.simulate.turning import Turning
from dynax.spatial import Transform
from dynax.sweep import take_rows
from dynax.sweep.sums import summed

AGAIN = 0.05
"""The part of what turning may bring nearer within a step that overlaps, where that was foreseen wrongly: so much comes
apart at once. A capsule that spins on its end at 24 turns a second is 0.2 % of its size deep instead of 1.3 %."""

STILL = {"float64": 1e-20, "float32": 1e-11}
"""The part of the largest mobility that is none: that of two feet towards each other under legs that are all but
straight is the square of their angle, and its inverse is beyond what float32 holds."""


class Chosen(NamedTuple):
    """The problem of a step, and what its rows are."""

    problem: Impact
    frames: jax.Array
    """Of the contacts as rows, the normal last, shape `(c, 3, 3)`."""
    branches: Rows | None
    """Where they fall into branches."""
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
    axes: Turning,
    dt: jax.Array,
    mobility: jax.Array | None = None,
) -> Chosen:
    """What is to be solved, where the velocity without contact is `free`. `mobility`: where it was found before."""
    (touch, bend), ends = _course(scene, q, at, v, axes), stops_at(scene, q, at)
    material, moved = candidate_materials(scene, q.dtype), jnp.asarray(carried(scene), q.dtype)
    rows, crowded = _nearest(touch.gap, numbers.most)
    near, friction, bounce, signs = touch, material.friction, material.restitution, moved
    if rows is not None:
        near, friction, bounce, signs, bend = jax.tree.map(lambda x: x[rows], (touch, friction, bounce, signs, bend))
    frames, jacobian = frames_and_rows(scene, near, q, at, signs)
    stops = jax.tree.map(lambda x: x.astype(q.dtype), ends.rows)
    branches = branches_of_step(scene, numbers)
    if mobility is None:
        mobility = _mobility(scene, branches, rows, inertia, jacobian, stops)
    gap = jnp.concatenate([near.gap, ends.gap])
    bounce = jnp.concatenate([bounce, stop_materials(scene, q.dtype).restitution])
    bend = [jnp.concatenate([x, jnp.zeros_like(ends.gap)]) for x in bend]
    relaxation = jnp.asarray(numbers.relaxation, q.dtype)
    apart, bounce = _target((), jacobian[:, 2], stops, v, free, gap, *bend, bounce, dt, relaxation)
    target = along_normals(apart + bounce)
    found = Impact(inertia, free, v, jacobian, target, numbers.softness * mobility, mobility, friction, stops, bounce)
    return Chosen(found, frames, branches, rows, ends.sign, jnp.max(-touch.gap, initial=0.0), crowded)


def _mobility(
    scene: Scene,
    branches: Rows | None,
    rows: jax.Array | None,
    inertia: jax.Array,
    jacobian: jax.Array,
    stops: StopRows,
) -> jax.Array:
    """Of contacts and stops. What does not move, or by rounding alone, takes no part, with 1; where nothing can, there
    is nothing to solve."""
    if branches is not None:
        found = mobilities_of(branches, inertia, jacobian, stops)
    elif rows is None and isinstance(scene.model, Model):
        found = mobilities_by(trees_of(scene))((), inertia, jacobian[:, 2], stops)
    else:
        found = mobilities(inertia, jnp.concatenate([jacobian[:, 2], stops.dense]))
    return jnp.where(found > STILL[found.dtype.name] * jnp.max(found, initial=0.0), found, 1.0)


def branches_of_step(scene: Scene, numbers: Numbers) -> Rows | None:
    """Those of a problem in which all candidates take part."""
    return rows_of(scene) if len(scene.candidates) <= numbers.most else None


def parts_of_step(scene: Scene, numbers: Numbers) -> Parts | None:
    """The same, or where there are no branches the groups of its rows."""
    if len(scene.candidates) > numbers.most:
        return None
    return rows_of(scene) or groups_of(scene)


def _nearest(gaps: jax.Array, most: int) -> tuple[jax.Array | None, jax.Array]:
    """The contacts that take part, and whether there is no room for some that should."""
    if len(gaps) <= most:
        return None, jnp.zeros((), bool)
    gaps = lax.stop_gradient(gaps)
    rows = lax.top_k(-gaps, most + 1)[1]
    return rows[:-1], gaps[rows[-1]] < 0


class Bend(NamedTuple):
    """Of the gaps within a step that goes on as before, shape `(k,)` [m]."""

    end: jax.Array
    """What they are in the end."""
    most: jax.Array
    """How much nearer than by `dt n . u` turning may bring shapes, four times the arc of their arms, since what slides
    along them comes nearer too; more is another edge or face."""


def _course(scene: Scene, q: jax.Array, at: Placed, v: jax.Array, axes: Turning) -> tuple[Touch, Bend]:
    """Where shapes touch, with their normals halfway through the step, and how gaps bend of those that are `asked`."""
    bodies, own = candidate_bodies(scene), np.array([asked(scene, pair) for pair in scene.candidates], bool)
    if not own.any():
        touch = contacts_at(scene, at)
        return touch, Bend(touch.gap, jnp.zeros_like(touch.gap))
    moved = forward_kinematics(tree_of(scene.model), axes.moved(scene.model, q, v))
    world = at.rotation[-1:], at.origin[-1:]
    later = Transform(*jax.tree.map(lambda *x: jnp.concatenate(x), (moved.rotation, moved.translation), world))
    touch, end = contacts_and_ends(scene, at, later)
    change = later.rotation - at.rotation
    turns = 0.5 * summed(summed(change * change, 2), 1)  # squares of angles
    turns, origins = take_rows((turns, at.origin), np.array(bodies) % len(turns))  # of the first, and of the second
    lengths = jax.vmap(lambda x: unit(x, EZ)[1])
    arms = sum(lengths(touch.point - origin) * (body >= 0) for origin, body in zip(origins, bodies, strict=True))
    place = np.where(own, np.cumsum(own) - 1, -1)
    most = 2.0 * (turns[0] + turns[1]) * arms
    bend = Bend(*(jnp.where(own, x, other) for x, other in ((take_rows(end.gap, place), touch.gap), (most, 0.0))))
    normal = _normals(scene, own, touch.normal, take_rows(end.normal, place), turns)
    return touch._replace(normal=normal), bend


def _normals(scene: Scene, own: np.ndarray, now: jax.Array, end: jax.Array, turns: jax.Array) -> jax.Array:
    """Halfway between the two, `(k, 3)`, of `own` and as far as sides of bodies turn, given squares of angles of the
    first and of the second: what is hit goes on along a side that turns on; but where round things pass each other the
    normal is that of the hit."""
    sides = np.array([not isinstance(shape, Sphere) for shape in scene.shapes])[np.array(scene.candidates)]
    most = sum(2.0 * turn * side for turn, side in zip(turns, sides.T, strict=True))
    most = jnp.minimum(most, 1.0)  # of more than a radian the sum below might vanish
    way = jnp.where((own & sides.any(axis=1))[:, None], end - now, 0.0)
    square = summed(way * way)
    beyond = square > most
    part = jnp.where(beyond, most, 1.0) / jnp.where(beyond, square, 1.0)
    both = now + 0.5 * jnp.where(part > 0, jnp.sqrt(jnp.where(part > 0, part, 1.0)), 0.0)[:, None] * way
    return both / jnp.sqrt(summed(both * both))[:, None]


@trailing
def _target(
    _: tuple, normals, stops: StopRows, v, free, gap, end, most, bounce, dt, relaxation
) -> tuple[jax.Array, jax.Array]:
    """The normal velocities at which there is no force, shape `(k,)`, of velocities before and without contact, where
    nothing bounces; and what is more where something does."""
    before, coming = (jnp.concatenate([across(normals, x), stops.times(x)]) for x in (v, free))
    # Where turning brings nothing nearer the limits are one, at which half of a slope would be felt.
    nearer = jnp.where(most > 0, jnp.clip(gap + dt * before - end, 0.0, most), 0.0)
    overlap = gap < 0
    within = relaxation * jnp.where(overlap, gap, 0.0) / jnp.where(overlap, gap - AGAIN * most, 1.0)
    apart = nearer / dt - gap / (dt + within)
    hit = lax.stop_gradient((gap + dt * coming < 0) & (before < 0) & (bounce > 0))
    return apart, jnp.where(hit, jnp.maximum(-bounce * before - apart, 0.0), 0.0)
