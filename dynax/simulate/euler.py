"""The two Euler methods, of first order."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from dynax.compile.batching import KEPT
from dynax.derivatives.mean_velocity import accelerations
from dynax.model import Model
from dynax.model.configuration import integrate
from dynax.simulate.friction import Stepped, decided, kick, law, stepped, stiffened
from dynax.simulate.geared import closing, geared
from dynax.simulate.stepper import AbstractStepper, State, acceleration


@dataclass(frozen=True)
class SemiImplicitEuler(AbstractStepper):
    """Velocity first, then the configuration with the new velocity; forces that depend on velocity are taken where
    they cannot feed energy into the motion.

        M(q) a + bias(q, v + dt a / 2) = tau        v+ = v + dt a        q+ = integrate(q, dt v+)

    Coriolis and gyroscopic forces are those of the mean velocity, damping and dry friction those of `v+`. Whatever the
    damping and the friction, the step is stable in them, and friction holds still what it can hold: `friction_loss` is
    Coulomb's law here, which a smoothed one only approaches (see `CONVENTIONS.md`).

    Order 1. The change of velocity is a method symmetric in time and the change of configuration a flow, so the two in
    turn are a symmetric method seen from the middle of its steps: without damping and friction the energy wavers by
    `O(dt)` and does not drift (Hairer, Lubich & Wanner 2006, V and XI).

    The equation is solved by `evaluations` of forward dynamics, each with the mean velocity that the one before has
    found; three lose energy where one or two gain it (a rotation by the angle `x` in a step is multiplied by
    `1 - x^4 / 8`). Those of a tree share places, inertias and the factor of the mass matrix. One is MuJoCo's `Euler`
    integrator, for what has no dry friction: it takes gyroscopic forces at the beginning of the step, and what spins
    gains energy, a factor of about `1 + x^2` in a step.
    """

    evaluations: int = 3
    keeps_gears = True

    def __post_init__(self):
        if not isinstance(self.evaluations, int | np.integer) or self.evaluations < 1:
            raise ValueError(f"`evaluations` is {self.evaluations!r}, expected a whole number, one or more")

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        v, _ = self.velocity(model, q, v, tau, dt)
        return integrate(model, q, dt * v), v

    def velocity(
        self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array
    ) -> tuple[jax.Array, Model]:
        """The velocity after the step, and the model with `dt` times the slopes of its passive forces as armature,
        whose mass matrix says what an impulse within the step does to it."""
        if isinstance(model, Model) and (geared(model) or not model.constrained):
            return self._of_tree(model, q, v, tau, dt)
        found = decided(self.evaluations)(model, q, v, tau, dt)
        return v + dt * found.accelerations[-1], stiffened(model, dt, law(model, found.sense))

    def _of_tree(
        self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array
    ) -> tuple[jax.Array, Model]:
        """The same, of trees; where they are geared the velocity that the gears do not allow ends in the step."""
        (stiff, force), found = self.evaluated(model, q, v, tau, dt)
        return v + dt * accelerations(stiff, q, v, force, 0.5 * dt, found)[-1, : model.nv], stiff

    def evaluated(
        self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array
    ) -> tuple[tuple[Model, jax.Array], jax.Array]:
        """The model and the forces of the step of a tree, and the solutions in all evaluations, shape
        `(evaluations, nv)`, with one factor for all; these without derivatives. Of a geared tree forces go before
        what its gears ask of the accelerations, and those before what its gears bear."""
        asked = closing(model, v, dt)
        every = jnp.concatenate([tau, asked])
        found = stepped(self.evaluations)(*lax.stop_gradient((model, q, v, every, dt)))
        found = Stepped(*(checkpoint_name(x, KEPT) for x in found))
        equation = kick(model, q, v, tau, dt, law(model, found.sense))
        return (equation.model, jnp.concatenate([equation.tau, asked])), found.accelerations


@dataclass(frozen=True)
class ExplicitEuler(AbstractStepper):
    """Both with the values at the beginning: `v+ = v + dt a(q, v)`, `q+ = integrate(q, dt v)`.

    Order 1, one evaluation. It feeds energy into every oscillation, a factor `1 + (omega dt)^2` per step: it is here to
    be compared with.
    """

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        return integrate(model, q, dt * v), v + dt * acceleration(model, q, v, tau)
