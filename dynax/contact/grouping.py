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

from dynax.contact.branching import Rows, moved_by, with_rows
from dynax.contact.coulomb import forces
from dynax.contact.scene import Scene
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
    squares: jax.Array
    """Of what stops of single freedoms have in their rows, in the places of `Groups.single`, shape `(r, nv)`."""


@dataclass(frozen=True)
class Groups:
    """All contacts and stops of a scene's steps."""

    contacts: int
    groups: tuple[Group, ...]
    single: tuple[tuple[int, ...], ...]
    """Of each freedom the stops that move nothing else, shape `(r, nv)`: as many as any has, -1 for none."""

    def parted(self, inertia: jax.Array, jacobian: jax.Array, stops: jax.Array) -> Parted:
        """`H` and `J` of an `Impact` by groups, with trailing batch axes."""
        n = len(inertia)
        groups = tuple(
            (
                take_rows(jacobian, np.array(own.contacts, int))[:, :, own.run],
                take_rows(stops, np.array(own.stops, int))[:, own.run],
            )
            for own in self.groups
        )
        single = self._single(n)
        own = take_rows(stops.reshape(-1, *stops.shape[2:]), np.where(single >= 0, n * single + np.arange(n), -1))
        return Parted(inertia, groups, own * own)

    def solve(self, parted: Parted, stiffness: jax.Array, b: jax.Array) -> jax.Array:
        """`(H + J^T K J)^-1 b`, with `K` of contacts and stops, shape `(k, 3, 3, *batch)`."""
        return gauss_jordan(self.matrix(parted, stiffness), b[:, None])[:, 0]

    def matrix(self, parted: Parted, stiffness: jax.Array) -> jax.Array:
        """`H + J^T K J`."""
        total, n = parted.inertia, len(parted.inertia)
        for own, (jacobian, stops) in zip(self.groups, parted.groups, strict=True):
            k = take_rows(stiffness, np.array([*own.contacts, *(self.contacts + stop for stop in own.stops)], int))
            block = stiffened(total[own.run, own.run], jacobian, stops, k)
            total = lax.dynamic_update_slice(total, block, (own.first, own.first, *[0] * (total.ndim - 2)))
        pressing = take_rows(stiffness[self.contacts :, 2, 2], self._single(n))
        for k, square in zip(pressing, parted.squares, strict=True):
            diagonal = np.eye(n, dtype=bool).reshape(n, n, *[1] * (total.ndim - 2))
            total = total + jnp.where(diagonal, (k * square)[None], 0.0)
        return total

    def _single(self, n: int) -> np.ndarray:
        return np.array(self.single, int).reshape(-1, n)


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


def groups_of(scene: Scene) -> Groups | None:
    """The groups of a scene's steps, if all candidates take part; none where they are not worth it."""
    if not isinstance(scene.model, Model):
        return None
    touched, stops = moved_by(scene)
    n = touched.shape[1]
    alone = stops.sum(axis=1) == 1
    single = [np.flatnonzero(alone & column) for column in stops.T]
    runs: dict[tuple[int, int], Group] = {}
    each = [Group(*_run(row), (k,), ()) for k, row in enumerate(touched) if row.any()]
    each += [Group(*_run(row), (), (k,)) for k, row in enumerate(stops) if not alone[k]]
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
    most = range(max(map(len, single), default=0))
    places = tuple(tuple(int(own[r]) if r < len(own) else -1 for own in single) for r in most)
    # Those of few freedoms come first, where their part of the matrix is still `H`, which is given.
    return Groups(len(touched), tuple(sorted(groups, key=lambda own: own.end - own.first)), places)


def _run(row: np.ndarray) -> tuple[int, int]:
    """From the first to the last freedom that is moved."""
    moved = np.flatnonzero(row)
    return int(moved[0]), int(moved[-1]) + 1
