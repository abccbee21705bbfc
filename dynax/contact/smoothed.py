"""Derivatives of a step with contact that are not its own: of contact that is relaxed, and of contact at a distance.

Relaxed by `kappa` [J] the complementarity of a contact is

    gamma_n w = kappa        w = R gamma_n + u_n - u_hat > 0        gamma_t = -m^2 u_t / sqrt(m^2 |u_t|^2 + kappa^2)

with `m = mu gamma_n`: what is apart presses a little, and what sticks slips a little (Howell et al. 2022). The velocity
is smooth in all that it depends on, and for `kappa -> 0` it is that of Coulomb's law.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.alart_curnier import After, Remembered, after, matrix
from dynax.contact.coulomb import Impact, coulomb, unbalanced
from dynax.linear.solve import solve

STEPS = 40
"""Of the interior-point method; those after the last digit change nothing."""
SHORT = 0.95
"""The part of the way to the boundary that a step may go."""
CENTRE = 0.2

Law = Callable[[Impact, jax.Array], jax.Array]
"""The impulses at a velocity."""


def relaxed_law(kappa: jax.Array, problem: Impact, v: jax.Array) -> jax.Array:
    u = problem.local(v)
    y = (problem.target[:, 2] - u[:, 2]) / problem.compliance
    root = jnp.sqrt(y * y + 4.0 * kappa / problem.compliance)
    # The larger root of `R gamma^2 - R y gamma - kappa`, written so that no digits cancel.
    press = jnp.where(y > 0, 0.5 * (y + root), 2.0 * kappa / problem.compliance / (root + jnp.abs(y)))
    return _with_friction(kappa, problem.friction, press, u)


def _with_friction(kappa: jax.Array, friction: jax.Array, press: jax.Array, u: jax.Array) -> jax.Array:
    most = friction * press
    square = most * most
    drag = square / jnp.sqrt(square * (u[:, 0] ** 2 + u[:, 1] ** 2) + kappa * kappa)
    return jnp.stack([-drag * u[:, 0], -drag * u[:, 1], press], axis=1)


@jax.custom_jvp
def relaxed_velocity(problem: Impact, kappa: jax.Array) -> jax.Array:
    """The velocity after a step with relaxed contact, with derivatives of any order."""
    problem, kappa = lax.stop_gradient((problem, kappa))

    def step(_, state: tuple) -> tuple:
        v, press, slack = state
        u = problem.local(v)
        aim = jnp.maximum(kappa, CENTRE * jnp.mean(press * slack))
        level = jnp.broadcast_to(aim, press.shape)
        tangent = partial(_with_friction, aim, problem.friction)
        by_press = jax.vmap(jax.jacfwd(lambda p, u: _tangent(aim, p[0], p[1], u)), (0, 0))(
            (problem.friction, press), u
        )[1]
        by_u = jax.vmap(jax.jacfwd(lambda u, f, p: _tangent(aim, f, p, u)))(u, problem.friction, press)
        # slack = R gamma + u - u_hat and gamma slack = aim, linearised and solved for the change of gamma.
        away = problem.compliance * press + u[:, 2] - problem.target[:, 2] - slack
        whole = slack + problem.compliance * press
        gain = press / whole
        start = (level - press * slack - press * away) / whole
        normal = jnp.zeros(3, u.dtype).at[2].set(1.0)
        stiff = -by_u + (by_press + normal)[:, :, None] * (gain[:, None] * normal)[:, None, :]
        now = tangent(press, u)
        rest = problem.inertia @ (v - problem.free) - problem.push(now + start[:, None] * (by_press + normal))
        dv = -solve(matrix(problem, stiff), rest)
        du = problem.local(dv)[:, 2]
        dpress = start - gain * du
        dslack = problem.compliance * dpress + du + away
        reach = jnp.minimum(_reach(press, dpress), _reach(slack, dslack))
        length = jnp.minimum(1.0, SHORT * reach)
        new = v + length * dv, press + length * dpress, slack + length * dslack
        good = jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in new]))
        return jax.tree.map(lambda a, b: jnp.where(good, a, b), new, state)

    speed = jnp.sqrt(jnp.sum(problem.free * (problem.inertia @ problem.free)) + kappa)
    unit = jnp.sqrt(problem.mobility)
    begin = problem.free, speed / unit, speed * unit
    return lax.fori_loop(0, STEPS, step, begin)[0]


def _tangent(kappa: jax.Array, friction: jax.Array, press: jax.Array, u: jax.Array) -> jax.Array:
    """Along the surface, with a zero for the normal."""
    return _with_friction(kappa, friction[None], press[None], u[None])[0].at[2].set(0.0)


def _reach(x: jax.Array, step: jax.Array) -> jax.Array:
    falls = step < 0
    return jnp.min(jnp.where(falls, -x / jnp.where(falls, step, 1.0), jnp.inf))


@relaxed_velocity.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    problem, kappa = primals
    v = relaxed_velocity(problem, kappa)
    return v, velocity_rate(lambda p, k, v: relaxed_law(k, p, v), (problem, kappa), tangents, v)


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
    found = after_smoothed(*primals)

    def relaxed(problem: Impact, kappa: jax.Array) -> tuple[jax.Array, jax.Array]:
        problem = problem.bouncing(lax.stop_gradient(found.bounces))
        v = relaxed_velocity(problem, kappa)
        return v, relaxed_law(kappa, problem, v)

    dv, impulses = jax.jvp(relaxed, primals[:2], tangents[:2])[1]
    return found, jax.tree.map(jnp.zeros_like, found)._replace(v=dv, impulses=impulses)


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
    problem, change = (x.bouncing(lax.stop_gradient(found.bounces)) for x in (problem, tangents[0]))
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
