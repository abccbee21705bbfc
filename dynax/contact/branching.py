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
from dynax.contact.ends import Cone
from dynax.contact.motion import carried
from dynax.contact.scene import Scene
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
    stops: tuple[tuple[tuple[int, ...], ...], ...]

    def parted(self, inertia: jax.Array, jacobian: jax.Array, stops: jax.Array) -> tuple[Parted, ...]:
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
                    take_rows(stops.reshape(-1, *stops.shape[2:]), along),
                )
            )
        return tuple(found)

    def _of_level(self, d: int) -> list[np.ndarray]:
        width = len(self.branches.levels[d].rows)
        return [np.array(x[d], int).reshape(-1, width) for x in (self.contacts, self.stops)]

    def solve(self, parted: tuple[Parted, ...], stiffness: jax.Array, b: jax.Array) -> jax.Array:
        """`(H + J^T K J)^-1 b`, with `K` of contacts and stops, shape `(k, 3, 3, *batch)`."""
        count = sum(int(np.sum(self._of_level(d)[0] >= 0)) for d in range(len(parted)))
        whole = [self._stiffened(d, own, stiffness[:count], stiffness[count:, 2, 2]) for d, own in enumerate(parted)]
        return self.branches.solve(whole, b)

    def _stiffened(self, d: int, parted: Parted, rubbing: jax.Array, pressing: jax.Array) -> jax.Array:
        contacts, stops = self._of_level(d)
        if not len(contacts) + len(stops):
            return parted.inertia
        k = jnp.moveaxis(take_rows(rubbing, contacts), 1, 3)[:, :, :, :, None]  # (r, 3, 3, branches, 1)
        j = parted.contacts
        rubbed = k[:, :, 0] * j[:, None, 0] + k[:, :, 1] * j[:, None, 1] + k[:, :, 2] * j[:, None, 2]
        pressed = take_rows(pressing, stops)[:, :, None] * parted.stops
        return with_rows(parted.inertia, _in_rows(j, parted.stops), _in_rows(rubbed, pressed))

    def mobilities(self, parted: tuple[Parted, ...]) -> jax.Array:
        """`j H^-1 j^T` of normals and stops."""
        rows = [jnp.concatenate([own.contacts[:, 2], own.stops]) for own in parted]
        found = self.branches.powers([own.inertia for own in parted], rows)
        return take_rows(jnp.concatenate([x.reshape(-1, *x.shape[2:]) for x in found]), self._places)

    @cached_property
    def _places(self) -> np.ndarray:
        """Where each contact, and then each stop, is among those of all branches."""
        kinds = [
            np.concatenate([np.full(x.shape, own, int).ravel() for x, own in zip(pair, (0, 1), strict=True)])
            for pair in map(self._of_level, range(len(self.branches.levels)))
        ]
        which = np.concatenate([x.ravel() for d in range(len(kinds)) for x in self._of_level(d)])
        kind = np.concatenate(kinds)
        order = np.lexsort((which, kind))
        return order[which[order] >= 0]


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
    nothing = jnp.zeros((-len(left) % AT_ONCE, *left.shape[1:]), left.dtype)

    def in_parts(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, nothing]).reshape(-1, AT_ONCE, *x.shape[1:])

    def add(total: jax.Array, some: tuple) -> tuple[jax.Array, None]:
        j, g = some
        return total + sum(j[a][:, :, None] * g[a][:, None] for a in range(AT_ONCE)), None

    return lax.scan(add, total, (in_parts(left), in_parts(right)))[0]


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
    return Rows(branches, _by_branch(branches, touched), _by_branch(branches, stops))


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


def mobilities_of(rows: Rows, inertia: jax.Array, jacobian: jax.Array, stops: jax.Array) -> jax.Array:
    """The same as `coulomb.mobilities`, of normals and stops."""
    return _mobilities(rows)((), inertia, jacobian, stops)
