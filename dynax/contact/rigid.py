"""Rigid contact without friction: the forces that keep shapes from going into each other (chapter 11.1 to 11.5), and
the impulses when they meet (11.7).

    T = [t_i]     zeta = T^T v     M = T^T H^-1 T     d = T^T H^-1 (tau - C) + Tdot^T v     zeta' = M lambda + d
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms.crba import mass_matrix
from dynax.contact.complementarity import ComplementarityStatus, complementary
from dynax.contact.motion import candidate_materials, carried, contacts_at, jacobian_at
from dynax.contact.placing import placed
from dynax.contact.scene import Scene
from dynax.contact.stops import stop_materials, stops_at
from dynax.linear.solve import solve
from dynax.model.checks import as_state
from dynax.model.configuration import integrate
from dynax.routes.forward_dynamics import forward_dynamics


class ContactState(IntEnum):
    """Of a candidate (11.4)."""

    APART = 1
    MEETING = 2
    """It touches and comes nearer: an impact is due."""
    PARTING = 3
    TOUCHING = 4
    """It touches and stays."""


class Pressed(NamedTuple):
    """The dynamics of what touches."""

    a: jax.Array
    """Accelerations, shape `(nv,)`."""
    forces: jax.Array
    """Along the normal of each candidate, and after them of stops, zero without contact, shape `(k + l,)` [N]."""
    rates: jax.Array
    """`zeta'`, the acceleration with which each gap opens, shape `(k + l,)` [m/s^2]."""
    status: jax.Array
    """A `ComplementarityStatus`."""


class ImpactStatus(IntEnum):
    """How an impact was solved."""

    DONE = 0
    INFEASIBLE = 1
    BUDGET = 2
    """Impacts one after another that did not come to an end."""
    ENERGY_GAINED = 3
    CONE_VIOLATED = 4
    """Friction does not give what it takes to stick."""


class Struck(NamedTuple):
    """An impact."""

    v: jax.Array
    """After it, shape `(nv,)`."""
    impulses: jax.Array
    """Along the normals, and of stops, shape `(k + l,)` [N s]."""
    energy: jax.Array
    """What it changes of the kinetic energy [J]."""
    status: jax.Array
    """An `ImpactStatus`."""


def contact_states(scene: Scene, q: Any, v: Any, gap: float = 1e-9, speed: float = 1e-9) -> jax.Array:
    """The `ContactState` of each candidate and then of each stop, shape `(k + l,)`: it touches up to a gap [m], and
    stays up to a speed [m/s]."""
    q, v = as_state(scene.model, q=q, v=v)
    rate = normals_at(scene, q) @ v
    moving = jnp.where(rate < 0, ContactState.MEETING, ContactState.PARTING)
    near = jnp.where(jnp.abs(rate) <= speed, ContactState.TOUCHING, moving)
    return jnp.where(gaps_at(scene, q) > gap, ContactState.APART, near)


def contact_dynamics(scene: Scene, q: Any, v: Any, tau: Any, touching: Any) -> Pressed:
    """The accelerations under joint forces `tau` where the candidates and stops `touching`, shape `(k + l,)`, are in
    contact and at rest along their normals. Without friction; forces that are not unique are shared evenly (11.41,
    11.42)."""
    q, v, tau = as_state(scene.model, q=q, v=v, tau=tau)
    normals, turning = turning_at(scene, q, v)
    touching = as_touching(touching, len(normals), "candidate, and after them each stop")
    free = forward_dynamics(scene.model, q, v, tau)
    mobility, response = mobility_at(scene, q, normals)
    d = normals @ free + turning
    found = complementary(*only(touching, mobility, d))
    a = free + response @ found.x
    return Pressed(a, found.x, mobility @ found.x + d, found.status)


def impact(scene: Scene, q: Any, v: Any, touching: Any, law: str = "newton", *, rest: Any = 0.0) -> Struck:
    """The velocity after an impact of the candidates and stops `touching`, shape `(k + l,)`, without friction.

    **Arguments:** `law`: how those share it that touch at the same time, each with the restitution `e` of its pair.

    - `"newton"`: all at once, each leaves at `e` times the speed it came with or more (11.65).
    - `"poisson"`: all at once, with `e` times the impulses that brought them to rest, or more.
    - `"sequential"`: one after another, the fastest first, until none comes nearer.

    `rest`: what comes more slowly than that does not bounce [m/s], by Poisson's hypothesis where nothing comes faster.

    They are different: of three equal balls in a row the last alone moves on by the third, all move by the first.
    """
    q, v = as_state(scene.model, q=q, v=v)
    laws = {"newton": _newton, "poisson": _poisson, "sequential": _sequential}
    if law not in laws:
        raise ValueError(f"`law` is {law!r}, expected one of {', '.join(map(repr, laws))}")
    normals = normals_at(scene, q)
    touching = as_touching(touching, len(normals), "candidate, and after them each stop")
    mobility, response = mobility_at(scene, q, normals)
    before = normals @ v
    bounce = _restitution(scene, q.dtype)
    impulses, status = laws[law](touching, mobility, before, lambda rates: jnp.where(rates < -rest, bounce, 0.0))
    energy = jnp.sum(impulses * (before + 0.5 * mobility @ impulses))
    scale = jnp.sum(jnp.where(touching, before**2 / jnp.maximum(_diagonal(mobility), 1e-30), 0.0))
    gained = lax.stop_gradient(energy > 1e-6 * scale)
    status = jnp.where((status == ImpactStatus.DONE) & gained, ImpactStatus.ENERGY_GAINED, status)
    return Struck(v + response @ impulses, impulses, energy, status)


Bounce = Callable[[jax.Array], jax.Array]
"""The restitution of each, for the speeds that they come with, negative."""


def _newton(touching, mobility, before, bounce: Bounce) -> tuple[jax.Array, jax.Array]:
    found = complementary(*only(touching, mobility, (1.0 + bounce(before)) * before))
    return found.x, _as_impact(found.status)


def _poisson(touching, mobility, before, bounce: Bounce) -> tuple[jax.Array, jax.Array]:
    pressed = complementary(*only(touching, mobility, before))
    # What only bears the blow of another gives back as that does.
    given = bounce(jnp.full_like(before, jnp.min(jnp.where(touching, before, 0.0), initial=0.0))) * pressed.x
    more = complementary(*only(touching, mobility, before + mobility @ (pressed.x + given)))
    worst = jnp.maximum(pressed.status, more.status)
    return pressed.x + given + more.x, _as_impact(worst)


def _sequential(touching, mobility, before, bounce: Bounce) -> tuple[jax.Array, jax.Array]:
    own = jnp.maximum(_diagonal(mobility), jnp.finfo(before.dtype).tiny)
    index = jnp.arange(len(before))
    slow = lax.stop_gradient(1e-9 * jnp.max(jnp.abs(before), initial=0.0))

    def strike(impulses: jax.Array, _) -> tuple[jax.Array, None]:
        rates = jnp.where(touching, before + mobility @ impulses, 0.0)
        fastest = index == jnp.argmin(rates)
        struck = jnp.where(fastest & (rates < -slow), -(1.0 + bounce(rates)) * rates / own, 0.0)
        return impulses + struck, None

    impulses, _ = lax.scan(strike, jnp.zeros_like(before), length=16 * len(before))
    left = jnp.where(touching, before + mobility @ impulses, 0.0)
    return impulses, jnp.where(jnp.all(left >= -slow), ImpactStatus.DONE, ImpactStatus.BUDGET)


def _as_impact(status: jax.Array) -> jax.Array:
    solved = status == ComplementarityStatus.SOLVED
    return jnp.where(solved, ImpactStatus.DONE, ImpactStatus.INFEASIBLE)


def gaps_at(scene: Scene, q: jax.Array) -> jax.Array:
    at = placed(scene, q)
    return jnp.concatenate([contacts_at(scene, at).gap, stops_at(scene, q, at).gap])


def normals_at(scene: Scene, q: jax.Array) -> jax.Array:
    """`T^T`, rows `d gap / dq`, shape `(k + l, nv)`."""
    at = placed(scene, q)
    touch = contacts_at(scene, at)
    rows = jnp.sum(touch.normal[:, :, None] * jacobian_at(scene, touch.point, carried(scene), q, at), axis=1)
    return jnp.concatenate([rows, stops_at(scene, q, at).jacobian])


def _restitution(scene: Scene, dtype: Any) -> jax.Array:
    own = candidate_materials(scene, dtype), stop_materials(scene, dtype)
    return jnp.concatenate([material.restitution for material in own])


def turning_at(scene: Scene, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`T^T`, and `Tdot^T v`, its rate along the flow of a constant `v`, times `v`."""
    zero = jnp.zeros((), q.dtype)
    rows, rate = jax.jvp(lambda t: normals_at(scene, integrate(scene.model, q, t * v)), (zero,), (jnp.ones_like(zero),))
    return rows, rate @ v


def mobility_at(scene: Scene, q: jax.Array, normals: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`M = T^T H^-1 T`, and `H^-1 T`."""
    response = solve(mass_matrix(scene.model, q), normals.T)
    return normals @ response, response


def as_touching(touching: Any, count: int, each: str) -> jax.Array:
    """Whether each touches, shape `(count,)`."""
    found = jnp.asarray(touching, bool)
    if found.shape != (count,):
        raise ValueError(f"`touching` has shape {found.shape}, expected ({count},): of each {each}")
    return found


def only(touching: jax.Array, mobility: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The problem of those that touch; the others have no force."""
    both = touching[:, None] & touching
    own = jnp.where(both, mobility, jnp.where(touching[:, None], 0.0, jnp.eye(len(d), dtype=d.dtype)))
    return own, jnp.where(touching, d, 1.0)


def _diagonal(m: jax.Array) -> jax.Array:
    return jnp.sum(jnp.eye(len(m), dtype=m.dtype) * m, axis=1)
