"""Contact that is relaxed by `kappa` [J], of which the velocity is smooth in all that it depends on.

    gamma_n w = kappa        w = R gamma_n + u_n - u_hat > 0        gamma_t = -m^2 u_t / sqrt(m^2 |u_t|^2 + kappa^2)

with `m = mu gamma_n`: what is apart presses a little, and what sticks slips a little (Howell et al. 2022). For
`kappa -> 0` it is Coulomb's law.

It is solved by Newton's method for velocities and impulses at once, which are not yet those of the law. As its slopes
grow with `m^2 / kappa`, they are taken where the law has the same `z = gamma - rho (u + R gamma_n)`, as if each contact
were of a body by itself (`contact.alart_curnier` does so with Coulomb's law). Along the surface the impulse there is
`z_t h / (h + b)` with `b = rho kappa / m^2`, where `h`, the cosine of the angle whose sine is `|gamma_t| / m`, obeys

    sqrt(1 - h^2) (h + b) = h |z_t| / m
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.contact.alart_curnier import ENOUGH, FALL, LEFT, NEAR, matrix
from dynax.contact.coulomb import Impact, along_normals, forces
from dynax.linear.solve import solve
from dynax.linear.sums import combined
from dynax.sweep.scan import varying_as


class Try(NamedTuple):
    """Of Newton's method."""

    steps: int
    rho: float
    """By the mobility of a contact."""


TRIES = (Try(20, 1.0), Try(60, 1.0), Try(60, 10.0))
"""The first begins where it is told; those after it at the free velocity, relaxed by all the energy there is, and then
by less and less. Of 1,000 slender rods that hit the ground with friction one or two need that."""
LENGTHS = 0.5 ** np.arange(6)
"""Of a step, of which the one that leads nearest to the law is taken."""
COSINES = 12
"""Steps to `h`, from less than twice of it."""


def relaxed_law(kappa: jax.Array, problem: Impact, v: jax.Array, lost: jax.Array) -> jax.Array:
    """The impulses at a velocity, shape `(k, 3)`. `lost`: what rounding took from velocities at contacts."""
    return _law(kappa, problem.friction, problem.compliance, _beyond(problem, v) + lost)


def relaxed_stiffness(kappa: jax.Array, problem: Impact, v: jax.Array, lost: jax.Array) -> jax.Array:
    """`-d gamma / du` of it, shape `(k, 3, 3)`."""
    return _stiffness(kappa, problem, _beyond(problem, v) + lost)


def _beyond(problem: Impact, v: jax.Array) -> jax.Array:
    """Velocities at contacts and stops, without `u_hat`."""
    return problem.local(v) - along_normals(problem.target[:, 2])


def _stiffness(kappa: jax.Array, problem: Impact, u: jax.Array) -> jax.Array:
    return -jax.vmap(jax.jacfwd(_law, 3), (None, 0, 0, 0))(kappa, problem.friction, problem.compliance, u)


def _law(kappa: jax.Array, friction: jax.Array, compliance: jax.Array, u: jax.Array) -> jax.Array:
    press = _press(kappa, compliance, u[..., 2])
    square = (friction * press) ** 2
    drag = square / jnp.sqrt(square * (u[..., 0] ** 2 + u[..., 1] ** 2) + kappa * kappa)
    return jnp.stack([-drag * u[..., 0], -drag * u[..., 1], press], axis=-1)


def _press(kappa: jax.Array, compliance: jax.Array, away: jax.Array) -> jax.Array:
    """The larger root of `compliance p^2 + away p - kappa`, written so that no digits cancel."""
    root = jnp.sqrt(away * away + 4.0 * compliance * kappa)
    return jnp.where(away < 0, (root - away) / (2.0 * compliance), 2.0 * kappa / (root + jnp.abs(away)))


class Point(NamedTuple):
    """Of the law."""

    impulses: jax.Array
    u: jax.Array
    """Without `u_hat`."""


def nearest(kappa: jax.Array, rho: jax.Array, problem: Impact, impulses: jax.Array, u: jax.Array) -> Point:
    """That with the same `z`."""
    z, pressed = impulses[:, :2] - rho[:, None] * u[:, :2], impulses[:, 2]
    press = _press(kappa, 1.0 / rho, u[:, 2] + (problem.compliance - 1.0 / rho) * pressed)
    rounding = jnp.finfo(u.dtype).eps
    most = jnp.maximum(problem.friction * press, jnp.sqrt(rounding * rho * kappa))  # without friction it is none
    b = rho * kappa / (most * most)
    h = _cosine(b, jnp.sqrt(jnp.sum(z * z, axis=1)) / most)
    along, slip = (h / (h + b))[:, None] * z, -(b / (h + b) / rho)[:, None] * z
    return Point(jnp.column_stack([along, press]), jnp.column_stack([slip, kappa / press - problem.compliance * press]))


