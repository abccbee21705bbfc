"""Assembly: a configuration that closes all loops (Featherstone 2008, section 8.10; Jain, EMBED-POS).

Levenberg-Marquardt steps from a guess, so the branch that is found is the guess's own. The derivative is that of the
implicit function: where the model or the guess moves by `d`, the answer moves by

    dq = d - K^+ (K d + dphi/dP dP)        `K^+` over the joints that may move

whatever the steps were, and to all orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dynax.constraints.independent import correction, independent, separable
from dynax.constraints.residual import rows_at
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import integrate_rows, rate_rows, tangent_rows
from dynax.model.kinds import for_models


class Assembly(NamedTuple):
    """A configuration and how well it closes."""

    q: jax.Array
    """Shape `(nq,)`."""
    error: jax.Array
    """The largest entry of `constraint_residual` there: look at it, a guess may be too far or the loops too short."""
    rank: jax.Array
    """Of the Jacobian of the conditions by the joints that may move."""
    gap: jax.Array
    """How clear that is, as in `ConstrainedDynamics`."""


@for_models
def assemble(
    model: Model, q: ArrayLike, *, hold: Sequence[str] = (), iterations: int = 60, tolerance: ArrayLike | None = None
) -> Assembly:
    """The configuration near `q` in which all loops close, gears mesh and conditions hold.

    **Arguments:**

    - `q`: a guess, shape `(nq,)`; it chooses among the ways to assemble the mechanism (elbow up or down).
    - `hold`: joints that keep their coordinates; the others are found. `KeyError` with near names for an unknown one.
    - `iterations`: the most steps; convergence is quadratic near the answer.
    - `tolerance`: of the rank, as for `constrained_dynamics`.

    Where conditions are redundant or joints are left free the change from the guess is kept small. Nothing is raised
    when no such configuration is near: `error` tells.
    """
    held = np.zeros(model.nv, dtype=bool)
    for joint in hold:
        held[model.v_slice(joint)] = True
    (guess,) = as_state(model, q=q)
    found = _assemble(model, guess, _Held(tuple(held.tolist())), iterations)
    rows = rows_at(model, found)
    limit = None if tolerance is None else jnp.asarray(tolerance, found.dtype)
    decided = independent(separable(model), rows._replace(matrix=jnp.where(held, 0.0, rows.matrix)), limit)
    return Assembly(found, jnp.max(jnp.abs(rows.residual), initial=0.0), decided.rank, decided.gap)


class _Held(NamedTuple):
    mask: tuple[bool, ...]


@partial(jax.jit, static_argnums=(2, 3))
def _assemble(model: Model, guess: jax.Array, held: _Held, iterations: int) -> jax.Array:
    return _closed(held, iterations, model, guess)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _closed(held: _Held, iterations: int, model: Model, guess: jax.Array) -> jax.Array:
    fixed = np.array(held.mask, dtype=bool)
    tiny = float(jnp.finfo(guess.dtype).eps)

    def improved(state: tuple, _) -> tuple[tuple, None]:
        q, damping = state
        rows = rows_at(model, q)
        k = jnp.where(fixed, 0.0, rows.matrix)
        normal = k @ k.T
        scale = jnp.max(jnp.diagonal(normal), initial=tiny)
        shift = (damping + 10.0 * len(normal) * tiny) * scale
        step = -k.T @ solve(normal + shift * jnp.eye(len(normal), dtype=k.dtype), rows.residual)
        trial = integrate_rows(model, q, step)
        better = jnp.sum(rows_at(model, trial).residual ** 2) < jnp.sum(rows.residual**2)
        damping = jnp.where(better, jnp.where(damping < 1e-3, 0.0, 0.1 * damping), jnp.maximum(10.0 * damping, 1e-3))
        return (jnp.where(better, trial, q), damping), None

    start = guess, jnp.asarray(1e-2, guess.dtype)
    return lax.scan(improved, start, length=iterations)[0][0]


@_closed.defjvp
def _closed_rate(held: _Held, iterations: int, primals, tangents):
    (model, guess), (dmodel, dguess) = primals, tangents
    fixed = np.array(held.mask, dtype=bool)
    q = _closed(held, iterations, model, guess)
    rows = rows_at(model, q)
    k = rows.matrix
    wanted = tangent_rows(model, guess, dguess)
    moved = jax.jvp(lambda m: rows_at(m, q).residual, (model,), (dmodel,))[1]
    free = jnp.where(fixed, 0.0, k)
    known = independent(separable(model), rows._replace(matrix=free)).inverse
    change = wanted - correction(free, known, k @ wanted + moved)
    return q, rate_rows(model, q, change)
