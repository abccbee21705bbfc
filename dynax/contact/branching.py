"""Which freedoms contacts couple: of what touches the world alone those that carry one another, as the mass matrix
does, so that the systems of a step fall into branches (`linear.branches`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.batching import trailing
from dynax.contact.ends import Cone, single_freedoms
from dynax.contact.motion import carried
from dynax.contact.scene import Scene
from dynax.contact.stop_rows import StopRows, stops_of
from dynax.linear.branches import Branches, branches_of
from dynax.model import Model
from dynax.sweep import take_rows

AT_ONCE = 6
"""Rows that matrices are added to with each pass over them."""


@dataclass(frozen=True)
class Rows:
    """Which branch contacts and stops are of: the farthest out that they touch."""

    branches: Branches
    contacts: tuple[tuple[tuple[int, ...], ...], ...]
    """Of each level shape `(r, branches)`; a branch has as many as any, -1 for none."""
    freedoms: tuple[int, ...]
    """Of the stops that have one of their own."""
    stops: tuple[tuple[tuple[int, ...], ...], ...]
    """The others, as `contacts`, from 0 on."""

    def parted(self, inertia: jax.Array, jacobian: jax.Array, stops: StopRows) -> tuple[Parted, ...]:
        """`H` and `J` of an `Impact` by levels, with trailing batch axes."""
        n = len(inertia)
        found = []
        for d, (block, index) in enumerate(zip(self.branches.blocks(inertia), self.branches.index, strict=True)):
            of_contacts, of_stops = self._of_level(d)
            rubs = 3 * of_contacts[:, None, :, None] + np.arange(3)[:, None, None]
            known = (of_contacts[:, None, :, None] >= 0) & (index >= 0)
            along = np.where((of_stops[:, :, None] >= 0) & (index >= 0), n * of_stops[:, :, None] + index, -1)
            found.append(
                Parted(
                    block,
                    take_rows(jacobian.reshape(-1, *jacobian.shape[3:]), np.where(known, n * rubs + index, -1)),
                    take_rows(stops.rows.reshape(-1, *stops.rows.shape[2:]), along),
                )
            )
        return tuple(found)

    def _of_level(self, d: int) -> list[np.ndarray]:
        width = len(self.branches.levels[d].rows)
        return [np.array(x[d], int).reshape(-1, width) for x in (self.contacts, self.stops)]

    def solve(self, parted: tuple[Parted, ...], stiffness: jax.Array, b: jax.Array) -> jax.Array:
        """`(H + J^T K J)^-1 b`, with `K` of contacts and stops, shape `(k, 3, 3, *batch)`."""
        count = sum(int(np.sum(self._of_level(d)[0] >= 0)) for d in range(len(parted)))
        single = count + len(self.freedoms)
        given = stiffness[:count], stiffness[count:single, 2, 2], stiffness[single:, 2, 2]
        return self.branches.solve([self._stiffened(d, own, *given) for d, own in enumerate(parted)], b)

    def _stiffened(self, d: int, parted: Parted, rubbing: jax.Array, single: jax.Array, pressing: jax.Array):
        contacts, stops = self._of_level(d)
        total = parted.inertia
        alone = stops_of(self.freedoms, self._own(d))
        if np.any(alone >= 0):
            total = with_diagonal(total, take_rows(single, alone))
        if not len(contacts) + len(stops):
            return total
        k = jnp.moveaxis(take_rows(rubbing, contacts), 1, 3)[:, :, :, :, None]  # (r, 3, 3, branches, 1)
        j = parted.contacts
        rubbed = k[:, :, 0] * j[:, None, 0] + k[:, :, 1] * j[:, None, 1] + k[:, :, 2] * j[:, None, 2]
        pressed = take_rows(pressing, stops)[:, :, None] * parted.stops
        return with_rows(total, _in_rows(j, parted.stops), _in_rows(rubbed, pressed))

    def mobilities(self, parted: tuple[Parted, ...]) -> jax.Array:
        """`j H^-1 j^T` of normals and stops."""
        rows = []
        for d, own in enumerate(parted):
            alone = self._alone(d)
            ones = alone[:, :, None] == stops_of(self.freedoms, self._own(d))
            ones = (ones & (alone >= 0)[:, :, None]).astype(own.inertia.dtype)
            batch = own.inertia.shape[3:]
            ones = jnp.broadcast_to(ones.reshape(*ones.shape, *[1] * len(batch)), (*ones.shape, *batch))
            rows.append(jnp.concatenate([own.contacts[:, 2], ones, own.stops]))
        found = self.branches.powers([own.inertia for own in parted], rows)
        return take_rows(jnp.concatenate([x.reshape(-1, *x.shape[2:]) for x in found]), self._places)

    @cached_property
    def _places(self) -> np.ndarray:
        """Where each contact, and then each stop, is among those of all branches."""
        which, kinds = [], []
        for d in range(len(self.branches.levels)):
            contacts, stops = self._of_level(d)
            for kind, own in enumerate((contacts, self._alone(d), stops)):
                which.append(own.ravel())
                kinds.append(np.full(own.size, kind))
        which, kind = np.concatenate(which), np.concatenate(kinds)
        order = np.lexsort((which, kind))
        return order[which[order] >= 0]

    def _own(self, d: int) -> np.ndarray:
        """The freedoms of each branch without those of what carries it, -1 in their place, shape `(branches, m)`."""
        index = self.branches.index[d]
        return np.where(np.arange(index.shape[1]) < self.branches.levels[d].own, index, -1)

    def _alone(self, d: int) -> np.ndarray:
        """The stops that have a freedom of their own in each branch, as `contacts`."""
        every = [own[own >= 0] for own in stops_of(self.freedoms, self._own(d))]
        found = np.full((max(map(len, every), default=0), len(every)), -1)
        for branch, own in enumerate(every):
            found[: len(own), branch] = own
        return found


class Parted(NamedTuple):
    """Of a problem the matrices of one level, `m` rows for each branch: its own, then those that carry it."""

    inertia: jax.Array
    """Shape `(branches, m, m, *batch)`, without what is among those that carry it."""
    contacts: jax.Array
    """`J`, shape `(r, 3, branches, m, *batch)`."""
    stops: jax.Array
    """Shape `(r, branches, m, *batch)`."""


def _in_rows(contacts: jax.Array, stops: jax.Array) -> jax.Array:
    return jnp.concatenate([contacts.reshape(-1, *contacts.shape[2:]), stops])


def with_rows(total: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """`total + left^T right` of matrices `(k, m, m, *batch)` and rows `(r, k, m, *batch)`. As a loop it is in one
    kernel with the rest, where a product of matrices would be a call."""
    passes = max(1, -(-len(left) // AT_ONCE))
    at_once = -(-len(left) // passes)
    nothing = jnp.zeros((passes * at_once - len(left), *left.shape[1:]), left.dtype)

    def in_parts(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, nothing]).reshape(passes, at_once, *x.shape[1:])

    def add(total: jax.Array, some: tuple) -> tuple[jax.Array, None]:
        j, g = some
        return total + sum(j[a][:, :, None] * g[a][:, None] for a in range(at_once)), None

    return lax.scan(add, total, (in_parts(left), in_parts(right)))[0]


def with_diagonal(total: jax.Array, entries: jax.Array) -> jax.Array:
    """Matrices `(k, m, m, *batch)` and what to add to their diagonals, `(k, m, *batch)`."""
    m = total.shape[1]
    own = np.eye(m, dtype=bool).reshape(m, m, *[1] * (total.ndim - 3))
    return total + jnp.where(own, entries[:, :, None], 0.0)


def rows_of(scene: Scene) -> Rows | None:
    """The branches of a scene's steps, if all candidates take part; none where they are not worth it."""
    model = scene.model
    if not isinstance(model, Model):
        return None
    touched, stops = moved_by(scene)
    every = np.concatenate([touched, stops])
    branches = branches_of(model.topology.velocity_support | (every.T.astype(int) @ every.astype(int) > 0))
    if branches is None:
        return None
    freedoms = single_freedoms(model, scene.limited)
    return Rows(branches, _by_branch(branches, touched), freedoms, _by_branch(branches, stops[len(freedoms) :]))