def _cosine(b: jax.Array, z: jax.Array) -> jax.Array:
    """The root of `sqrt(1 - h^2) (h + b) - h z`, which is concave: Newton's method comes down to it from any bound."""
    tangent = jnp.maximum(z / (1.0 + b), (z - 1.0) / b)
    small = jnp.sqrt(2.0 * jnp.maximum(1.0 - z, 0.0)) + jnp.cbrt(2.0 * b)

    def down(_, h: jax.Array) -> jax.Array:
        sine = jnp.sqrt(1.0 - h * h)
        some = sine > 0
        slope = sine - h * (h + b) / jnp.where(some, sine, 1.0) - z
        new = h - (sine * (h + b) - h * z) / slope
        return jnp.where(some & (new > 0) & (new < h), new, h)

    return lax.fori_loop(0, COSINES, down, jnp.minimum(1.0 / jnp.sqrt(1.0 + tangent * tangent), small))


class Going(NamedTuple):
    """Of Newton's method."""

    attempt: jax.Array
    """Of `TRIES`."""
    steps: jax.Array
    """In it."""
    kappa: jax.Array
    v: jax.Array
    impulses: jax.Array
    done: jax.Array
    solved: jax.Array


class Relaxed(NamedTuple):
    """Where Newton's method came to an end."""

    v: jax.Array
    lost: jax.Array
    """What rounding took from its velocities at contacts and stops, shape `(k, 3)`: of what sticks, all of it."""
    found: jax.Array
    """1.0 if it is the velocity, else 0.0: a number, as what has derivatives is."""


def relaxed(problem: Impact, kappa: jax.Array, v: jax.Array, impulses: jax.Array) -> Relaxed:
    """The velocity, if it is found. `v` and `impulses`: such as are nearby, as those of Coulomb's law."""
    dtype = v.dtype
    there = kappa + sum(jnp.sum(x * combined(problem.inertia, x)) for x in (problem.free, problem.begin))
    enough, fair = (limit[dtype.name] ** 2 * there for limit in (ENOUGH, LEFT))
    steps, rhos = (jnp.asarray(x) for x in ([x.steps for x in TRIES], [x.rho for x in TRIES]))

    def rho_of(s: Going) -> jax.Array:
        return rhos.astype(dtype)[s.attempt] / problem.mobility

    def step(s: Going) -> Going:
        rho, u = rho_of(s), _beyond(problem, s.v)
        point = nearest(s.kappa, rho, problem, s.impulses, u)
        stiffness = _stiffness(s.kappa, problem, point.u)
        meant = point.impulses + forces(stiffness, point.u - u)
        pull = combined(problem.inertia, s.v - problem.free)
        dv = -solve(matrix(problem, stiffness), pull - problem.push(meant))
        du = problem.local(dv)
        change = meant - forces(stiffness, du) - s.impulses

        def away(part: jax.Array) -> jax.Array:
            impulses = s.impulses + part * change
            miss = impulses - nearest(s.kappa, rho, problem, impulses, u + part * du).impulses
            left = jnp.sum(problem.mobility[:, None] * miss * miss)
            return jnp.where(jnp.isfinite(left), left, jnp.inf)

        lengths = jnp.asarray(LENGTHS, dtype)
        left = jax.vmap(away)(lengths)
        length, left = lengths[jnp.argmin(left)], jnp.min(left)
        last, over = s.kappa <= kappa, s.steps + 1 >= steps[s.attempt]
        solved = last & (left <= jnp.where(over, fair, enough))
        fallen = jnp.where(left < NEAR**2 * s.kappa, jnp.maximum(FALL * s.kappa, kappa), s.kappa)
        again = over & ~solved
        new = Going(
            s.attempt + again,
            jnp.where(over, 0, s.steps + 1),
            jnp.where(again, jnp.maximum(there, kappa), fallen),
            jnp.where(again, problem.free, s.v + length * dv),
            jnp.where(again, 0.0, s.impulses + length * change),
            solved | (again & (s.attempt + 1 == len(TRIES))),
            solved,
        )
        return jax.tree.map(lambda a, b: jnp.where(s.done, a, b), s, new)

    zero, no = jnp.zeros((), int), jnp.zeros((), bool)
    begin = varying_as(problem, Going(zero, zero, kappa, v, impulses, no, no))
    end = lax.while_loop(lambda s: ~s.done, step, begin)
    u = _beyond(problem, end.v)
    return Relaxed(end.v, nearest(kappa, rho_of(end), problem, end.impulses, u).u - u, end.solved.astype(dtype))
