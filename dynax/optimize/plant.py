"""What moves: states on a manifold, controls, and the step from one knot to the next.

The one place of this package that knows robots; solvers know `step`, `integrate` and `difference`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.contact.scene import Scene
from dynax.derivatives.adjoint import paired_within
from dynax.derivatives.forward_dynamics import forward_dynamics_and_derivatives
from dynax.derivatives.rule import closed_form
from dynax.derivatives.variations import within_joints
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.linear.matrices import product
from dynax.model import Model
from dynax.model.configuration import (
    bracket_rows,
    difference,
    integrate,
    rate_rows,
)
from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.dynamics import Moving, acceleration, acceleration_curvature
from dynax.optimize.landing import landing, landing_curvature, within
from dynax.optimize.tangents import curvature, jacobian, paired_curvature, rates
from dynax.simulate.rollout import step
from dynax.simulate.runge_kutta import adds
from dynax.simulate.stepper import AbstractStepper, State, refuse_closed
from dynax.sweep.scan import varying_as

Linearized = tuple[jax.Array, jax.Array, jax.Array | None]
"""What `linearized` gives."""


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
        return jnp.asarray(self.function(x, u, params)).astype(x.dtype)

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        return x + dx if self.integrator is None else self.integrator(x, dx)

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        return x1 - x0 if self.differencer is None else self.differencer(x0, x1)

    @property
    def pulled(self) -> Callable | None:
        """As that of `ModelPlant`, where states add."""
        return None if self.integrator is not None else lambda x, slope: slope


@pytree_dataclass("stepper")
class ModelPlant:
    """A model under a stepper: states `[q, v]`, tangents of `2 nv`, controls joint forces or what `actuation` makes
    joint forces of."""

    model: Any
    actuation: jax.Array | None
    """Joint forces per control, shape `(nv, nu)`."""
    stepper: str | AbstractStepper

    @property
    def moving(self) -> Any:
        """The model without what it may touch, which has no say in what its tangents are."""
        return self.model.model if isinstance(self.model, Scene) else self.model

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

    def acceleration_and_slopes(self, x: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
        """`acceleration`, and its Jacobian by tangents and controls, shape `(nv, 2 nv + nu)`."""
        q, v = x[: self.model.nq], x[self.model.nq :]
        a, (by_q, by_v, by_u) = forward_dynamics_and_derivatives(self.model, q, v, self.forces(u), None)
        if self.actuation is not None:
            by_u = product(by_u, self.actuation.astype(x.dtype))
        return a, jnp.concatenate([by_q, by_v, by_u], axis=1)

    def step(self, x: jax.Array, u: jax.Array, params: Any, dt: jax.Array) -> jax.Array:
        q, v = x[: self.model.nq], x[self.model.nq :]
        return jnp.concatenate(step(self.model, q, v, self.forces(u), dt, stepper=self.stepper))

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        nq, nv = self.model.nq, self.model.nv
        return jnp.concatenate([integrate(self.model, x[:nq], dx[:nv]), x[nq:] + dx[nv:]])

    def rates(self, x: jax.Array) -> jax.Array:
        """As the function `rates`."""
        eye = jnp.eye(self.model.nv, dtype=x.dtype)
        return jax.scipy.linalg.block_diag(self._turns(x[: self.model.nq]), eye)

    def pulled(self, x: jax.Array, slope: jax.Array) -> jax.Array:
        """The transpose of `rates`: the slope along tangents of that by the numbers of a state."""
        nq, still = self.model.nq, varying_as((x, slope), jnp.zeros(self.model.nv, x.dtype))
        along = jax.linear_transpose(lambda d: rate_rows(self.model, x[:nq], d), still)
        return jnp.concatenate([*along(slope[:nq]), slope[nq:]])

    def _turns(self, q: jax.Array) -> jax.Array:
        """Of the configuration, shape `(nq, nv)`."""
        along = jax.vmap(lambda d: rate_rows(self.model, q, d), in_axes=1, out_axes=1)
        return along(jnp.eye(self.model.nv, dtype=q.dtype))

    def bracket(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """Of two tangents."""
        nv = self.model.nv
        return jnp.concatenate([bracket_rows(self.model, a[:nv], b[:nv]), jnp.zeros_like(a[nv:])])

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        nq = self.model.nq
        return jnp.concatenate([difference(self.model, x0[:nq], x1[:nq]), x1[nq:] - x0[nq:]])

    def landed(self, x: jax.Array, dx: jax.Array, after: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """As the function `landed`. Of embedded loops it is the independent joints that count, which do not know of
        the others."""
        model, (nq, nv), own = self.moving, (self.model.nq, self.model.nv), slice(None)
        tree = tree_of(model)
        if not isinstance(tree, Model):
            return landed_by_directions(self, x, dx, after)
        w = dx[:nv]
        if isinstance(model, EmbeddedModel):
            own = np.array(model.independent, int)
            w = jnp.zeros(tree.nv, w.dtype).at[own].set(w)
        c, turns = landing(tree, x[:nq], w, after[:nq])
        blocks = (within_joints(tree, part)[own][:, own] for part in jnp.split(turns, 2, axis=1))
        eye = jnp.eye(nv, dtype=x.dtype)
        by_x, by_dx = (jax.scipy.linalg.block_diag(block, eye) for block in blocks)
        return jnp.concatenate([c[own], x[nq:] + dx[nv:] - after[nq:]]), by_x, by_dx

    def linearized(self, x, u, after, params, dt, costate) -> Linearized:
        """As the function `linearized`."""
        if isinstance(self.stepper, ClosedFormEuler) and isinstance(self.model, Model):
            return _of_euler(self, x, u, after, dt, costate)
        # Of embedded loops there is no closed form of the curvature.
        if isinstance(self.stepper, ClosedFormEuler) and isinstance(self.model, EmbeddedModel) and costate is None:
            return _of_embedded_euler(self, x, u, after, dt)
        return by_directions(self, x, u, after, params, dt, costate)


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
    - Of a model or a `contact.Scene`: `stepper`, as in `dx.rollout`, by default `ClosedFormEuler()`, of a scene
      `"semi_implicit"`, whose derivatives through contact are exact, and so zero where nothing touches yet; and
      `actuation`, joint forces per control `(nv, nu)`, by default the identity.
    - Of a function: how many `states` and `controls` it has; where states do not add, `tangents` with
      `integrate(x, dx)` and `difference(x0, x1)`, which undoes it.
    """
    if not callable(dynamics):
        if not dynamics.nv:
            raise ValueError(f"model {dynamics.name!r} has no joint that moves")
        matrix = None if actuation is None else jnp.asarray(actuation)
        if matrix is not None and (matrix.ndim != 2 or matrix.shape[0] != dynamics.nv):
            raise ValueError(f"`actuation` has shape {matrix.shape}, expected ({dynamics.nv}, controls)")
        if matrix is not None and not matrix.shape[1]:
            raise ValueError(f"`actuation` has shape {matrix.shape}, expected one column or more: there is no control")
        own = "semi_implicit" if isinstance(dynamics, Scene) else ClosedFormEuler()
        return ModelPlant(dynamics, matrix, own if stepper is None else stepper)
    if states is None or controls is None:
        raise ValueError("`states` and `controls` are missing: a function does not say how many it has")
    for name, number in (("states", states), ("controls", controls)):
        if number < 1:
            raise ValueError(f"`{name}` is {number}, expected at least 1")
    if not (integrate is None) == (difference is None) == (tangents is None):
        raise ValueError("`tangents`, `integrate` and `difference` belong together: give all of them or none")
    return FunctionPlant(dynamics, states, controls, states if tangents is None else tangents, integrate, difference)


