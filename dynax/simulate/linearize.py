"""The linear system that a model is near a state, in the tangent space, and how it swings.

    x = (q, v)      z: coordinates of the states nearby, q moved along `integrate` and v by a summand
    z' = drift + A z + B du                 in time
    z+ = drift + A z + B du                 over a step, z+ about the state itself after it

The rate of a turn's coordinates depends on the turn where the joint is moving, `z' = dv - omega x z`. With the rates
`X_v(q)` of the configuration it is the bracket `[X_z, X_v] = DX_v X_z - DX_z X_v`, whatever the joint. Where loops tie
the joints, states nearby are those which keep them, `K z_q = 0` and `K z_v + d(K v)/dq z_q = 0`, and `A` is that of the
nearest of these (Lee, Leok & McClamroch 2018, section 3.6; Featherstone 2008, section 8.5).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.constraints.dynamics import constrained_dynamics
from dynax.constraints.independent import independent, separable
from dynax.constraints.residual import rows_at
from dynax.derivatives.forward_dynamics import forward_dynamics_and_derivatives
from dynax.embedding.model import tree_of
from dynax.linear.matrices import product
from dynax.linear.pseudo_inverse import known_inverse
from dynax.model.checks import as_state, real_type
from dynax.model.configuration import configuration_rate, difference, integrate
from dynax.model.flexible import skeleton_of
from dynax.simulate.rollout import step
from dynax.simulate.stepper import AbstractStepper, AnyTree, closed


class Linearization(NamedTuple):
    """Made by `linearize`, or of matrices of one's own."""

    A: jax.Array
    """Shape `(2 nv, 2 nv)`, configurations first."""
    B: jax.Array
    """Shape `(2 nv, nu)`."""
    drift: jax.Array | None = None
    """The rate `(v, a)`, or the tangent from the state to that after a step, shape `(2 nv,)`; zero at rest."""
    projection: jax.Array | None = None
    """On the tangents that loops leave, the nearest to any, shape `(2 nv, 2 nv)`; `None` where all are left."""
    dt: jax.Array | None = None
    """Of the step [s]; `None` in continuous time."""


def linearize(
    model: AnyTree,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike,
    *,
    actuation: ArrayLike | None = None,
    stepper: str | AbstractStepper = "semi_implicit",
    dt: ArrayLike | None = None,
) -> Linearization:
    """The derivative of a model's motion by its state and controls, along the tangent space.

    **Arguments:**

    - `model`: rigid, with bodies that bend, with loops (then with `projection`), or embedded.
    - `q`, `v`: the state, `(nq,)` and `(nv,)`; where loops are, one that closes them (`dx.assemble`).
    - `u`: the controls there, joint forces `(nv,)`; or `(nu,)` with `actuation`, the joint forces per control
      `(nv, nu)`.
    - `dt`: the length of a step [s] of `stepper`, as in `dx.rollout`, for the system in discrete time; default: in
      continuous time, with the derivatives of `forward_dynamics` or `constrained_dynamics`.

    **Returns:** `Linearization`. It can be differentiated, and is a function for `jax.vmap`. `ValueError` for shapes
    that do not fit.
    """
    q, v = as_state(model, q=q, v=v)
    matrix = None if actuation is None else jnp.asarray(actuation, q.dtype)
    if matrix is not None and (matrix.ndim != 2 or matrix.shape[0] != model.nv):
        raise ValueError(f"`actuation` has shape {matrix.shape}, expected ({model.nv}, controls)")
    real_type("u", u)
    given, count = jnp.asarray(u, q.dtype), model.nv if matrix is None else matrix.shape[1]
    if given.shape != (count,):
        raise ValueError(f"`u` has shape {given.shape}, expected ({count},); for a batch use jax.vmap")
    tau = given if matrix is None else product(matrix, given)
    if dt is None:
        found = _in_time(model, q, v, tau)
    else:
        found = _over_step(model, q, v, tau, jnp.asarray(dt, q.dtype), stepper=stepper)
    return found if matrix is None else found._replace(B=product(found.B, matrix))


@jax.jit
def _in_time(model: Any, q: jax.Array, v: jax.Array, tau: jax.Array) -> Linearization:
    nv, zero = model.nv, jnp.zeros_like(v)

    if closed(model):

        def acceleration(z: jax.Array, dv: jax.Array, force: jax.Array) -> tuple[jax.Array, jax.Array]:
            a = constrained_dynamics(model, integrate(model, q, z), v + dv, force).a
            return a, a

        by, a = jax.jacfwd(acceleration, argnums=(0, 1, 2), has_aux=True)(zero, zero, tau)
    else:
        a, by = forward_dynamics_and_derivatives(model, q, v, tau)
    A = jnp.block([[_turning(model, q, v), jnp.eye(nv, dtype=q.dtype)], [by[0], by[1]]])
    B = jnp.concatenate([jnp.zeros((nv, nv), q.dtype), by[2]])
    return _kept(model, q, v, Linearization(A, B, jnp.concatenate([v, a])))


