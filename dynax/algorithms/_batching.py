"""Plain `vmap` on the fast layout: batch axes last.

Algorithms are written for trailing batch axes, which keep the innermost loops contiguous; `jax.vmap` puts the new axis
first, which halves the speed. `batch_last` gives a function a batching rule of its own that moves the axis to the
end and back, inside a differentiation rule that is the plain derivative, so every composition of `vmap`, `grad`, `jvp`,
`jacfwd`, `jacrev` and `hessian` keeps working.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

Result = TypeVar("Result")


def trailing(core: Callable[..., Result]) -> Callable[..., Result]:
    """`core(tree, *arrays)`, which accepts trailing batch axes on arrays and leaves, under `vmap`; not differentiable.

    Arrays may be `None`. Results are arrays, or trees of them, with the batch axes last.
    """

    @custom_vmap
    def mapped(tree: Any, *arrays: Any) -> Any:
        return core(tree, *arrays)

    @mapped.def_vmap
    def _rule(size: int, batched: Any, tree: Any, *arrays: Any) -> tuple[Any, Any]:
        # Every leaf gets the axis, of length one where it is the same for all, so that a second `vmap` finds its place.
        tree = jax.tree.map(
            lambda leaf, moved: jnp.moveaxis(leaf, 0, -1) if moved else leaf[..., None], tree, batched[0]
        )
        last = [
            jax.tree.map(lambda leaf, moved: _to_last(leaf, moved, size), array, moved)
            for array, moved in zip(arrays, batched[1:], strict=True)
        ]
        result = jax.tree.map(lambda y: jnp.moveaxis(y, -1, 0), mapped(tree, *last))
        return result, jax.tree.map(lambda _: True, result)

    return mapped


def batch_last(core: Callable[..., Result]) -> Callable[..., Result]:
    """`core(model, *arrays)`, as `trailing` takes it, under `vmap` and with the plain derivative."""
    mapped = trailing(core)

    # Differentiation comes first and sees the plain code: a batching rule cannot be linearised.
    @jax.custom_jvp
    def function(model: Any, *arrays: Any) -> Any:
        return mapped(model, *arrays)

    def tangent(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        return along_moving(core, primals, tangents)

    function.defjvp(tangent, symbolic_zeros=True)
    return jax.jit(wraps(core)(lambda *args: function(*args)))


def along_moving(core: Callable, primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """`jax.jvp` with respect to the leaves whose tangents are not symbolic zeros."""
    leaves, structure = jax.tree.flatten(primals)
    rates = jax.tree.leaves(tangents, is_leaf=lambda t: isinstance(t, SymbolicZero))
    moving = [k for k, rate in enumerate(rates) if not isinstance(rate, SymbolicZero)]

    def of_moving(*values: jax.Array) -> Any:
        current = list(leaves)
        for k, value in zip(moving, values, strict=True):
            current[k] = value
        return core(*jax.tree.unflatten(structure, current))

    return jax.jvp(of_moving, tuple(leaves[k] for k in moving), tuple(rates[k] for k in moving))


def _to_last(array: jax.Array, moved: bool, size: int) -> jax.Array:
    if moved:
        return jnp.moveaxis(array, 0, -1)
    return jnp.broadcast_to(array[..., None], (*array.shape, size))
