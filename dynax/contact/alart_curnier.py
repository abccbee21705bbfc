"""The velocity after a step with contact, by Newton's method for velocities and impulses at once.

With `1 / R` in it Coulomb's law (`contact.coulomb`) has kinks a millionth of a velocity apart. But for any `rho` it is
also

    gamma = P(z)        z = gamma - rho (u - u_hat + R gamma)

with `P` the law of `R = 1` (Alart & Curnier 1991). It is linear but for three cases, apart, sticking, sliding. A step
is a system for the velocity alone, of which the impulses follow; where the cases are right it is the last one. Robots
take one to four.

Where steps do not come to an end, as where several corners of a body are about to slide, the kinks are rounded,

    gamma_n (gamma_n - z_n) = kappa^2        and likewise between sticking and sliding,

and `kappa` falls as fast as Newton's method follows (Chen & Mangasarian 1996); if need be again with another `rho`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.balance import solution
from dynax.contact.coulomb import Impact, along_normals, diagonal, forces, within
from dynax.contact.grouping import Parts
from dynax.contact.rounding import rounded, secant
from dynax.linear.sums import combined
from dynax.sweep.sums import summed


class Try(NamedTuple):
    """Of Newton's method."""

    steps: int
    rho: float = 1.0
    """By the mobility of a contact."""
    kappa: float = 0.0
    """The first, by the momentum there is."""
    softness: float = 0.0
    """The least compliance, by the mobility."""
    pressed: float = 0.0
    """The first impulses along normals, by the momentum there is."""


TRIES = (
    Try(20),
    Try(20),
    Try(40, kappa=0.1),
    Try(40, rho=30.0, kappa=0.1),
    Try(40, rho=1e3, kappa=0.1),
    Try(40, rho=1e4, kappa=0.1),
    Try(20, rho=0.3, pressed=10.0),
    Try(40, kappa=0.1, softness=1e-2),
)
"""What jams, as a ball that rolls between the ground and what falls on it, may stick under impulses that no step from
none leads to; but pressed hard at first, everything sticks. The last is for what is wedged, for which there is no rigid
motion, or one of huge impulses."""
WARM, COLD = 0, 1
"""The first of `TRIES` that begins where the step before ended, and the first that begins at the free velocity, as all
after it do. Where a second corner of a foot takes over its load, steps from the step before may lead nowhere."""
FALL = 0.2
NEAR = 0.3
"""By which `kappa` falls when its own equations are solved to that part of it."""
SHARP = {"float64": 1e-12, "float32": 1e-7}
"""The least `kappa`, which is none."""
HALVINGS = 4
"""Lengths of a step that are tried, at most. Of 5,632 problems of a Panda with a cube 6.0 steps are taken with 4, 6.3
with 3, 6.8 with 2, and 8.0 where all steps are whole ones (with 60 at most in the first of `TRIES`)."""
REMEMBERED = 0.3
"""Of the squared distance from the law before a step, what is allowed after the next one, if that is more than its own
decrease allows. What slides slowly has its friction on a circle, along which Newton's method moves straight: it gets
off the circle, and back with the next step. Where each step had to come nearer, 20 short ones went along the circle
(Maratos 1978; remembering is of Grippo, Lampariello & Lucidi 1986): of a Panda with a cube 8.1 steps instead of 5.8, in
float64 10.6 instead of 6.5, and a fifth of its problems came to no end but with `kappa`, now 2 %. With `kappa` it is 0,
or more end as wedged."""
LEFT = {"float64": 1e-8, "float32": 1e-3}
"""Of the momentum that does not balance, by what there is: some hundred times what rounding makes of hard contacts."""
UNSOLVED = 10.0
"""How many times as much as `LEFT` is no solution."""
ENOUGH = {"float64": 1e-12, "float32": 1e-4}
"""Of it, where there is not one step more."""
GIVES = 0.1
"""How much a contact may give, by the largest change of a normal velocity that there has to be: what is light between
what is heavy gives by its own mobility, under loads that are not its own."""
ROUNDING = 10.0
"""Of a velocity at a contact, by the largest there is: hinges of what falls freely that are at the end of their range
move by one or two."""
HARDER = 9
"""How often contacts that give more are made harder, each time to tenfold at most."""
HARDER_TRIES = 5
"""Of `TRIES`, where that has been solved which is less hard."""
GAINED = 1e-3
"""Of the energy there is, what a hit may add."""
CALMER = 0.8
"""By which all hits of a step bounce less, that together add more. What bounces by a part of its normal velocity
(Newton's law) may gain where friction turns its slip round, a slender rod up to 45 % (Kane & Levinson 1985)."""
CALM = 0.05
"""The part of a bounce that is not made less."""
TOO_MUCH = 3.0
"""How many times as much as it may a contact gives that is too soft. Made harder it gives little more than it
may, or where the last time is lost to rounding some 2.2 times that."""


