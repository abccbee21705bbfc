"""Which freedoms contacts and stops move, where those are few: what two things do to each other moves both, what one
does to the world, or to its own limits, leaves the other alone.

With `S_g` the rows of a unit matrix for a run of freedoms, all that contacts and stops of a group move,

    H + J^T K J = H + sum_g S_g^T (J_g^T K_g J_g) S_g

and what a group adds is added to its own part of the matrix. Stops that move a single freedom add to the diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.contact.branching import Rows, moved_by, with_diagonal, with_rows
from dynax.contact.coulomb import forces
from dynax.contact.ends import single_freedoms
from dynax.contact.scene import Scene
from dynax.contact.stop_rows import StopRows, stops_of
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.model import Model
from dynax.sweep import take_rows

WORTH = 0.1
"""Of the products for the whole matrix, what groups have to save, and each that is not put together with another: it is
one loop more."""


@dataclass(frozen=True)
class Group:
    """Contacts and stops that move freedoms from `first` to before `end` alone."""

    first: int
    end: int
    contacts: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def run(self) -> slice:
        return slice(self.first, self.end)

    @property
    def work(self) -> int:
        return (3 * len(self.contacts) + len(self.stops)) * (self.end - self.first) ** 2

    def __or__(self, other: Group) -> Group:
        first, end = min(self.first, other.first), max(self.end, other.end)
        return Group(first, end, self.contacts + other.contacts, self.stops + other.stops)


class Parted(NamedTuple):
    """Of a problem the matrices, with trailing batch axes."""

    inertia: jax.Array
    """`H`, shape `(nv, nv)`."""
    groups: tuple[tuple[jax.Array, jax.Array], ...]
    """Of each the `J` of its contacts, shape `(c, 3, m)`, and of its stops, `(l, m)`."""


@dataclass(frozen=True)
class Groups:
    """All contacts and stops of a scene's steps."""

    contacts: int
    groups: tuple[Group, ...]
    freedoms: tuple[int, ...]
    """Of the stops that have one of their own."""

    def parted(self, inertia: jax.Array, jacobian: jax.Array, stops: StopRows) -> Parted:
        """`H` and `J` of an `Impact` by groups, with trailing batch axes."""
        groups = tuple(
            (
                take_rows(jacobian, np.array(own.contacts, int))[:, :, own.run],
                take_rows(stops.rows, np.array(own.stops, int))[:, own.run],
            )
            for own in self.groups
        )
        return Parted(inertia, groups)

    def solve(self, parted: Parted, stiffness: jax.Array, b: jax.Array) -> jax.Array:
        """`(H + J^T K J)^-1 b`, with `K` of contacts and stops, shape `(k, 3, 3, *batch)`."""
        return gauss_jordan(self.matrix(parted, stiffness), b[:, None])[:, 0]

    def matrix(self, parted: Parted, stiffness: jax.Array) -> jax.Array:
        """`H + J^T K J`."""
        total, single = parted.inertia, self.contacts + len(self.freedoms)
        for own, (jacobian, stops) in zip(self.groups, parted.groups, strict=True):
            k = take_rows(stiffness, np.array([*own.contacts, *(single + stop for stop in own.stops)], int))
            block = stiffened(total[own.run, own.run], jacobian, stops, k)
            total = lax.dynamic_update_slice(total, block, (own.first, own.first, *[0] * (total.ndim - 2)))
        return pressed(total, self.freedoms, stiffness[self.contacts : single, 2, 2])


Parts = Rows | Groups
"""How the matrix of a step falls into parts."""


def stiffened(inertia: jax.Array, jacobian: jax.Array, stops: jax.Array, stiffness: jax.Array) -> jax.Array:
    """`H + J^T K J` of contacts `(c, 3, n, *batch)` and stops `(l, n, *batch)`, with `K` of both, `(c + l, 3, 3,
    *batch)`."""
    count = len(jacobian)
    pushed = forces(stiffness[:count], jacobian), stiffness[count:, 2, 2, None] * stops
    left, right = (
        jnp.concatenate([own.reshape(-1, *own.shape[2:]), of_stops])[:, None]
        for own, of_stops in ((jacobian, stops), pushed)
    )
    return with_rows(inertia[None], left, right)[0]


def pressed(total: jax.Array, freedoms: tuple[int, ...], stiffness: jax.Array) -> jax.Array:
    """`(n, n, *batch)` with what stops add, each to its one freedom, of stiffness `(s, *batch)`."""
    if not freedoms:
        return total
    return with_diagonal(total[None], take_rows(stiffness, stops_of(freedoms, np.arange(len(total))))[None])[0]


def groups_of(scene: Scene) -> Groups | None:
    """The groups of a scene's steps, if all candidates take part; none where they are not worth it."""
    if not isinstance(scene.model, Model):
        return None
    touched, stops = moved_by(scene)
    n, freedoms = touched.shape[1], single_freedoms(scene.model, scene.limited)
    stops = stops[len(freedoms) :]
    runs: dict[tuple[int, int], Group] = {}
    each = [Group(*_run(row), (k,), ()) for k, row in enumerate(touched) if row.any()]
    each += [Group(*_run(row), (), (k,)) for k, row in enumerate(stops)]
    for own in each:
        key = own.first, own.end
        runs[key] = runs[key] | own if key in runs else own
    groups, whole = list(runs.values()), (3 * len(touched) + len(stops)) * n * n
    while len(groups) > 1:
        a, b = min(combinations(groups, 2), key=lambda pair: (pair[0] | pair[1]).work - pair[0].work - pair[1].work)
        if (a | b).work - a.work - b.work > WORTH * whole:
            break
        groups = [own for own in groups if own not in (a, b)] + [a | b]
    if sum(own.work for own in groups) > (1.0 - WORTH) * whole:
        return None
    # Those of few freedoms come first, where their part of the matrix is still `H`, which is given.
    return Groups(len(touched), tuple(sorted(groups, key=lambda own: own.end - own.first)), freedoms)


def _run(row: np.ndarray) -> tuple[int, int]:
    """From the first to the last freedom that is moved."""
    moved = np.flatnonzero(row)
    return int(moved[0]), int(moved[-1]) + 1
