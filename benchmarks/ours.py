"""dynax's own functions, timed as a user calls them: under `jit`, the model an argument whose leaves are traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from benchmarks.case import Case
from benchmarks.jax_calls import Call, Rewriting, as_type, compile_block, use_precision
from benchmarks.robots import Robot, States
from benchmarks.timing import Contender

ENGINE = "dynax"
STEPS, DT = 100, 0.002  # of the rollout; dt in seconds
REWRITTEN = "dx.batch, into the last result"
BY_JACFWD = "by jax.jacfwd: this dynax has no forward_dynamics_derivatives"

Function = Callable[[dx.Model, jax.Array, jax.Array, jax.Array], Any]


UNOPTIMISED = {"xla_backend_optimization_level": 0}


class Ours:
    def __init__(self, rehearsal: bool = False):
        """A rehearsal, whose times nobody reads, compiles without optimising and leaves out what other rows contain."""
        self._rehearsal = rehearsal
        self._options: Mapping[str, Any] | None = UNOPTIMISED if rehearsal else None

    def contenders(self, case: Case, robot: Robot, states: States) -> list[Contender]:
        use_precision(case.double)
        model = as_type(robot.model, case.dtype)
        batch = [jnp.asarray(x, case.dtype) for x in (states.q, states.v, states.tau)]
        match case.what:
            case "vjp":
                forward = self._batched(case, "forward", dx.forward_dynamics, model, batch, False)
                full = self._batched(case, "vjp, masses and inertias too", full_gradient, model, batch, True)
                full.answer = full.answer[-3:]  # the oracle knows those of the state
                own = [] if self._rehearsal else [self._batched(case, "vjp", state_gradient, model, batch, True)]
                return [forward, *own, full]
            case "rollout":
                return self._rollouts(case, model, batch)
            case "lone":
                return self._lone(case, model, batch)
            case "compile":
                arguments = (model, *(x[0] for x in batch))
                block = compile_block(quantity(case.of, robot), arguments, case.double, self._options)
                return [Contender(ENGINE, case.of, block, note=note(case.of))]
        function = quantity(case.what, robot)
        tiled = self._batched(case, "dx.batch", function, model, batch, True)
        if case.what == "mass":
            use_precision(case.double)
            again = Rewriting(dx.batch(function), (model, *batch), case.double, self._options)
            answer = again.answer(case.batch)
            return [tiled, Contender(ENGINE, REWRITTEN, again.block(), answer, case.batch, first=again.first)]
        if case.what != "fd":
            return [tiled]
        plain = jax.vmap(function, in_axes=(None, 0, 0, 0))
        return [tiled, self._timed(case, "jax.vmap", plain, (model, *batch), True)]

    def _batched(self, case: Case, route: str, function: Function, model, batch, checked: bool) -> Contender:
        return self._timed(case, route, dx.batch(function), (model, *batch), checked)

    def _timed(self, case: Case, route: str, function: Callable, arguments: tuple, checked: bool) -> Contender:
        call = Call(function, arguments, case.double, self._options)
        answer = call.answer(case.batch) if checked else None
        return Contender(ENGINE, route, call.block(), answer, case.batch, first=call.first, note=note(case.what))

    def _rollouts(self, case: Case, model: dx.Model, batch: list[jax.Array]) -> list[Contender]:
        q, v, tau = (x[0] for x in batch)
        arguments = model, q, v, jnp.broadcast_to(tau, (STEPS, *tau.shape))
        gradient = jax.grad(lambda m, q, v, u: jnp.sum(rollout(m, q, v, u) ** 2), argnums=(1, 2, 3))
        return [
            self._timed(case, "rollout", rollout, arguments, True),
            self._timed(case, "gradient", gradient, arguments, True),
        ]

    def _lone(self, case: Case, model: dx.Model, batch: list[jax.Array]) -> list[Contender]:
        state = tuple(x[0] for x in batch)
        return [
            self._timed(case, "model an argument", dx.forward_dynamics, (model, *state), True),
            self._timed(case, "model a constant", partial(dx.forward_dynamics, model), state, True),
            self._timed(case, "empty, model an argument", lambda model, q, v, tau: tau, (model, *state), False),
            self._timed(case, "empty", lambda q, v, tau: tau, state, False),
        ]


def empty(double: bool) -> Contender:
    """An empty jitted call: what this process makes of the machine."""
    x = jnp.zeros(7)
    return Contender(ENGINE, "empty jitted call", Call(lambda q, v, tau: tau, (x, x, x), double).block())


def quantity(what: str, robot: Robot) -> Function:
    """A quantity as a function of a model, a configuration, a velocity, and a force or acceleration."""
    tip = robot.bodies.names[robot.bodies.tip]
    match what:
        case "fd" | "slope":
            return dx.forward_dynamics
        case "id":
            return dx.inverse_dynamics
        case "mass":
            return lambda model, q, v, x: dx.mass_matrix(model, q)
        case "jac":
            return lambda model, q, v, x: dx.jacobian(model, q, tip, frame="body")
        case "dfd":
            return getattr(dx, "forward_dynamics_derivatives", derivatives_by_jacfwd)
    raise ValueError(f"no function for {what!r}")


def note(what: str) -> str:
    return BY_JACFWD if what == "dfd" and not hasattr(dx, "forward_dynamics_derivatives") else ""


def derivatives_by_jacfwd(model: dx.Model, q: jax.Array, v: jax.Array, tau: jax.Array) -> tuple[jax.Array, ...]:
    """With respect to the tangent of `q`, `v` and `tau`, each `(nv, nv)`."""

    def near(dv, v, tau):
        return dx.forward_dynamics(model, dx.integrate(model, q, dv), v, tau)

    return jax.jacfwd(near, argnums=(0, 1, 2))(jnp.zeros_like(v), v, tau)


def cotangent(v: Any) -> Any:
    """What the reverse-mode derivatives are taken along: any vector will do that depends on nothing."""
    return np.cos(np.arange(v.shape[-1])).astype(v.dtype)


def state_gradient(model: dx.Model, q: jax.Array, v: jax.Array, tau: jax.Array) -> tuple[jax.Array, ...]:
    return jax.vjp(partial(dx.forward_dynamics, model), q, v, tau)[1](cotangent(v))


def full_gradient(model: dx.Model, q: jax.Array, v: jax.Array, tau: jax.Array) -> tuple[jax.Array, ...]:
    """Also in masses, centres of mass and inertias."""

    def function(mass, com, inertia, q, v, tau):
        return dx.forward_dynamics(model.replace(mass=mass, com=com, inertia=inertia), q, v, tau)

    return jax.vjp(function, model.mass, model.com, model.inertia, q, v, tau)[1](cotangent(v))


def rollout(model: dx.Model, q: jax.Array, v: jax.Array, controls: jax.Array) -> jax.Array:
    """The last configuration, by the integrator that the peers have."""
    return dx.rollout(model, q, v, controls, DT, stepper=dx.SemiImplicitEuler(evaluations=1)).q[-1]