def refuse_scene(model: Any, what: str) -> None:
    """`ValueError` of what needs accelerations that are smooth."""
    if isinstance(model, Scene):
        raise ValueError(
            f"{what}: a scene has no acceleration, only steps; take `o.problem(o.plant(scene), ...)`, or its `model`, "
            "which touches nothing"
        )


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
    plant: Any,
    x: jax.Array,
    u: jax.Array,
    after: jax.Array,
    params: Any,
    dt: jax.Array,
    costate: jax.Array | None = None,
) -> Linearized:
    """`difference(after, step(x, u))`, shape `(ndx,)`, its Jacobian by tangents and controls, `(ndx, ndx + nu)`, and
    where a `costate` is given the curvature of its product with it, `(ndx + nu, ndx + nu)`; by the plant's own
    `linearized` if it has one."""
    own = getattr(plant, "linearized", partial(by_directions, plant))
    return own(x, u, after, params, dt, costate)


def passed(
    plant: Any, x: jax.Array, u: jax.Array, near: jax.Array, params: Any, dt: jax.Array
) -> tuple[jax.Array, tuple]:
    """The next state, which is thought to be `near` another, and what costs get to know of the step: `()` unless the
    plant has a `passed` of its own."""
    own = getattr(plant, "passed", None)
    return (plant.step(x, u, params, dt), ()) if own is None else own(x, u, near, params, dt)


def passed_linearized(
    plant: Any, x: jax.Array, u: jax.Array, after: jax.Array, params: Any, dt: jax.Array
) -> tuple[jax.Array, jax.Array, tuple, tuple]:
    """`linearized` without a costate, and what costs get to know of the step, with its rows along all `directions`."""
    own = getattr(plant, "passed_linearized", None)
    return (*linearized(plant, x, u, after, params, dt)[:2], (), ()) if own is None else own(x, u, after, params, dt)


