"""Loops given by a function: all coordinates from the independent ones (Featherstone 2008, section 8.11).

    q = gamma(y)        v = G y'        a = G y'' + g        G = d gamma / dy        g = Gdot y'     (eqs. 8.56 to 8.60)
    G^T M G y'' = G^T (tau - bias - M g)                                                            (eq. 8.46)

`y` and `y'` are the state: the loops are closed at every step, whatever the integrator, and nothing has to be
stabilised. `gamma` also says which way the mechanism is assembled, which `y` alone may not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.crba import mass_matrix
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import tangent_rows
from dynax.routes.inverse_dynamics import inverse_dynamics


class ClosedMotion(NamedTuple):
    """The motion of all joints for that of the independent coordinates."""

    q: jax.Array
    """`gamma(y)`, shape `(nq,)`."""
    v: jax.Array
    """`G y'`, shape `(nv,)`."""
    matrix: jax.Array
    """`G`, shape `(nv, m)`."""
    bias: jax.Array
    """`g`, shape `(nv,)`."""


Gamma = Callable[[Model, jax.Array], jax.Array]


@partial(jax.jit, static_argnums=1)
def _motion(model: Model, gamma: Gamma, y: jax.Array, rate: jax.Array) -> ClosedMotion:
    def configuration(y: jax.Array) -> jax.Array:
        q = jnp.asarray(gamma(model, y)).astype(y.dtype)
        if q.shape != (model.nq,):
            raise ValueError(f"`gamma` gave shape {q.shape}, expected ({model.nq},) (nq of model {model.name!r})")
        return q

    def velocity(y: jax.Array, rate: jax.Array) -> jax.Array:
        return tangent_rows(model, *jax.jvp(configuration, (y,), (rate,)))

    units = jnp.eye(len(y), dtype=y.dtype)
    matrix = jax.vmap(lambda unit: velocity(y, unit), out_axes=1)(units)
    v, bias = jax.jvp(lambda y: velocity(y, rate), (y,), (rate,))
    return ClosedMotion(configuration(y), v, matrix, bias)


@partial(jax.jit, static_argnums=1)
def _dynamics(model: Model, gamma: Gamma, y, rate, tau, external) -> jax.Array:
    motion = _motion(model, gamma, y, rate)
    mass = mass_matrix(model, motion.q)
    needed = inverse_dynamics(model, motion.q, motion.v, motion.bias, external)
    return solve(motion.matrix.T @ mass @ motion.matrix, motion.matrix.T @ (tau - needed))


def _checked(y, rate) -> tuple[jax.Array, jax.Array]:
    y, rate = jnp.asarray(y), jnp.asarray(rate)
    dtype = jnp.result_type(y, rate)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.float32
    if y.ndim != 1 or rate.shape != y.shape:
        raise ValueError(f"`y` and `rate` have shapes {y.shape} and {rate.shape}, expected one and the same (m,)")
    return y.astype(dtype), rate.astype(dtype)


def closed_motion(model: Model, gamma: Gamma, y: ArrayLike, rate: ArrayLike) -> ClosedMotion:
    """Configuration, velocity, and how accelerations follow, from independent coordinates.

    **Arguments:**

    - `gamma`: a JAX function `gamma(model, y)` of shape `(nq,)`, smooth where it is used, that closes all loops. It
      may read every leaf of the model. Use one and the same function throughout: another is compiled anew.
    - `y`, `rate`: independent coordinates and their rates, shape `(m,)`.
    """
    return _motion(model, gamma, *_checked(y, rate))


def loop_closure_dynamics(
    model: Model, gamma: Gamma, y: ArrayLike, rate: ArrayLike, tau: ArrayLike, external: ArrayLike | None = None
) -> jax.Array:
    """The second derivatives of the independent coordinates, shape `(m,)`.

    **Arguments:** `gamma`, `y`, `rate`: as for `closed_motion`; `tau`: forces of all joints, shape `(nv,)`;
    `external`: as for `forward_dynamics`.
    """
    y, rate = _checked(y, rate)
    tau, external = as_state(model, tau=tau, external=external)
    return _dynamics(model, gamma, y, rate, tau.astype(y.dtype), external)
