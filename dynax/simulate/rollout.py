"""Rollouts: the motion of a model under given joint forces or a policy, step by step."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from dynax.contact.scene import Scene
from dynax.model.checks import as_state
from dynax.simulate.carried import Carried, advanced, begin, plain
from dynax.simulate.checkpoint import checkpointed_scan
from dynax.simulate.euler import ExplicitEuler, SemiImplicitEuler
from dynax.simulate.midpoint import ImplicitMidpoint
from dynax.simulate.policy import Policy, answer, answer_and_memory, known
from dynax.simulate.runge_kutta import Heun, RungeKutta4
from dynax.simulate.stepper import AbstractStepper, AnySystem, State, refuse_open
from dynax.simulate.touching import Touching
from dynax.simulate.trajectory import TouchReport, Trajectory
from dynax.simulate.variational import Variational

STEPPERS: dict[str, AbstractStepper] = {
    "semi_implicit": SemiImplicitEuler(),
    "explicit": ExplicitEuler(),
    "heun": Heun(),
    "rk4": RungeKutta4(),
    "implicit_midpoint": ImplicitMidpoint(),
    "variational": Variational(),
}


@overload
def rollout(
    model: AnySystem,
    q: ArrayLike,
    v: ArrayLike,
    controls: ArrayLike | Policy,
    dt: ArrayLike,
    *,
    steps: int | None = None,
    stepper: str | AbstractStepper = "semi_implicit",
    checkpoint: bool = True,
    every: int = 1,
    memory: None = None,
) -> Trajectory: ...
@overload
def rollout(
    model: AnySystem,
    q: ArrayLike,
    v: ArrayLike,
    controls: Policy,
    dt: ArrayLike,
    *,
    steps: int,
    stepper: str | AbstractStepper = "semi_implicit",
    checkpoint: bool = True,
    every: int = 1,
    memory: Any,
) -> tuple[Trajectory, Any]: ...
def rollout(
    model: AnySystem,
    q: ArrayLike,
    v: ArrayLike,
    controls: ArrayLike | Policy,
    dt: ArrayLike,
    *,
    steps: int | None = None,
    stepper: str | AbstractStepper = "semi_implicit",
    checkpoint: bool = True,
    every: int = 1,
    memory: Any = None,
) -> Trajectory | tuple[Trajectory, Any]:
    """The motion from `q, v` under joint forces, in steps of `dt`.

    Joint forces are held over each step, as a digital controller does: a policy is asked at the beginning of the step,
    so that a rollout under a policy equals one under the array of its answers. Everything is differentiable: state,
    controls, `dt`, the leaves of the model, and what a policy closes over.

    Loops, gears and conditions are kept: accelerations are those of `constrained_dynamics`, and each step ends with a
    projection back on them. Start where they hold, from `assemble` and `admissible_velocity`: `ValueError` for open
    loops, and inside of `jit`, where numbers are not known, a state that is not a number.

    A model from `embed` has its loops in the equations themselves, and `v` and `controls` of its independent freedoms.
    Where these become dependent, as that of a crank at its dead point, it goes on in others; where none serve, or a
    step fails, the rows repeat the last good state, and so do the derivatives. `Trajectory.status` tells.

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
    - `every`: keep every k-th state, of which T must be a multiple.
    - `memory`: what a policy remembers at the start, a pytree of arrays: an integral of the error, a random key, the
      number of the step. The policy is then `controls(t, q, v, memory) -> (tau, memory)`.

    **Returns:** `Trajectory(time, q, v)` with T + 1 rows; the first is the initial state, at `model.time`, from where
    driven joints go on. For each row an embedded model has a `status`, and a `contact.Scene` a `touch`: how many
    contacts, how deep, how well solved. With `memory`: the pair of it and what the policy remembers at the end.

    A rollout of an array is compiled once; one under a policy each time it is called, unless that is under `jax.jit`.
    """
    method, kept = _stepper(stepper, model), _count(every, "every", 1)
    if callable(controls):
        if steps is None:
            raise ValueError("`steps` is missing: a policy does not say for how many steps it is to be followed")
        q0, v0 = as_state(model, q=q, v=v)
        refuse_open(model, q0)
        memory = jax.tree.map(jnp.asarray, memory)
        options = _multiple(_count(steps, "steps", 0), kept), kept, method, bool(checkpoint)
        run, end = _follow(model, q0, v0, controls, memory, _scalar(dt, q0), *options)
        return run if memory is None else (run, end)
    if memory is not None:
        raise ValueError("`memory` is what a policy remembers, but `controls` is no function")
    if controls is None:
        raise ValueError(f"`controls` is None, expected joint forces; for none give jnp.zeros((T, {model.nv}))")
    forces = jnp.asarray(controls)
    if forces.ndim != 2 or forces.shape[1] != model.nv:
        raise ValueError(
            f"`controls` has shape {forces.shape}, expected (T, {model.nv}): a row of joint forces for each step of "
            f"model {model.name!r}; for a batch use jax.vmap, for a policy pass a function of (t, q, v)"
        )
    count = forces.shape[0]
    if steps is not None and _count(steps, "steps", 0) != count:
        raise ValueError(f"`steps` is {steps}, but `controls` has {count} rows; leave `steps` out")
    q0, v0, _ = as_state(model, q=q, v=v, tau=jnp.zeros(model.nv, forces.dtype))
    refuse_open(model, q0)
    options = _multiple(count, kept), kept, method, bool(checkpoint)
    return _forced(model, q0, v0, forces.astype(q0.dtype), _scalar(dt, q0), *options)


def step(
    model: AnySystem,
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
    return _step(model, q0, v0, forces, _scalar(dt, q0), _stepper(stepper, model))


@partial(jax.jit, static_argnames=("method",))
def _step(model: AnySystem, q, v, tau, dt, method: AbstractStepper) -> State:
    return plain(method, model, q, v, tau, dt)


OPTIONS = ("steps", "every", "method", "checkpoint")


@partial(jax.jit, static_argnames=OPTIONS)
def _forced(model: AnySystem, q, v, forces, dt, steps: int, every: int, method: AbstractStepper, checkpoint: bool):
    return _scan(model, q, v, None, forces, None, dt, steps, every, method, checkpoint)[0]


def _follow(model: AnySystem, q, v, policy: Policy, memory: Any, dt, *options) -> tuple[Trajectory, Any]:
    """A rollout under a policy, by a compiled one if there can be one."""
    leaves = jax.tree.leaves(policy)
    if any(leaf is policy for leaf in leaves):
        fixed = known(policy)
        return (_unnamed if fixed is None else _named)(model, q, v, fixed or policy, memory, dt, *options)
    return _pytree(model, q, v, policy, memory, dt, *options)


def _unnamed(model: AnySystem, q, v, policy: Policy, memory: Any, dt, *options) -> tuple[Trajectory, Any]:
    return _scan(model, q, v, policy, None, memory, dt, *options)


_named = jax.jit(_unnamed, static_argnums=(3, 6, 7, 8, 9))
_pytree = jax.jit(_unnamed, static_argnums=(6, 7, 8, 9))


def _scan(
    model: AnySystem,
    q: jax.Array,
    v: jax.Array,
    policy: Policy | None,
    forces: jax.Array | None,
    memory: Any,
    dt: jax.Array,
    steps: int,
    every: int,
    method: AbstractStepper,
    checkpoint: bool,
) -> tuple[Trajectory, Any]:
    times = model.time.astype(q.dtype) + dt * jnp.arange(steps + 1, dtype=q.dtype)  # rounded once, not T times
    scan = checkpointed_scan if checkpoint else jax.lax.scan

    def advance(state: tuple, x: tuple) -> tuple[tuple, tuple]:
        (at, memory), (time, tau) = state, x
        if policy is not None and memory is not None:
            tau, memory = answer_and_memory(policy, model, time, at.q, at.v, memory)
        elif policy is not None:
            tau = answer(policy, model, time, at.q, at.v)
        at = advanced(method, model.replace(time=time), at, tau, dt)
        return (at, memory), _row(at)

    def advance_all(state: tuple, xs: tuple) -> tuple[tuple, tuple]:
        def one(state: tuple, x: tuple) -> tuple[tuple, TouchReport | None]:
            state, _ = advance(state, x)
            return state, state[0].touch

        (at, memory), touch = scan(one, state, xs, every)
        at = at if touch is None else at._replace(touch=touch.since())
        return (at, memory), _row(at)

    xs = times[:-1], forces
    if every > 1:
        xs = jax.tree.map(lambda x: x.reshape(steps // every, every, *x.shape[1:]), xs)
    start = begin(model, q, v)
    (_, memory), rows = scan(advance_all if every > 1 else advance, (start, memory), xs, steps // every)
    q, v, status, touch = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), _row(start), rows)
    return Trajectory(times[::every], q, v, None if status is None else status.astype(jnp.int32), touch), memory


def _row(at: Carried) -> tuple[jax.Array, jax.Array, jax.Array | None, TouchReport | None]:
    return at.q, at.v, None if at.chart is None else at.chart.status, at.touch


def _stepper(stepper: str | AbstractStepper, model: Any) -> AbstractStepper:
    if isinstance(model, Scene):
        if stepper == "semi_implicit" or isinstance(stepper, Touching):
            return Touching() if isinstance(stepper, str) else stepper
        raise ValueError(f"`stepper` is {stepper!r}, but a scene moves by 'semi_implicit', or a `Touching`")
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
    # In NumPy: under `jit` what is known would become a tracer here.
    if not isinstance(length, Tracer) and not (np.asarray(length) > 0 and np.isfinite(np.asarray(length))):
        raise ValueError(f"`dt` is {dt}, expected the length of a step [s], positive and finite")
    return length


def _count(given: int, name: str, least: int) -> int:
    try:
        count = operator.index(given)
    except TypeError:
        raise ValueError(f"`{name}` is {given!r}, expected a number known before tracing, such as 100") from None
    if count < least:
        raise ValueError(f"`{name}` is {count}, expected {('zero', 'one')[least]} or more")
    return count


def _multiple(steps: int, every: int) -> int:
    if steps % every:
        raise ValueError(f"`every` is {every}, but {steps} steps are no multiple of it")
    return steps