def landed(plant: Any, x: jax.Array, dx: jax.Array, after: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`difference(after, integrate(x, dx))`, shape `(ndx,)`, and its Jacobians by tangents of `x` and by `dx`; by the
    plant's own `landed` if it has one."""
    own = getattr(plant, "landed", partial(landed_by_directions, plant))
    return own(x, dx, after)


def landed_by_directions(
    plant: Any, x: jax.Array, dx: jax.Array, after: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The derivatives of what the plant does."""
    n, eye = plant.ndx, jnp.eye(plant.ndx, dtype=x.dtype)
    ways = jnp.pad(rates(plant, x).T, ((0, n), (0, 0))), jnp.pad(eye, ((n, 0), (0, 0)))
    landing = lambda x, dx: plant.difference(after, plant.integrate(x, dx))  # noqa: E731
    c, J = jax.vmap(lambda *z: jax.jvp(landing, (x, dx), z), out_axes=(None, 1))(*ways)
    return c, J[:, :n], J[:, n:]


def by_directions(
    plant: Any, x: jax.Array, u: jax.Array, after: jax.Array, params: Any, dt: jax.Array, costate: jax.Array | None
) -> Linearized:
    """The step's own derivatives."""

    def ahead(x: jax.Array, u: jax.Array) -> jax.Array:
        return plant.difference(after, plant.step(x, u, params, dt))

    if costate is None:
        return *jacobian(plant, ahead, x, u), None
    return paired_curvature(plant, ahead, x, u, costate)


def _of_euler(
    plant: ModelPlant, x: jax.Array, u: jax.Array, after: jax.Array, dt: jax.Array, costate: jax.Array | None
) -> Linearized:
    """Around `a` what `integrate` does stays within joints: no direction is followed but those of one joint, and
    `jacfwd` of the step would multiply the Jacobian of `a` with all unit vectors (panda, 25,600 knots: two thirds of
    the time).

    With `w = dv + dt da`, on which all but `dq` depends, the curvature is that of what `integrate` does along the rates
    of `(dq, w)`, and that of `a` along its weights, `dt` times the slope by `w`.
    """
    model, (nq, nv, nu) = plant.model, (plant.model.nq, plant.model.nv, plant.nu)
    q, v, tau = x[:nq], x[nq:], plant.forces(u)
    a, jacobians = forward_dynamics_and_derivatives(model, q, v, tau, None)
    (by_q, by_v, by_tau), actuation = jacobians, plant.actuation
    by_u = by_tau if actuation is None else product(by_tau, actuation.astype(x.dtype))
    eye = jnp.eye(nv, dtype=x.dtype)
    rates = jnp.concatenate([dt * by_q, eye + dt * by_v, dt * by_u], axis=1)
    later = v + dt * a
    if adds(model):
        within_w = None  # the unit matrix
        landed, moved = q + dt * later - after[:nq], jnp.eye(*rates.shape, dtype=x.dtype) + dt * rates
    else:
        landed, turns = landing(model, q, dt * later, after[:nq])
        width = turns.shape[1] // 2
        first = np.arange(nv) - within(model)
        within_q, within_w = turns[:, :width], turns[:, width:]
        moved = jnp.pad(within_joints(model, within_q), ((0, 0), (0, nv + nu)))
        for k in range(width):
            moved = moved + dt * within_w[:, k, None] * rates[np.minimum(first + k, nv - 1)]
    c, J = jnp.concatenate([landed, later - after[nq:]]), jnp.concatenate([moved, rates])
    if costate is None:
        return c, J, None

    costate_q, costate_v = costate[:nv], costate[nv:]
    by_later = costate_q if within_w is None else paired_within(model, within_w, costate_q)
    weights = dt * (dt * by_later + costate_v)
    if closed_form(model):
        H = acceleration_curvature(model, Moving(q, v, tau), a, jnp.concatenate(jacobians, axis=1), weights)
        if actuation is not None:
            drive = actuation.astype(x.dtype)
            H = jnp.concatenate([H[:, : 2 * nv], product(H[:, 2 * nv :], drive)], axis=1)
            H = jnp.concatenate([H[: 2 * nv], product(drive.T, H[2 * nv :])])
    else:
        _, _, H = curvature(plant, lambda x, u: jnp.sum(weights * plant.acceleration(x, u)), x, u)
    H = H + landing_curvature(model, q, dt * later, after[:nq], costate_q, dt * rates)
    return c, J, H


def _of_embedded_euler(plant: ModelPlant, x: jax.Array, u: jax.Array, after: jax.Array, dt: jax.Array) -> Linearized:
    """From the Jacobian of the accelerations: loops that the step closes are not differentiated."""
    nv = plant.model.nv
    a, slopes = plant.acceleration_and_slopes(x, u)
    rates = dt * slopes
    later = x[plant.model.nq :] + dt * a
    c, by_x, by_dx = plant.landed(x, jnp.concatenate([dt * later, dt * a]), after)
    moved = jnp.concatenate([dt * (jnp.eye(nv, rates.shape[1], nv, dtype=x.dtype) + rates), rates])
    return c, product(by_dx, moved).at[:, : 2 * nv].add(by_x), None