def _turning(model: Any, q: jax.Array, v: jax.Array) -> jax.Array:
    """How `z'` depends on `z` at the same velocity, shape `(nv, nv)`."""
    topology = skeleton_of(tree_of(model)).topology
    if topology.all_screws and not len(topology.free_roots):
        return jnp.zeros((model.nv, model.nv), q.dtype)
    now = configuration_rate(model, q, v)

    def bracket(z: jax.Array) -> jax.Array:
        along = configuration_rate(model, q, z)
        ahead = jax.jvp(lambda q: configuration_rate(model, q, v), (q,), (along,))[1]
        return ahead - jax.jvp(lambda q: configuration_rate(model, q, z), (q,), (now,))[1]

    rates = jax.vmap(bracket, out_axes=1)(jnp.eye(model.nv, dtype=q.dtype))
    return product(jax.jacfwd(lambda x: difference(model, q, x))(q), rates)


@partial(jax.jit, static_argnames=("stepper",))
def _over_step(model: Any, q, v, tau, dt, *, stepper: str | AbstractStepper) -> Linearization:
    nv, zero = model.nv, jnp.zeros_like(v)

    def ahead(z: jax.Array, dv: jax.Array, force: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        q_next, v_next = after = step(model, integrate(model, q, z), v + dv, force, dt, stepper=stepper)
        return jnp.concatenate([difference(model, jax.lax.stop_gradient(q_next), q_next), v_next]), after

    slopes, after = jax.jacfwd(ahead, argnums=(0, 1, 2), has_aux=True)(zero, zero, tau)
    both = jnp.concatenate(slopes, axis=1)
    drift = jnp.concatenate([difference(model, q, after[0]), after[1] - v])
    return _kept(model, q, v, Linearization(both[:, : 2 * nv], both[:, 2 * nv :], drift, dt=dt))


def _kept(model: Any, q: jax.Array, v: jax.Array, found: Linearization) -> Linearization:
    """Of the states that keep the loops."""
    if not closed(model):
        return found
    rows = rows_at(model, q, v)
    K, zero, eye = rows.matrix, jnp.zeros_like(v), jnp.eye(model.nv, dtype=q.dtype)
    inverse = known_inverse(K, independent(separable(model), rows).inverse)
    free = eye - product(inverse, K)
    slope = jax.jacfwd(lambda z: rows_at(model, integrate(model, q, z), v).rate)(zero)
    pulled = -product(product(inverse, slope), free)
    projection = jnp.block([[free, jnp.zeros_like(free)], [pulled, free]])
    return found._replace(A=product(found.A, projection), projection=projection)


class Eigenmodes(NamedTuple):
    """How a linear system swings by itself: NumPy arrays, the slowest first."""

    values: Any
    """The rates `s` of motions `shape e^(s t)` [1/s], complex, shape `(k,)`."""
    frequencies: np.ndarray
    """`|s|` [rad/s]; that of the undamped mode where damping is light."""
    damping: np.ndarray
    """The ratio `-Re s / |s|`: 1 and more does not swing, below 0 grows; NaN where `s` is zero."""
    shapes: np.ndarray
    """Tangents `(q, v)` of length one, complex, a column for each mode, shape `(2 nv, k)`."""


def eigenmodes(system: Linearization) -> Eigenmodes:
    """The eigenvalues and vectors of a linearisation at an equilibrium, of the motions that loops leave.

    Not for `jax.jit`: it is NumPy's. In discrete time the rates are those of the continuous motion through the same
    states, up to whole turns per step.
    """
    A, basis = np.asarray(system.A, float), np.eye(len(system.A))
    if system.projection is not None:
        left, sizes, _ = np.linalg.svd(np.asarray(system.projection, float))
        basis = left[:, sizes > 0.5]  # a projection has no singular values between 0 and 1
    found, vectors = np.linalg.eig(basis.T @ A @ basis)
    values: Any = found.astype(complex)
    if system.dt is not None:
        with np.errstate(divide="ignore"):
            values = np.log(values) / float(system.dt)
    order = np.lexsort((-values.imag, np.abs(values)))
    values, shapes = values[order], (basis @ vectors)[:, order]
    size = np.abs(values)
    ratio = np.divide(-values.real, size, out=np.full(len(values), np.nan), where=size > 0)
    return Eigenmodes(values, size, ratio, shapes)
