"""The implicit midpoint rule."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dynax.algorithms.crba import mass_matrix
from dynax.model import Model
from dynax.model.configuration import integrate
from dynax.routes.inverse_dynamics import inverse_dynamics
from dynax.simulate.friction import dry_friction, tree
from dynax.simulate.newton import resistance, root, spread
from dynax.simulate.stepper import AbstractStepper, State, later, refuse_closed


@dataclass(frozen=True)
class ImplicitMidpoint(AbstractStepper):
    """Order 2, symmetric in time, stable for stiff joint springs and dampers.

        M(qm) (vm - v) 2/dt + bias(qm, vm) = tau     qm = integrate(q, dt/2 vm), at time t + dt/2
        v+ = 2 vm - v                                q+ = integrate(q, dt vm)

    Hairer, Lubich & Wanner (2006), II.1.3 and IV.8 for groups. `vm` is found by simplified Newton steps, at most
    `iterations` of them, each one inverse dynamics; where they do not converge the result is not finite. Derivatives
    are those of the equation (implicit function theorem), which is cheaper and more exact than those of the iterations.

    Dry friction is Coulomb's law at the end of the step, as in `SemiImplicitEuler`: the force at the middle would turn
    a joint round that it should stop, since `v+ = -v` where `vm = 0`.

    Not for closed loops, but where they are embedded: `dx.embed`.
    """

    iterations: int = 50

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        refuse_closed(model, self)
        half = 0.5 * dt
        middle = later(model, half)
        mass, x = mass_matrix(middle, q), spread(middle, q)
        friction = dry_friction(model, q, v, tau, dt)
        smooth = middle.replace(friction_loss=jnp.zeros_like(friction.slope))

        def equation(vm: jax.Array) -> tuple[jax.Array, jax.Array]:
            """The first line times `dt/2`, a balance of momentum."""
            needed = inverse_dynamics(smooth, integrate(model, q, half * vm), vm, (vm - v) / half)
            end = 2.0 * vm - v
            if x is None:
                rubbing = friction.force + friction.slope * end
            else:
                rubbing = x.T @ (friction.force + friction.slope * (x @ end))
            return half * (needed + rubbing - tau), vm[:0]

        slope = resistance(model, mass, tree(model).damping + 2.0 * friction.slope, half, x)
        vm, _ = root(equation, lambda _: slope, v, self.iterations)
        return integrate(model, q, dt * vm), 2.0 * vm - v