class Remembered(NamedTuple):
    """Where Newton's method came to an end, and begins in the step after: what rests or slides goes on as it did, and
    is solved in one or two steps. Zero where nothing touched, or it was given up."""

    change: jax.Array
    """`v - v*`, shape `(nv,)`."""
    impulses: jax.Array
    """In the frames of the contacts, and of stops, shape `(k, 3)` [N s]."""


class Going(NamedTuple):
    """Of Newton's method."""

    attempt: jax.Array
    """Of `TRIES`."""
    steps: jax.Array
    """In it."""
    kappa: jax.Array
    v: jax.Array
    pull: jax.Array
    """`H (v - v*)`."""
    impulses: jax.Array
    left: jax.Array
    allowed: jax.Array
    """How far from the law a step may lead, squared, even if it was nearer before."""
    best: jax.Array
    """The velocity with the least that is left; where contacts were made harder, the last that was solved."""
    best_u: jax.Array
    """Of contacts and stops with it."""
    unbalanced: jax.Array
    """What is left with it, by the energy there is."""
    gives: jax.Array
    """The most of any contact with it."""
    least: jax.Array
    """Infinite where contacts as hard as they are now were not yet solved."""
    part: jax.Array
    """Of the compliances, what has been left of them, shape `(k,)`."""
    held: jax.Array
    """The same of those with which `best` was found."""
    harder: jax.Array
    """How often they were made less."""
    bounces: jax.Array
    """The part of their bounce that hits have."""
    bounced: jax.Array
    """The same with `best`."""
    done: jax.Array


def to_be_taken(problem: Impact, free: jax.Array) -> jax.Array:
    """The speeds along normals that contacts shall take away, shape `(k,)`, of velocities `(k, 3)` without contact."""
    return jnp.maximum(problem.target[:, 2] - free[:, 2], 0.0)


def giving(problem: Impact, u: jax.Array, free: jax.Array) -> jax.Array:
    """How much contacts give along their normals, by what they may, shape `(k,)`; of velocities `(k, 3)` with contact
    and without. What touches too lightly to be solved for, or by rounding, may give by all of it."""
    nearer = jnp.max(to_be_taken(problem, free), axis=0, initial=0.0)
    rounding = ROUNDING * jnp.finfo(free.dtype).eps * jnp.max(jnp.abs(problem.free), axis=0, initial=0.0)
    lightly = ENOUGH[free.dtype.name] * jnp.max(jnp.abs(free), axis=(0, 1), initial=0.0)
    light = nearer <= jnp.maximum(lightly, rounding)
    return jnp.maximum(problem.target[:, 2] - u[:, 2], 0.0) / jnp.where(light, jnp.inf, GIVES * nearer)


