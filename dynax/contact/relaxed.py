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

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.batching import trailing
from dynax.contact.alart_curnier import ENOUGH, FALL, LEFT, NEAR
from dynax.contact.balance import solution
from dynax.contact.coulomb import Coulomb, Impact, and_stops, forces
from dynax.contact.grouping import Parts
from dynax.linear.each import side_by_side, width_of
from dynax.linear.sums import combined
from dynax.sweep.sums import summed


class Try(NamedTuple):
    """Of Newton's method."""

    steps: int
    rho: float
    """By the mobility of a contact."""


TRIES = (Try(20, 1.0), Try(60, 1.0), Try(60, 10.0))
"""The first begins where it is told; those after it at the free velocity, relaxed by all the energy there is, and then
by less and less. Of 1,000 slender rods that hit the ground with friction one or two need that."""
LENGTHS = 6
"""Of a step that are tried, each half of the one before; if none leads near enough to the law, the best is taken."""
COSINES = 12
"""Steps to `h`, from less than twice of it."""


class Relaxed(NamedTuple):
    """The law as it was solved, or Coulomb's where it was not."""

    kappa: jax.Array
    lost: jax.Array
    """What rounding took from velocities at contacts and stops, shape `(k, 3)`: of what sticks, all of it."""
    found: jax.Array
    """1.0 if it was solved, else 0.0: a number, as what has derivatives is."""

    def impulses(self, friction: jax.Array, compliance: jax.Array, beyond: jax.Array) -> jax.Array:
        soft = _impulses(self._some, friction, compliance, beyond + self.lost)
        return jnp.where(self.found > 0, soft, Coulomb().impulses(friction, compliance, beyond))

    def stiffness(self, friction: jax.Array, compliance: jax.Array, beyond: jax.Array) -> jax.Array:
        soft = _stiffness(self._some, friction, compliance, beyond + self.lost)
        return jnp.where(self.found > 0, soft, Coulomb().stiffness(friction, compliance, beyond))

    @property
    def _some(self) -> jax.Array:
        return jnp.where(self.found > 0, self.kappa, 1.0)


def _impulses(kappa: jax.Array, friction: jax.Array, compliance: jax.Array, u: jax.Array) -> jax.Array:
    count, press = len(friction), _press(kappa, compliance, u[:, 2])
    u, square = u[:count], (friction * press[:count]) ** 2
    drag = square / jnp.sqrt(square * (u[:, 0] ** 2 + u[:, 1] ** 2) + kappa * kappa)
    return and_stops(jnp.stack([-drag * u[:, 0], -drag * u[:, 1], press[:count]], axis=1), press)


def _stiffness(kappa: jax.Array, friction: jax.Array, compliance: jax.Array, u: jax.Array) -> jax.Array:
    count, away = len(friction), u[:, 2]
    press = _press(kappa, compliance, away)
    soft = press / jnp.sqrt(away * away + 4.0 * compliance * kappa)  # -d press / d away
    pressing, (x, y), press, soft = soft, (u[:count, 0], u[:count, 1]), press[:count], soft[:count]
    square = (friction * press) ** 2
    root = jnp.sqrt(square * (x * x + y * y) + kappa * kappa)
    drag, none = square / root, jnp.zeros_like(x)
    bend = drag * drag / root  # -2 d drag / d |u_t|^2
    by_press = friction**2 * press * soft * (1.0 + (kappa / root) ** 2) / root  # -d drag / d away
    own = jnp.stack(
        [
            jnp.stack([drag - bend * x * x, -bend * x * y, -by_press * x], axis=1),
            jnp.stack([-bend * x * y, drag - bend * y * y, -by_press * y], axis=1),
            jnp.stack([none, none, soft], axis=1),
        ],
        axis=1,
    )
    return and_stops(own, pressing)


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
    pressed, count = impulses[:, 2], len(problem.friction)
    press = _press(kappa, 1.0 / rho, u[:, 2] + (problem.compliance - 1.0 / rho) * pressed)
    away = kappa / press - problem.compliance * press
    own, z = rho[:count], impulses[:count, :2] - rho[:count, None] * u[:count, :2]
    rounding = jnp.finfo(u.dtype).eps
    some = jnp.sqrt(rounding * own * kappa)  # without friction it is none
    most = jnp.maximum(problem.friction * press[:count], some)
    b = own * kappa / (most * most)
    h = _cosine(b, jnp.sqrt(jnp.sum(z * z, axis=1)) / most)
    along, slip = (h / (h + b))[:, None] * z, -(b / (h + b) / own)[:, None] * z

    def rows(rubbing: jax.Array, pressing: jax.Array) -> jax.Array:
        return and_stops(jnp.concatenate([rubbing, pressing[:count, None]], axis=1), pressing)

    return Point(rows(along, press), rows(slip, away))


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


