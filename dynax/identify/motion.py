"""Simulated motions of trees under given joint forces, by one of the Euler methods, and what their steps found.

To start a kernel takes longer than the few sums that are left of a step beside its accelerations: where a kernel can
hold loops, all steps are in one. 500 steps of an arm take 0.6 ms so, a kernel for the accelerations and a dozen small
ones in each step 1.7 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms.aba import aba
from dynax.algorithms.mean_velocity import place
from dynax.compile.batching import trailing
from dynax.model import Model
from dynax.model.configuration import integrate_rows
from dynax.simulate.euler import ExplicitEuler, SemiImplicitEuler
from dynax.simulate.friction import Stepped, settled
from dynax.simulate.trajectory import Trajectory

Euler = ExplicitEuler | SemiImplicitEuler
State = tuple[jax.Array, jax.Array]


def simulated(
    model: Model, q: jax.Array, v: jax.Array, controls: jax.Array, dt: jax.Array, method: Euler
) -> tuple[Trajectory, Stepped]:
    """The motion as `rollout` has it, and what the steps found on the way, with K rows."""
    times = model.time.astype(v.dtype) + dt * jnp.arange(len(controls) + 1, dtype=v.dtype)
    rest, found = _walk(method, jax.default_backend() == "cpu")(model, q, v, controls, times[:-1], dt)
    q, v = (jnp.concatenate([first[None], own]) for first, own in zip((q, v), rest, strict=True))
    return Trajectory(times, q, v), found


@lru_cache
def _walk(method: Euler, together: bool) -> Callable[..., tuple[State, Stepped]]:
    """The function `(model, q, v, controls, times, dt)` for the states after the steps: all steps in a kernel, or one
    in each."""
    one = partial(_step, method)
    return trailing(partial(_steps, one)) if together else partial(_steps, trailing(one))


def _steps(one: Callable, model: Model, q, v, controls, times, dt) -> tuple[State, Stepped]:
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
