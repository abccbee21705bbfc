"""Derivatives by states that are moved along their tangents, and by controls.

    slope = pull(x) df/dx      pull(x)' = rates(x) = d integrate(x, dx) / d dx at zero
    H = sym(D slope [rates(x)])

The curves of `integrate` are those along which `rates` stays the same tangent, exponentials of a group, so that twice
the rate along one of them is the second derivative of `f(integrate(x, dx))` at zero: `integrate` itself, which is
most of the work for a quaternion, is not differentiated. A plant whose own `integrate` is another one is differentiated
through it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dynax.linear.matrices import product, symmetric


def rates(plant: Any, x: jax.Array) -> jax.Array:
    """How a state moves along its tangents, shape `(nx, ndx)`: all that first derivatives need of `integrate`, once for
    whatever is differentiated."""
    own = getattr(plant, "rates", None)
    return jax.jacfwd(partial(plant.integrate, x))(jnp.zeros(plant.ndx, x.dtype)) if own is None else own(x)


def directions(plant: Any, x: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of state and controls along each tangent and each control, rows of `(ndx + nu, nx)` and `(ndx + nu, nu)`."""
    along = rates(plant, x).T
    still, eye = jnp.zeros((plant.ndx, len(u)), x.dtype), jnp.eye(len(u), dtype=x.dtype)
    return jnp.pad(along, ((0, len(u)), (0, 0))), jnp.concatenate([still, eye])


def jacobian(plant: Any, function: Callable, x: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The numbers `function(x, u)`, shape `(k,)`, and their slopes by tangents and controls, shape `(k, ndx + nu)`."""
    along = lambda *way: jax.jvp(function, (x, u), way)  # noqa: E731
    return jax.vmap(along, out_axes=(None, 1))(*directions(plant, x, u))


def slope(plant: Any, function: Callable, x: jax.Array, u: jax.Array) -> tuple[jax.Array, Any]:
    """Of the number that `function(x, u)` gives first, by tangents and controls, shape `(ndx + nu,)`; and what it gives
    second."""
    pull = getattr(plant, "pulled", None)
    if pull is None:
        return jax.grad(_moved(plant, function, x, u), has_aux=True)(_still(plant, u))
    (by_x, by_u), rest = jax.grad(function, (0, 1), has_aux=True)(x, u)
    return jnp.concatenate([pull(x, by_x), by_u]), rest


def curvature(plant: Any, function: Callable, x: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The number `function(x, u)`, its `slope` and that of its slope, shape `(ndx + nu, ndx + nu)`."""
    (value, _), (slope, _), H = _curvature(plant, lambda x, u: (function(x, u), jnp.zeros(0, x.dtype)), x, u)
    return value, slope, H


def paired_curvature(
    plant: Any, function: Callable, x: jax.Array, u: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`jacobian`, and the curvature of `weights . function(x, u)`, whose rates along tangents need the Jacobian's."""

    def paired(x: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = function(x, u)
        return jnp.sum(weights * found), found

    (_, found), (_, J), H = _curvature(plant, paired, x, u)
    return found, J, H


def _curvature(plant: Any, function: Callable, x: jax.Array, u: jax.Array) -> tuple[tuple, tuple, jax.Array]:
    """What `function(x, u)` gives, a number and others `(k,)`; their slope and Jacobian; the curvature of the first."""
    n, pull = plant.ndx, getattr(plant, "pulled", None)
    if pull is None:
        z, ways, moved = _still(plant, u), jnp.eye(n + len(u), dtype=x.dtype), _moved(plant, function, x, u)
    else:
        z, ways = jnp.concatenate([x, u]), jnp.concatenate(directions(plant, x, u), axis=1)
        moved = lambda z: function(z[: plant.nx], z[plant.nx :])  # noqa: E731
    along = lambda way: jax.jvp(jax.value_and_grad(moved, has_aux=True), (z,), (way,))  # noqa: E731
    (values, by_z), ((_, J), H) = jax.vmap(along, out_axes=(None, ((0, 1), -1)))(ways)
    if pull is None:
        return values, (by_z, J), H
    # XLA would lay all of it out as the product wants its factor, directions apart, and take twice the time.
    H = product(ways, jax.lax.optimization_barrier(H))
    by_x, by_u = by_z[: plant.nx], by_z[plant.nx :]
    turning = lambda way: jax.jvp(lambda x: pull(x, by_x), (x,), (way,))[1]  # noqa: E731
    H = H.at[:n, :n].add(jax.vmap(turning, in_axes=1, out_axes=1)(rates(plant, x)))
    return values, (jnp.concatenate([pull(x, by_x), by_u]), J), symmetric(H)


def _moved(plant: Any, function: Callable, x: jax.Array, u: jax.Array) -> Callable:
    return lambda z: function(plant.integrate(x, z[: plant.ndx]), u + z[plant.ndx :])


def _still(plant: Any, u: jax.Array) -> jax.Array:
    return jnp.zeros(plant.ndx + len(u), u.dtype)
