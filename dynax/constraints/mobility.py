"""Mobility: how many velocities a mechanism is free to have at one configuration (Featherstone 2008, section 8.10).

    mobility = n - r = (n - n^c) + (n^c - r)        n - n^c = n_tot - 6 N_L    for loops        (eqs. 8.52, 8.53, 8.55)

The first part is what counting joints says, the second the conditions that repeat others: a mechanism that has such is
overconstrained. Both the rank and the mobility may change with the configuration.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.constraints.independent import independent, separable
from dynax.constraints.residual import rows_at
from dynax.linear.singular_values import singular_values
from dynax.model import Model
from dynax.model.checks import as_state


class Mobility(NamedTuple):
    """Of a mechanism at one configuration; arrays of integers."""

    mobility: jax.Array
    """`nv - rank`."""
    counted: jax.Array
    """What the numbers of freedoms and conditions alone say, `nv - nc` (Gruebler's formula); may be negative."""
    rank: jax.Array
    redundant: jax.Array
    """`nc - rank`: how many conditions repeat others."""
    singular_values: jax.Array
    """Of `constraint_jacobian`, the largest first."""
    gap: jax.Array
    """How clear the rank is, as in `ConstrainedDynamics`."""

    @property
    def overconstrained(self) -> jax.Array:
        """Whether some conditions repeat others; if not, the mechanism is properly constrained."""
        return self.redundant > 0


@partial(jax.jit, static_argnames=("tolerance",))
def _mobility(model: Model, q: jax.Array, *, tolerance: float | None) -> Mobility:
    rows = rows_at(model, q)
    found = independent(separable(model), rows, None if tolerance is None else jnp.asarray(tolerance, q.dtype))
    nc, nv = rows.matrix.shape
    values = singular_values(rows.matrix)
    return Mobility(nv - found.rank, jnp.asarray(nv - nc), found.rank, nc - found.rank, values, found.gap)


def mobility(model: Model, q: ArrayLike, *, tolerance: float | None = None) -> Mobility:
    """How many independent velocities a model with loops, gears and conditions has at `q`.

    **Arguments:**

    - `q`: a configuration that closes, shape `(nq,)`.
    - `tolerance`: what is left of a condition beside the others, as a part of what the joints could do to it, up to
      which it counts as their repetition; default as for `constrained_dynamics`. A configuration nearer to a singular
      one than that counts as singular; one that is near has a singular value that is small, in proportion.
    """
    return _mobility(model, *as_state(model, q=q), tolerance=tolerance)


class SpanningTree(NamedTuple):
    """A tree in a graph of bodies and joints, the ground its root (section 4.1.1)."""

    parents: tuple[int, ...]
    """Of each body, -1 for the ground; they need not come before their children."""
    joints: tuple[int, ...]
    """By which joint each body hangs on its parent."""
    order: tuple[int, ...]
    """The bodies, parents first, nearest to the ground first."""
    loop_joints: tuple[int, ...]
    """The joints left over: each closes an independent loop, `N_L = N_J - N_B` (eq. 4.1)."""
    loops: tuple[tuple[int, ...], ...]
    """For each of them the tree joints that its loop goes through."""


def spanning_tree(num_bodies: int, joints) -> SpanningTree:
    """The spanning tree of least depth of a mechanism's graph: it keeps the branches of the tree short.

    **Arguments:** `joints`: pairs `(predecessor, successor)` of bodies, -1 for the ground, in any direction. Raises
    `ValueError` for a body that no joint connects with the ground.
    """
    edges = [(int(p), int(s)) for p, s in joints]
    parent: dict[int, int] = {-1: -1}
    by: dict[int, int] = {}
    order = [-1]
    for body in order:
        for k, edge in enumerate(edges):
            if body in edge:
                other = edge[0] if edge[1] == body else edge[1]
                if other not in parent:
                    parent[other], by[other] = body, k
                    order.append(other)
    lost = [body for body in range(num_bodies) if body not in parent]
    if lost:
        raise ValueError(f"bodies {lost} are not connected with the ground: give each a joint, if only a free one")

    def path(body: int) -> set[int]:
        found = set()
        while body != -1:
            found.add(by[body])
            body = parent[body]
        return found

    chords = tuple(k for k in range(len(edges)) if k not in set(by.values()))
    loops = tuple(tuple(sorted(path(edges[k][0]) ^ path(edges[k][1]))) for k in chords)
    bodies = range(num_bodies)
    return SpanningTree(tuple(parent[b] for b in bodies), tuple(by[b] for b in bodies), tuple(order[1:]), chords, loops)


def count_spanning_trees(num_bodies: int, joints) -> int:
    """How many spanning trees a graph has: any cofactor of its Laplacian (Kirchhoff)."""
    laplacian = np.zeros((num_bodies + 1, num_bodies + 1))  # the last is the ground's
    for predecessor, successor in joints:
        column = np.zeros(num_bodies + 1)
        column[predecessor] += 1.0
        column[successor] -= 1.0
        laplacian += np.outer(column, column)
    return round(float(np.linalg.det(laplacian[:num_bodies, :num_bodies])))
