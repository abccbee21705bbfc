"""Runge-Kutta methods on the joints' groups, without commutators.

On a group a velocity at one configuration cannot be added to a velocity at another. Munthe-Kaas (1999) carries them to
the algebra at the step's beginning with the inverse of dexp; Celledoni, Marthinsen & Owren (2003) compose a few flows
of constant velocity instead, each of them one `integrate`. The two agree in order for angles, rotations and rigid
displacements. The second also keeps it for a ball that rolls: its position depends on the path, not only on the
rotation, so no chart of the three velocities could hold the five coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from dynax.model import Model
from dynax.model.configuration import integrate
from dynax.simulate.stepper import AbstractStepper, State, acceleration


@dataclass(frozen=True)
class Heun(AbstractStepper):
    """The explicit trapezoidal rule, order 2, two evaluations.

        a1 = a(q, v)    v2 = v + dt a1    a2 = a(integrate(q, dt v), v2)
        v+ = v + dt (a1 + a2) / 2         q+ = integrate(q, dt (v + v2) / 2)

    The commutator of `v` and `v2` would enter at third order in `dt`, beyond the order of the method.
    """

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        a1 = acceleration(model, q, v, tau)
        v2 = v + dt * a1
        a2 = acceleration(model, integrate(model, q, dt * v), v2, tau, dt)
        return integrate(model, q, 0.5 * dt * (v + v2)), v + 0.5 * dt * (a1 + a2)


@dataclass(frozen=True)
class RungeKutta4(AbstractStepper):
    """The classical method of order 4, four evaluations, on the groups in its commutator-free form.

        q2 = exp(dt/2 v1) q     q3 = exp(dt/2 v2) q     q4 = exp(dt (v3 - v1/2)) q2
        q+ = exp(dt/12 (3 v1 + 2 v2 + 2 v3 - v4)), then exp(dt/12 (-v1 + 2 v2 + 2 v3 + 3 v4))

    where `exp(u) q` is `integrate(q, u)` and velocities follow the textbook scheme. Celledoni, Marthinsen & Owren
    (2003), section 3; for joints whose coordinates add it is the textbook scheme altogether.
    """

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        half = 0.5 * dt
        v1, a1 = v, acceleration(model, q, v, tau)
        q2, v2 = integrate(model, q, half * v1), v + half * a1
        a2 = acceleration(model, q2, v2, tau, half)
        q3, v3 = integrate(model, q, half * v2), v + half * a2
        a3 = acceleration(model, q3, v3, tau, half)
        q4, v4 = integrate(model, q2, dt * v3 - half * v1), v + dt * a3
        a4 = acceleration(model, q4, v4, tau, dt)
        q = integrate(model, q, dt / 12.0 * (3.0 * v1 + 2.0 * (v2 + v3) - v4))
        q = integrate(model, q, dt / 12.0 * (3.0 * v4 + 2.0 * (v2 + v3) - v1))
        return q, v + dt / 6.0 * (a1 + 2.0 * (a2 + a3) + a4)
