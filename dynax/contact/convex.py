"""The velocity after a step with contact, by minima of convex functions (Castro, Permenter & Han 2022, "SAP").

    min over v of  1/2 (v - v*)^T H (v - v*) + sum over contacts of 1/2 gamma^T R gamma
    gamma = P(y)       y = (u_hat - u) / R       u = J v

`v*` is the velocity without contact, `u` the velocity at a contact, two entries along the surface and the last along
the normal, and `P` the projection on the circular cone of friction in the metric `R`. The impulse `gamma` is the
gradient, so the minimum obeys `H (v - v*) = J^T gamma`. It is strictly convex whatever `J`: feet with many points,
pushed from two sides, have one answer. `R` is the compliance that makes it so; small, it is a rigid contact.

The minimum opens what slides, at the velocity `mu |slip|`. That much is taken off `u_hat`, which makes it Coulomb's law
(De Saxce & Feng 1998; Acary 2011). So minima are found in turn, each with the slip of the one before. The `R` of these
is larger, for they are found in fewer steps then, and what it gives is added to `u_hat` for the next (the method of
multipliers). After each, a step of Newton's method for the whole law is taken if it comes nearer, and ends it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.batching import trailing
from dynax.linear.each import each
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.linear.solve import eliminated, solve

MOST = 50
"""Steps of Newton's method for a minimum. Robots take three to eight."""
ROUNDS = 25
"""Minima at most."""
EASE = 1e-2
"""Least compliance in them, by the mobility of the contact."""
SOON = 2
"""Rounds after which a step is a hard one."""
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}
"""The last step by the velocity, in the metric of `H`; what is left of the error is about its square."""
LEFT = {"float64": 1e-8, "float32": 1e-3}
"""Of the momentum that does not balance, by what there is: some hundred times what rounding makes of hard contacts."""
ENOUGH = {"float64": 1e-15, "float32": 1e-4}
"""Of it, where no more is asked for."""
SEARCHES = 12
"""At most for the least value along a step of a minimum."""
FLAT = 0.1
"""What may be left of the slope there."""
FINER = 8
HALVINGS = 5
"""Steps for the whole law from one point, and how often each may be halved."""
AXES = np.eye(3)


class Impact(NamedTuple):
    """The problem of a step."""

    inertia: jax.Array
    """`H`, shape `(nv, nv)`."""
    free: jax.Array
    """`v*`, shape `(nv,)`."""
    begin: jax.Array
    """A velocity near that after the step, such as that before, shape `(nv,)`."""
    jacobian: jax.Array
    """`J`, two rows along the surface and one along the normal, shape `(k, 3, nv)`."""
    target: jax.Array
    """The velocity `u_hat` at which there is no force, shape `(k, 3)`."""
    compliance: jax.Array
    """`R` along the surface and along the normal, shape `(k, 2)`."""
    mobility: jax.Array
    """The velocity along the normal of a unit of impulse, shape `(k,)`."""
    friction: jax.Array
    """Shape `(k,)`."""

    def local(self, v: jax.Array) -> jax.Array:
        """Velocities at the contacts, shape `(k, 3)`."""
        return jnp.sum(self.jacobian * v, axis=2)

    def push(self, impulses: jax.Array) -> jax.Array:
        """`J^T gamma`."""
        return jnp.sum(self.jacobian * impulses[:, :, None], axis=(0, 1))

    def sliding(self, v: jax.Array) -> Impact:
        """The convex problem in which what slides at `v` does not open."""
        slip = self.friction * _length(self.local(v))
        return self._replace(target=self.target - slip[:, None] * AXES[2].astype(v.dtype))

    def eased(self, v: jax.Array, impulses: jax.Array, part: jax.Array) -> Impact:
        """The same with more compliance, all but that of these impulses; as the `part` of it goes, 1 or 0."""
        more = part * jnp.maximum(EASE * self.mobility[:, None] - self.compliance, 0.0)
        own = self.sliding(v)
        given = jnp.concatenate([more[:, :1], more], axis=1) * impulses
        return own._replace(compliance=own.compliance + more, target=own.target + given)


