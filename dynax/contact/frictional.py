"""Impacts with friction (chapter 11.7).

Arrested, all that touches has no speed along the surface afterwards (11.72), whether the impulse for it lies in the
cone of friction or not:

    gamma = -(J H^-1 J^T)^-1 (1 + E) J v        E = diag(0, 0, e) for each

By Coulomb's law it slides where the cone is too narrow (`contact.coulomb`, the slip being that after the impact), and
leaves at `e` times the speed it came with or more. By Poisson's hypothesis all is brought to rest first, and then
given `e` times the impulses that it took, with friction of their own (Glocker & Pfeiffer 1995). One after another,
each impact has a course (`contact.course`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms.crba import mass_matrix
from dynax.contact.alart_curnier import LEFT, UNSOLVED
from dynax.contact.coulomb import Impact, mobilities
from dynax.contact.course import struck
from dynax.contact.motion import candidate_materials, contacts_at, frames_and_rows
from dynax.contact.placing import placed
from dynax.contact.rigid import ImpactStatus, as_touching
from dynax.contact.scene import Scene
from dynax.contact.solving import After, after
from dynax.contact.stop_rows import StopRows
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.linear.solve import solve
from dynax.model.checks import as_state

STIFF = {"float64": 1e-9, "float32": 1e-4}
"""Compliance of a contact as a part of its mobility."""
SLOW = {"float64": 1e-9, "float32": 1e-5}
"""As a part of the fastest: what comes nearer more slowly than that does not hit."""
ROUNDS = 8
"""Impacts one after another at most, by the number of contacts."""


class StruckWithFriction(NamedTuple):
    """An impact with friction."""

    v: jax.Array
    """After it, shape `(nv,)`."""
    impulses: jax.Array
    """On the second body of each candidate, in world axes, shape `(k, 3)` [N s]."""
    energy: jax.Array
    """What it changes of the kinetic energy [J]."""
    status: jax.Array
    """An `ImpactStatus`."""


def frictional_impact(
    scene: Scene, q: Any, v: Any, touching: Any, law: str = "coulomb", *, sequential: bool = False
) -> StruckWithFriction:
    """The velocity after an impact of the candidates `touching`, shape `(k,)`, with friction, all at once; or, with
    `sequential`, one after another, the fastest first, until none comes nearer.

    **Arguments:** `law`, each with the friction and the restitution `e` of its pair:

    - `"coulomb"`: it leaves at `e` times the speed it came with (Newton).
    - `"poisson"`: with `e` times the impulse that brought it to rest.
    - `"energetic"`: with `e^2` times the work that brought it to rest (Stronge). In sequence only.
    - `"arrested"`: each sticks (Featherstone 2008, 11.72). Where that takes more than friction gives, the status is
      `CONE_VIOLATED`. All at once only.

    They are one where the slip keeps its direction. Of an eccentric impact whose slip stops or turns Newton's
    restitution may gain energy, and Poisson's where several touch: the status is then `ENERGY_GAINED`.
    """
    q, v = as_state(scene.model, q=q, v=v)
    laws = SEQUENTIAL if sequential else TOGETHER
    if law not in laws:
        order = "sequential" if sequential else "at once"
        raise ValueError(f"`law` is {law!r}, expected one of {', '.join(map(repr, laws))} ({order})")
    at = placed(scene, q)
    touch, material = contacts_at(scene, at), candidate_materials(scene, q.dtype)
    frames, rows = frames_and_rows(scene, touch, q, at)
    touching = as_touching(touching, len(rows), "candidate")
    rows = jnp.where(touching[:, None, None], rows, 0.0)
    inertia, before = mass_matrix(scene.model, q), rows @ v
    new, local, status = laws[law](inertia, rows, v, before, material.restitution, material.friction)
    parts = jnp.sum(local * (before + rows @ new), axis=1)
    energy = 0.5 * jnp.sum(parts)
    gained = lax.stop_gradient(energy > 1e-6 * jnp.sum(jnp.abs(parts)))
    status = jnp.where((status == ImpactStatus.DONE) & gained, ImpactStatus.ENERGY_GAINED, status)
    return StruckWithFriction(new, jnp.einsum("kia,ki->ka", frames, local), energy, status)


def _arrested(inertia, rows, v, before, bounce, friction) -> tuple[jax.Array, jax.Array, jax.Array]:
    flat = rows.reshape(-1, rows.shape[-1])
    response = solve(inertia, flat.T)
    wanted = before.at[:, 2].multiply(1.0 + bounce)
    impulses = -(pseudo_inverse(flat @ response).matrix @ wanted.ravel())
    local = impulses.reshape(-1, 3)
    along, press = jnp.sum(local[:, :2] ** 2, axis=1), local[:, 2]
    size = 1e-9 * jnp.max(jnp.abs(local), initial=0.0)
    outside = jnp.any((press < -size) | (along > (friction * jnp.maximum(press, 0.0) + size) ** 2))
    return v + response @ impulses, local, jnp.where(outside, ImpactStatus.CONE_VIOLATED, ImpactStatus.DONE)


def _coulomb(inertia, rows, v, before, bounce, friction) -> tuple[jax.Array, jax.Array, jax.Array]:
    found = _apart(inertia, rows, v, bounce * jnp.maximum(-before[:, 2], 0.0), friction)
    return found.v, found.impulses, _as_status(found)


def _poisson(inertia, rows, v, before, bounce, friction) -> tuple[jax.Array, jax.Array, jax.Array]:
    still = jnp.zeros_like(bounce)
    rest = _apart(inertia, rows, v, still, friction)
    back = _given(inertia, rows, rest.v, bounce * rest.impulses[:, 2], friction)
    more = _apart(inertia, rows, back.v, still, friction)
    status = jnp.max(jnp.stack([_as_status(found) for found in (rest, back, more)]), axis=0)
    return more.v, rest.impulses + back.impulses + more.impulses, status


def _apart(inertia, rows, v, speed, friction) -> After:
    """With impulses that make all that touches part with a `speed`, shape `(k,)`, or more."""
    mobility, takes_part = _mobility(inertia, rows)
    target = jnp.zeros_like(rows[:, :, 0]).at[:, 2].set(jnp.where(takes_part, speed, -1.0))
    stops, compliance = StopRows.none(rows), STIFF[v.dtype.name] * mobility
    problem = Impact(inertia, v, v, rows, target, compliance, mobility, friction, stops)
    return after(problem, as_given=True)


def _given(inertia, rows, v, press, friction) -> After:
    """With normal impulses that are known, `press`, shape `(k,)`. In units in which they are huge, the velocity along
    the normal counts for nothing beside the compliance, and `gamma_n = u_hat / R`."""
    mobility, _ = _mobility(inertia, rows)
    small = STIFF[v.dtype.name]
    compliance = small * mobility
    units = jnp.ones(3, v.dtype).at[2].set(small)
    target = jnp.zeros_like(rows[:, :, 0]).at[:, 2].set(compliance * press / small)
    rows = rows * units[:, None]
    mobility, friction = mobility * small**2, friction * small
    problem = Impact(inertia, v, v, rows, target, compliance, mobility, friction, StopRows.none(rows))
    found = after(problem, as_given=True)
    return found._replace(impulses=found.impulses * units)


def _mobility(inertia: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Along the normals, 1 for what does not touch; and what does."""
    mobility = mobilities(inertia, rows[:, 2])
    takes_part = mobility > 0
    return jnp.where(takes_part, mobility, 1.0), takes_part


