"""Where the paths from the base to some nodes of a tree meet, and what passes along them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dynax.operators.recursions import Parents, mul, transpose


def ancestors(parents: Parents, nodes: tuple[int, ...]) -> tuple[int, ...]:
    """The nodes and all that carry them, in order."""
    found: set[int] = set()
    for node in nodes:
        while node >= 0 and node not in found:
            found.add(node)
            node = parents[node]
    return tuple(sorted(found))


def closest_common(parents: Parents, nodes: tuple[int, ...]) -> np.ndarray:
    """For each pair of nodes the closest node that carries both, -1 if there is none, shape `(m, m)`."""
    paths = []
    for node in nodes:
        path = []
        while node >= 0:
            path.append(node)
            node = parents[node]
        paths.append(path)
    return np.array([[max(set(a) & set(b), default=-1) for b in paths] for a in paths], int).reshape(
        len(nodes), len(nodes)
    )


def pair_blocks(diagonal: jax.Array, paths: jax.Array, meeting: np.ndarray) -> jax.Array:
    """`psi*(c, i) Y(c) psi(c, j)` for all pairs, `c` where the paths meet; shape `(m, m, w, w)`.

    `paths[a, k]` is `psi(a, k)`, shape `(carriers, m, w, w)`, and `diagonal` is `Y`.
    """
    count = len(meeting)
    at = np.maximum(meeting, 0)
    each = np.arange(count)
    left, right = paths[at, each[:, None]], paths[at, each[None, :]]
    found = mul(mul(transpose(left), diagonal[at]), right)
    return jnp.where((meeting >= 0)[..., None, None], found, jnp.zeros((), found.dtype))
