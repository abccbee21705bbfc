"""Rollouts: the motion of a model under given joint forces or a policy, step by step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from dynax.actuate.actuators import Actuators, actuation, refuse_others, stepped, typed
from dynax.actuate.sensor import Moment, Sensors, begin_all, moment, read_all
from dynax.contact.scene import Scene
from dynax.contact.stops import filled
from dynax.model.checks import as_state, real_type
from dynax.model.flexible import FlexibleModel
from dynax.simulate.carried import Carried, advanced, begin, plain
from dynax.simulate.checkpoint import checkpointed_scan
from dynax.simulate.compliant import Compliant
from dynax.simulate.euler import ExplicitEuler, SemiImplicitEuler
from dynax.simulate.midpoint import ImplicitMidpoint
from dynax.simulate.motion import Method, go_together, motion
from dynax.simulate.policy import Policy, answer, answer_and_memory, answer_to_sensors, known
from dynax.simulate.runge_kutta import Heun, RungeKutta4
from dynax.simulate.stepper import AbstractStepper, AnySystem, State, refuse_open
from dynax.simulate.touching import Touching
from dynax.simulate.trajectory import RolloutStatus, TouchReport, Trajectory
from dynax.simulate.variational import Variational
from dynax.sweep.scan import varying_as

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
    actuators: Actuators | None = None,
    sensors: Sensors | None = None,
    key: jax.Array | None = None,
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
    actuators: Actuators | None = None,
    sensors: Sensors | None = None,
    key: jax.Array | None = None,
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
    actuators: Actuators | None = None,
    sensors: Sensors | None = None,
    key: jax.Array | None = None,
) -> Trajectory | tuple[Trajectory, Any]:
    """The motion from `q, v` under joint forces, in steps of `dt`.

    Joint forces are held over each step, as a digital controller does: a policy is asked at the beginning of the step,
    so that a rollout under a policy equals one under the array of its answers. Everything is differentiable: state,
    controls, `dt`, the leaves of the model, and what a policy closes over.

    Loops, gears and conditions are kept: accelerations are those of `constrained_dynamics`, and each step ends with a
    projection back on them. Where linear gears are all, as mimic joints are, steps are those of the tree with a column
    more for each gear. Start where they hold, from `assemble` and `admissible_velocity`: `ValueError` for open loops,
    and inside of `jit`, where numbers are not known, a state that is not a number.

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
    - `checkpoint`: for the reverse-mode derivative keep the states between steps and compute the rest again; beyond
      1,024 steps few of these states (two levels of checkpoints, `O(sqrt(T))` memory). It changes no value.
    - `every`: keep every k-th state, of which T must be a multiple.
    - `memory`: what a policy remembers at the start, a pytree of arrays: an integral of the error, a random key, the
      number of the step. The policy is then `controls(t, q, v, memory) -> (tau, memory)`.
    - `actuators`: what makes joint forces of commands. `controls` are then commands, shape `(T, actuators.size)`, and a
      policy returns one for each actuator; `Trajectory.actuators` has their states. Stiffness and damping of their
      laws are taken implicitly, see `docs/actuators.md`.
    - `sensors`: a dictionary of them; `Trajectory.sensors` has what they said. A policy is then
      `controls(carry, observation, key) -> (carry, command)`: it begins with the carry `memory`, is given the
      readings at the beginning of the step as a dictionary, and knows nothing else. Accelerations are the mean of the
      step before, what actuators do follows from the command before; at the beginning both are zero.
    - `key`: for sensors that err at random, and for the policy with sensors, which gets a new one for each step.

    **Returns:** `Trajectory(time, q, v)` with T + 1 rows; the first is the initial state, at `model.time`, from where
    driven joints go on. For each row an embedded model, or one with bodies that bend, has a `status`, and a
    `contact.Scene` a `touch`: how many contacts, how deep, how well solved. With `memory`: the pair of it and what the
    policy remembers at the end.

    A rollout of an array is compiled once; one under a policy each time it is called, unless that is under `jax.jit`.
    """
    model, method = _prepared(model, stepper)
    kept = _count(every, "every", 1)
    if actuators is not None:
        refuse_others(actuators)
    if not isinstance(sensors, Mapping | None):
        raise ValueError(f"`sensors` is a {type(sensors).__name__}, expected a dictionary of sensors by their names")
    through = Through(actuators, None if sensors is None else dict(sensors), key)
    if callable(controls):
        if steps is None:
            raise ValueError("`steps` is missing: a policy does not say for how many steps it is to be followed")
        q0, v0 = as_state(model, q=q, v=v)
        refuse_open(model, q0)
        memory = jax.tree.map(jnp.asarray, memory)
        options = _multiple(_count(steps, "steps", 0), kept), kept, method, bool(checkpoint)
        run, end = _follow(model, q0, v0, controls, memory, through, _scalar(dt, q0), *options)
        return run if memory is None else (run, end)
    if memory is not None:
        raise ValueError("`memory` is what a policy remembers, but `controls` is no function")
    size, what = (model.nv, "joint forces") if actuators is None else (actuators.size, "commands")
    if controls is None:
        raise ValueError(f"`controls` is None, expected {what}; for none give jnp.zeros((T, {size}))")
    real_type("controls", controls)
    forces = jnp.asarray(controls)
    if forces.ndim != 2 or forces.shape[1] != size:
        raise ValueError(
            f"`controls` has shape {forces.shape}, expected (T, {size}): a row of {what} for each step of "
            f"model {model.name!r}; for a batch use jax.vmap, for a policy pass a function of (t, q, v)"
        )
    count = forces.shape[0]
    if steps is not None and _count(steps, "steps", 0) != count:
        raise ValueError(f"`steps` is {steps}, but `controls` has {count} rows; leave `steps` out")
    q0, v0, _ = as_state(model, q=q, v=v, tau=jnp.zeros(model.nv, forces.dtype))
    refuse_open(model, q0)
    options = _multiple(count, kept), kept, method, bool(checkpoint)
    return _forced(model, q0, v0, forces.astype(q0.dtype), through, _scalar(dt, q0), *options)


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
    model, method = _prepared(model, stepper)
    return _step(model, q0, v0, forces, _scalar(dt, q0), method)


@partial(jax.jit, static_argnames=("method",))
def _step(model: AnySystem, q, v, tau, dt, method: AbstractStepper) -> State:
    return plain(method, model, q, v, tau, dt)


class Through(NamedTuple):
    """What stands between a policy and the joints."""

    actuators: Actuators | None
    sensors: Sensors | None
    key: jax.Array | None


class Going(NamedTuple):
    """What goes from step to step."""

    at: Carried
    memory: Any
    actuators: Any
    """Their state."""
    sensing: Any
    """The state of sensors."""
    said: Any
    """What they said."""


OPTIONS = ("steps", "every", "method", "checkpoint")


@partial(jax.jit, static_argnames=OPTIONS)
def _forced(model: AnySystem, q, v, forces, through: Through, dt, steps, every, method, checkpoint):
    if through.actuators is None and through.sensors is None and go_together(model, method):
        rest = _all_at_once(every, method, checkpoint)((model, dt), q, v, forces)
        q, v = (jnp.concatenate([first[None], own]) for first, own in zip((q, v), rest, strict=True))
        return Trajectory(_times(model, steps, q, dt)[::every], q, v)
    return _scan(model, q, v, None, forces, None, through, dt, steps, every, method, checkpoint)[0]


@lru_cache
def _all_at_once(every: int, method: Method, checkpoint: bool) -> Callable[..., State]:
    """`motion` with the derivatives of steps one by one."""

    def plain(known: tuple, q: jax.Array, v: jax.Array, forces: jax.Array) -> State:
        model, dt = known
        through, options = Through(None, None, None), (len(forces), every, method, checkpoint)
        run, _ = _scan(model, q, v, None, forces, None, through, dt, *options)
        return run.q[1:], run.v[1:]

    return motion(method, every, plain)


def _times(model: AnySystem, steps: int, q: jax.Array, dt: jax.Array) -> jax.Array:
    """Of all states: rounded once, not T times."""
    return model.time.astype(q.dtype) + dt * jnp.arange(steps + 1, dtype=q.dtype)


def _follow(model: AnySystem, q, v, policy: Policy, memory: Any, through: Through, dt, *options):
    """A rollout under a policy, by a compiled one if there can be one."""
    leaves = jax.tree.leaves(policy)
    if any(leaf is policy for leaf in leaves):
        fixed = known(policy)
        return (_unnamed if fixed is None else _named)(model, q, v, fixed or policy, memory, through, dt, *options)
    return _pytree(model, q, v, policy, memory, through, dt, *options)


def _unnamed(model: AnySystem, q, v, policy: Policy, memory: Any, through: Through, dt, *options):
    return _scan(model, q, v, policy, None, memory, through, dt, *options)


_named = jax.jit(_unnamed, static_argnums=(3, 7, 8, 9, 10))
_pytree = jax.jit(_unnamed, static_argnums=(7, 8, 9, 10))


def _scan(
    model: AnySystem,
    q: jax.Array,
    v: jax.Array,
    policy: Policy | None,
    forces: jax.Array | None,
    memory: Any,
    through: Through,
    dt: jax.Array,
    steps: int,
    every: int,
    method: AbstractStepper,
    checkpoint: bool,
) -> tuple[Trajectory, Any]:
    if isinstance(model, Scene) and isinstance(method, Compliant):
        model = filled(model)  # once, not with every step
    times = _times(model, steps, q, dt)
    scan = checkpointed_scan if checkpoint else jax.lax.scan
    actuators, sensors = through.actuators, typed(through.sensors, q.dtype)
    size = model.nv if actuators is None else actuators.size
    asked, erring = (None, None) if through.key is None else jax.random.split(through.key)

    def seen(at: Carried, a: jax.Array, acting: Any, command: jax.Array, time: jax.Array) -> Moment:
        now = model.replace(time=time)
        if actuators is None:
            return moment(now, at.q, at.v, a, forces=at.forces)
        told = actuation(actuators, now, at.q, at.v, acting, command)
        return moment(now, at.q, at.v, a, told, actuators.names, at.forces)

    def advance(state: Going, x: tuple) -> tuple[Going, tuple]:
        (at, memory, acting, sensing, said), (k, later, time, command) = state, x
        if policy is not None and sensors is not None:
            own = None if asked is None else jax.random.fold_in(asked, k)
            command, memory = answer_to_sensors(policy, memory, said, own, size, q)
        elif policy is not None and memory is not None:
            command, memory = answer_and_memory(policy, time, at.q, at.v, memory, size)
        elif policy is not None:
            command = answer(policy, time, at.q, at.v, size)
        now, tau = model.replace(time=time), command
        if actuators is not None:
            now, tau, acting = stepped(actuators, now, at.q, at.v, acting, command, dt)
        before, at = at, advanced(method, now, at, tau, dt)
        if sensors is not None:
            own = None if erring is None else jax.random.fold_in(erring, k + 1)
            instant = seen(at, (at.v - before.v) / dt, acting, command, later)
            said, sensing = read_all(sensors, instant, sensing, own)
        going = Going(at, memory, acting, sensing, said)
        return going, _row(going)

    def advance_all(state: Going, xs: tuple) -> tuple[Going, tuple]:
        def one(state: Going, x: tuple) -> tuple[Going, TouchReport | None]:
            state, _ = advance(state, x)
            return state, state.at.touch

        state, touch = scan(one, state, xs, every)
        if touch is not None:
            state = state._replace(at=state.at._replace(touch=touch.since()))
        return state, _row(state)

    sensed = (None, None) if sensors is None else (jnp.arange(steps), times[1:])
    xs = *sensed, times[:-1], forces
    if every > 1:
        xs = jax.tree.map(lambda x: x.reshape(steps // every, every, *x.shape[1:]), xs)
    feels = sensors is not None and any(sensor.feels_contact for sensor in sensors.values())
    at, acting = begin(method, model, q, v, feels), None if actuators is None else actuators.initial(q.dtype)
    sensing, said = None, None
    if sensors is not None:
        instant = seen(at, jnp.zeros_like(v), acting, jnp.zeros(size, q.dtype), times[0])
        own = None if erring is None else jax.random.fold_in(erring, 0)
        said, sensing = read_all(sensors, instant, begin_all(sensors, instant), own)
    start = varying_as((model, xs, dt), Going(at, memory, acting, sensing, said))
    end, rows = scan(advance_all if every > 1 else advance, start, xs, steps // every)
    rows = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), _row(start), rows)
    q, v, status, touch, acting, said, patch = rows
    if isinstance(model, FlexibleModel):
        finite = jnp.all(jnp.isfinite(q), axis=1) & jnp.all(jnp.isfinite(v), axis=1)
        status = jnp.where(finite, RolloutStatus.GOOD.value, RolloutStatus.NOT_FINITE.value)
    status = None if status is None else status.astype(jnp.int32)
    return Trajectory(times[::every], q, v, status, touch, acting, said, patch), end.memory


def _row(state: Going) -> tuple:
    at = state.at
    return at.q, at.v, None if at.chart is None else at.chart.status, at.touch, state.actuators, state.said, at.patch


def _prepared(model: AnySystem, stepper: str | AbstractStepper) -> tuple[AnySystem, AbstractStepper]:
    method = _stepper(stepper, model)
    return method.prepared(model) if isinstance(method, Touching) and isinstance(model, Scene) else (model, method)


def _stepper(stepper: str | AbstractStepper, model: Any) -> AbstractStepper:
    if isinstance(model, Scene):
        if stepper == "semi_implicit" or isinstance(stepper, Touching | Compliant):
            return Touching() if isinstance(stepper, str) else stepper
        raise ValueError(
            f"`stepper` is {stepper!r}, but a scene moves by 'semi_implicit', a `Touching` or a `Compliant`"
        )
    if isinstance(stepper, AbstractStepper):
        return stepper
    if isinstance(stepper, str) and stepper in STEPPERS:
        return STEPPERS[stepper]
    names = ", ".join(map(repr, STEPPERS))
    raise ValueError(f"`stepper` is {stepper!r}, expected an AbstractStepper or one of {names}")


def _scalar(dt: ArrayLike, q: jax.Array) -> jax.Array:
    if dt is None:
        raise TypeError("`dt` is None, expected the length of a step [s]")
    real_type("dt", dt)
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
