"""How the velocity after a step with contact is differentiated, of trees.

With `v* = w + dt a_k` the velocity without contact, and `w` that of the beginning (`simulate.turning`), it obeys

    H (v+ - v*) = J^T gamma(J v+)        M(q) a_k + bias(q, v + h a_(k-1)) = tau

The whole motion has the acceleration `a' = (v+ - w) / dt`, and what both equations change by with the mass matrix is
what inverse dynamics changes by at `a'`. So with `da'` how `a_k` would change if it were `a'` (`mean_velocity.rate`)

    (H + J^T K J) dv+ = H (dw + dt da' + ddt a_k) + d(J^T gamma), at the `v+` found        K = -dgamma/du

and no mass matrix is differentiated. How soft contacts are is taken as given. With another law `gamma` of impulses, and
the `v+` that obeys it, the derivatives are those of contact that is relaxed, or felt from a distance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.crba import crba, like_matrix
from dynax.compile.batching import known, linear, trailing
from dynax.compile.zeros import along_moving, is_zero
from dynax.contact.balance import matrix
from dynax.contact.branching import Rows
from dynax.contact.coulomb import Impact, Law, along_normals
from dynax.contact.stop_rows import StopRows
from dynax.derivatives.mean_velocity import accelerations, rate
from dynax.derivatives.rule import full
from dynax.linear.solve import solve_rows, solved
from dynax.linear.sums import across, by_terms
from dynax.simulate.turning import Turning, begun_rows


class Surfaces(NamedTuple):
    """Of an `Impact` what may change, and the law of its impulses."""

    jacobian: jax.Array
    target: jax.Array
    friction: jax.Array
    stops: StopRows
    law: Law


class Known(NamedTuple):
    """What was found before, without derivatives, beside the velocity after the step."""

    accelerations: jax.Array
    """Without contact, of all evaluations, shape `(k, nv)`."""
    compliance: jax.Array
    inertia: jax.Array


def _rule(rows: Rows | None, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    model, q, v, tau, dt, axes, surfaces, found, _ = primals
    dmodel, dq, dv, dtau, ddt, daxes, dsurfaces, *_ = tangents
    after = velocity_of(rows)(*primals)
    half, dhalf = 0.5 * dt, ddt if is_zero(ddt) else 0.5 * ddt
    a = accelerations(model, q, v, tau, half, found.accelerations)
    mean = v + half * a[-2]
    whole = jnp.concatenate([a[:-1], ((after - axes.begun(v, mean)) / dt)[None]])
    da = rate((model, q, v, tau, half), (dmodel, dq, dv, dtau, dhalf), whole)
    change, later = jnp.zeros_like(v) if is_zero(dv) else dv, dt * da[-1]
    dmean = change + half * da[-2]
    if not is_zero(ddt):
        dmean, later = dmean + dhalf * a[-2], later + ddt * a[-1]
    batch, own = v.shape[1:], (axes, surfaces)
    daxes, dsurfaces = jax.tree.map(partial(_instantiated, batch), own, (daxes, dsurfaces))
    given = _Given(
        after, v, mean, _mass(model, q, found.inertia), found.compliance, *jax.tree.map(partial(full, batch=batch), own)
    )
    return after, _change_of(rows)((), given, _Rates(change, dmean, later, dsurfaces, daxes))


class _Given(NamedTuple):
    """Where the equation of impulses is differentiated, for trailing batch axes."""

    after: jax.Array
    v: jax.Array
    mean: jax.Array
    inertia: jax.Array
    compliance: jax.Array
    axes: Turning
    surfaces: Surfaces

    @property
    def problem(self) -> Impact:
        j, target, friction, stops, _ = self.surfaces
        return Impact(self.inertia, self.v, self.v, j, target, self.compliance, self.compliance, friction, stops)

    @property
    def stiffness(self) -> jax.Array:
        return self.problem.stiffness(self.surfaces.law, self.after)

    @property
    def matrix(self) -> jax.Array:
        """`H + J^T K J`."""
        return matrix(self.problem, self.stiffness)

    def solution(self, rows: Rows | None, b: jax.Array, *, transposed: bool) -> jax.Array:
        """`(H + J^T K J)^-1 b`, or of the transposed matrix."""
        if rows is None:
            a = jnp.swapaxes(self.matrix, 0, 1) if transposed else self.matrix
            return solved(a, b[:, None])[:, 0]
        k = self.stiffness
        parted = rows.parted(self.inertia, self.surfaces.jacobian, self.surfaces.stops)
        return rows.solve(parted, jnp.swapaxes(k, 1, 2) if transposed else k, b)

    def along(self, j: jax.Array, stops: StopRows, v: jax.Array) -> jax.Array:
        """`J v`."""
        return jnp.concatenate([across(j, v), along_normals(stops.times(v))])

    def impulses(self, u: jax.Array, target: jax.Array, friction: jax.Array, law: Law) -> jax.Array:
        return law.impulses(friction, self.compliance, u - target)

    def push(self, surfaces: Surfaces) -> jax.Array:
        """`J^T gamma(J v+)`."""
        j, target, friction, stops, law = surfaces
        impulses = self.impulses(self.along(j, stops, self.after), target, friction, law)
        rows, rubbing = j.reshape(-1, *j.shape[2:]), impulses[: len(j)].reshape(-1, *impulses.shape[2:])
        return by_terms(rows, rubbing[:, None]) + stops.push(impulses[len(j) :, 2])


class _Rates(NamedTuple):
    """Of `v`, of the mean velocity, of `dt a_k`, of surfaces and of axes."""

    v: jax.Array
    mean: jax.Array
    later: jax.Array
    surfaces: Surfaces
    axes: Turning


def _momentum(given: _Given, x: _Rates) -> jax.Array:
    """By how much momentum is out of balance at the `v+` found."""
    free = jax.jvp(begun_rows, (given.axes, given.v, given.mean), (x.axes, x.v, x.mean))[1]
    pushed = jax.jvp(given.push, (given.surfaces,), (x.surfaces,))[1]
    return by_terms(given.inertia, free + x.later) + pushed


def _there(rows: Rows | None, _: tuple, given: _Given, x: _Rates) -> jax.Array:
    return given.solution(rows, _momentum(given, x), transposed=False)


def _back(rows: Rows | None, _: tuple, given: _Given, bar: jax.Array) -> _Rates:
    j, target, friction, stops, law = given.surfaces
    bar = given.solution(rows, bar, transposed=True)
    later = by_terms(given.inertia, bar)
    axes, v, mean = jax.vjp(begun_rows, given.axes, given.v, given.mean)[1](later)
    u = given.along(j, stops, given.after)
    impulses, pull = jax.vjp(given.impulses, u, target, friction, law)
    along, by_target, by_friction, by_law = pull(given.along(j, stops, bar))

    count = len(j)
    by_j = impulses[:count, :, None] * bar + along[:count, :, None] * given.after
    by_stops = stops.by_entries(impulses[count:, 2], bar, along[count:, 2], given.after)
    return _Rates(v, mean, later, Surfaces(by_j, by_target, by_friction, by_stops, by_law), axes)


def _instantiated(batch: tuple[int, ...], x: jax.Array, rate: Any) -> jax.Array:
    """A rate for each sample."""
    return full(jnp.zeros_like(x) if is_zero(rate) else rate, batch)


@lru_cache(maxsize=512)
def _change_of(rows: Rows | None) -> Callable[..., jax.Array]:
    return linear(
        partial(_there, rows),
        partial(_back, rows),
        lambda _, given, x: solve_rows(given.matrix, _momentum(given, x)),
        lambda _, given, x: x.later,
    )[0]


mass = trailing(crba, like=like_matrix)


def _rate_of_mass(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    return _mass(*primals), along_moving(mass, primals[:2], tangents[:2])[1]


# The mass matrix, as it is known, with its derivatives.
_mass = known(_rate_of_mass)


@lru_cache(maxsize=512)
def velocity_of(rows: Rows | None) -> Callable[..., jax.Array]:
    """The function `(model, q, v, tau, dt, axes, surfaces, known, after)`, whose value is the velocity after the step;
    `rows`: those of a problem that falls into branches."""
    return known(partial(_rule, rows))
