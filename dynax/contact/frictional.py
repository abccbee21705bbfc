"""Impacts with friction (chapter 11.7).

Arrested, all that touches has no speed along the surface afterwards (11.72), whether the impulse for it lies in the
cone of friction or not:

    gamma = -(J H^-1 J^T)^-1 (1 + E) J v        E = diag(0, 0, e) for each

By Coulomb's law it slides where the cone is too narrow (`contact.coulomb`, the slip being that after the impact), and
leaves at `e` times the speed it came with or more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms.crba import mass_matrix
from dynax.contact.alart_curnier import LEFT, UNSOLVED, after
from dynax.contact.coulomb import Impact
from dynax.contact.motion import candidate_materials, carried, contacts_at, frame, jacobian_at, placed
from dynax.contact.rigid import ImpactStatus
from dynax.contact.scene import Scene
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.linear.solve import solve, solve_definite
from dynax.model.checks import as_state

STIFF = {"float64": 1e-9, "float32": 1e-4}
"""Compliance of a contact as a part of its mobility."""


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


def frictional_impact(scene: Scene, q: Any, v: Any, touching: Any, law: str = "coulomb") -> StruckWithFriction:
    """The velocity after an impact of the candidates `touching`, shape `(k,)`, all at once, with friction.

    **Arguments:** `law`:

    - `"coulomb"`: each slides or sticks by the friction of its pair; with `restitution` of Newton.
    - `"arrested"`: each sticks (Featherstone 2008, 11.72). Where that takes more than friction gives, the status is
      `CONE_VIOLATED`.

    Of an eccentric impact with friction Newton's restitution may gain energy: the status is then `ENERGY_GAINED`.
    """
    q, v = as_state(scene.model, q=q, v=v)
    touching = jnp.asarray(touching, bool)
    laws = {"coulomb": _coulomb, "arrested": _arrested}
    if law not in laws:
        raise ValueError(f"`law` is {law!r}, expected one of {', '.join(map(repr, laws))}")
    at = placed(scene, q)
    touch, material = contacts_at(scene, at), candidate_materials(scene, q.dtype)
    frames = jax.vmap(frame)(touch.normal)
    rows = jnp.einsum("kia,kaj->kij", frames, jacobian_at(scene, touch.point, carried(scene), q, at))
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
    normals = rows[:, 2]
    mobility = jnp.sum(normals * solve_definite(inertia, normals.T).T, axis=1)
    takes_part = mobility > 0
    mobility = jnp.where(takes_part, mobility, 1.0)
    target = jnp.zeros_like(before).at[:, 2].set(jnp.where(takes_part, bounce * jnp.maximum(-before[:, 2], 0.0), -1.0))
    compliance = STIFF[v.dtype.name] * mobility
    found = after(Impact(inertia, v, v, rows, target, compliance, mobility, friction))
    wrong = found.unbalanced > UNSOLVED * LEFT[v.dtype.name]
    return found.v, found.impulses, jnp.where(wrong, ImpactStatus.INFEASIBLE, ImpactStatus.DONE)
