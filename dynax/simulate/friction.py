"""Dry friction in a step: Coulomb's law, with what sticks and what slips decided for the end of the step.

Smoothed, `f tanh(v / v_f)` is so steep at rest that an explicit step shakes the joint unless `dt < 2 v_f M / f`, a
hundredth of a millisecond for the fingers of a hand; and it lets a loaded joint creep. A step takes the law itself:
a freedom that slips at its end feels `+-f` against the slip, one that sticks whatever up to `f` stops it. Which do what
is a complementarity problem with one solution (the mass matrix is positive definite), and is found by an active set,
the semismooth Newton method: solve with a guess, let go what is held by more than `f`, hold what has turned round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from dynax.algorithms.mean_velocity import Place, evaluations, place
from dynax.compile.batching import KEPT, by_samples, trailing
from dynax.compile.zeros import along_moving
from dynax.embedding.dynamics import Resisted
from dynax.embedding.flexible_meanings import flexible_solution
from dynax.embedding.meanings import Motion, mass_factor, resisted_motion, resisted_solution, rigid_motion
from dynax.embedding.model import EmbeddedModel
from dynax.model import Model
from dynax.model.flexible import FlexibleModel, skeleton_of
from dynax.simulate.stepper import acceleration, closed
from dynax.sweep import take_rows
from dynax.sweep.scan import varying_as
from dynax.tree.bodies import per_velocity

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
    resisted: Resisted | None = None
    """Of embedded rigid trees alone, which know the velocities of their joints as they find accelerations."""

    def acceleration(self, q: jax.Array, v: jax.Array) -> jax.Array:
        """Where the terms that are quadratic in velocity are those of `v`."""
        assert self.resisted is None
        return acceleration(self.model, q, v, self.tau)

    def solution(self, q: jax.Array) -> Callable[[jax.Array, jax.Array], jax.Array]:
        """The function `(v, a)` for `a` found before, with its derivatives."""
        bends = isinstance(self.model, FlexibleModel) and not closed(self.model)
        if self.resisted is None and not bends:
            return lambda v, a: self.acceleration(q, v)
        factor = lax.stop_gradient(mass_factor(*lax.stop_gradient((self.model, q))))
        known = flexible_solution if bends else resisted_solution
        return lambda v, a: known(self.model, q, v, self.tau, self.resisted, factor, a)


def tree(model: Model) -> Model:
    """The tree whose joints have damping and friction."""
    return model if isinstance(model, Model) else skeleton_of(model.tree)


def stiffened(model: Model, dt: jax.Array, friction: DryFriction) -> Model:
    """The model with `dt` times the slopes of its passive forces as armature, and none of these."""
    slope = tree(model).damping.astype(friction.slope.dtype) + friction.slope
    nothing = jnp.zeros_like(slope)
    return model.replace(armature=model.armature + dt * slope, damping=nothing, friction_loss=nothing)


def kick(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array, friction: DryFriction) -> Kick:
    """The equation of a step, for dry friction as it has been found."""
    return _kick(model, _motion(model, q, v), v, tau, dt, friction)


def _kick(
    model: Model, motion: Motion | None, v: jax.Array, tau: jax.Array, dt: jax.Array, friction: DryFriction
) -> Kick:
    """`motion`: of the tree where it is found apart."""
    stiff, slope = stiffened(model, dt, friction), tree(model).damping.astype(v.dtype) + friction.slope
    if _of_rigid_tree(model):
        return Kick(stiff, tau, Resisted(v, slope, friction.force))
    if motion is None:
        return Kick(stiff, tau - _by_joints(model, slope * _of_joints(model, v) + friction.force))
    return Kick(stiff, tau - motion.x.T @ (slope * motion.v + friction.force))


def _of_rigid_tree(model: Any) -> bool:
    return isinstance(model, EmbeddedModel) and isinstance(model.tree, Model)


def _motion(model: Any, q: jax.Array, v: jax.Array) -> Motion | None:
    """That of the tree whose joints have damping and friction, where it must be found apart: the places of bodies that
    bend have neither, and all other joints are the model's own."""
    if isinstance(model, Model | FlexibleModel) or _of_rigid_tree(model):
        return None
    return rigid_motion(model, q, v)


