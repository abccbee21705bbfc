"""Operations of both routes to the accelerations of ten bodies that bend, for one state more of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flexible.systems import chain
from operations import count

import dynax as dx
from dynax.embedding.flexible import moving, needed, state
from dynax.embedding.flexible_composite import composed
from dynax.embedding.flexible_nodes import forward


def mass_and_bias(model: Any, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All that the composite route makes before its dense solution, for trailing batch axes."""
    at = state(model, q, v)
    m = moving(model, at, None, None)
    return composed(model, at, m.setup, m.kin, m.inertias), needed(model, at, m, None)


def counted(modes: int, level: Any = None) -> tuple[float, float, float]:
    """Operations of both routes for one state more, of ten bodies, and those that are the same for all states; of the
    dense solution `n^3 / 3 + 2 n^2`."""
    model = chain(10, modes, level)

    def operations(function: Callable, size: int) -> int:
        q, zero = jnp.tile(dx.neutral(model)[:, None], size), jnp.zeros((model.nv, size))
        return count(partial(function, model), q, zero)

    def forced(model: Any, q: jax.Array, v: jax.Array) -> jax.Array:
        return forward(model, q, v, jnp.zeros_like(v), None)

    one, two = (operations(forced, size) for size in (1, 2))
    other = operations(mass_and_bias, 2) - operations(mass_and_bias, 1)
    return two - one, other + model.nv**3 / 3 + 2 * model.nv**2, 2 * one - two
