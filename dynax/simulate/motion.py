"""Motions of trees under given joint forces, all steps in one kernel: by the Euler methods, and by those of Runge and
Kutta where coordinates add.

To start a kernel takes longer than the few sums that are left of a step beside its accelerations. 500 steps of an arm
take 0.6 ms so, a kernel for the accelerations and a dozen small ones in each step 1.7 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms.aba import aba
from dynax.algorithms.mean_velocity import place
from dynax.compile.batching import alone, trailing
from dynax.compile.one_kernel import expected
from dynax.model import Model
from dynax.model.configuration import integrate_rows
from dynax.simulate.euler import ExplicitEuler, SemiImplicitEuler
from dynax.simulate.friction import Stepped, settled
from dynax.simulate.runge_kutta import CLASSICAL, HEUN, Heun, RungeKutta4, adds
from dynax.simulate.stepper import later
from dynax.simulate.trajectory import Trajectory

Euler = ExplicitEuler | SemiImplicitEuler
Method = Euler | Heun | RungeKutta4
State = tuple[jax.Array, jax.Array]
Step = Callable[..., tuple[jax.Array, jax.Array, Stepped]]


def go_together(model: Any, method: Any) -> bool:
    """Whether the steps are those of here, of a tree and by the methods as they are, and a kernel can hold them."""
    if not isinstance(model, Model) or model.constrained or not _available():
        return False
    # With the flows of a floating base ANYmal's steps by stages take half the time, and 1.6 s more to compile.
    return type(method) in (ExplicitEuler, SemiImplicitEuler) or (type(method) in (Heun, RungeKutta4) and adds(model))


def _available() -> bool:
    # On a GPU a kernel of all steps is not known to be worth its compilation.
    return jax.default_backend() == "cpu" and expected()


def motion(method: Method, every: int, plain: Callable[..., State]) -> Callable[..., State]:
    """The function `((model, dt), q, v, controls)` for every k-th state after the first, `(K / every, nq)` and
    `(K / every, nv)`. A batch and derivatives are those of `plain`, the same function step by step: what starts kernels
    is little beside a batch, and a kernel of a derivative would keep all that all steps have found."""

    def states(known: tuple, q: jax.Array, v: jax.Array, controls: jax.Array) -> State:
        model, dt = known
        times = model.time.astype(v.dtype) + dt * jnp.arange(len(controls), dtype=v.dtype)
        one = partial(_by_stages if isinstance(method, Heun | RungeKutta4) else _by_euler, method)
        return _states(one, every, model, q, v, controls, times, dt)

    def like(_: tuple, q: jax.Array, v: jax.Array, controls: jax.Array) -> State:
        rows = len(controls) // every
        return jnp.zeros((rows, *q.shape), q.dtype), jnp.zeros((rows, *v.shape), v.dtype)

    return alone(states, plain, like)


def _by_euler(method: Euler, model: Model, q, v, tau, time, dt) -> State:
    return _step(method, model, q, v, tau, time, dt)[:2]


def _by_stages(method: Heun | RungeKutta4, model: Model, q, v, tau, time, dt) -> State:
    """For one state."""

    def rate(q: jax.Array, v: jax.Array, delay: jax.Array) -> jax.Array:
        return aba(later(now, delay), q, v, tau)

    now = model.replace(time=time)
    return (HEUN if isinstance(method, Heun) else CLASSICAL).flow(now, q, v, rate, dt)[:2]


def _states(one: Callable[..., State], every: int, model: Model, q, v, controls, times, dt) -> State:
    def ahead(state: State, own: tuple[jax.Array, jax.Array]) -> tuple[State, None]:
        return one(model, *state, *own, dt), None

    def rows(state: State, own: tuple[jax.Array, jax.Array]) -> tuple[State, State]:
        state = lax.scan(ahead, state, own)[0] if every > 1 else ahead(state, own)[0]
        return state, state

    xs = controls, times
    if every > 1:
        xs = jax.tree.map(lambda x: x.reshape(len(x) // every, every, *x.shape[1:]), xs)
    return lax.scan(rows, (q, v), xs)[1]


def simulated(
    model: Model, q: jax.Array, v: jax.Array, controls: jax.Array, dt: jax.Array, method: Euler
) -> tuple[Trajectory, Stepped]:
    """The motion as `rollout` has it, and what the steps found on the way, with K rows."""
    times = model.time.astype(v.dtype) + dt * jnp.arange(len(controls) + 1, dtype=v.dtype)
    rest, found = _walk(method, _available())(model, q, v, controls, times[:-1], dt)
    q, v = (jnp.concatenate([first[None], own]) for first, own in zip((q, v), rest, strict=True))
    return Trajectory(times, q, v), found


@lru_cache
def _walk(method: Euler, together: bool) -> Callable[..., tuple[State, Stepped]]:
    """The function `(model, q, v, controls, times, dt)` for the states after the steps: all steps in a kernel, or one
    in each."""
    one = partial(_step, method)
    return trailing(partial(_steps, one)) if together else partial(_steps, trailing(one))


def _steps(one: Step, model: Model, q, v, controls, times, dt) -> tuple[State, Stepped]:
    def ahead(state: State, own: tuple[jax.Array, jax.Array]) -> tuple[State, tuple[State, Stepped]]:
        q, v, found = one(model, *state, *own, dt)
        return (q, v), ((q, v), found)

    return lax.scan(ahead, (q, v), (controls, times))[1]


def _step(method: Euler, model: Model, q, v, tau, time, dt) -> tuple[jax.Array, jax.Array, Stepped]:
    """For trailing batch axes."""
    now = model.replace(time=time)
    if isinstance(method, ExplicitEuler):
        found = Stepped(aba(now, q, v, tau)[None], jnp.zeros_like(v))
        return integrate_rows(now, q, dt * v), v + dt * found.accelerations[0], found
    found = settled(now, place(now, q), v, tau, dt, method.evaluations)
    after = v + dt * found.accelerations[-1]
    return integrate_rows(now, q, dt * after), after, found
