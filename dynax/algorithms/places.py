"""What depends on where bodies are, with its Jacobian as derivative.

A derivative by `q` is the Jacobian's product with the velocity `dv` that moves `q` at the rate `dq`; the Jacobian is
found in the walk that finds the value, once for all directions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from dynax.compile.batching import linear, trailing
from dynax.compile.zeros import along_moving, is_zero
from dynax.model import Model
from dynax.model.configuration import tangent_rows
from dynax.sweep.sums import summed
from dynax.tree.layout import layout

Columns = tuple[jax.Array, ...]
"""`(m, k, *batch)`: of the free roots' freedoms, and of those of the slots. In the order of `v` they are put outside of
the kernel, in which each element would choose between the two."""


def with_jacobian(
    at: Callable[[Any, jax.Array], Any],
    by_recursion: Callable[[Any, jax.Array], Any],
    columns: Callable[[Any, jax.Array], tuple[Any, Columns]],
    moved: Callable[[Any, jax.Array], Any],
    pulled: Callable[[Any, Any], jax.Array],
    model_of: Callable[[Any], Model] = lambda tree: tree,
) -> Callable[[Any, jax.Array], Any]:
    """`at(tree, q)`, batch last.

    - `columns(tree, q)`: its value, and the columns of its Jacobian.
    - `moved(value, motion)`: its change, of what the columns times `dv` sum up to, `(m, *batch)`; `pulled(value, bar)`
      is the transpose.
    - `by_recursion(tree, q)`: the same value, differentiated through the walk: by what else moves than `q`, and where
      a joint rolls.
    """
    found = trailing(columns)

    def change(held: tuple[Any, jax.Array], dv: jax.Array) -> Any:
        value, along = held
        return moved(value, summed(along * dv[:, None], axis=0))

    def forces(held: tuple[Any, jax.Array], bar: Any) -> jax.Array:
        value, along = held
        return reduce(jnp.add, (along[:, k] * force for k, force in enumerate(pulled(value, bar))))

    there, _ = linear(change, forces, change, lambda held, dv: held[0])

    def rule(primals: tuple[Any, jax.Array], tangents: tuple) -> tuple[Any, Any]:
        (tree, q), (dtree, dq) = primals, tangents
        model = model_of(tree)
        if is_zero(dq) or not all(joint.holonomic for joint in model.joints):
            return along_moving(by_recursion, primals, tangents)
        value, parts = found(tree, q)
        along = layout(model.topology, "automatic").order.vector(*(jnp.swapaxes(x, 0, 1) for x in parts))
        moves = there((value, along), tangent_rows(model, q, dq))
        if not all(map(is_zero, jax.tree.leaves(dtree, is_leaf=is_zero))):
            _, by_leaves = along_moving(lambda tree: by_recursion(tree, q), (tree,), (dtree,))
            moves = jax.tree.map(jnp.add, moves, by_leaves)
        return value, moves

    return trailing(at, rule)
