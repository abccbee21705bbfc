"""Contacts that stick and slide, between events and at them: Coulomb's law along the surfaces of `contact.sets`.

Of the active contacts some **stick**, and hold as equations along the surface too; the others **slide**, and rub:

    sticks   n . u' = 0,  t . u' = 0        |f_t| <= mu f_n
    slides   n . u' = 0,  f_t = -mu f_n s   s along the slip, or where that begins against what held it

With `f = E g`, of the normals of all and the tangents of those that stick, it is one linear system

    S (W E g + d) = 0        W = J H^-1 J^T        d = J a_free + Jdot v

The slip of a contact that comes to its end and a force that leaves the cone are events, and there a problem of
accelerations says what follows (`contact.coulomb`). Where `n . W (n - mu s)` of a contact that slides is not positive,
friction presses it in, and no force, or more than one, keeps it there (Painleve 1895): that is told, and not decided.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms.crba import mass_matrix
from dynax.contact.complementarity import ComplementarityStatus
from dynax.contact.coulomb import Impact, length_along
from dynax.contact.frictional import SEQUENTIAL, STIFF, TOGETHER, balanced
from dynax.contact.motion import candidate_materials, contacts_at, frames_and_rows
from dynax.contact.placing import placed
from dynax.contact.rigid import ImpactStatus, gaps_at
from dynax.contact.scene import Scene
from dynax.contact.sets import LEAST, SLOW, Settled, onto_surfaces, pressing, remainder, spanning
from dynax.contact.solving import After, after
from dynax.contact.stop_rows import StopRows
from dynax.contact.stops import stop_materials, stops_at
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.linear.solve import solve
from dynax.model.configuration import integrate
from dynax.routes.forward_dynamics import forward_dynamics

LAWS = {"newton": TOGETHER["coulomb"], "poisson": TOGETHER["poisson"], "sequential": SEQUENTIAL["coulomb"]}
STOPPED = {"float64": 1e-7, "float32": 1e-3}
"""A speed after an impact that is none [m/s], and more by the speed before."""
SLIPS = {"float64": 1e-8, "float32": 1e-4}
"""A slip [m/s] that has a direction."""
FAST = 1e6
"""In the problem of accelerations, by the largest, that of what slides: its direction is known."""
FULL = 1e-6
"""How near to the edge of the cone a force is on it, by its size."""
PRESSES_IN = 1e-6
"""Of the mobility of a contact, what is left by friction that is nothing."""


class Held(NamedTuple):
    """Of candidates and then of stops, shapes `(m,)` and `(m, 3)`."""

    current: jax.Array
    active: jax.Array
    stuck: jax.Array
    """Which of the active ones stick."""
    way: jax.Array
    """In world axes, of unit length, where the others slide to; zero where that is not known."""
    moving: jax.Array
    """Which slipped where the small step begins."""

    @classmethod
    def none(cls, count: int, dtype) -> Held:
        no = jnp.zeros(count, bool)
        return cls(no, no, no, jnp.zeros((count, 3), dtype), no)


class Rubbed(NamedTuple):
    """The dynamics of what sticks and slides."""

    a: jax.Array
    forces: jax.Array
    """Along the normals, shape `(m,)` [N]."""
    spare: jax.Array
    """What friction has in reserve of what sticks, shape `(m,)` [N]."""
    hold: jax.Array
    """How much a force along the normal opens what slides, with its friction, by what it does without: 1 for the
    others."""


class Rows(NamedTuple):
    """Of contacts and stops, the normal last."""

    jacobian: jax.Array
    """Shape `(m, 3, nv)`."""
    frames: jax.Array
    """Shape `(m, 3, 3)`."""


def rows_at(scene: Scene, q: jax.Array) -> Rows:
    at = placed(scene, q)
    touch, ends = contacts_at(scene, at), stops_at(scene, q, at).jacobian
    frames, own = frames_and_rows(scene, touch, q, at)
    straight = jnp.zeros((len(ends), 3, scene.nv), q.dtype).at[:, 2].set(ends)
    axes = jnp.broadcast_to(jnp.eye(3, dtype=q.dtype), (len(ends), 3, 3))
    return Rows(jnp.concatenate([own, straight]), jnp.concatenate([frames, axes]))


def begun(scene: Scene, q: jax.Array, v: jax.Array, held: Held) -> Held:
    """With the directions of what slips now, for the small step that begins."""
    rows = rows_at(scene, q)
    u = rows.jacobian @ v
    length = length_along(u)
    moving = held.active & ~held.stuck & (length > SLIPS[q.dtype.name])
    s = u[:, :2] / jnp.where(moving, length, 1.0)[:, None]
    way = jnp.einsum("kia,ki->ka", rows.frames[:, :2], s)
    return held._replace(way=jnp.where(moving[:, None], way, held.way), moving=lax.stop_gradient(moving))


def slips(scene: Scene, q: jax.Array, v: jax.Array, held: Held) -> jax.Array:
    """Along where the small step began to slide to, shape `(m,)`; what began at rest has not stopped yet, by rounding
    a little behind it perhaps."""
    rows = rows_at(scene, q)
    along = jnp.sum((rows.frames @ held.way[:, :, None])[:, :, 0] * (rows.jacobian @ v), axis=1)
    return along + jnp.where(held.moving, 0.0, SLIPS[q.dtype.name])


def rubbing_dynamics(scene: Scene, q: jax.Array, v: jax.Array, tau: jax.Array, held: Held) -> Rubbed:
    """The accelerations while the same ones are active, stick and slide; forces may leave the cone, or be negative."""
    free = forward_dynamics(scene.model, q, v, tau)
    zero = jnp.zeros((), q.dtype)
    rows, rates = jax.jvp(lambda t: rows_at(scene, integrate(scene.model, q, t * v)), (zero,), (jnp.ones_like(zero),))
    flat = rows.jacobian.reshape(-1, scene.nv)
    response = solve(mass_matrix(scene.model, q), flat.T)
    mobility, d = flat @ response, flat @ free + (rates.jacobian @ v).reshape(-1)

    way = (rows.frames @ held.way[:, :, None])[:, :2, 0]
    u = rows.jacobian @ v
    length = length_along(u)
    # Behind an event, where it is only looked for, what has stopped would turn back, and hide it.
    ahead = held.moving & (jnp.sum(u[:, :2] * way, axis=1) > 0.5 * length)
    way = jnp.where(ahead[:, None], u[:, :2] / jnp.where(ahead, length, 1.0)[:, None], way)
    friction = frictions(scene, q.dtype)
    slides = held.active & ~held.stuck
    rubs = jnp.where(slides, friction, 0.0)
    given = jnp.zeros((len(friction), 3, 3), q.dtype)
    given = given.at[:, :2, 2].set(-rubs[:, None] * way).at[:, 2, 2].set(held.active)
    given = given.at[:, 0, 0].set(held.stuck).at[:, 1, 1].set(held.stuck)

    asked = jnp.stack([held.stuck, held.stuck, held.active], axis=1).reshape(-1)
    count = len(friction)
    by_given = jnp.einsum("rkj,kji->rki", mobility.reshape(3 * count, count, 3), given).reshape(3 * count, -1)
    size = lax.stop_gradient(jnp.diagonal(mobility)[2::3])
    scale = jnp.repeat(jnp.where(size > 0, 1.0 / jnp.sqrt(jnp.where(size > 0, size, 1.0)), 0.0), 3)
    scaled = jnp.where(asked[:, None], scale[:, None] * by_given * scale, 0.0)
    g = -scale * (pseudo_inverse(scaled, LEAST[q.dtype.name]).matrix @ jnp.where(asked, scale * d, 0.0))
    forces = jnp.einsum("kij,kj->ki", given, g.reshape(count, 3))
    spare = friction * forces[:, 2] - length_along(forces)
    hold = jnp.where(slides, jnp.diagonal(scaled)[2::3], 1.0)
    return Rubbed(free + response @ forces.reshape(-1), forces[:, 2], jnp.where(held.stuck, spare, 1.0), hold)


def settled_with_friction(
    scene: Scene,
    q: jax.Array,
    v: jax.Array,
    tau: jax.Array,
    left: jax.Array,
    freed: jax.Array,
    law: str,
    rest: float,
    reach: float,
) -> Settled:
    """What an event leads to, as `contact.sets.settled` has it. `left`: contacts whose force has come to its end;
    `freed`: those that friction holds no longer; shapes `(m,)`."""
    dtype = q.dtype.name
    fixed, here = lax.stop_gradient((scene, q))
    touching = gaps_at(fixed, here) <= 0.5 * reach
    q = onto_surfaces(scene, q, touching)

    rows, inertia = rows_at(scene, q), mass_matrix(scene.model, q)
    own = jnp.where(touching[:, None, None], rows.jacobian, 0.0)
    before = own @ v
    hits = touching & (before[:, 2] < -SLOW[dtype])
    cut = jnp.any(hits & (before[:, 2] >= -rest))
    bounce = jnp.where(before[:, 2] < -rest, restitutions(scene, q.dtype), 0.0)
    friction = frictions(scene, q.dtype)
    struck, impulses, status = LAWS[law](inertia, own, v, before, bounce, friction)
    parts = jnp.sum(impulses * (before + own @ struck), axis=1)
    gained = jnp.any(hits) & (jnp.sum(parts) > 1e-6 * jnp.sum(jnp.abs(parts)))
    status = jnp.where((status == ImpactStatus.DONE) & gained, ImpactStatus.ENERGY_GAINED, status)
    v = jnp.where(lax.stop_gradient(jnp.any(hits)), struck, v)

    # What only decides has no derivatives.
    own, inertia, mu, frames = lax.stop_gradient((own, inertia, friction, rows.frames))
    here, after_it, force = lax.stop_gradient((q, v, tau))
    slow = STOPPED[dtype] * (1.0 + jnp.max(jnp.abs(lax.stop_gradient(before)), initial=0.0))
    u = own @ after_it
    current = touching & (jnp.abs(u[:, 2]) <= slow)
    moves = length_along(u) > slow
    s = jnp.where(moves[:, None], u[:, :2] / jnp.where(moves, length_along(u), 1.0)[:, None], 0.0)
    free = forward_dynamics(fixed.model, here, after_it, force)
    turning = _turning(fixed, here, after_it)
    normals = own[:, 2]
    response = solve(inertia, own.reshape(-1, scene.nv).T).reshape(-1, *own.shape[:2])
    mobility = normals @ response[:, :, 2]
    size = jnp.diagonal(mobility)

    def accelerated(taken: jax.Array) -> After:
        largest = FAST * (1.0 + jnp.max(jnp.abs(own @ free + turning), initial=0.0))
        target = jnp.concatenate([-turning[:, :2] - largest * s, -turning[:, 2:]], axis=1)
        takes_part = taken & (size > 0)
        target = jnp.where(takes_part[:, None], target, jnp.array([0.0, 0.0, -1.0], q.dtype))
        one = jnp.where(takes_part, size, 1.0)
        masked = jnp.where(takes_part[:, None, None], own, 0.0)
        stops = StopRows.none(masked)
        return after(Impact(inertia, free, free, masked, target, STIFF[dtype] * one, one, mu, stops), as_given=True)

    scale = jnp.where(size > 0, 1.0 / jnp.sqrt(jnp.where(size > 0, size, 1.0)), 0.0)
    scaled = scale[:, None] * mobility * scale

    def fewer(taken: jax.Array, _) -> tuple[jax.Array, tuple]:
        """What all that touches does, and then what some of it does, whose normals are independent."""
        found = accelerated(taken)
        forces = jnp.where(taken, found.impulses[:, 2], 0.0)
        rates = jnp.where(taken, normals @ found.v + turning[:, 2], 0.0)
        largest = jnp.max(forces, initial=0.0)
        parts = left & (forces <= 10 * LEAST[dtype] * largest)
        stays = taken & (rates <= LEAST[dtype] * (1.0 + jnp.max(jnp.abs(rates), initial=0.0)))
        presses = stays & ~parts & (forces > LEAST[dtype] * largest)
        alike = jnp.where(presses, forces / jnp.where(scale > 0, scale, 1.0), 0.0)
        active = spanning(scaled, pressing(scaled, alike, dtype), stays & ~parts, dtype)
        stays = stays & (~parts | (remainder(scaled, active) <= LEAST[dtype]))
        return active, (stays, taken, found)

    _, every = lax.scan(fewer, current, None, length=2)
    (stays, _, found), (_, active, again) = (jax.tree.map(lambda x, k=k: x[k], every) for k in (0, 1))
    most = mu * jnp.maximum(again.impulses[:, 2], 0.0)
    along = length_along(again.impulses)
    edge = (along >= (1.0 - FULL) * most) | (freed & (along > 0.5 * most))
    stuck = active & ~moves & ~edge
    # What presses nothing has no direction: it does not rub until the next event, unless it slips.
    rubs = along > LEAST[dtype] * jnp.max(most, initial=0.0)
    begins = jnp.where(rubs[:, None], -again.impulses[:, :2] / jnp.where(rubs, along, 1.0)[:, None], 0.0)
    local = jnp.where(moves[:, None], s, begins)
    way = jnp.einsum("kia,ki->ka", frames[:, :2], local)
    sets = Held(stays, active, stuck, jnp.where((active & ~stuck)[:, None], way, 0.0), active & ~stuck & moves)
    v = stopped(scene, q, v, sets)
    good = balanced(found) & balanced(again)
    pressed = jnp.where(good, ComplementarityStatus.SOLVED, ComplementarityStatus.INFEASIBLE)
    # Of a force along the normal with its friction, against the slip that there is.
    given = jnp.concatenate([-mu[:, None] * s, jnp.ones_like(mu)[:, None]], axis=1)
    opens = jnp.einsum("kn,nkj,kj->k", normals, response, given)
    jammed = jnp.any(current & moves & (opens <= PRESSES_IN * size))
    return Settled(q, v, sets, status, pressed, cut, jammed)


def stopped(scene: Scene, q: jax.Array, v: jax.Array, held: Held) -> jax.Array:
    """The nearest velocity, in the metric of the mass matrix, at which what is active stays and what sticks rests."""
    asked = jnp.stack([held.stuck, held.stuck, held.active], axis=1).reshape(-1)
    rows = jnp.where(asked[:, None], rows_at(scene, q).jacobian.reshape(-1, scene.nv), 0.0)
    response = solve(mass_matrix(scene.model, q), rows.T)
    size = jnp.diagonal(rows @ response)
    scale = lax.stop_gradient(jnp.where(size > 0, 1.0 / jnp.sqrt(jnp.where(size > 0, size, 1.0)), 0.0))
    inverse = pseudo_inverse(scale[:, None] * (rows @ response) * scale, LEAST[q.dtype.name]).matrix
    return v - response @ (scale * (inverse @ (scale * (rows @ v))))


def _turning(scene: Scene, q: jax.Array, v: jax.Array) -> jax.Array:
    zero = jnp.zeros((), q.dtype)
    rate = jax.jvp(
        lambda t: rows_at(scene, integrate(scene.model, q, t * v)).jacobian, (zero,), (jnp.ones_like(zero),)
    )[1]
    return rate @ v


def frictions(scene: Scene, dtype) -> jax.Array:
    own = candidate_materials(scene, dtype), stop_materials(scene, dtype)
    return jnp.concatenate([material.friction for material in own])


def restitutions(scene: Scene, dtype) -> jax.Array:
    own = candidate_materials(scene, dtype), stop_materials(scene, dtype)
    return jnp.concatenate([material.restitution for material in own])
