"""Derivatives of a step with contact that are not its own: of contact that is relaxed, and of contact at a distance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.alart_curnier import After, Remembered, after, matrix
from dynax.contact.coulomb import Impact, coulomb, stiffness, unbalanced
from dynax.contact.relaxed import Relaxed, relaxed, relaxed_law, relaxed_stiffness
from dynax.linear.solve import solve


@jax.custom_jvp
def relaxed_velocity(problem: Impact, kappa: jax.Array, near: After) -> Relaxed:
    """After a step with relaxed contact, with derivatives of any order; that of the step itself where none is found.
    `near`: the step's own end."""
    problem, kappa, near = lax.stop_gradient((problem, kappa, near))
    there = relaxed(problem, kappa, near.v, near.impulses)
    none = Relaxed(near.v, jnp.zeros_like(there.lost), there.found)
    return jax.tree.map(partial(jnp.where, there.found > 0), there, none)


@relaxed_velocity.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Relaxed, Relaxed]:
    there = relaxed_velocity(*primals)
    problem, kappa = primals[0], _some(there, primals[1])
    soft = relaxed_stiffness(kappa, problem, there.v, there.lost)
    stiff = jnp.where(there.found > 0, soft, stiffness(problem, there.v))
    rate = velocity_rate(partial(_impulses, there, there.v), stiff, primals[:2], tangents[:2], there.v)
    return there, jax.tree.map(jnp.zeros_like, there)._replace(v=rate)


def _impulses(there: Relaxed, v: jax.Array, problem: Impact, kappa: jax.Array) -> jax.Array:
    soft = relaxed_law(_some(there, kappa), problem, v, there.lost)
    return jnp.where(there.found > 0, soft, coulomb(problem, v))


def _some(there: Relaxed, kappa: jax.Array) -> jax.Array:
    return jnp.where(there.found > 0, kappa, 1.0)


def velocity_rate(law: Callable, stiffness: jax.Array, given: tuple, changes: tuple, v: jax.Array) -> jax.Array:
    """How `v` changes with what is `given`, the problem first, if `H (v - v*) = J^T law(*given)` is to stay so; the
    law's `stiffness` there."""

    def rest(*given) -> jax.Array:
        return unbalanced(given[0], v, law(*given))

    return -solve(matrix(given[0], stiffness), jax.jvp(rest, given, changes)[1])


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
        return there.v, _impulses(there, there.v, problem, kappa)

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
    point, normal = lax.stop_gradient(opening), jnp.array([0, 0, 1], found.v.dtype)

    def law(v: jax.Array, problem: Impact) -> jax.Array:
        away = problem.local(v)[:, 2] - problem.target[:, 2] - point
        return coulomb(problem, v) - (stiff * away)[:, None] * normal

    along = stiffness(problem, found.v) + (stiff[:, None] * normal)[:, :, None] * normal
    dv = velocity_rate(partial(law, found.v), along, (problem,), (change,), found.v)
    impulses = jax.jvp(law, (found.v, problem), (dv, change))[1]
    return found, jax.tree.map(jnp.zeros_like, found)._replace(v=dv, impulses=impulses)
