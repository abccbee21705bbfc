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

from dynax.embedding.flexible import own_bodies
from dynax.embedding.model import tree_of
from dynax.model import Model
from dynax.model.configuration import integrate
from dynax.model.flexible import FlexibleModel
from dynax.simulate.stepper import AbstractStepper, State, acceleration
from dynax.sweep.scan import settled

Row = tuple[float, ...]


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
        adding = adds(model)
        flows, last, starts = np.array(self.flows), np.array(self.last), np.array(self.starts)
        if adding:  # all from the beginning, and one to the end
            for k, start in enumerate(self.starts):
                flows[k] += flows[start]
            last, starts = last.sum(axis=0, keepdims=True), np.zeros_like(starts)
        rows = np.vstack((self.velocities, self.weights)), np.vstack((flows, last))
        of_rates, of_velocities = (jnp.asarray(each.T, q.dtype) for each in rows)
        delays, stages, nv = np.sum(self.velocities, axis=1), len(self.weights), model.nv

        def stage(found: tuple, given: tuple) -> tuple[tuple, None]:
            (now, qs, changes, ways, begun), (k, delay, start, of_rate, of_velocity) = found, given
            x_now = x + dt * changes[k]
            slope = rate(now, x_now, dt * delay)
            changes, ways = changes + of_rate[:, None] * slope, ways + of_velocity[:, None] * x_now[:nv]
            from_here = q
            if starts.any():
                qs = qs.at[k].set(now)
                from_here = qs[start]
            now = integrate(model, from_here, dt * ways[k + 1])
            return (now, qs, changes, ways, jnp.where(k == 0, slope, begun)), None

        # Sums of all stages to come grow with each: where they are made of all that were, a batch is copied each time.
        empty = [jnp.zeros((each.shape[1], size), x.dtype) for each, size in ((of_rates, x.size), (of_velocities, nv))]
        given = jnp.arange(stages), jnp.asarray(delays, q.dtype), jnp.asarray((*starts[1:], 0)), of_rates, of_velocities
        before = jnp.zeros((stages if starts.any() else 0, q.size), q.dtype)
        start = settled(
            lambda found: stage(found, tuple(x[0] for x in given))[0], (q, before, *empty, jnp.zeros_like(x))
        )
        (end, _, changes, ways, begun), _ = jax.lax.scan(stage, start, given)
        for k in range(stages + 1, len(ways)):
            end = integrate(model, end, dt * ways[k])
        return end, x + dt * changes[stages], begun


def adds(model: Model) -> bool:
    """Whether two steps are one by their sum. Modes add, however the places that they move turn."""
    tree = tree_of(model)
    if isinstance(tree, FlexibleModel):
        return all(tree.skeleton.topology.joints[body].adds for body in own_bodies(tree))
    return tree.topology.all_add


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
