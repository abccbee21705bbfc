"""The problem of a step, solved: one, and batches of them, in which no sample waits long for another.

Newton's method (`contact.alart_curnier`) takes one to four steps of most samples of a batch, and ten or more of some.
Where there are few contacts those that are side by side wait for each other. Of many, all take the first steps in the
tile in which their problems are put together; those that are not done then are looked for in the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.batching import trailing
from dynax.contact.alart_curnier import HARDER, Going, Remembered, newtons_method
from dynax.contact.balance import balanced
from dynax.contact.coulomb import Coulomb, Impact
from dynax.contact.grouping import Parts
from dynax.contact.packing import Packing
from dynax.linear.each import ALL, in_rounds, side_by_side, width_of

FEW = 6
"""Contacts up to which samples wait for each other, in one program instead of two: a quadruped's step is as fast either
way. Where there are more, some take ten times as many steps as most."""
FIRST = 1
"""Steps after which, of more contacts, those that are not done go on without the others."""
ROUNDS = (2, 3, 4)
"""Steps after which that is so again; what is left is solved one by one. A step of a humanoid takes 6 us of one alone,
80 of 16 and 95 of 48, of a Panda with a cube 5, 50 and 71; after ten steps 5 and 31 of 1,024 are left."""
TOGETHER = 1024
"""Samples among which they are looked for: of a humanoid's step 27 us, 29 among 512, 49 where they wait in tiles."""
WAITING = 80
"""Samples side by side, of those, at most: to solve a Panda's problem takes 6 % less than by 48. Where two matrices of
each leave the cache it is fewer: a humanoid's takes 11 % less by 48 than by 80."""


class Eased(NamedTuple):
    """What was left of a problem when it was solved."""

    part: jax.Array
    """Of the compliances, shape `(k,)`."""
    bounces: jax.Array
    """Of the bounce of hits."""

    def of(self, problem: Impact) -> Impact:
        """The problem, or a rate of it, with that."""
        part, bounces = lax.stop_gradient(self)
        return problem._replace(compliance=part * problem.compliance).bouncing(bounces)


class Found(NamedTuple):
    """By Newton's method."""

    v: jax.Array
    unbalanced: jax.Array
    """Of the momentum, as a part of what there is: small where the problem was solved. With the velocities at contacts
    that it was solved for, since impulses of hard contacts at those of a rounded `v` are less true than `v`."""
    gives: jax.Array
    """The most that a contact gives along its normal, by what it may."""
    eased: Eased
    remembered: Remembered


class After(NamedTuple):
    v: jax.Array
    impulses: jax.Array
    """In the frames of the contacts, on the second body, shape `(k, 3)` [N s]."""
    unbalanced: jax.Array
    gives: jax.Array
    """Both as `Found` has them."""
    work: jax.Array
    """By which the impulses change the kinetic energy [J]: `gamma . (u* + u) / 2`, since `H (v - v*) = J^T gamma`."""
    eased: Eased
    remembered: Remembered


def _some(newton: Callable[[Going], Going], most: jax.Array | int, s: Going) -> Going:
    """So many steps, or until all are done."""
    count = jnp.zeros((), jnp.int32)
    return lax.while_loop(
        lambda x: (x[0] < most) & ~jnp.all(x[1].done), lambda x: (x[0] + 1, newton(x[1])), (count, s)
    )[1]


def _ended(problem: Impact, end: Going) -> Found:
    change = end.v - problem.free
    remembered = Remembered(jnp.where(jnp.isfinite(change), change, 0.0), end.impulses)
    return Found(end.best, jnp.sqrt(end.unbalanced), end.gives, Eased(end.held, end.bounced), remembered)


def _to_the_end(newton: Callable[[Going], Going], s: Going) -> Going:
    return _some(newton, ALL, s)


@lru_cache(maxsize=512)
def _solved(harder: int, rows: Parts | None, width: int) -> Callable[..., Found]:
    """The function `((), problem, before)`; `width` samples side by side."""

    def alone(problem: Impact, before: Remembered | None) -> Found:
        start, newton = newtons_method(harder, rows, problem, before)
        return _ended(problem, _to_the_end(newton, start))

    return trailing(
        lambda _, problem, before: side_by_side(alone, problem.free.shape[1:], problem, before, width=width)
    )


@lru_cache(maxsize=512)
def _first(harder: int, rows: Parts | None, packing: Packing | None) -> Callable[..., tuple[Going, Impact]]:
    """The function `((), problem, before)`: where Newton's method begins, and of a batch the first steps; and the
    problem, packed."""

    def core(_: tuple, problem: Impact, before: Remembered | None) -> tuple[Going, Impact]:
        start, newton = newtons_method(harder, rows, problem, before)
        going = _some(newton, FIRST, start) if _in_rounds(problem) else start
        return going, problem if packing is None else packing.packed(problem)

    return trailing(core)


