"""A variational stepper: discrete mechanics, so that what is conserved stays conserved."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dynax.algorithms.crba import mass_matrix
from dynax.algorithms.momentum import kinetic_energy
from dynax.algorithms.rnea import gravity_force
from dynax.embedding.model import EmbeddedModel, embedding_matrix
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.configuration import difference, integrate
from dynax.simulate.newton import resistance, root, rubbed, spread
from dynax.simulate.stepper import AbstractStepper, State, later, refuse_closed
from dynax.tree.bodies import passive_force


@dataclass(frozen=True)
class Variational(AbstractStepper):
    """The stepper for floating bodies: momentum to rounding, energy without drift. Order 2, symmetric, symplectic.

    Hamilton's principle with the action of a step taken at its middle, on the joints' groups (Marsden & West 2001,
    sections 2.4 and 3.2; Bou-Rabee & Marsden 2009 for groups):

        S(q, q+) = dt T(qm, w) + dt Q . dm      w = difference(q, q+) / dt,    qm = integrate(q, dt/2 w)
        M(q) v = -dS/dq                         M(q+) v+ = dS/dq+

    with the virtual displacement `dm` of the middle and all forces `Q` there: joint forces, weight, springs, damping,
    dry friction. The first equation gives `w` (simplified Newton steps, as in the implicit midpoint rule), the second
    `v+`.

    `T` does not change when a tree is moved as a whole and `integrate` commutes with that motion, so by Noether's
    theorem the momentum about the world's origin is conserved exactly where no force acts, whatever `dt`, and changes
    by `dt` times the force at the middle where one does. Rolling balls follow the discrete d'Alembert principle.
    Not for closed loops, but where they are embedded: `dx.embed`.
    """

    iterations: int = 50

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        refuse_closed(model, self)
        half, still = 0.5 * dt, jnp.zeros_like(v)
        middle, end = later(model, half), later(model, dt)
        mass, x = mass_matrix(model, q), spread(middle, q)
        momentum = mass @ v + _driven_momentum(model, q, still)

        def equation(w: jax.Array) -> tuple[jax.Array, jax.Array]:
            """The first equation, and the momentum at the end."""
            q1, qm = integrate(model, q, dt * w), integrate(model, q, half * w)
            force = tau - gravity_force(middle, qm) - _passive(middle, qm, w)

            def kinetic(dm: jax.Array, w: jax.Array) -> jax.Array:
                return kinetic_energy(middle, integrate(model, qm, dm), w)

            def displaced(begin: jax.Array, finish: jax.Array) -> tuple[jax.Array, jax.Array]:
                """`dt w` and `dm` when the ends are displaced. Only the derivatives count: `w` itself would be the
                difference of two positions far from the origin, and lose the digits that conserve momentum."""
                a, b = integrate(model, q, begin), integrate(model, q1, finish)
                step = difference(model, a, b)
                return step, difference(model, qm, integrate(model, a, 0.5 * step))

            by_m, by_w = jax.grad(kinetic, argnums=(0, 1))(still, w)
            begin, finish = jax.vjp(displaced, still, still)[1]((by_w, dt * (by_m + force)))
            return -begin - momentum, finish

        w, momentum1 = root(
            equation, lambda w: resistance(model, mass, rubbed(model, w, x), half, x), v, self.iterations
        )
        q1 = integrate(model, q, dt * w)
        return q1, solve(mass_matrix(end, q1), momentum1 - _driven_momentum(end, q1, still))


def _passive(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    if not isinstance(model, EmbeddedModel):
        return passive_force(model, q, v)
    x = embedding_matrix(model, q)
    return x.T @ passive_force(model.tree, q, x @ v)


def _driven_momentum(model: Model, q: jax.Array, still: jax.Array) -> jax.Array:
    """What joints driven in time add to the generalised momentum `dT/dv` beside `M v`."""
    if not isinstance(model, EmbeddedModel) and all(joint.nv for joint in model.joints):
        return still
    return jax.grad(lambda v: kinetic_energy(model, q, v))(still)
