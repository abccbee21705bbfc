"""Coulomb's law of contacts that give a little, and the balance of momentum with it.

    H (v - v*) = J^T gamma        u = J v        y = (u_hat - u) / R
    gamma_n = max(y_n, 0)         gamma_t = y_t, but at most mu gamma_n long

`v*` is the velocity without contact, `u` the velocity at a contact, two entries along the surface and the last along
the normal. `R` is a compliance in series with each contact: it makes the velocity one whatever `J`, of feet with many
points, pushed from two sides; small, it is a rigid contact. What slides neither opens nor is pressed: friction is along
the slip, and the normal does not know of it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.batching import trailing
from dynax.contact.stop_rows import StopRows
from dynax.linear.solve import solve_definite
from dynax.linear.sums import across, combined
from dynax.sweep.sums import summed


class Impact(NamedTuple):
    """The problem of a step."""

    inertia: jax.Array
    """`H`, shape `(nv, nv)`."""
    free: jax.Array
    """`v*`, shape `(nv,)`."""
    begin: jax.Array
    """The velocity before the step, shape `(nv,)`: how much motion there is."""
    jacobian: jax.Array
    """`J` of contacts, two rows along the surface and one along the normal, shape `(c, 3, nv)`."""
    target: jax.Array
    """The velocity `u_hat` at which there is no force, of contacts and then of stops, shape `(k, 3)`, `k = c + l`."""
    compliance: jax.Array
    """`R`, shape `(k,)`."""
    mobility: jax.Array
    """The velocity along the normal of a unit of impulse, shape `(k,)`."""
    friction: jax.Array
    """Of contacts, shape `(c,)`."""
    stops: StopRows
    """`J` of limits and other stops, which have a normal alone."""
    bounce: jax.Array | None = None
    """What of `target` along normals is there because it was hit, shape `(k,)`; `None` where that is to be so, whatever
    it makes of the energy."""

    def bouncing(self, part: jax.Array | float) -> Impact:
        """Of which hits bounce by a part of what they may."""
        if self.bounce is None:
            return self
        return self._replace(target=self.target - along_normals((1.0 - part) * self.bounce))

    def local(self, v: jax.Array) -> jax.Array:
        """Velocities at contacts and stops, shape `(k, 3)`."""
        of_contacts = across(self.jacobian, v)
        return jnp.concatenate([of_contacts, along_normals(self.stops.times(v))])

    def beyond(self, v: jax.Array) -> jax.Array:
        """The same less `u_hat`."""
        return self.local(v) - self.target

    def impulses(self, law: Law, v: jax.Array) -> jax.Array:
        """By the law at a velocity, shape `(k, 3)`."""
        return law.impulses(self.friction, self.compliance, self.beyond(v))

    def stiffness(self, law: Law, v: jax.Array) -> jax.Array:
        """Of these, shape `(k, 3, 3)`."""
        return law.stiffness(self.friction, self.compliance, self.beyond(v))

    def push(self, impulses: jax.Array) -> jax.Array:
        """`J^T gamma`."""
        count = len(self.jacobian)
        rows = self.jacobian.reshape(-1, *self.jacobian.shape[2:])
        rubbing = impulses[:count].reshape(-1, *impulses.shape[2:])
        return combined(rows, rubbing[:, None]) + self.stops.push(impulses[count:, 2])


class Law(Protocol):
    """Of the impulses at contacts and stops, a pytree of its numbers; of velocities `u - u_hat`, shape `(k, 3)`, with
    compliance, shape `(k,)`, and friction of contacts, the first of them, shape `(c,)`; batch axes trail."""

    def impulses(self, friction: jax.Array, compliance: jax.Array, beyond: jax.Array) -> jax.Array:
        """Shape `(k, 3)`."""
        ...

    def stiffness(self, friction: jax.Array, compliance: jax.Array, beyond: jax.Array) -> jax.Array:
        """`-d gamma / du`, shape `(k, 3, 3)`."""
        ...


class Coulomb(NamedTuple):
    """The law above."""

    def impulses(self, friction: jax.Array, compliance: jax.Array, beyond: jax.Array) -> jax.Array:
        return within(friction, -beyond / compliance[:, None])

    def stiffness(self, friction: jax.Array, compliance: jax.Array, beyond: jax.Array) -> jax.Array:
        count, y = len(friction), -beyond / compliance[:, None]
        pressing, y = jnp.where(y[:, 2] > 0, 1.0, 0.0), y[:count]
        length, pressed = length_along(y), y[:, 2] > 0
        most = friction * positive(y[:, 2])
        slides, some = _slides(most, length)
        x, y = y[:, 0] / some, y[:, 1] / some
        across = jnp.where(slides, most / some, 1.0)
        along = jnp.where(slides, 0.0, 1.0)
        by_press = jnp.where(slides & pressed, friction, 0.0)
        none, straight = jnp.zeros_like(x), jnp.where(slides, 1.0, 0.0)
        one = jnp.stack([along + straight * across * y * y, -straight * across * x * y, by_press * x], axis=1)
        other = jnp.stack([-straight * across * x * y, along + straight * across * x * x, by_press * y], axis=1)
        last = jnp.stack([none, none, pressing[:count]], axis=1)
        own = jnp.stack([one, other, last], axis=1)
        return and_stops(own, pressing) / compliance[:, None, None]


def mobilities(inertia: jax.Array, rows: jax.Array) -> jax.Array:
    """`j H^-1 j^T` of each row `(l, nv)`: the velocity along it of a unit of impulse."""
    return _along((), rows, solve_definite(inertia, rows.T))


@trailing
def _along(_: tuple, rows: jax.Array, changes: jax.Array) -> jax.Array:
    """Of rows `(l, n)` and columns `(n, l)`, each by its own."""
    return summed(rows * jnp.moveaxis(changes, 1, 0))


def along_normals(x: jax.Array) -> jax.Array:
    """Of shape `(l, ...)` vectors with nothing along the surface, shape `(l, 3, ...)`."""
    return jnp.stack([jnp.zeros_like(x), jnp.zeros_like(x), x], axis=1)


def and_stops(contacts: jax.Array, pressing: jax.Array) -> jax.Array:
    """Vectors `(c, 3)` or matrices `(c, 3, 3)` of contacts, and those of stops, which press alone: of `pressing`, shape
    `(k,)`, the part along normals of all of them."""
    of_stops = along_normals(pressing[len(contacts) :])
    matrices = contacts.ndim > pressing.ndim + 1
    return jnp.concatenate([contacts, along_normals(of_stops) if matrices else of_stops])


def within(friction: jax.Array, y: jax.Array) -> jax.Array:
    """`y`, shape `(k, 3)`, as friction lets it."""
    count, press = len(friction), positive(y[:, 2])
    y = y[:count]
    most = friction * press[:count]
    slides, some = _slides(most, length_along(y))
    part = jnp.where(slides, most / some, 1.0)
    own = jnp.stack([part * y[:, 0], part * y[:, 1], press[:count]], axis=1)
    return and_stops(own, press)


def positive(x: jax.Array) -> jax.Array:
    """`max(x, 0)`, at zero with the slope to its left; that of `jnp.maximum` is half of one there."""
    return jnp.where(x > 0, x, 0.0)


def _slides(most: jax.Array, length: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether it slides, as does what rests in the air or without friction; and what to divide by where it does."""
    slides = length >= most
    return slides, jnp.where(slides & (length > 0), length, 1.0)


def forces(stiffness: jax.Array, u: jax.Array) -> jax.Array:
    """`stiffness u` of each contact, `u` of shape `(k, 3, ...)`."""
    k = stiffness.reshape(*stiffness.shape[:3], *(1,) * (u.ndim - stiffness.ndim + 1), *stiffness.shape[3:])
    return k[:, :, 0] * u[:, None, 0] + k[:, :, 1] * u[:, None, 1] + k[:, :, 2] * u[:, None, 2]


def length_along(y: jax.Array) -> jax.Array:
    """Of the part along the surface."""
    square = y[:, 0] * y[:, 0] + y[:, 1] * y[:, 1]
    some = square > jnp.finfo(y.dtype).tiny
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)


def diagonal(a: jax.Array) -> jax.Array:
    index = np.arange(len(a))
    return a[index, index]  # `jnp.diagonal` is no loop of XLA's own


def unbalanced(problem: Impact, v: jax.Array, impulses: jax.Array) -> jax.Array:
    return combined(problem.inertia, v - problem.free) - problem.push(impulses)
