"""The implicit midpoint rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms.crba import mass_matrix
from dynax.algorithms.factor import solve
from dynax.algorithms.mean_velocity import place
from dynax.algorithms.rnea import rnea
from dynax.compile.batching import by_samples, trailing
from dynax.compile.zeros import along_moving
from dynax.derivatives.rule import closed_form
from dynax.model import Model
from dynax.model.configuration import integrate, integrate_rows
from dynax.routes.inverse_dynamics import inverse_dynamics
from dynax.simulate.friction import DryFriction, dry_friction, folded, law, settled, tree
from dynax.simulate.midpoint_rule import rate
from dynax.simulate.newton import resistance, root, spread
from dynax.simulate.stepper import AbstractStepper, State, later, refuse_closed
from dynax.tree.bodies import per_velocity

EVALUATIONS = 2
"""Of the forces of a step in a guess of what sticks: with those of the velocity it begins with, and of its mean."""


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
        middle = later(model, 0.5 * dt)
        if isinstance(model, Model):
            vm = _of_tree(self.iterations)(middle, q, v, tau, dt).v
        else:
            vm = _velocity(middle, q, v, tau, dt, dry_friction(model, q, v, tau, dt), v, self.iterations)
        return integrate(model, q, dt * vm), 2.0 * vm - v


def _velocity(model: Model, q, v, tau, dt, friction: DryFriction, guess: jax.Array, iterations: int) -> jax.Array:
    """`vm`, for the model at the middle of the step."""
    half = 0.5 * dt
    mass, x = mass_matrix(model, q), spread(model, q)
    smooth = model.replace(friction_loss=jnp.zeros_like(friction.slope))

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
    return root(equation, lambda _: slope, guess, iterations)[0]


class Middle(NamedTuple):
    """The velocity at the middle of a step of a tree, and the sign of what slips at its end, 0 for what sticks."""

    v: jax.Array
    sense: jax.Array


@lru_cache
def _of_tree(iterations: int) -> Callable[..., Middle]:
    """The function `(model, q, v, tau, dt)`, the model at the middle of the step: the Newton steps of `newton.root`,
    by the factor of a mass matrix with `dt/2` times the slopes of passive forces as armature. Derivatives are those of
    `_velocity`, for what sticks here."""

    def core(model: Model, q, v, tau, dt) -> Middle:
        x, half = place(model, q), 0.5 * dt
        sense = settled(model, x, v, tau, dt, EVALUATIONS).sense
        friction = law(model, sense)
        damping, stiffness, armature = (per_velocity(a, v) for a in (model.damping, model.stiffness, model.armature))
        passive = damping + 2.0 * friction.slope + half * stiffness
        factor = x.factor(dataclasses.replace(model, armature=armature + half * passive))
        smooth = dataclasses.replace(model, friction_loss=jnp.zeros_like(model.friction_loss))
        rounding = jnp.finfo(v.dtype).eps

        def largest(a: jax.Array) -> jax.Array:
            return folded(jnp.concatenate([jnp.zeros((1, *a.shape[1:]), a.dtype), jnp.abs(a)]), jnp.maximum)[0]

        def unfinished(vm: jax.Array, correction: jax.Array, stalled: jax.Array) -> jax.Array:
            size = 1.0 + largest(vm)
            floor = (stalled >= 3) & (correction <= rounding**0.5 * size)
            return (correction > 0.5 * rounding * size) & ~floor

        def going(state: tuple) -> jax.Array:
            k, *_, active = state
            return (k < iterations) & jnp.any(active)

        def correct(state: tuple) -> tuple:
            k, vm, correction, best, stalled, active = state
            needed = rnea(smooth, integrate_rows(model, q, half * vm), vm, (vm - v) / half, None, "automatic")
            residual = half * (needed + friction.force + friction.slope * (2.0 * vm - v) - tau)
            change = solve(factor, residual[:, None])[:, 0]
            now = largest(change)
            better = now < 0.5 * best
            new = vm - change, now, jnp.where(better, now, best), jnp.where(better, 0, stalled + 1)
            new = tuple(jnp.where(active, a, b) for a, b in zip(new, (vm, correction, best, stalled), strict=True))
            return k + 1, *new, unfinished(new[0], new[1], new[3])

        far = jnp.full(v.shape[1:], jnp.inf, v.dtype)
        start = 0, v, far, far, jnp.zeros(v.shape[1:], jnp.int32), far > 0
        _, vm, correction, *_ = lax.while_loop(going, correct, start)
        return Middle(jnp.where(correction <= rounding**0.5 * (1.0 + largest(vm)), vm, jnp.nan), sense)

    def rule(primals: tuple, tangents: tuple) -> tuple[Middle, Middle]:
        found = middle(*primals)
        if closed_form(primals[0]):
            vm, change = found.v, rate(primals, tangents, *found)
        else:
            vm, change = along_moving(lambda *state: again(*state, *found), primals, tangents)
        return Middle(vm, found.sense), Middle(change, jnp.zeros_like(found.sense))

    @by_samples
    def again(model: Model, q, v, tau, dt, vm, sense) -> jax.Array:
        """One more step from what was found: the equation has its derivatives there."""
        return _velocity(model, q, v, tau, dt, law(model, sense), vm, 1)

    middle = trailing(core, rule)
    return middle
