"""The conditions of a model as functions: residual, Jacobian, bias."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.constraints.rows import Rows, constraint_rows, names
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import setup


@for_models
def rows_at(model: Model, q: jax.Array, v: jax.Array | None = None) -> Rows:
    """All rows at one state, or with trailing batch axes."""
    s = setup(model, q, v)
    moving = v is not None
    kin = kinematics(model, s, v, positions=True, accelerations=moving, gravity=moving)
    return constraint_rows(model, s, kin, v)._replace(places=None)


@jax.jit
def _position(model: Model, q: jax.Array) -> Rows:
    return rows_at(model, q)


@jax.jit
def _motion(model: Model, q: jax.Array, v: jax.Array) -> Rows:
    return rows_at(model, q, v)


@for_models
def constraint_residual(model: Model, q: ArrayLike) -> jax.Array:
    """How far each loop, gear and condition is from being met, shape `(nc,)`; zero on the mechanism's configurations.

    Rows follow the loops in the order of the builder, then the gears, then the conditions; `constraint_names` tells
    which are whose. A loop's rows are turns [rad] and shifts [m] in the axes of its successor frame, gears are in the
    units of the joint that follows.

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _position(model, *as_state(model, q=q)).residual


@for_models
def constraint_jacobian(model: Model, q: ArrayLike) -> jax.Array:
    """`K`, the derivative of `constraint_residual` in the tangent space, shape `(nc, nv)` (eq. 8.14)."""
    return _position(model, *as_state(model, q=q)).matrix


@for_models
def constraint_rate(model: Model, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """The rate of `constraint_residual` along `v`, shape `(nc,)`: `K v`, and what driven conditions add."""
    q, v = as_state(model, q=q, v=v)
    found = _motion(model, q, v).rate
    return jnp.zeros(0, q.dtype) if found is None else found


@for_models
def constraint_bias(model: Model, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """`k`, the right side of `K a = k` that accelerations must meet, shape `(nc,)` (eqs. 8.15 to 8.20)."""
    q, v = as_state(model, q=q, v=v)
    found = _motion(model, q, v).bias
    return jnp.zeros(0, q.dtype) if found is None else found


@for_models
def constraint_names(model: Model) -> dict[str, slice]:
    """The rows of each loop, of each gear (by the joint that follows) and of each condition."""
    return dict(names(model.structure))