def _of_joints(model: Model | FlexibleModel, v: jax.Array) -> jax.Array:
    """Of velocities `(nv,)` those of the freedoms of the tree, zeros for places of bodies that bend."""
    if isinstance(model, Model):
        return v
    return take_rows(v, np.where(model.places.v < model.nv, model.places.v, -1))


def _by_joints(model: Model | FlexibleModel, force: jax.Array) -> jax.Array:
    """The transpose of `_of_joints`."""
    return force if isinstance(model, Model) else take_rows(force, model.places.own_v)


def dry_friction(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> DryFriction:
    """What sticks and what slips at the end of a step from `q, v`. Derivatives take that as given."""
    return law(model, decided(0)(*lax.stop_gradient((model, q, v, tau, dt))).sense)


class Stepped(NamedTuple):
    """The acceleration of a step of a tree, and what dry friction did in it."""

    accelerations: jax.Array
    """Of the evaluations, shape `(k, nv)`; of a geared tree with what its gears bear, `(k, nv + nc)`."""
    sense: jax.Array


@lru_cache
def stepped(count: int) -> Callable[..., Stepped]:
    """The function `(model, q, v, tau, dt)` for trees, also geared ones, where `tau` ends with what gears ask of the
    accelerations: each guess is a step of `count` evaluations."""

    def core(model: Model, q, v, tau, dt) -> Stepped:
        return settled(model, place(model, q), v, tau, dt, count)

    def like(model: Model, q, v, tau, dt) -> Stepped:
        return Stepped(jnp.zeros((count, *tau.shape), v.dtype), v)

    return trailing(core, like=like)


def settled(model: Model, x: Place, v: jax.Array, tau: jax.Array, dt: jax.Array, count: int) -> Stepped:
    """The guesses, for trailing batch axes."""
    loss, damping, armature = (per_velocity(x, v) for x in (model.friction_loss, model.damping, model.armature))
    creep = _creep(model, v.dtype)  # one number, or one for each sample
    tau, asked = tau[: model.nv], tau[model.nv :]

    def unsettled(state: tuple) -> jax.Array:
        k, _, _, changed = state
        return (k == 0) | ((k <= ROUNDS) & jnp.any(changed))

    def guess(state: tuple) -> tuple:
        k, sense, _, _ = state
        slope = damping + jnp.where(sense == 0, loss / creep, 0.0)
        stiff = dataclasses.replace(model, armature=armature + dt * slope)
        force = jnp.concatenate([tau - slope * v - loss * sense, asked])
        found = evaluations(stiff, x, x.system(stiff, force), v, force, 0.5 * dt, count)
        reached = slip(v + dt * found[-1, : model.nv], creep)
        following = jnp.where((sense == 0) | (reached == sense), reached, 0.0)
        changed = (following != sense) & (loss > 0) & (k < ROUNDS)
        following = jnp.where(k + 1 < ROUNDS, following, 0.0)
        # What has no friction slips as it moves, so that derivatives by its friction are those of having some.
        own = jnp.where(loss == 0, reached, sense)
        return k + 1, jnp.where(changed, following, own), found, folded(changed)

    none = jnp.zeros((count, len(tau) + len(asked), *v.shape[1:]), v.dtype)
    start = 0, slip(v, creep), none, folded(v != v)
    _, sense, found, _ = lax.while_loop(unsettled, guess, start)
    return Stepped(found, sense)


def slip(v: jax.Array, creep: jax.Array) -> jax.Array:
    """The sign of a velocity, 0 for less than `creep`."""
    return jnp.where(jnp.abs(v) <= creep, 0.0, jnp.sign(v)).astype(v.dtype)


def folded(x: jax.Array, one: Callable[..., jax.Array] = jnp.logical_or) -> jax.Array:
    """Whether any row is true, by halves: what XLA on a CPU reduces at once it reduces outside of one kernel. Or the
    largest row, by `jnp.maximum`."""
    while len(x) > 1:
        half = len(x) // 2
        x = jnp.concatenate([one(x[:half], x[half : 2 * half]), x[2 * half :]])
    return x


def law(model: Model, sense: jax.Array) -> DryFriction:
    """`sense`: the sign of the slip, 0 where it sticks; with trailing batch axes or none."""
    loss = per_velocity(tree(model).friction_loss, sense)
    return DryFriction(loss * sense, jnp.where(sense == 0, loss / _creep(model, sense.dtype), 0.0))


def _creep(model: Model, dtype: jnp.dtype) -> jax.Array:
    """What counts as no slip."""
    return jnp.finfo(dtype).eps ** 0.5 * tree(model).friction_velocity.astype(dtype)


class Decided(NamedTuple):
    """The accelerations of all evaluations, shape `(count, nv)`, and the sign of the slip at the end of the step, 0
    where it sticks."""

    accelerations: jax.Array
    sense: jax.Array


def _moved(
    equation: Kick, motion: Motion | None, q: jax.Array, v: jax.Array, a: jax.Array, dt: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The acceleration with the mean velocity that `a` leads to, and the joints' velocities at the beginning and at the
    end."""
    model, middle = equation.model, v + 0.5 * dt * a
    if equation.resisted is not None:
        a, whole, begin = resisted_motion(model, q, middle, equation.tau, equation.resisted)
        return a, begin, begin + dt * whole
    a = equation.acceleration(q, middle)
    if motion is None:
        return a, _of_joints(model, v), _of_joints(model, v + dt * a)
    later = _motion(model, q, middle)
    assert later is not None
    return a, motion.v, motion.v + dt * (motion.x @ a + later.bias)


@lru_cache
def decided(count: int) -> Callable[..., Decided]:
    """The function `(model, q, v, tau, dt)` for trees with loops, embedded ones, and bodies that bend: guesses until
    none changes, each one forward dynamics, then `count` evaluations with the last one. All is one loop, in which
    forward dynamics is compiled once; derivatives are those of the evaluations alone."""

    def found(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> Decided:
        loss, creep = tree(model).friction_loss.astype(v.dtype), _creep(model, v.dtype)
        motion = _motion(model, q, v)

        def unfinished(state: tuple) -> jax.Array:
            k, done, _, _, _, deciding = state
            return deciding | (done < count) | (k == first)  # one at least, to know which way joints move

        def evaluated(state: tuple) -> tuple:
            k, done, a, known, sense, deciding = state
            equation = _kick(model, motion, v, tau, dt, law(model, sense))
            a, begin, end = _moved(equation, motion, q, v, a, dt)
            reached = slip(end, creep)
            new = jnp.where((sense == 0) | (reached == sense), reached, 0.0)
            changed = (new != sense) & (loss > 0)
            new = jnp.where(changed & (k + 1 == ROUNDS), 0.0, new)
            # The first is to know which way the joints move, from where the guesses begin.
            looking = k < 0
            new = jnp.where(looking, slip(begin, creep), new)
            goes_on = deciding & (looking | ((k + 1 < ROUNDS) & jnp.any(changed)))
            # The evaluations begin anew, whatever the guesses were. One that holds at once is the first of them.
            counts = ~deciding | (~goes_on & (k == 0))
            known = jnp.where(counts, jnp.concatenate([known, a[None]])[1:], known)
            a = jnp.where(counts | (goes_on & ~looking), a, 0.0)
            sense = jnp.where(loss == 0, reached, jnp.where(deciding, new, sense))  # as in `settled`
            return k + 1, done + counts, a, known, sense, goes_on

        if _of_rigid_tree(model):
            first, sense = -1, jnp.zeros_like(loss)
        else:
            first, sense = 0, slip(_of_joints(model, v) if motion is None else motion.v, creep)
        none = jnp.zeros((count, *v.shape), v.dtype)
        start = first, 0, jnp.zeros_like(v), none, sense, jnp.any(loss > 0)
        _, _, _, known, sense, _ = lax.while_loop(unfinished, evaluated, varying_as((model, q, tau, dt), start))
        return Decided(known, sense)

    @by_samples
    def again(model: Model, q, v, tau, dt, known: jax.Array, sense: jax.Array) -> jax.Array:
        """The evaluations, which have found `known`."""
        solution = kick(model, q, v, tau, dt, law(model, sense)).solution(q)

        def nearer(a: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
            a = solution(v + 0.5 * dt * a, own)
            return a, a

        start = varying_as((model, q, v, tau, dt), jnp.zeros_like(v))
        return lax.scan(nearer, start, known)[1]

    def rule(primals: tuple, tangents: tuple) -> tuple[Decided, Decided]:
        there = Decided(*(checkpoint_name(x, KEPT) for x in both(*primals)))
        rate = along_moving(lambda *state: again(*state, *there), primals, tangents)[1]
        return there, Decided(rate, jnp.zeros_like(there.sense))

    both = by_samples(found, rule)
    return both