def moved_by(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Which freedoms of a tree candidates may move, shape `(c, nv)`, and which limits and other stops, `(l, nv)`."""
    tree = scene.tree
    stops = np.zeros((len(scene.limited) + len(scene.stops), tree.nv), bool)
    names = [name for name, _ in scene.limited] + [s.joint if isinstance(s, Cone) else None for s in scene.stops]
    for row, name in zip(stops, names, strict=True):
        row[tree.v_slice(name) if name is not None else slice(None)] = True
    return carried(scene) != 0, stops


def _by_branch(branches: Branches, rows: np.ndarray) -> tuple[tuple[tuple[int, ...], ...], ...]:
    found: list[list[list[int]]] = [[[] for _ in level.rows] for level in branches.levels]
    for k, row in enumerate(rows):
        level, branch = branches.of(map(int, np.flatnonzero(row)))
        found[level][branch].append(k)
    return tuple(
        tuple(tuple(own[k] if k < len(own) else -1 for own in level) for k in range(max(map(len, level))))
        for level in found
    )


@lru_cache(maxsize=512)
def _mobilities(rows: Rows) -> Callable[..., jax.Array]:
    return trailing(lambda _, *matrices: rows.mobilities(rows.parted(*matrices)))


def mobilities_of(rows: Rows, inertia: jax.Array, jacobian: jax.Array, stops: StopRows) -> jax.Array:
    """The same as `coulomb.mobilities`, of normals and stops."""
    return _mobilities(rows)((), inertia, jacobian, stops)