def relaxed(
    problem: Impact, kappa: jax.Array, v: jax.Array, impulses: jax.Array, parts: Parts | None = None
) -> tuple[jax.Array, Relaxed]:
    """The velocity, without derivatives, and the law that it obeys. `v` and `impulses`: those of Coulomb's law, near
    which it is sought; if it is not found, that is the velocity. `parts`: of its matrix."""
    end, lost, found = _solved(parts)((), *lax.stop_gradient((problem, kappa, v, impulses)))
    return end, Relaxed(kappa, lost, found)


@lru_cache(maxsize=512)
def _solved(parts: Parts | None) -> Callable[..., tuple[jax.Array, ...]]:
    """The function `((), problem, kappa, v, impulses)`, with what rounding took from velocities and whether it is
    solved."""

    def core(_: tuple, problem: Impact, *near: jax.Array) -> tuple[jax.Array, ...]:
        n, batch = problem.free.shape[0], problem.free.shape[1:]
        width = width_of(n * n, problem.free.dtype.itemsize)
        return side_by_side(partial(_newton, parts), batch, problem, *near, width=width)

    return trailing(core, like=lambda _, problem, kappa, v, impulses: (v, impulses, kappa))


def _newton(
    parts: Parts | None, problem: Impact, kappa: jax.Array, v: jax.Array, impulses: jax.Array
) -> tuple[jax.Array, ...]:
    """For trailing batch axes."""
    dtype, solve = v.dtype, solution(problem, parts)
    there = kappa + sum(summed(x * combined(problem.inertia, x), 0) for x in (problem.free, problem.begin, v))
    enough, fair = (limit[dtype.name] ** 2 * there for limit in (ENOUGH, LEFT))
    steps, rhos = (jnp.asarray(x) for x in ([x.steps for x in TRIES], [x.rho for x in TRIES]))

    def rho_of(s: Going) -> jax.Array:
        return rhos.astype(dtype)[s.attempt] / problem.mobility

    def size(miss: jax.Array) -> jax.Array:
        return summed(problem.mobility * summed(miss * miss, 1), 0)

    def step(s: Going) -> Going:
        rho, u = rho_of(s), problem.beyond(s.v)
        point = nearest(s.kappa, rho, problem, s.impulses, u)
        stiffness = _stiffness(s.kappa, problem.friction, problem.compliance, point.u)
        meant = point.impulses + forces(stiffness, point.u - u)
        pull = combined(problem.inertia, s.v - problem.free)
        dv = -solve(stiffness, pull - problem.push(meant))
        du = problem.local(dv)
        change = meant - forces(stiffness, du) - s.impulses
        start = size(s.impulses - point.impulses)

        def good(part: jax.Array, left: jax.Array) -> jax.Array:
            return s.done | (left < (1.0 - 0.1 * part) * start)

        def shorter(x: tuple) -> tuple:
            """The next length, unless one has been good; the best so far."""
            k, part, best, least = x
            impulses = s.impulses + part * change
            left = size(impulses - nearest(s.kappa, rho, problem, impulses, u + part * du).impulses)
            better = (left < least) & ~good(best, least)
            return k + 1, 0.5 * part, jnp.where(better, part, best), jnp.where(better, left, least)

        one = jnp.ones_like(there)
        begin = 0, one, 0.0 * one, jnp.inf * one
        _, _, part, left = lax.while_loop(lambda x: (x[0] < LENGTHS) & ~jnp.all(good(*x[2:])), shorter, begin)
        last, over = s.kappa <= kappa, (s.steps + 1 >= steps[s.attempt]) | jnp.isinf(left)
        solved = last & (left <= jnp.where(over, fair, enough))
        fallen = jnp.where(left < NEAR**2 * s.kappa, jnp.maximum(FALL * s.kappa, kappa), s.kappa)
        again = over & ~solved
        new = Going(
            s.attempt + again,
            jnp.where(over, 0, s.steps + 1),
            jnp.where(again, jnp.maximum(there, kappa), fallen),
            jnp.where(again, problem.free, s.v + part * dv),
            jnp.where(again, 0.0, s.impulses + part * change),
            solved | (again & (s.attempt + 1 == len(TRIES))),
            solved,
        )
        return jax.tree.map(lambda a, b: jnp.where(s.done, a, b), s, new)

    zero, no = jnp.zeros(there.shape, int), jnp.zeros(there.shape, bool)
    end = lax.while_loop(lambda s: ~jnp.all(s.done), step, Going(zero, zero, kappa, v, impulses, no, no))
    u = problem.beyond(end.v)
    lost = nearest(kappa, rho_of(end), problem, end.impulses, u).u - u
    v, lost = (jnp.where(end.solved, *x) for x in ((end.v, v), (lost, 0.0)))
    return v, lost, end.solved.astype(dtype)
