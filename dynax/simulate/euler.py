"""The two Euler methods, of first order."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from dynax.model import Model
from dynax.model.configuration import integrate
from dynax.simulate.stepper import AbstractStepper, State, acceleration


@dataclass(frozen=True)
class SemiImplicitEuler(AbstractStepper):
    """Velocity first, then the configuration with the new velocity; joint damping is taken implicitly.

        (M + dt D) a = tau - bias(q, v)        v+ = v + dt a        q+ = integrate(q, dt v+)

    Order 1, one evaluation of forward dynamics. It is MuJoCo's `Euler` integrator, whatever the damping `D` stable in
    it: `dt D` joins the armature, and the damping force is that of `v+`. Without damping and forces that depend on
    velocity it is the symplectic Euler method, whose energy error stays bounded (Hairer, Lubich & Wanner 2006, VI.3).
    """

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        damped = model.replace(armature=model.armature + dt * model.damping)
        v = v + dt * acceleration(damped, q, v, tau)
        return integrate(model, q, dt * v), v


@dataclass(frozen=True)
class ExplicitEuler(AbstractStepper):
    """Both with the values at the beginning: `v+ = v + dt a(q, v)`, `q+ = integrate(q, dt v)`.

    Order 1, one evaluation. It feeds energy into every oscillation, a factor `1 + (omega dt)^2` per step: it is here to
    be compared with.
    """

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        return integrate(model, q, dt * v), v + dt * acceleration(model, q, v, tau)
