"""Dry friction in a step: Coulomb's law, with what sticks and what slips decided for the end of the step.

Smoothed, `f tanh(v / v_f)` is so steep at rest that an explicit step shakes the joint unless `dt < 2 v_f M / f`, a
hundredth of a millisecond for the fingers of a hand; and it lets a loaded joint creep. A step takes the law itself:
a freedom that slips at its end feels `+-f` against the slip, one that sticks whatever up to `f` stops it. Which do what
is a complementarity problem with one solution (the mass matrix is positive definite), and is found by an active set,
the semismooth Newton method: solve with a guess, let go what is held by more than `f`, hold what has turned round.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.batching import by_samples
from dynax.embedding.meanings import tree_motion
from dynax.model import Model
from dynax.simulate.stepper import acceleration
from dynax.sweep.scan import varying_as

ROUNDS = 20
"""Guesses at most. Robots take two to four; what is not settled by then is held for the step, which takes no energy
from anywhere."""


class DryFriction(NamedTuple):
    """The force against the motion at the end of a step, `force + slope v+`; entries for the tree's freedoms."""

    force: jax.Array
    """`+-f` of what slips, shape `(nv,)`."""
    slope: jax.Array
    """Of what sticks, shape `(nv,)`: `f` over a creep that is lost in the rounding of velocities worth the name."""


class Kick(NamedTuple):
    """The equation `M a + bias(q, v + dt a / 2) = tau`, with damping and dry friction those of `v + dt a`, as forward
    dynamics of a model whose joints have `dt` times their slopes as armature."""

    model: Model
    tau: jax.Array

    def acceleration(self, q: jax.Array, v: jax.Array) -> jax.Array:
        """Where the terms that are quadratic in velocity are those of `v`."""
        return acceleration(self.model, q, v, self.tau)


def tree(model: Model) -> Model:
    """The tree whose joints have damping and friction."""
    return model if isinstance(model, Model) else model.tree


def kick(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array, friction: DryFriction) -> Kick:
    """The equation of a step, for dry friction as it has been found."""
    slope = tree(model).damping.astype(v.dtype) + friction.slope
    nothing = jnp.zeros_like(slope)
    stiff = model.replace(armature=model.armature + dt * slope, damping=nothing, friction_loss=nothing)
    if isinstance(model, Model):
        return Kick(stiff, tau - slope * v - friction.force)
    motion = tree_motion(model, q, v)
    return Kick(stiff, tau - motion.x.T @ (slope * motion.v + friction.force))


def dry_friction(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> DryFriction:
    """What sticks and what slips at the end of a step from `q, v`. Derivatives take that as given."""
    return _law(model, _sense(*lax.stop_gradient((model, q, v, tau, dt))))


def _law(model: Model, sense: jax.Array) -> DryFriction:
    """`sense`: the sign of the slip, 0 where it sticks."""
    loss = tree(model).friction_loss.astype(sense.dtype)
    return DryFriction(loss * sense, jnp.where(sense == 0, loss / _creep(model, sense.dtype), 0.0))


def _creep(model: Model, dtype: jnp.dtype) -> jax.Array:
    """What counts as no slip."""
    return jnp.finfo(dtype).eps ** 0.5 * tree(model).friction_velocity.astype(dtype)


@by_samples
def _sense(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> jax.Array:
    """The sign of the slip at the end of the step, 0 where it sticks, by guesses until none changes."""
    loss, creep = tree(model).friction_loss.astype(v.dtype), _creep(model, v.dtype)

    def slip(w: jax.Array) -> jax.Array:
        return jnp.where(jnp.abs(w) <= creep, 0.0, jnp.sign(w)).astype(v.dtype)

    def unsettled(state: tuple) -> jax.Array:
        k, _, _, changed = state
        return (k < ROUNDS) & jnp.any(changed)

    def guess(state: tuple) -> tuple:
        k, a, sense, _ = state
        middle = v + 0.5 * dt * a
        a = kick(model, q, v, tau, dt, _law(model, sense)).acceleration(q, middle)
        if not isinstance(model, Model):
            motion = tree_motion(model, q, middle)
            end = tree_motion(model, q, v).v + dt * (motion.x @ a + motion.bias)
        else:
            end = v + dt * a
        reached = slip(end)
        found = jnp.where((sense == 0) | (reached == sense), reached, 0.0)
        changed = (found != sense) & (loss > 0)
        return k + 1, a, jnp.where(changed & (k + 1 == ROUNDS), 0.0, found), changed

    begin = v if isinstance(model, Model) else tree_motion(model, q, v).v
    start = 0, jnp.zeros_like(v), slip(begin), loss > 0
    _, _, sense, _ = lax.while_loop(unsettled, guess, varying_as((model, q, tau, dt), start))
    return sense
