"""Which contacts hold, between events (Featherstone 2008, chapter 11.5).

**Current** are those that touch and stay, `phi = phi' = phi'' = 0`. **Active** are some of the current ones whose
normals are independent and span those of all, with all that press among them. They hold as equations,

    zeta' = M lambda + d = 0        lambda = -M^-1 d        for the active ones

and which they are is asked of a complementarity problem at events alone. What has drifted in between is brought back
there; to bring it back all the time would falsify forces, and with them when they end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.rigid import Pressed, contact_dynamics, gaps_at, impact, mobility_at, normals_at, only, turning_at
from dynax.contact.scene import Scene
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.linear.solve import solve
from dynax.model.configuration import integrate
from dynax.routes.forward_dynamics import forward_dynamics

SLOW = {"float64": 1e-9, "float32": 1e-4}
"""A speed [m/s] that is none."""
LEAST = {"float64": 1e-7, "float32": 1e-3}
"""A force by the largest, an acceleration by 1 m/s^2, what is left of a normal beside the others: none below this."""


class Sets(NamedTuple):
    """Of candidates and then of stops, each of shape `(k + l,)`."""

    current: jax.Array
    active: jax.Array


class Settled(NamedTuple):
    """After an event."""

    q: jax.Array
    v: jax.Array
    sets: Any
    """`Sets`, or what is `Held` with friction."""
    struck: jax.Array
    """An `ImpactStatus`."""
    pressed: jax.Array
    """A `ComplementarityStatus`."""
    cut: jax.Array
    """Whether something met too slowly to bounce."""
    jammed: jax.Array
    """Whether friction presses in something that slides; never without friction."""


def held_dynamics(scene: Scene, q: jax.Array, v: jax.Array, tau: jax.Array, active: jax.Array) -> Pressed:
    """The accelerations with the active contacts as equations; their forces may become negative."""
    free = forward_dynamics(scene.model, q, v, tau)
    normals, turning = turning_at(scene, q, v)
    mobility, response = mobility_at(scene, q, normals)
    d = normals @ free + turning
    own, right = only(active, mobility, d)
    forces = jnp.where(active, -solve(own, right), 0.0)
    return Pressed(free + response @ forces, forces, mobility @ forces + d, jnp.zeros((), int))


def settled(
    scene: Scene, q: jax.Array, v: jax.Array, tau: jax.Array, left: jax.Array, law: str, rest: Any, reach: Any
) -> Settled:
    """What an event leads to: what touches is put where it touches, what meets has an impact, and of what stays a
    complementarity problem says which of it presses. `left`, shape `(k + l,)`, are contacts whose force has come to its
    end; what touches is nearer than half of `reach`."""
    dtype = q.dtype.name
    # What only decides has no derivatives, and none are asked of it: they would be most of the program.
    fixed, here = lax.stop_gradient((scene, q))
    touching = gaps_at(fixed, here) <= 0.5 * reach
    q = onto_surfaces(scene, q, touching)
    mobility, response = mobility_at(fixed, here, normals_at(fixed, here))
    here = lax.stop_gradient(q)
    normals = jnp.where(touching[:, None], normals_at(fixed, here), 0.0)
    before = normals @ lax.stop_gradient(v)
    cut = jnp.any((before < -SLOW[dtype]) & (before >= -rest))
    blow = impact(scene, q, v, touching, law, rest=rest)
    v = blow.v
    after = lax.stop_gradient(v)
    current = touching & (jnp.abs(normals @ after) <= SLOW[dtype])
    found = contact_dynamics(fixed, here, after, lax.stop_gradient(tau), current)
    forces, rates = found.forces, found.rates
    largest = jnp.max(forces, initial=0.0)
    left = left & (forces <= 10 * LEAST[dtype] * largest)
    stays = current & (rates <= LEAST[dtype] * (1.0 + jnp.max(jnp.abs(rates), initial=0.0)))
    size = jnp.diagonal(mobility)
    scale = jnp.where(size > 0, 1.0 / jnp.sqrt(jnp.where(size > 0, size, 1.0)), 0.0)
    scaled = scale[:, None] * mobility * scale
    presses = stays & ~left & (forces > LEAST[dtype] * largest)
    alike = jnp.where(presses, forces / jnp.where(scale > 0, scale, 1.0), 0.0)
    active = spanning(scaled, pressing(scaled, alike, dtype), stays & ~left, dtype)
    stays = stays & (~left | (remainder(scaled, active) <= LEAST[dtype]))
    v = along_surfaces(scene, q, v, active, response @ _inverse(mobility, active))
    return Settled(q, v, Sets(stays, active), blow.status, found.status, cut, jnp.zeros((), bool))


def onto_surfaces(scene: Scene, q: jax.Array, touching: jax.Array) -> jax.Array:
    """What touches is put where it touches."""
    fixed, here = lax.stop_gradient((scene, q))
    mobility, response = mobility_at(fixed, here, normals_at(fixed, here))
    both = touching[:, None] & touching
    way = response @ pseudo_inverse(jnp.where(both, mobility, 0.0)).matrix

    def onto(q: jax.Array, _) -> tuple[jax.Array, None]:
        """The way stays, so that each time one more derivative of the gaps is nothing."""
        return integrate(scene.model, q, -way @ jnp.where(touching, gaps_at(scene, q), 0.0)), None

    return lax.scan(onto, q, None, length=2)[0]


def along_surfaces(scene: Scene, q: jax.Array, v: jax.Array, active: jax.Array, way: jax.Array) -> jax.Array:
    """What is active neither nears nor leaves, and derivatives know it: what begins on a surface loses each change of
    its normal velocity to it. `way`, `H^-1 J^T (J H^-1 J^T)^-1`, stays as above."""
    normals = normals_at(scene, q)
    return lax.scan(lambda v, _: (v - way @ jnp.where(active, normals @ v, 0.0), None), v, None, length=2)[0]


def pressing(m: jax.Array, forces: jax.Array, dtype: str) -> jax.Array:
    """Which press in a solution whose normals are independent: of those with dependent ones, forces are moved along
    what changes no acceleration until one is nothing."""
    index = jnp.arange(len(forces))

    def fewer(state: tuple, _) -> tuple[tuple, None]:
        forces, active = state
        free = _free(m, active)
        own = index == jnp.argmax(free)
        goes = jnp.max(free) > LEAST[dtype]
        others = active & ~own
        by_others = _inverse(m, others) @ (m @ own.astype(m.dtype))
        way = jnp.where(own, 1.0, jnp.where(others, -by_others, 0.0))
        shrinks = active & (way > LEAST[dtype])
        steps = jnp.where(shrinks, forces / jnp.where(shrinks, way, 1.0), jnp.inf)
        gone = index == jnp.argmin(steps)
        moved = jnp.maximum(forces - jnp.min(steps) * way, 0.0)
        return (jnp.where(goes, moved, forces), jnp.where(goes, active & ~gone, active)), None

    (_, active), _ = lax.scan(fewer, (forces, forces > 0), None, length=len(forces))
    return active


def spanning(m: jax.Array, active: jax.Array, eligible: jax.Array, dtype: str) -> jax.Array:
    """With those that press nothing, but without which the normals of the active would not span all."""
    index = jnp.arange(len(active))

    def more(active: jax.Array, _) -> tuple[jax.Array, None]:
        rest = jnp.where(eligible & ~active, remainder(m, active), 0.0)
        return active | ((index == jnp.argmax(rest)) & (rest > LEAST[dtype])), None

    return lax.scan(more, active, None, length=len(active))[0]


def _inverse(m: jax.Array, active: jax.Array) -> jax.Array:
    return pseudo_inverse(jnp.where(active[:, None] & active, m, 0.0)).matrix


def remainder(m: jax.Array, active: jax.Array) -> jax.Array:
    """What is left of each normal beside the active ones, squared, shape `(k + l,)`."""
    across = jnp.where(active, m, 0.0)
    return jnp.diagonal(m) - jnp.sum((across @ _inverse(m, active)) * across, axis=1)


def _free(m: jax.Array, active: jax.Array) -> jax.Array:
    """How much of each active one is in what changes no acceleration, shape `(k + l,)`; -1 for others."""
    own = jnp.where(active[:, None] & active, m, 0.0)
    return jnp.where(active, 1.0 - jnp.sum(_inverse(m, active) * own.T, axis=1), -1.0)
