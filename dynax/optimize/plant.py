"""What moves: states on a manifold, controls, and the step from one knot to the next.

The one place of this package that knows robots; solvers know `step`, `integrate` and `difference`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.derivatives.forward_dynamics import forward_dynamics_and_derivatives, forward_dynamics_derivatives
from dynax.linear.matrices import product
from dynax.model import Model
from dynax.model.configuration import bracket_rows, difference, integrate
from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.dynamics import acceleration
from dynax.simulate.rollout import step
from dynax.simulate.stepper import AbstractStepper, State, refuse_closed


@pytree_dataclass("function", "nx", "nu", "ndx", "integrator", "differencer")
class FunctionPlant:
    """Any `function(x, u, params) -> x` of the next knot; `params` are those of the problem.

    States add unless `integrator(x, dx)` and `differencer(x0, x1)` of tangents `(ndx,)` are given.
    """

    function: Callable
    nx: int
    nu: int
    ndx: int
    integrator: Callable | None
    differencer: Callable | None

    def step(self, x: jax.Array, u: jax.Array, params: Any, dt: jax.Array) -> jax.Array:
        return self.function(x, u, params)

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        return x + dx if self.integrator is None else self.integrator(x, dx)

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        return x1 - x0 if self.differencer is None else self.differencer(x0, x1)


@pytree_dataclass("stepper")
class ModelPlant:
    """A model under a stepper: states `[q, v]`, tangents of `2 nv`, controls joint forces or what `actuation` makes
    joint forces of."""

    model: Any
    actuation: jax.Array | None
    """Joint forces per control, shape `(nv, nu)`."""
    stepper: str | AbstractStepper

    @property
    def nx(self) -> int:
        return self.model.nq + self.model.nv

    @property
    def ndx(self) -> int:
        return 2 * self.model.nv

    @property
    def nu(self) -> int:
        return self.model.nv if self.actuation is None else self.actuation.shape[-1]

    def forces(self, u: jax.Array) -> jax.Array:
        """Of the joints, shape `(nv,)`."""
        return u if self.actuation is None else product(self.actuation.astype(u.dtype), u)

    def acceleration(self, x: jax.Array, u: jax.Array) -> jax.Array:
        """Of the joints, in continuous time, shape `(nv,)`."""
        return acceleration(self.model, x[: self.model.nq], x[self.model.nq :], self.forces(u))

    def step(self, x: jax.Array, u: jax.Array, params: Any, dt: jax.Array) -> jax.Array:
        q, v = x[: self.model.nq], x[self.model.nq :]
        return jnp.concatenate(step(self.model, q, v, self.forces(u), dt, stepper=self.stepper))

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        nq, nv = self.model.nq, self.model.nv
        return jnp.concatenate([integrate(self.model, x[:nq], dx[:nv]), x[nq:] + dx[nv:]])

    def bracket(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """Of two tangents."""
        nv = self.model.nv
        return jnp.concatenate([bracket_rows(self.model, a[:nv], b[:nv]), jnp.zeros_like(a[nv:])])

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        nq = self.model.nq
        return jnp.concatenate([difference(self.model, x0[:nq], x1[:nq]), x1[nq:] - x0[nq:]])


def plant(
    dynamics: Any,
    *,
    stepper: str | AbstractStepper | None = None,
    actuation: ArrayLike | None = None,
    states: int | None = None,
    controls: int | None = None,
    tangents: int | None = None,
    integrate: Callable | None = None,
    difference: Callable | None = None,
) -> FunctionPlant | ModelPlant:
    """The dynamics of a problem.

    **Arguments:**

    - `dynamics`: a model, or any function `step(x, u, params) -> x` of the state at the next knot.
    - Of a model: `stepper`, as in `dx.rollout`, by default `ClosedFormEuler()`, and `actuation`, joint forces per
      control `(nv, nu)`, by default the identity.
    - Of a function: how many `states` and `controls` it has; where states do not add, `tangents` with
      `integrate(x, dx)` and `difference(x0, x1)`, which undoes it.
    """
    if not callable(dynamics):
        matrix = None if actuation is None else jnp.asarray(actuation)
        if matrix is not None and (matrix.ndim != 2 or matrix.shape[0] != dynamics.nv):
            raise ValueError(f"`actuation` has shape {matrix.shape}, expected ({dynamics.nv}, controls)")
        return ModelPlant(dynamics, matrix, ClosedFormEuler() if stepper is None else stepper)
    if states is None or controls is None:
        raise ValueError("`states` and `controls` are missing: a function does not say how many it has")
    if not (integrate is None) == (difference is None) == (tangents is None):
        raise ValueError("`tangents`, `integrate` and `difference` belong together: give all of them or none")
    return FunctionPlant(dynamics, states, controls, states if tangents is None else tangents, integrate, difference)


@dataclass(frozen=True)
class ClosedFormEuler(AbstractStepper):
    """`v+ = v + dt a(q, v)`, `q+ = integrate(q, dt v+)`, with `a` of `forward_dynamics`: friction is smoothed, so that
    a trajectory can be improved through it.

    Its derivatives, of first and second order, are the closed forms of `dynax.optimize.dynamics`: for panda a fifteenth
    of the time of `jacfwd`. Use it in `dx.rollout` to follow a trajectory that has been found with it.
    """

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        refuse_closed(model, self)
        v = v + dt * acceleration(model, q, v, tau)
        return integrate(model, q, dt * v), v


def linearized(
    plant: Any, x: jax.Array, u: jax.Array, after: jax.Array, params: Any, dt: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`difference(after, step(x, u))`, shape `(ndx,)`, and its Jacobian by tangents and controls, `(ndx, ndx + nu)`."""
    if isinstance(plant, ModelPlant) and isinstance(plant.stepper, ClosedFormEuler):
        return _of_euler(plant, x, u, after, dt)

    def ahead(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        dx, du = z[: plant.ndx], z[plant.ndx :]
        c = plant.difference(after, plant.step(plant.integrate(x, dx), u + du, params, dt))
        return c, c

    J, c = jax.jacfwd(ahead, has_aux=True)(jnp.zeros(plant.ndx + plant.nu, x.dtype))
    return c, J


def _of_euler(plant: ModelPlant, x: jax.Array, u: jax.Array, after: jax.Array, dt: jax.Array) -> tuple:
    """Around `a` only what `integrate` does is differentiated direction by direction: `jacfwd` of the step would
    multiply the Jacobian of `a` with all unit vectors (panda, 25,600 knots: two thirds of the time)."""
    model, (nq, nv, nu) = plant.model, (plant.model.nq, plant.model.nv, plant.nu)
    q, v, tau = x[:nq], x[nq:], plant.forces(u)
    if isinstance(model, Model):
        a, (by_q, by_v, by_tau) = forward_dynamics_and_derivatives(model, q, v, tau, None)
    else:
        a, (by_q, by_v, by_tau) = acceleration(model, q, v, tau), forward_dynamics_derivatives(model, q, v, tau)
    by_u = by_tau if plant.actuation is None else product(by_tau, plant.actuation.astype(x.dtype))
    eye = jnp.eye(nv, dtype=x.dtype)
    turns = jnp.eye(nv, 2 * nv + nu, dtype=x.dtype)
    rates = jnp.concatenate([dt * by_q, eye + dt * by_v, dt * by_u], axis=1)
    v = v + dt * a

    def ahead(dq: jax.Array, dv: jax.Array) -> jax.Array:
        moved = integrate(model, integrate(model, q, dq), dt * (v + dv))
        return jnp.concatenate([difference(model, after[:nq], moved), v + dv - after[nq:]])

    def along(dq: jax.Array, dv: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(ahead, (jnp.zeros_like(v), jnp.zeros_like(v)), (dq, dv))

    return jax.vmap(along, in_axes=1, out_axes=(None, 1))(turns, rates)