class After(NamedTuple):
    v: jax.Array
    impulses: jax.Array
    """In the frames of the contacts, on the second body, shape `(k, 3)` [N s]."""
    unbalanced: jax.Array
    """Of the momentum, as a part of what there is: small where the problem was solved."""


class Response(NamedTuple):
    """Of the contacts to a velocity."""

    impulses: jax.Array
    stiffness: jax.Array
    """`-d gamma / du`, shape `(k, 3, 3)`."""


def _length(u: jax.Array) -> jax.Array:
    """Of the part along the surface."""
    square = u[:, 0] * u[:, 0] + u[:, 1] * u[:, 1]
    some = square > jnp.finfo(u.dtype).tiny
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)


def respond(problem: Impact, v: jax.Array) -> Response:
    """`P((u_hat - u) / R)` of all contacts and its slope: each sticks, slides or is apart."""
    u, friction = problem.local(v), problem.friction
    along, across = problem.compliance[:, 0], problem.compliance[:, 1]
    u = problem.target - u
    y_t, y_n = u[:, :2] / along[:, None], u[:, 2] / across
    slip = _length(y_t)
    steep = friction * along / across
    share = 1.0 / (1.0 + friction * steep)
    pressed = share * (y_n + steep * slip)
    some = jnp.where(slip > 0, slip, 1.0)
    way = y_t / some[:, None]
    apart = y_n <= -steep * slip
    sticks = (slip <= friction * y_n) & (friction > 0)

    def chosen(sticking: jax.Array, sliding: jax.Array) -> jax.Array:
        shape = (-1,) + (1,) * (sticking.ndim - 1)
        own = jnp.where(sticks.reshape(shape), sticking, sliding)
        return jnp.where(apart.reshape(shape), 0.0, own)

    def column(t: jax.Array, n: jax.Array) -> jax.Array:
        return jnp.concatenate([t, n[:, None]], axis=1)

    impulses = chosen(column(y_t, y_n), column((friction * pressed)[:, None] * way, pressed))
    normal = column((friction * share)[:, None] * way, share) / across[:, None]
    turning = friction * pressed / some
    columns = []
    for k in (0, 1):
        unit = jnp.asarray(AXES[k : k + 1], u.dtype)
        ahead = (friction * share * steep - turning)[:, None] * way
        sliding = column(ahead * way[:, k : k + 1], share * steep * way[:, k]) + turning[:, None] * unit
        columns.append(chosen(unit / along[:, None], sliding / along[:, None]))
    columns.append(chosen(jnp.asarray(AXES[2:], u.dtype) / across[:, None], normal))
    return Response(impulses, jnp.stack(columns, axis=2))


def _stiffness(problem: Impact, v: jax.Array, found: Response) -> jax.Array:
    """That of Coulomb's law, where the target depends on the slip."""
    u = problem.local(v)
    slip = _length(u)
    rate = (problem.friction / jnp.where(slip > 0, slip, 1.0))[:, None] * u * np.array([1, 1, 0], u.dtype)
    return found.stiffness + found.stiffness[:, :, 2:] * rate[:, None, :]


def _matrix(problem: Impact, stiffness: jax.Array) -> jax.Array:
    """`H + J^T G J`. As a loop it is in one kernel with the rest, where a product of matrices would be a call (101 and
    190 us for the whole solution of a quadruped, on one core)."""

    def add(total: jax.Array, one: tuple) -> tuple[jax.Array, None]:
        j, g = one
        for a in range(3):
            total = total + j[a][:, None] * (g[a, 0] * j[0] + g[a, 1] * j[1] + g[a, 2] * j[2])
        return total, None

    return lax.scan(add, problem.inertia, (problem.jacobian, stiffness))[0]