@lru_cache(maxsize=512)
def _others(harder: int, rows: Parts | None, packing: Packing | None, width: int) -> Callable[..., Found]:
    """The function `((), problem, going)`, of a problem that is packed: all other steps, where those that are not done
    go on without the others, `width` of them side by side."""

    def newton(problem: Impact) -> Callable[[Going], Going]:
        whole = problem if packing is None else packing.whole(problem)
        return newtons_method(harder, rows, whole)[1]

    @trailing
    def further(_: tuple, most: jax.Array, problem: Impact, s: Going) -> Going:
        return _some(newton(problem), most, s)

    def alone(problem: Impact, s: Going) -> Found:
        return _ended(problem, _to_the_end(newton(problem), s))

    def core(_: tuple, problem: Impact, going: Going) -> Found:
        batch = problem.free.shape[1:]
        if not _in_rounds(problem):
            return side_by_side(alone, batch, problem, going, width=width)

        def of_all(x: jax.Array) -> jax.Array:
            head = x.shape[: x.ndim - len(batch)]
            return jnp.broadcast_to(x, (*head, *batch)).reshape(*head, math.prod(batch))

        problem, going = jax.tree.map(of_all, (problem, going))
        end = _ended(problem, in_rounds(partial(further, ()), ROUNDS, problem, going, width))
        return jax.tree.map(lambda x: x.reshape(*x.shape[:-1], *batch), end)

    return trailing(core, tile=TOGETHER)


def _in_rounds(problem: Impact) -> bool:
    return problem.free.ndim > 1 and jax.default_backend() == "cpu"


def many(contacts: int) -> bool:
    """Whether samples do not wait for each other."""
    return contacts > FEW


def _width(problem: Impact) -> int:
    width = width_of(2 * len(problem.free) ** 2, problem.free.dtype.itemsize)
    return min(width, WAITING)


def _found(harder: int, rows: Parts | None, problem: Impact, before: Remembered | None) -> Found:
    if many(len(problem.jacobian)):
        going, problem = _first(harder, rows, None)((), problem, before)
        return _others(harder, rows, None, _width(problem))((), problem, going)
    width = width_of(len(problem.free) ** 2, problem.free.dtype.itemsize)
    return _solved(harder, rows, width)((), problem, before)


def after(problem: Impact, before: Remembered | None = None, *, as_given: bool = False) -> After:
    """The velocity after the step, with derivatives of any order by the equation that it obeys.

    Contacts that give more than they may (`GIVES`) are made harder, unless compliances are to count `as_given`.
    """
    if not len(problem.target):
        none = jnp.zeros((), problem.free.dtype)
        impulses = jnp.zeros((0, 3), problem.free.dtype)
        remembered = Remembered(jnp.zeros_like(problem.free), impulses)
        return After(
            problem.free, impulses, none, none, none, Eased(jnp.ones_like(problem.compliance), none), remembered
        )
    found = _found(0 if as_given else HARDER, None, *lax.stop_gradient((problem, before)))
    problem = found.eased.of(problem)
    return told(problem, balanced(problem, Coulomb(), found.v), found)


def solved(problem: Impact, rows: Parts | None = None, before: Remembered | None = None) -> Found:
    """The velocity after the step, without derivatives. `rows`: how its matrix falls into parts."""
    return _found(HARDER, rows, *lax.stop_gradient((problem, before)))


def first_steps(
    problem: Impact, rows: Parts | None, packing: Packing, before: Remembered | None
) -> tuple[Going, Impact]:
    """Of many contacts what `solved` begins with: of a batch all that most samples take. And the problem, packed."""
    return _first(HARDER, rows, packing)((), *lax.stop_gradient((problem, before)))


def other_steps(problem: Impact, rows: Parts | None, packing: Packing, going: Going) -> Found:
    """What `solved` gives, from there."""
    return _others(HARDER, rows, packing, _width(problem))((), *lax.stop_gradient((problem, going)))


@trailing
def _told(_: tuple, problem: Impact, v: jax.Array) -> tuple[jax.Array, ...]:
    impulses = problem.impulses(Coulomb(), v)
    u, at_first = problem.local(v), problem.local(problem.free)
    work = 0.5 * jnp.sum(impulses * (u + at_first), axis=(0, 1))
    return impulses, lax.stop_gradient(work)


def told(problem: Impact, v: jax.Array, found: Found) -> After:
    """What is to be known of the velocity after the step: `v` is that of `found`, with derivatives, and obeys `problem`
    as it was `found`."""
    impulses, work = _told((), problem, v)
    unbalanced, gives = lax.stop_gradient((found.unbalanced, found.gives))
    return After(v, impulses, unbalanced, gives, work, found.eased, found.remembered)
