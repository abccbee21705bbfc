"""Plain `vmap` on the fast layout: batch axes last.

Algorithms are written for trailing batch axes, which keep the innermost loops contiguous; `jax.vmap` puts the new axis
first, which halves the speed. `batch_last` gives a function a batching rule of its own that moves the axis to the
end and back, inside a differentiation rule that is the plain derivative, so every composition of `vmap`, `grad`, `jvp`,
`jacfwd`, `jacrev` and `hessian` keeps working.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero


def batch_last(core: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """`core(model, *arrays)`, which accepts trailing batch axes on arrays and leaves, as a function for plain `vmap`.

    Arrays may be `None`. The result is one array, batch axis last.
    """

    @custom_vmap
    def mapped(model: Any, *arrays: Any) -> jax.Array:
        return core(model, *arrays)

    @mapped.def_vmap
    def _rule(size: int, batched: Any, model: Any, *arrays: Any) -> tuple[jax.Array, bool]:
        model = jax.tree.map(lambda leaf, moved: jnp.moveaxis(leaf, 0, -1) if moved else leaf, model, batched[0])
        last = [
            None if array is None else _to_last(array, moved, size)
            for array, moved in zip(arrays, batched[1:], strict=True)
        ]
        return jnp.moveaxis(core(model, *last), -1, 0), True

    # Differentiation comes first and sees the plain code: a batching rule cannot be linearised.
    @jax.custom_jvp
    def function(model: Any, *arrays: Any) -> jax.Array:
        return mapped(model, *arrays)

    def tangent(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        leaves, structure = jax.tree.flatten(primals)
        rates = jax.tree.leaves(tangents, is_leaf=lambda t: isinstance(t, SymbolicZero))
        moving = [k for k, rate in enumerate(rates) if not isinstance(rate, SymbolicZero)]

        def of_moving(*values: jax.Array) -> jax.Array:
            current = list(leaves)
            for k, value in zip(moving, values, strict=True):
                current[k] = value
            return core(*jax.tree.unflatten(structure, current))

        return jax.jvp(of_moving, tuple(leaves[k] for k in moving), tuple(rates[k] for k in moving))

    function.defjvp(tangent, symbolic_zeros=True)
    return jax.jit(wraps(core)(lambda *args: function(*args)))


def _to_last(array: jax.Array, moved: bool, size: int) -> jax.Array:
    if moved:
        return jnp.moveaxis(array, 0, -1)
    return jnp.broadcast_to(array[..., None], (*array.shape, size))
