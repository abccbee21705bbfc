"""Adaptive solves by `diffrax` (an optional extra): the state-space form `(q, v)' = (Q(q) v, FD(q, v, tau))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.constraints.dynamics import constrained_dynamics
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import configuration_rate, normalize
from dynax.routes.forward_dynamics import forward_dynamics
from dynax.simulate.policy import answer
from dynax.simulate.stepper import State, closed, kept
from dynax.simulate.trajectory import Trajectory


def _import() -> Any:
    try:
        import diffrax
    except ImportError as error:
        raise ImportError('adaptive solves need diffrax: pip install "dynax[diffrax]"') from error
    return diffrax


def diffrax_term(model: Model, controls: Callable | None = None, *, settle: ArrayLike | None = None) -> Any:
    """A `diffrax.ODETerm` with the state `y = (q, v)`, for `diffrax.diffeqsolve`; Featherstone (2008), eqs. 3.8, 3.9.

    **Arguments:** `controls`: `controls(t, q, v) -> tau`, asked whenever the solver evaluates the motion; `None` for no
    joint forces. Driven joints follow the solver's time. `settle`: time constant [s] with which errors of loops, gears
    and conditions die out, see `constrained_dynamics`; default: they add up within the solver's tolerance.

    A solver that adds lets quaternions leave unit length, by no more than its tolerance. The dynamics are those of
    `normalize(model, q)`; normalise what the solver returns.
    """

    def field(t: jax.Array, y: State, args: Any) -> State:
        q, v = normalize(model, y[0]), y[1]
        tau = jnp.zeros_like(v) if controls is None else answer(controls, t, q, v, model.nv)
        now = model.replace(time=jnp.asarray(t, q.dtype))
        if closed(model):
            return configuration_rate(model, q, v), constrained_dynamics(now, q, v, tau, settle=settle).a
        return configuration_rate(model, q, v), forward_dynamics(now, q, v, tau)

    return _import().ODETerm(field)


def solve(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    controls: Callable | None,
    times: ArrayLike,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    solver: Any = None,
    max_steps: int | None = 16384,
    settle: ArrayLike | None = None,
) -> Trajectory:
    """The motion at `times`, with steps chosen so that each adds an error of about `atol + rtol |y|`.

    **Arguments:**

    - `q`, `v`: the state at `times[0]`, shapes `(nq,)` and `(nv,)`.
    - `controls`: a function `controls(t, q, v) -> tau`, or `None`; see `diffrax_term`.
    - `times`: increasing, shape `(T + 1,)` [s].
    - `solver`: a diffrax solver; default `Tsit5()`, explicit of order 5.
    - `max_steps`: more steps raise an error. The gradient keeps their number in memory.
    - `settle`: see `diffrax_term`.

    **Returns:** `Trajectory(times, q, v)`, with quaternions of unit length and loops, gears and conditions met.
    """
    diffrax = _import()
    q0, v0 = as_state(model, q=q, v=v)
    ts = jnp.asarray(times, q0.dtype)
    if ts.ndim != 1 or ts.size < 2:
        raise ValueError(f"`times` has shape {ts.shape}, expected (T + 1,) with the initial time first and T > 0")
    solution = diffrax.diffeqsolve(
        diffrax_term(model, controls, settle=settle),
        diffrax.Tsit5() if solver is None else solver,
        t0=ts[0],
        t1=ts[-1],
        dt0=None,
        y0=(q0, v0),
        saveat=diffrax.SaveAt(ts=ts),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        max_steps=max_steps,
    )

    def row(t: jax.Array, q: jax.Array, v: jax.Array) -> State:
        return kept(model.replace(time=t), (normalize(model, q), v))

    return Trajectory(ts, *jax.vmap(row)(ts, *solution.ys))
