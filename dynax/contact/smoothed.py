"""Derivatives of a step with contact that are not its own: of contact that is relaxed, and of contact at a distance."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.alart_curnier import Remembered
from dynax.contact.balance import balanced
from dynax.contact.coulomb import Coulomb, Impact, Law, along_normals
from dynax.contact.grouping import Parts
from dynax.contact.relaxed import relaxed
from dynax.contact.solving import After, after


class Surrogate(Protocol):
    """What has derivatives instead of a step, a pytree of its numbers."""

    def seen(self, problem: Impact, end: After, parts: Parts | None = None) -> tuple[jax.Array, Law]:
        """The velocity, without derivatives, and the law that it obeys, of a step with this `end`; `parts`: of the
        matrix of its problem."""
        ...


class RelaxedBy(NamedTuple):
    """Contact relaxed by `kappa` [J]."""

    kappa: jax.Array

    def seen(self, problem: Impact, end: After, parts: Parts | None = None) -> tuple[jax.Array, Law]:
        return relaxed(problem, self.kappa, end.v, end.impulses, parts)


class FeltFrom(NamedTuple):
    """As if what will be apart touched in part: of the velocity that would bring it together the part
    `s = (1 - w / near)^2` is taken away, where it opens at `w` less than `near` [m/s] beyond what would close it within
    the step."""

    near: jax.Array

    def seen(self, problem: Impact, end: After, parts: Parts | None = None) -> tuple[jax.Array, Law]:
        problem, near, v = lax.stop_gradient((problem, self.near, end.v))
        opening = problem.beyond(v)[:, 2]
        part = jnp.clip(1.0 - opening / near, 0.0, 1.0) ** 2
        some = (opening > 0) & (part > 0)
        give = problem.compliance + problem.mobility * (1.0 - part) / jnp.where(some, part, 1.0)
        return v, Distant(jnp.where(some, 1.0 / give, 0.0), opening)


class Distant(NamedTuple):
    """Coulomb's law, and springs that press nothing where things are."""

    spring: jax.Array
    """Shape `(k,)`."""
    opening: jax.Array
    """Velocities along normals, less those at which shapes would touch, shape `(k,)`."""

    def impulses(self, friction: jax.Array, compliance: jax.Array, beyond: jax.Array) -> jax.Array:
        own = along_normals(self.spring * (beyond[:, 2] - self.opening))
        return Coulomb().impulses(friction, compliance, beyond) - own

    def stiffness(self, friction: jax.Array, compliance: jax.Array, beyond: jax.Array) -> jax.Array:
        return Coulomb().stiffness(friction, compliance, beyond) + along_normals(along_normals(self.spring))


def differentiated_as(end: After, problem: Impact, law: Law, v: jax.Array) -> After:
    """`end` with the derivatives of the velocity `v` and of its impulses by the `law`."""
    return end._replace(v=_like(end.v, v), impulses=_like(end.impulses, problem.impulses(law, v)))


def _like(value: jax.Array, other: jax.Array) -> jax.Array:
    return lax.stop_gradient(value) + (other - lax.stop_gradient(other))


@jax.custom_jvp
def after_as(problem: Impact, surrogate: Surrogate, before: Remembered | None) -> After:
    """What `after` gives, with the derivatives of a surrogate, of any order."""
    return after(problem, before)


@after_as.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[After, After]:
    end = after_as(*primals)

    def moved(problem: Impact, surrogate: Surrogate) -> tuple[jax.Array, jax.Array]:
        problem = end.eased.of(problem)
        v, law = surrogate.seen(problem, end)
        found = differentiated_as(end, problem, law, balanced(problem, law, v))
        return found.v, found.impulses

    dv, impulses = jax.jvp(moved, primals[:2], tangents[:2])[1]
    return end, jax.tree.map(jnp.zeros_like, end)._replace(v=dv, impulses=impulses)