def newtons_method(
    harder: int, rows: Parts | None, problem: Impact, before: Remembered | None = None
) -> tuple[Going, Callable[[Going], Going]]:
    """Where Newton's method begins, and a step of it; contacts may be made harder so often."""
    dtype = problem.free.dtype
    solve, weight = solution(problem, rows), 1.0 / diagonal(problem.inertia)

    at_first, momentum = problem.local(problem.free), combined(problem.inertia, problem.free)
    at_free = summed(problem.free * momentum, 0)
    there = jnp.maximum(at_free, summed(problem.begin * combined(problem.inertia, problem.begin), 0))
    nearer = to_be_taken(problem, at_first)
    there = jnp.where(there > 0, there, jnp.max(nearer * nearer / problem.mobility, axis=0, initial=0.0))
    there = jnp.where(there > 0, there, 1.0)

    def left(problem: Impact, v: jax.Array, pull: jax.Array, u: jax.Array, soft: jax.Array) -> jax.Array:
        """Of the momentum that does not balance, as energy: by `there`, or if that is more by the energy of `v`, as
        where something far beyond its range comes back from rest."""
        rest = pull - problem.push(within(problem.friction, (problem.target - u) / soft[:, None]))
        return summed(rest * rest * weight, 0) * (there / jnp.maximum(there, summed(v * (pull + momentum), 0)))

    unit = jnp.sqrt(there / problem.mobility)
    sharp = SHARP[dtype.name]
    enough, fair = (limit[dtype.name] ** 2 * there for limit in (ENOUGH, LEFT))

    def of_try(attempt: jax.Array | int, what: Callable[[Try], float]) -> jax.Array:
        return jnp.asarray([what(x) for x in TRIES], dtype)[attempt]

    def first_kappa(attempt: jax.Array | int) -> jax.Array:
        return of_try(attempt, lambda x: max(x.kappa, sharp))

    # Of contacts that the motion there is may reach within the step.
    reached = along_normals(jnp.where(problem.target[:, 2] > -unit * problem.mobility, unit, 0.0))

    bounces = False if problem.bounce is None else jnp.any(problem.bounce > 0, axis=0)
    whole = problem

    def newton(s: Going) -> Going:
        problem = whole.bouncing(s.bounces)
        rho = of_try(s.attempt, lambda x: x.rho) / problem.mobility
        kappa = s.kappa * unit
        wedged = of_try(s.attempt, lambda x: x.softness)
        given = s.part * problem.compliance
        soft = jnp.maximum(given, wedged * problem.mobility)
        u = problem.local(s.v)
        z = s.impulses - rho[:, None] * (u - problem.target + soft[:, None] * s.impulses)
        own = secant(problem._replace(compliance=soft), z, kappa, rho)
        meant = own.offset + forces(own.stiffness, problem.target - u)
        dv = -solve(own.stiffness, s.pull - problem.push(meant))
        du = problem.local(dv)
        change = meant - forces(own.stiffness, du) - s.impulses
        dz = change - rho[:, None] * (du + soft[:, None] * change)

        def away(part: jax.Array) -> jax.Array:
            miss = s.impulses + part * change - rounded(problem.friction, z + part * dz, kappa)
            return summed(problem.mobility * summed(miss * miss), 0)

        start = away(jnp.zeros_like(there))
        allowed = jnp.maximum(start, s.allowed)

        def shorter(state: tuple) -> tuple:
            """The next length, unless one has been good; the nearest so far."""
            k, part, nearest, least = state
            own = away(part)
            nearer = (own < least) & ~good(nearest, least)
            return k + 1, 0.5 * part, jnp.where(nearer, part, nearest), jnp.where(nearer, own, least)

        def good(part: jax.Array, value: jax.Array) -> jax.Array:
            return s.done | (value < (1.0 - 0.1 * part) * allowed)

        one = jnp.ones_like(there)
        search = lax.while_loop(
            lambda x: (x[0] < HALVINGS) & ~jnp.all(good(*x[2:])), shorter, (0, one, 0.0 * one, jnp.inf * one)
        )
        _, _, part, value = search
        v, impulses = s.v + part * dv, s.impulses + part * change
        u, pull = u + part * du, combined(problem.inertia, v - problem.free)
        rest = left(problem, v, pull, u, soft)
        unsolved, fresh = s.least > UNSOLVED**2 * fair, jnp.isinf(s.least)
        # By stiffness and velocity, of which the one became larger, digits are lost.
        well = jnp.where(s.harder > 0, UNSOLVED**2, 1.0) * fair
        nearer = ~s.done & jnp.where(fresh | (wedged > 0), unsolved & (rest <= well), rest < s.least)
        follows = value < (NEAR * s.kappa) ** 2 * there
        kappa = jnp.where(follows, jnp.maximum(FALL * s.kappa, sharp), s.kappa)
        done = s.done | (rest <= enough) | ((rest <= well) & (s.left <= well))
        steps = s.steps + 1
        over = ~done & (steps >= of_try(s.attempt, lambda x: x.steps))
        attempt = s.attempt + over
        # What is solved already is not sought long in a harder form, which may be too hard to have digits.
        out = attempt >= jnp.where(fresh, HARDER_TRIES, len(TRIES))
        attempt = jnp.where(out, 0, attempt)
        best, best_left = jnp.where(nearer, v, s.best), jnp.where(nearer, rest, s.least)
        best_u = jnp.where(nearer, u, s.best_u)
        each = giving(problem, best_u, at_first)
        gives = jnp.max(each, axis=0, initial=0.0)
        found = done & ~s.done & (wedged == 0)
        again = found & (s.harder < harder) & (gives > 1.0)
        gained = at_free + summed(pull * (v + problem.free), 0) > (1.0 + GAINED) * there
        calmer = found & ~again & bounces & gained & (s.bounces > CALM)
        more = again | calmer
        return Going(
            attempt,
            jnp.where(over | more, 0, steps),
            jnp.where(over, first_kappa(attempt), kappa),
            jnp.where(over, problem.free, v),
            jnp.where(over, 0.0, pull),
            jnp.where(over, of_try(attempt, lambda x: x.pressed) * reached, impulses),
            jnp.where(over | more, jnp.inf, rest),
            jnp.where(over | more | (s.attempt > COLD), 0.0, REMEMBERED * allowed),
            best,
            best_u,
            jnp.where(nearer, rest / there, s.unbalanced),
            jnp.where(nearer, gives, s.gives),
            jnp.where(more, jnp.inf, best_left),
            jnp.where(again, s.part / jnp.maximum(each, 1.0), s.part),
            jnp.where(nearer, s.part, s.held),
            s.harder + again,
            jnp.where(calmer, CALMER * s.bounces, s.bounces),
            jnp.where(nearer, s.bounces, s.bounced),
            (done | out) & ~more,
        )

    impulses, pull = jnp.zeros_like(problem.target), jnp.zeros_like(problem.free)
    v, rest = problem.free, left(problem, problem.free, pull, at_first, problem.compliance)
    done, last = ~(rest > enough), rest
    if before is not None:  # where it is done, the free velocity is the best, whatever was before
        change, impulses = (jnp.where(done, 0.0, x) for x in before)
        v, pull, last = v + change, combined(problem.inertia, change), jnp.full_like(rest, jnp.inf)
    zero = jnp.zeros(there.shape, int)
    attempt = jnp.where(jnp.any(impulses != 0, axis=(0, 1)), WARM, COLD)
    kappa = jnp.full_like(there, first_kappa(0))
    part = jnp.ones_like(problem.compliance)
    going = v, pull, impulses, last, jnp.zeros_like(rest)
    one = jnp.ones_like(there)
    gives = jnp.max(giving(problem, at_first, at_first), axis=0, initial=0.0)
    least = rest / there, gives, rest
    begin = Going(attempt, zero, kappa, *going, problem.free, at_first, *least, part, part, zero, one, one, done)
    return begin, newton
