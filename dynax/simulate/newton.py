"""Newton's method for the equations of implicit steppers, with the derivative of the root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dynax.embedding.model import EmbeddedModel, embedding_matrix
from dynax.linear.solve import solve as solve_linear
from dynax.model import Model
from dynax.simulate.friction import tree
from dynax.sweep.scan import settled

Equation = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def root(
    equation: Equation, slope: Callable[[jax.Array], jax.Array], guess: jax.Array, iterations: int
) -> tuple[jax.Array, jax.Array]:
    """The `x` near `guess`, shape `(n,)`, with no residual in `residual, result = equation(x)`, and the result there.

    Simplified Newton steps: `slope(x)`, shape `(n, n)`, is about the derivative of the residual; the nearer, the fewer
    steps. They end when a correction is lost in the rounding of `x`, or is small and three more did not halve it (they
    may turn about the root, so one that grows is no sign). `x` is not finite if `iterations` do not bring it near: then
    `dt` is too long.

    Derivatives are those of the root, whatever the steps that led there: `dx = -(d residual/dx)^-1 d residual`, the
    implicit function theorem, with the exact derivative. Reverse mode keeps no step in memory. The result is solved for
    along with `x` (`result(x) - y = 0`), so that `equation` is compiled once.
    """

    def solve(f, start):
        def correction(_, x):
            residual, result = f((x, start[1]))
            return solve_linear(slope(x), residual), result

        return corrected(correction, start[0], iterations)

    return implicit_root(equation, solve, guess)


def corrected(
    correction: Callable[[jax.Array, jax.Array], tuple[jax.Array, Any]],
    guess: jax.Array,
    iterations: int,
    least: int = 1,
) -> tuple[jax.Array, Any]:
    """`x - change` until that is lost in rounding, as `root` says, and what was found last, for
    `change, found = correction(k, x)` after `k` steps. `least`: how many steps there are at least."""
    rounding = jnp.finfo(guess.dtype).eps

    def size(x: jax.Array) -> jax.Array:
        return 1.0 + jnp.max(jnp.abs(x), initial=0.0)

    def unfinished(state):
        k, x, _, last, _, stalled = state
        lost = last <= 0.5 * rounding * size(x)
        floor = (stalled >= 3) & (last <= rounding**0.5 * size(x))
        return (k < least) | ((k < iterations) & ~lost & ~floor)

    def correct(state):
        k, x, _, _, best, stalled = state
        change, found = correction(k, x)
        last = jnp.max(jnp.abs(change), initial=0.0)
        better = last < 0.5 * best
        best, stalled = jnp.where(better, last, best), jnp.where(better, 0, stalled + 1)
        return k + 1, x - change, found, last, best, stalled

    far = jnp.asarray(jnp.inf, guess.dtype)
    nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(correction, 0, guess)[1])
    start = settled(correct, (0, guess, nothing, far, far, 0))
    _, x, found, last, _, _ = jax.lax.while_loop(unfinished, correct, start)
    return jnp.where(last <= rounding**0.5 * size(x), x, jnp.nan), found


def implicit_root(equation: Equation, solve: Callable, guess: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What `solve(f, (guess, 0))` gives, `f` being `equation` of such a pair, with the derivatives of the root."""
    nothing = jnp.zeros_like(jax.eval_shape(equation, guess)[1])

    def tangent(linear, y):
        residual, result = jax.jacfwd(lambda x: linear((x, nothing)))(jnp.zeros_like(guess))
        x = solve_linear(residual, y[0])
        return x, result @ x - y[1]

    def system(unknown):
        residual, result = equation(unknown[0])
        return residual, result - unknown[1]

    return jax.lax.custom_root(system, (guess, nothing), solve, tangent)


def resistance(model: Model, mass: jax.Array, damping: jax.Array, half: jax.Array, x: jax.Array | None) -> jax.Array:
    """What momentum it takes to change the velocity of a step's middle, shape `(nv, nv)`, but for Coriolis terms.

        M + dt/2 D + (dt/2)^2 K

    with springs `K` and dampers `D`, in which friction may be counted.

    **Arguments:** `x`: of an embedded model its matrix `X`, as `spread` gives it; dampers and springs stay the tree's.
    """
    passive = damping + half * tree(model).stiffness
    matrix = jnp.diag(passive) if x is None else x.T @ (passive[:, None] * x)
    return mass + half * matrix.astype(mass.dtype)


def rubbed(model: Model, v: jax.Array, x: jax.Array | None) -> jax.Array:
    """Damping and smoothed dry friction, `D + f tanh(v/v_f) / v`, for `resistance`: the slope of a chord, with which
    Newton steps do not overshoot where the tangent is flat."""
    own = tree(model)
    scaled = (v if x is None else x @ v) / own.friction_velocity
    moving = jnp.abs(scaled) > 1e-3
    chord = jnp.where(moving, jnp.tanh(scaled) / jnp.where(moving, scaled, 1.0), 1.0) / own.friction_velocity
    return own.damping + own.friction_loss * chord


def spread(model: Model, q: jax.Array) -> jax.Array | None:
    """`X` of an embedded model, which makes the tree's velocities of its own; `None` for a tree."""
    return embedding_matrix(model, q) if isinstance(model, EmbeddedModel) else None
