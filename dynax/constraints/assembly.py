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
from dynax.constraints.rows import Rows, plan
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import integrate_rows, rate_rows, tangent_rows
from dynax.model.flexible import skeleton_of
from dynax.model.kinds import for_models
from dynax.sweep.scan import settled

ITERATIONS = 60
"""The most steps, unless others are asked for."""


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
    model: Model,
    q: ArrayLike,
    *,
    hold: Sequence[str] = (),
    iterations: int = ITERATIONS,
    tolerance: ArrayLike | None = None,
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
    limit = None if tolerance is None else jnp.asarray(tolerance, guess.dtype)
    return assembled(model, guess, tuple(held.tolist()), iterations, limit)[0]


@partial(jax.jit, static_argnums=(2,))
def assembled(
    model: Model, guess: jax.Array, held: tuple[bool, ...], iterations: int | jax.Array, limit: jax.Array | None
) -> tuple[Assembly, Rows]:
    """With the rows there: one program for all who close a model's loops, or look whether they are closed, which takes
    no iterations."""
    q, residual, matrix, weights = _closed(held, model, guess, iterations)
    rows = Rows(residual, matrix, None, None, weights=weights)
    decided = independent(separable(model), rows._replace(matrix=jnp.where(np.array(held), 0.0, matrix)), limit)
    return Assembly(q, jnp.max(jnp.abs(residual), initial=0.0), decided.rank, decided.gap), rows


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _closed(
    held: tuple[bool, ...], model: Model, guess: jax.Array, iterations: int | jax.Array
) -> tuple[jax.Array, ...]:
    """The configuration; the residual, the matrix and the weights of its rows, of which the last two are numbers that
    decide and have no derivative."""
    fixed, dtype = np.array(held, dtype=bool), guess.dtype
    tiny, nc = float(jnp.finfo(dtype).eps), int(plan(skeleton_of(model).structure).start[-1])

    def improved(_, state: tuple) -> tuple:
        best, trial, damping = state
        found = rows_at(model, trial)
        assert found.weights is not None
        better = jnp.sum(found.residual**2) < jnp.sum(best[1] ** 2)
        here = trial, found.residual, found.matrix, found.weights
        q, residual, matrix, _ = best = tuple(jnp.where(better, x, y) for x, y in zip(here, best, strict=True))
        damping = jnp.where(better, jnp.where(damping < 1e-3, 0.0, 0.1 * damping), jnp.maximum(10.0 * damping, 1e-3))
        k = jnp.where(fixed, 0.0, matrix)
        normal = k @ k.T
        scale = jnp.max(jnp.diagonal(normal), initial=tiny)
        shift = (damping + 10.0 * nc * tiny) * scale
        step = -k.T @ solve(normal + shift * jnp.eye(nc, dtype=dtype), residual)
        return best, integrate_rows(model, q, step), damping

    # Nothing is worse than not to have looked. One look a step, so that the conditions are compiled once.
    unseen = guess, jnp.full(nc, jnp.inf, dtype), jnp.zeros((nc, model.nv), dtype), jnp.ones(nc, dtype)
    start = settled(lambda state: improved(0, state), (unseen, guess, jnp.asarray(0.1, dtype)))
    return lax.fori_loop(0, iterations + 1, improved, start)[0]


@_closed.defjvp
def _closed_rate(held: tuple[bool, ...], primals, tangents):
    (model, guess, _), (dmodel, dguess, _) = primals, tangents
    found = q, *_, weights = _closed(held, *primals)
    wanted = tangent_rows(model, guess, dguess)
    rows, drows = jax.jvp(lambda m: rows_at(m, q), (model,), (dmodel,))
    free = jnp.where(np.array(held, dtype=bool), 0.0, rows.matrix)
    known = independent(separable(model), rows._replace(matrix=free)).inverse
    change = wanted - correction(free, known, rows.matrix @ wanted + drows.residual)
    error = drows.residual + rows.matrix @ change
    return found, (rate_rows(model, q, change), error, jnp.zeros_like(rows.matrix), jnp.zeros_like(weights))
