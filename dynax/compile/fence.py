"""A line that XLA's fusion does not cross.

XLA on a CPU fuses long scalar formulas into their consumers again and again: a reverse-mode derivative of two stages
takes much longer to compile than of each alone (here 12 s instead of 5 s), and a number that stands in one row of a
concatenation is computed in a loop over all of it, not in vectors. `lax.optimization_barrier` does not help, it is gone
before fusion; a look-up is one for what several others use. In one kernel there is one that always holds: what is in a
call that must not be inlined is not fused with anything outside. Here it is a call of the identity, a copy.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from dynax.sweep.rows import copied, take_rows

T = TypeVar("T")


def apart(a: jax.Array) -> jax.Array:
    """One array, computed before anything that uses it."""
    return line.bind(a, called=False) if a.ndim and a.size else a


def computed(tree: T) -> T:
    """The same arrays, and what a derivative hands back for them: on a CPU each in a kernel of its own, also outside of
    others. What is looked up in several places is then found once."""
    return jax.tree.map(lambda a: line.bind(a, called=True) if a.ndim and a.size else a, tree)


def fenced(tree: T, batch: tuple[int, ...]) -> T:
    """The same arrays, computed before anything that uses them; batch axes trail."""
    leaves, structure = jax.tree.flatten(tree)
    heads = [x.shape[: x.ndim - len(batch)] for x in leaves]
    sizes = [math.prod(head) for head in heads]
    rows = jnp.concatenate(
        [
            jnp.broadcast_to(x, (*head, *batch)).reshape(size, *batch)
            for x, head, size in zip(leaves, heads, sizes, strict=True)
        ]
    )
    parts = jnp.split(copied(rows), np.cumsum(sizes)[:-1])
    return structure.unflatten(part.reshape(*head, *batch) for part, head in zip(parts, heads, strict=True))


def _looked_up(a: jax.Array) -> jax.Array:
    if len(a) > 1:
        return copied(a)
    # To look up one row is a slice, which is computed again wherever it is used.
    rows = a.reshape(-1, *a.shape[-1:]) if a.ndim > 1 else a
    return (copied(rows) if len(rows) > 1 else take_rows(rows, np.zeros(2, int))[:1]).reshape(a.shape)


def _lowered(a: jax.Array, *, called: bool) -> jax.Array:
    if 0 in a.shape:  # of no samples
        return a
    if not called:
        return _looked_up(a)
    from jax.experimental.scheduling_groups import xla_metadata_call

    call: Any = xla_metadata_call(lambda a: a, xla_cpu_small_call="true", inlineable="false")
    return call(a)


line = Primitive("dynax_apart")
line.def_impl(lambda a, called: a)
line.def_abstract_eval(lambda a, called: a.update(weak_type=False))
ad.deflinear2(line, lambda bar, a, called: [bar if type(bar) is ad.Zero else line.bind(bar, called=called)])
batching.primitive_batchers[line] = lambda arrays, axes, called: (line.bind(*arrays, called=called), axes[0])
mlir.register_lowering(line, mlir.lower_fun(_lowered, multiple_results=False), platform="cpu")
mlir.register_lowering(line, mlir.lower_fun(lambda a, called: _lowered(a, called=False), multiple_results=False))
