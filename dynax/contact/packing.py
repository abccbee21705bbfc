"""The problem of a step as it waits for others: without what is zero whatever the state, and once what is there twice.

Of a humanoid's mass matrix 243 of 729 numbers are left, of the rows of its contacts half: to write them out and to look
them up took a fifth of its step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dynax.compile.batching import trailing
from dynax.contact.branching import moved_by
from dynax.contact.coulomb import Impact
from dynax.contact.scene import Scene
from dynax.model import Model
from dynax.sweep import take_rows

Flags = tuple[tuple[bool, ...], ...]


@dataclass(frozen=True)
class Packing:
    """Which numbers there are."""

    coupled: Flags
    """Of the mass matrix, symmetric, shape `(nv, nv)`."""
    moved: Flags
    """By each contact, shape `(c, nv)`."""

    def packed(self, problem: Impact) -> Impact:
        """With what is there of `inertia` and `jacobian` in rows, and batch axes behind them."""
        (below, above), rows = self._entries, np.flatnonzero(self._rows >= 0)
        n = len(problem.inertia)
        inertia = problem.inertia.reshape(n * n, *problem.inertia.shape[2:])
        jacobian = problem.jacobian.reshape(-1, *problem.jacobian.shape[3:])
        return problem._replace(inertia=take_rows(inertia, n * below + above), jacobian=take_rows(jacobian, rows))

    def whole(self, problem: Impact) -> Impact:
        """The problem of which `problem` is `packed`."""
        (below, above), n = self._entries, len(self.coupled)
        place = np.full((n, n), -1)
        place[below, above] = place[above, below] = np.arange(len(below))
        jacobian = take_rows(problem.jacobian, self._rows).reshape(-1, 3, n, *problem.jacobian.shape[1:])
        return problem._replace(inertia=take_rows(problem.inertia, place), jacobian=jacobian)

    @cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        below, above = np.nonzero(np.tril(np.array(self.coupled)))
        return below, above

    @cached_property
    def _rows(self) -> np.ndarray:
        """Where each number of the whole `jacobian` is among those that are there, -1 for none."""
        there = np.repeat(np.array(self.moved, bool).reshape(-1, len(self.coupled)), 3, axis=0).ravel()
        return np.where(there, np.cumsum(there) - 1, -1)


def packing_of(scene: Scene, most: int) -> Packing:
    """Of a tree, `most` of whose candidates take part at a time."""
    assert isinstance(scene.model, Model)
    support, moved = scene.model.topology.velocity_support, moved_by(scene)[0]
    if len(moved) > most:
        moved = np.ones((most, scene.nv), bool)
    return Packing(_flags(support | support.T), _flags(moved))


def _flags(x: np.ndarray) -> Flags:
    return tuple(tuple(map(bool, row)) for row in x)


@lru_cache(maxsize=512)
def whole(packing: Packing) -> Callable[..., Impact]:
    """`Packing.whole`, the function `((), problem)` of a batch."""
    return trailing(lambda _, problem: packing.whole(problem))
