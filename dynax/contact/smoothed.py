"""Derivatives of a step with contact that are not its own: of contact that is relaxed, and of contact at a distance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.contact.alart_curnier import After, Remembered, after
from dynax.contact.coulomb import Impact, coulomb, unbalanced
from dynax.contact.relaxed import Relaxed, relaxed, relaxed_law
from dynax.linear.solve import solve


@jax.custom_jvp
def relaxed_velocity(problem: Impact, kappa: jax.Array, near: After) -> Relaxed:
    """After a step with relaxed contact, with derivatives of any order; that of the step itself where none is found.
    `near`: the step's own end."""
    problem, kappa, near = lax.stop_gradient((problem, kappa, near))
    there = relaxed(problem, kappa, near.v, near.impulses)
    none = Relaxed(near.v, jnp.zeros_like(there.lost), there.found)
    return jax.tree.map(partial(jnp.where, there.found), there, none)


@relaxed_velocity.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Relaxed, Relaxed]:
    there = relaxed_velocity(*primals)
    rate = velocity_rate(partial(_impulses, there), primals[:2], tangents[:2], there.v)
    none: Any = np.zeros(there.found.shape, jax.dtypes.float0)
    return there, Relaxed(rate, jnp.zeros_like(there.lost), none)


def _impulses(there: Relaxed, problem: Impact, kappa: jax.Array, v: jax.Array) -> jax.Array:
    some = jnp.where(there.found, kappa, 1.0)
    return jnp.where(there.found, relaxed_law(some, problem, v, there.lost), coulomb(problem, v))


def velocity_rate(law: Callable, given: tuple, changes: tuple, v: jax.Array) -> jax.Array:
    """How `v` changes with what is `given`, the problem first, if `H (v - v*) = J^T law(*given, v)` is to stay so."""

    def rest(*given) -> jax.Array:
        return unbalanced(given[0], v, law(*given, v))

    moved = jax.jvp(rest, given, changes)[1]
    along = jax.jacfwd(lambda v: unbalanced(given[0], v, law(*given, v)))(v)
    return -solve(along, moved)


@jax.custom_jvp
def after_smoothed(problem: Impact, kappa: jax.Array, before: Remembered | None) -> After:
    """What `after` gives, with the derivatives of contact relaxed by `kappa` [J]."""
    return after(problem, before)


@after_smoothed.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[After, After]:
    end = after_smoothed(*primals)

    def ended(problem: Impact, kappa: jax.Array) -> tuple[jax.Array, jax.Array]:
        problem = end.eased.of(problem)
        there = relaxed_velocity(problem, kappa, end)
        return there.v, _impulses(there, problem, kappa, there.v)

    dv, impulses = jax.jvp(ended, primals[:2], tangents[:2])[1]
    return end, jax.tree.map(jnp.zeros_like, end)._replace(v=dv, impulses=impulses)


@jax.custom_jvp
def after_from_distance(problem: Impact, near: jax.Array, before: Remembered | None) -> After:
    """What `after` gives, with derivatives as if what will be apart touched in part: of the velocity that would bring
    it together the part `s = (1 - w / near)^2` is taken away, where it opens at `w` less than `near` [m/s] beyond what
    would close it within the step."""
    return after(problem, before)


@after_from_distance.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[After, After]:
    problem, near, before = primals
    found = after_from_distance(problem, near, before)
    problem, change = (found.eased.of(x) for x in (problem, tangents[0]))
    opening = problem.local(found.v)[:, 2] - problem.target[:, 2]
    part = lax.stop_gradient(jnp.clip(1.0 - opening / near, 0.0, 1.0) ** 2)
    some = (opening > 0) & (part > 0)
    give = problem.compliance + problem.mobility * (1.0 - part) / jnp.where(some, part, 1.0)
    stiff = jnp.where(some, 1.0 / give, 0.0)
    point = lax.stop_gradient(opening)

    def law(problem: Impact, v: jax.Array) -> jax.Array:
        away = problem.local(v)[:, 2] - problem.target[:, 2] - point
        return coulomb(problem, v) - (stiff * away)[:, None] * jnp.array([0, 0, 1], v.dtype)

    dv = velocity_rate(law, (problem,), (change,), found.v)
    impulses = jax.jvp(law, (problem, found.v), (change, dv))[1]
    return found, jax.tree.map(jnp.zeros_like, found)._replace(v=dv, impulses=impulses)