def _unbalanced(problem: Impact, v: jax.Array, impulses: jax.Array) -> jax.Array:
    return _times(problem.inertia, v - problem.free) - problem.push(impulses)


def _times(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(a * x, axis=1)


def _diagonal(a: jax.Array) -> jax.Array:
    return jnp.sum(a * np.eye(len(a), dtype=a.dtype), axis=1)  # `jnp.diagonal` is no loop of XLA's own


def _energy(problem: Impact, v: jax.Array) -> jax.Array:
    return jnp.sum(v * _times(problem.inertia, v))


def _small(problem: Impact, step: jax.Array, v: jax.Array) -> jax.Array:
    there = jnp.maximum(_energy(problem, v), _energy(problem, problem.free))
    return _energy(problem, step) <= TOLERANCE[v.dtype.name] ** 2 * there


def _minimum(problem: Impact, v: jax.Array, known: jax.Array | bool = False) -> jax.Array:
    """By Newton's method from `v`, unless it is `known`."""

    def newton(state: tuple) -> tuple:
        k, v, _ = state
        found = respond(problem, v)
        rest = _unbalanced(problem, v, found.impulses)
        step = -gauss_jordan(_matrix(problem, found.stiffness), rest[:, None])[:, 0]
        return k + 1, v + _reach(problem, v, step) * step, _small(problem, step, v)

    return lax.while_loop(lambda s: (s[0] < MOST) & ~s[2], newton, (0, v, jnp.asarray(known)))[1]


def _reach(problem: Impact, v: jax.Array, step: jax.Array) -> jax.Array:
    """Of the step: where the function has hardly a slope along it, but at most 1. By secants, kept off the ends of the
    interval that is left, since the slope has kinks."""
    first = jnp.sum(step * _times(problem.inertia, v - problem.free))
    curve = _energy(problem, step)
    du = problem.local(step)

    def slope(s: jax.Array) -> jax.Array:
        return first + s * curve - jnp.sum(du * respond(problem, v + s * step).impulses)

    def secant(state: tuple) -> tuple:
        k, low, high, below, above, _, _ = state
        part = jnp.clip(below / (below - above), 0.1, 0.9)
        s = low + part * (high - low)
        value = slope(s)
        beyond = value > 0
        ends = jnp.where(beyond, low, s), jnp.where(beyond, s, high)
        return k + 1, *ends, jnp.where(beyond, below, value), jnp.where(beyond, value, above), s, value

    zero, one = jnp.zeros((), v.dtype), jnp.ones((), v.dtype)
    start, end = slope(zero), slope(one)
    good = ~(end > 1e-3 * jnp.abs(start))
    state = jnp.where(good, SEARCHES, 0), zero, one, start, end, one, end
    flat = FLAT * jnp.abs(start)
    return lax.while_loop(lambda s: (s[0] < SEARCHES) & (jnp.abs(s[6]) > flat), secant, state)[5]


def _found(problem: Impact) -> jax.Array:
    """The velocity after the step, of one sample."""

    def size(rest: jax.Array) -> jax.Array:
        return jnp.sum(rest * rest / _diagonal(problem.inertia))

    def law(v: jax.Array) -> tuple[Response, jax.Array]:
        own = problem.sliding(v)
        found = respond(own, v)
        return found, _unbalanced(own, v, found.impulses)

    def finer(start: jax.Array) -> tuple[jax.Array, jax.Array]:
        """By Newton's method for the whole law as long as it comes nearer; with the residual."""

        def newton(state: tuple) -> tuple:
            k, v, rest, _ = state
            found, unbalanced = law(v)
            step = -eliminated(_matrix(problem, _stiffness(problem, v, found)), unbalanced[:, None])[:, 0]

            def shorter(state: tuple) -> tuple:
                k, part, _ = state
                part = 0.5 * part
                return k + 1, part, size(law(v + part * step)[1])

            first = 0, jnp.ones((), v.dtype), size(law(v + step)[1])
            _, part, left = lax.while_loop(lambda s: (s[0] < HALVINGS) & ~(s[2] < 0.25 * rest), shorter, first)
            nearer = left < 0.9 * rest
            end = jnp.where(nearer, v + part * step, v)
            return k + 1, end, jnp.where(nearer, left, rest), nearer

        rest = size(law(start)[1])
        state = 0, start, rest, jnp.ones((), bool)
        found = lax.while_loop(lambda s: (s[0] < FINER) & s[3] & (s[2] > enough), newton, state)
        return found[1], found[2]

    def again(state: tuple) -> tuple:
        k, v, impulses, nearest, best, _ = state
        one = jnp.ones((), v.dtype)

        def minima(hard: jax.Array, found: tuple) -> tuple[jax.Array, jax.Array]:
            """With the larger compliance, and then without: what does not end soon has contacts on the border of
            sticking, which the larger compliance takes for others."""
            _, begin = found
            own = problem.eased(begin, impulses, jnp.where(hard > 0, 0.0, one))
            return begin, _minimum(own, begin, (hard > 0) & (k < SOON))

        new, hard = lax.fori_loop(0, 2, minima, (v, v))
        fine, rest = finer(hard)
        # From what is nearer than ever it goes on, lest it goes round in circles.
        nearer = (rest < 0.25 * best) | _small(problem, new - v, v)
        end = jnp.where(nearer, fine, new)
        impulses = jnp.where(nearer, law(fine)[0].impulses, respond(problem.eased(v, impulses, one), new).impulses)
        nearest = jnp.where(rest < best, fine, nearest)
        return k + 1, end, impulses, nearest, jnp.minimum(rest, best), rest <= done

    there = jnp.maximum(_energy(problem, problem.begin), _energy(problem, problem.free))
    done, enough = (limit[there.dtype.name] ** 2 * there for limit in (LEFT, ENOUGH))
    none, zero = jnp.full((), jnp.inf, problem.free.dtype), jnp.zeros_like(problem.target)
    begin = 0, problem.begin, zero, problem.begin, none, jnp.zeros((), bool)
    return lax.while_loop(lambda s: (s[0] < ROUNDS) & ~s[5], again, begin)[3]


_solved = trailing(lambda _, problem: each(_found, problem.free.shape[1:], problem))


@jax.custom_jvp
def _velocity(problem: Impact) -> jax.Array:
    return _solved((), problem)


@_velocity.defjvp
def _rate(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    """The momentum stays in balance, whatever changes."""
    (problem,), (change,) = primals, tangents
    v = _velocity(problem)

    def rest(problem: Impact) -> jax.Array:
        own = problem.sliding(v)
        return _unbalanced(own, v, respond(own, v).impulses)

    moved = jax.jvp(rest, (problem,), (change,))[1]
    slope = _matrix(problem, _stiffness(problem, v, respond(problem.sliding(v), v)))
    return v, -solve(slope, moved)


def after(problem: Impact) -> After:
    """The velocity after the step, with derivatives of any order by the equation that it obeys."""
    if not len(problem.target):
        return After(problem.free, jnp.zeros((0, 3), problem.free.dtype), jnp.zeros((), problem.free.dtype))
    v = _velocity(problem)
    own = problem.sliding(v)
    impulses = respond(own, v).impulses
    weight = 1.0 / jnp.sqrt(_diagonal(problem.inertia))
    rest = weight * _unbalanced(own, v, impulses)
    there = jnp.stack([weight * _times(problem.inertia, x) for x in (v, problem.free, problem.begin)])
    largest = jnp.max(jnp.abs(there))
    known = largest > 0
    return After(
        v, impulses, lax.stop_gradient(jnp.where(known, jnp.max(jnp.abs(rest)) / jnp.where(known, largest, 1.0), 0.0))
    )