def balanced(found: After) -> jax.Array:
    """Whether the problem was solved, up to what rounding of velocities makes of impulses by that compliance."""
    dtype = found.v.dtype
    rounding = 16 * float(jnp.finfo(dtype).eps) / STIFF[dtype.name]
    return found.unbalanced <= max(UNSOLVED * LEFT[dtype.name], rounding)


def _as_status(found: After) -> jax.Array:
    return jnp.where(balanced(found), ImpactStatus.DONE, ImpactStatus.INFEASIBLE)


def _one_by_one(law: str, inertia, rows, v, before, bounce, friction) -> tuple[jax.Array, jax.Array, jax.Array]:
    flat = rows.reshape(-1, rows.shape[-1])
    response = solve(inertia, flat.T)
    mobility = (flat @ response).reshape(len(rows), 3, -1, 3)
    _, takes_part = _mobility(inertia, rows)
    index = jnp.arange(len(rows))
    slow = lax.stop_gradient(SLOW[v.dtype.name] * jnp.max(jnp.abs(before), initial=0.0))

    def strike(state: tuple, _) -> tuple[tuple, None]:
        u, impulses, good = state
        own = jnp.argmin(jnp.where(takes_part, u[:, 2], jnp.inf))
        hits = takes_part[own] & (u[own, 2] < -slow)
        # What does not hit has a course all the same, of numbers that are finite.
        begin = jnp.where(hits, u[own], jnp.asarray([0.0, 0.0, -1.0], u.dtype))
        alone = jnp.where(hits, mobility[own, :, own], jnp.eye(3, dtype=u.dtype))
        impulse, done = struck(alone, friction[own], bounce[own], begin, law)
        new = jnp.where((index == own)[:, None] & hits, impulse, 0.0)
        return (u + jnp.einsum("kilj,lj->ki", mobility, new), impulses + new, good & (done | ~hits)), None

    rounds = ROUNDS * len(rows) if len(rows) > 1 else 1
    (u, impulses, good), _ = lax.scan(strike, (before, jnp.zeros_like(before), jnp.ones((), bool)), None, length=rounds)
    ended = jnp.all(~takes_part | (u[:, 2] >= -jnp.maximum(slow, 1e-3 * jnp.max(jnp.abs(before), initial=0.0))))
    status = jnp.where(ended, ImpactStatus.DONE, ImpactStatus.BUDGET)
    return v + response @ impulses.ravel(), impulses, jnp.where(good, status, ImpactStatus.INFEASIBLE)


TOGETHER: dict[str, Callable] = {"coulomb": _coulomb, "poisson": _poisson, "arrested": _arrested}
SEQUENTIAL: dict[str, Callable] = {
    law: partial(_one_by_one, course)
    for law, course in {"coulomb": "newton", "poisson": "poisson", "energetic": "energetic"}.items()
}
