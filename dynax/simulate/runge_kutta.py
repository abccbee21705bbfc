"""Runge-Kutta methods on the joints' groups, without commutators.

On a group a velocity at one configuration cannot be added to a velocity at another. Munthe-Kaas (1999) carries them to
the algebra at the step's beginning with the inverse of dexp; Celledoni, Marthinsen & Owren (2003) compose a few flows
of constant velocity instead, each of them one `integrate`. The two agree in order for angles, rotations and rigid
displacements. The second also keeps it for a ball that rolls: its position depends on the path, not only on the
rotation, so no chart of the three velocities could hold the five coordinates.

The stages are a scan, each with the flow that leads on from it, so that forward dynamics and `integrate`, by far the
largest parts, are compiled and differentiated once, not once for each stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.batching import batch_last
from dynax.embedding.model import tree_of
from dynax.model import Model
from dynax.model.configuration import integrate, integrate_rows
from dynax.model.flexible import skeleton_of
from dynax.simulate.stepper import AbstractStepper, State, acceleration

Row = tuple[float, ...]

_flow = batch_last(integrate_rows)
"""`integrate` in a kernel, and its derivative in another."""


@dataclass(frozen=True)
class Tableau:
    """The numbers of an explicit method of `s` stages. `v_i` and `a_i`: velocity and acceleration of stage `i`."""

    velocities: tuple[Row, ...]
    """Butcher's `a`: stage `i` has the velocity `v + dt sum_j a_ij a_j` and the time `dt sum_j a_ij`."""
    flows: tuple[Row, ...]
    """Stage `i` is reached by the flow of `dt sum_j flows_ij v_j`, from the beginning of the step or from `starts`."""
    starts: tuple[int, ...]
    """The stage whose configuration the flow to stage `i` starts from; the first is the beginning of the step."""
    last: tuple[Row, ...]
    """The flows that lead to the end of the step, one after another; one, by their sum, where coordinates add."""
    weights: Row
    """Butcher's `b`: the velocity at the end is `v + dt sum_j b_j a_j`."""

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        """One step of the method."""
        return self.flow(model, q, v, lambda q, v, delay: acceleration(model, q, v, tau, delay), dt)[:2]

    def flow(
        self, model: Model, q: jax.Array, x: jax.Array, rate: Callable[..., jax.Array], dt: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """One step of `q` and `x`, which begins with the velocity, as `x' = rate(q, x, delay)`; and the first rate."""
        adding = all(joint.adds for joint in skeleton_of(tree_of(model)).topology.joints)
        stages, last = len(self.weights), np.array(self.last)
        first, *rest = last.sum(axis=0, keepdims=True) if adding else last
        velocities, flows = (jnp.asarray(x, q.dtype) for x in (self.velocities, (*self.flows[1:], first)))
        delays, starts = jnp.asarray(np.sum(self.velocities, axis=1), q.dtype), jnp.asarray((*self.starts[1:], 0))

        flowed = _flow if isinstance(model, Model) and not adding else integrate

        def moved(q: jax.Array, xs: jax.Array, flow: jax.Array) -> jax.Array:
            return flowed(model, q, dt * (flow @ xs[:, : model.nv]))

        def stage(found: tuple, given: tuple) -> tuple[tuple, None]:
            (qs, xs, rates), (k, velocity, delay, start, flow) = found, given
            now = qs[k], x + dt * (velocity @ rates)
            xs, rates = xs.at[k].set(now[1]), rates.at[k].set(rate(*now, dt * delay))
            return (qs.at[k + 1].set(moved(qs[start], xs, flow)), xs, rates), None

        empty = jnp.tile(q, (stages + 1, 1)), *jnp.zeros((2, stages, x.size), x.dtype)
        given = jnp.arange(stages), velocities, delays, starts, flows
        (qs, xs, rates), _ = jax.lax.scan(stage, empty, given)
        q = qs[stages]
        for flow in rest:
            q = moved(q, xs, jnp.asarray(flow, q.dtype))
        return q, x + dt * (jnp.asarray(self.weights, x.dtype) @ rates), rates[0]


HEUN = Tableau(
    velocities=((0.0, 0.0), (1.0, 0.0)),
    flows=((0.0, 0.0), (1.0, 0.0)),
    starts=(0, 0),
    last=((0.5, 0.5),),
    weights=(0.5, 0.5),
)
CLASSICAL = Tableau(
    velocities=((0.0, 0.0, 0.0, 0.0), (0.5, 0.0, 0.0, 0.0), (0.0, 0.5, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)),
    flows=((0.0, 0.0, 0.0, 0.0), (0.5, 0.0, 0.0, 0.0), (0.0, 0.5, 0.0, 0.0), (-0.5, 0.0, 1.0, 0.0)),
    starts=(0, 0, 0, 1),
    last=((3 / 12, 2 / 12, 2 / 12, -1 / 12), (-1 / 12, 2 / 12, 2 / 12, 3 / 12)),
    weights=(1 / 6, 2 / 6, 2 / 6, 1 / 6),
)


THIRD = Tableau(
    velocities=((0.0, 0.0, 0.0), (1 / 3, 0.0, 0.0), (0.0, 2 / 3, 0.0)),
    flows=((0.0, 0.0, 0.0), (1 / 3, 0.0, 0.0), (0.0, 2 / 3, 0.0)),
    starts=(0, 0, 0),
    last=((1 / 3, 0.0, 0.0), (-1 / 12, 0.0, 3 / 4)),
    weights=(1 / 4, 0.0, 3 / 4),
)
"""Of order 3, which looks no further than two thirds of the step (Celledoni, Marthinsen & Owren 2003, section 3)."""


@dataclass(frozen=True)
class Heun(AbstractStepper):
    """The explicit trapezoidal rule, order 2, two evaluations.

        a1 = a(q, v)    v2 = v + dt a1    a2 = a(integrate(q, dt v), v2)
        v+ = v + dt (a1 + a2) / 2         q+ = integrate(q, dt (v + v2) / 2)

    The commutator of `v` and `v2` would enter at third order in `dt`, beyond the order of the method.
    """

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        return HEUN.step(model, q, v, tau, dt)


@dataclass(frozen=True)
class RungeKutta4(AbstractStepper):
    """The classical method of order 4, four evaluations, on the groups in its commutator-free form.

        q2 = exp(dt/2 v1) q     q3 = exp(dt/2 v2) q     q4 = exp(dt (v3 - v1/2)) q2
        q+ = exp(dt/12 (3 v1 + 2 v2 + 2 v3 - v4)), then exp(dt/12 (-v1 + 2 v2 + 2 v3 + 3 v4))

    where `exp(u) q` is `integrate(q, u)` and velocities follow the textbook scheme. Celledoni, Marthinsen & Owren
    (2003), section 3; for joints whose coordinates add it is the textbook scheme altogether.
    """

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        return CLASSICAL.step(model, q, v, tau, dt)
