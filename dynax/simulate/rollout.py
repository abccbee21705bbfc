"""Rollouts: the motion of a model under given joint forces or a policy, step by step."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.model import Model
from dynax.model.checks import as_state
from dynax.simulate.checkpoint import checkpointed_scan
from dynax.simulate.euler import ExplicitEuler, SemiImplicitEuler
from dynax.simulate.midpoint import ImplicitMidpoint
from dynax.simulate.runge_kutta import Heun, RungeKutta4
from dynax.simulate.stepper import AbstractStepper, State, kept, later
from dynax.simulate.variational import Variational

STEPPERS: dict[str, AbstractStepper] = {
    "semi_implicit": SemiImplicitEuler(),
    "explicit": ExplicitEuler(),
    "heun": Heun(),
    "rk4": RungeKutta4(),
    "implicit_midpoint": ImplicitMidpoint(),
    "variational": Variational(),
}

Policy = Callable[[jax.Array, jax.Array, jax.Array], ArrayLike]


class Trajectory(NamedTuple):
    """A motion, sampled; a row for every time, the initial state first."""

    time: jax.Array
    """[s], shape `(T + 1,)`."""
    q: jax.Array
    """Configurations, shape `(T + 1, nq)`."""
    v: jax.Array
    """Velocities, shape `(T + 1, nv)`."""


def rollout(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    controls: ArrayLike | Policy,
    dt: ArrayLike,
    *,
    steps: int | None = None,
    stepper: str | AbstractStepper = "semi_implicit",
    checkpoint: bool = True,
) -> Trajectory:
    """The motion from `q, v` under joint forces, in steps of `dt`.

    Joint forces are held over each step, as a digital controller does: a policy is asked at the beginning of the step,
    so that a rollout under a policy equals one under the array of its answers. Everything is differentiable: state,
    controls, `dt`, the leaves of the model, and what a policy closes over.

    Loops, gears and conditions are kept: accelerations are those of `constrained_dynamics`, and each step ends with a
    projection back on them. Start where they hold, from `assemble` and `admissible_velocity`. A model from `embed` has
    its loops in the equations themselves, and `v` and `controls` of its independent freedoms.

    **Arguments:**

    - `q`, `v`: initial configuration `(nq,)` and velocity `(nv,)`; quaternions of unit length.
    - `controls`: joint forces, shape `(T, nv)` [N, N m]; or a policy, a JAX function `controls(t, q, v) -> tau` of
      shape `(nv,)`, with `steps`.
    - `dt`: step [s], a scalar.
    - `steps`: T. Needed with a policy; with an array it must be its number of rows.
    - `stepper`: `"semi_implicit"`, `"explicit"`, `"heun"`, `"rk4"`, `"implicit_midpoint"`, `"variational"`, or an
      `AbstractStepper`. The last two of these names take closed loops only if embedded.
    - `checkpoint`: keep few states for the reverse-mode derivative and compute the others again (two levels of
      checkpoints, `O(sqrt(T))` memory). It changes no value.

    **Returns:** `Trajectory(time, q, v)` with T + 1 rows; the first is the initial state, at `model.time`, from where
    driven joints go on.

    A rollout of an array is compiled once; one under a policy each time it is called, unless that is under `jax.jit`.
    """
    method = _stepper(stepper)
    if callable(controls):
        if steps is None:
            raise ValueError("`steps` is missing: a policy does not say for how many steps it is to be followed")
        q0, v0 = as_state(model, q=q, v=v)
        return _scan(model, q0, v0, controls, None, _scalar(dt, q0), _count(steps), method, bool(checkpoint))
    forces = jnp.asarray(controls)
    if forces.ndim != 2 or forces.shape[1] != model.nv:
        raise ValueError(
            f"`controls` has shape {forces.shape}, expected (T, {model.nv}): a row of joint forces for each step of "
            f"model {model.name!r}; for a batch use jax.vmap, for a policy pass a function of (t, q, v)"
        )
    count = forces.shape[0]
    if steps is not None and _count(steps) != count:
        raise ValueError(f"`steps` is {steps}, but `controls` has {count} rows; leave `steps` out")
    q0, v0, _ = as_state(model, q=q, v=v, tau=jnp.zeros(model.nv, forces.dtype))
    return _forced(model, q0, v0, forces.astype(q0.dtype), _scalar(dt, q0), method, bool(checkpoint))


def step(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    dt: ArrayLike,
    *,
    stepper: str | AbstractStepper = "semi_implicit",
) -> State:
    """One step of a rollout: configuration and velocity at `model.time + dt`, shapes `(nq,)` and `(nv,)`.

    `tau`: joint forces, shape `(nv,)`; the other arguments are those of `rollout`.
    """
    q0, v0, forces = as_state(model, q=q, v=v, tau=tau)
    return _step(model, q0, v0, forces, _scalar(dt, q0), _stepper(stepper))


@partial(jax.jit, static_argnames=("method",))
def _step(model: Model, q, v, tau, dt, method: AbstractStepper) -> State:
    return kept(later(model, dt), method.step(model, q, v, tau, dt))


@partial(jax.jit, static_argnames=("method", "checkpoint"))
def _forced(model: Model, q, v, forces, dt, method: AbstractStepper, checkpoint: bool) -> Trajectory:
    return _scan(model, q, v, None, forces, dt, forces.shape[0], method, checkpoint)


def _scan(
    model: Model,
    q: jax.Array,
    v: jax.Array,
    policy: Policy | None,
    forces: jax.Array | None,
    dt: jax.Array,
    steps: int,
    method: AbstractStepper,
    checkpoint: bool,
) -> Trajectory:
    times = model.time.astype(q.dtype) + dt * jnp.arange(steps + 1, dtype=q.dtype)  # rounded once, not T times

    def advance(state, x):
        (q, v), (time, tau) = state, x
        if policy is not None:
            tau = answer(policy, model, time, q, v)
        now = model.replace(time=time)
        state = kept(later(now, dt), method.step(now, q, v, tau, dt))
        return state, state

    scan = checkpointed_scan if checkpoint else jax.lax.scan
    _, (qs, vs) = scan(advance, (q, v), (times[:-1], forces), steps)
    return Trajectory(times, jnp.concatenate([q[None], qs]), jnp.concatenate([v[None], vs]))


def answer(policy: Policy, model: Model, time: jax.Array, q: jax.Array, v: jax.Array) -> jax.Array:
    """What a policy says, checked."""
    tau = jnp.asarray(policy(time, q, v))
    if tau.shape != (model.nv,):
        raise ValueError(f"the policy returned shape {tau.shape}, expected ({model.nv},): a force for each freedom")
    return tau.astype(q.dtype)


def _stepper(stepper: str | AbstractStepper) -> AbstractStepper:
    if isinstance(stepper, AbstractStepper):
        return stepper
    if isinstance(stepper, str) and stepper in STEPPERS:
        return STEPPERS[stepper]
    names = ", ".join(map(repr, STEPPERS))
    raise ValueError(f"`stepper` is {stepper!r}, expected an AbstractStepper or one of {names}")


def _scalar(dt: ArrayLike, q: jax.Array) -> jax.Array:
    length = jnp.asarray(dt, q.dtype)
    if length.shape:
        raise ValueError(f"`dt` has shape {length.shape}, expected a scalar [s]: all steps are of one length")
    return length


def _count(steps: int) -> int:
    try:
        count = operator.index(steps)
    except TypeError:
        raise ValueError(f"`steps` is {steps!r}, expected a number known before tracing, such as 100") from None
    if count < 0:
        raise ValueError(f"`steps` is {count}, expected zero or more")
    return count
