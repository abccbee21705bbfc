"""Where each body and each velocity stands in the rows of a sweep: static index arrays, made once per topology."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.one_kernel import expected
from dynax.sweep import Walk, execution_in_one_kernel, take_rows, walk
from dynax.topology import Topology
from dynax.tree.nodes import NodeOrder


class Parts(NamedTuple):
    """One quantity for all bodies: of the free roots (leading axis `k`) and of the carried bodies, in rows."""

    roots: Any
    rows: Any


class Layout:
    """The rows of one execution.

    `bodies` walks the carried bodies, `slots` their motion columns; for a robot of one-freedom joints they are the
    same.
    """

    def __init__(self, topology: Topology, execution: str):
        self.topology = topology
        bases, slots = 1 + len(topology.free_roots), topology.slots

        def walk_of(parents: tuple[int, ...]) -> Walk:
            single = execution == "one kernel"
            return walk(parents, bases, execution_in_one_kernel(parents, bases) if single else execution)

        self.bodies, self.slots = walk_of(topology.carried_parents), walk_of(slots.parents)
        rows = self.bodies.rows
        self.body_of_row = np.where(rows >= 0, topology.carried[np.maximum(rows, 0)], -1) if len(rows) else rows
        # Body order out of (roots, rows).
        self._from_parts = np.zeros(topology.num_bodies, dtype=int)
        self._from_parts[topology.free_roots] = np.arange(len(topology.free_roots))
        self._from_parts[topology.carried] = len(topology.free_roots) + self.bodies.inverse
        # Slot rows in terms of body rows.
        s = self.slots.rows
        known, at = s >= 0, np.maximum(s, 0)

        def per_slot(values: np.ndarray) -> np.ndarray:
            return np.where(known, values[at], -1) if len(s) else np.zeros(0, dtype=int)

        self.slot_body = per_slot(self.bodies.inverse[slots.body] if len(s) else slots.body)
        self.slot_first = np.where(per_slot(slots.first.astype(int)) == 1, self.slot_body, -1)
        self.slot_last = np.where(per_slot(slots.last.astype(int)) == 1, self.slot_body, -1)
        ends = np.flatnonzero(self.slot_last >= 0)
        last_slot = np.full(len(rows), -1)
        last_slot[self.slot_last[ends]] = ends
        self.slot_velocity = per_slot(slots.velocity)
        self.slot_column = per_slot(slots.column)
        self.same = slots.simple
        """Whether slot rows are body rows."""
        self.root_velocity = np.array([topology.v_start[b] + np.arange(6) for b in topology.free_roots], int).reshape(
            -1
        )
        self.order = NodeOrder(self.slots, self.slot_velocity, self.root_velocity, None if slots.simple else last_slot)

    def roots(self, x: Any) -> Any:
        """The rows of the free roots, out of body order."""
        return take_rows(x, self.topology.free_roots)

    def rows(self, x: Any) -> Any:
        """The rows of the carried bodies, out of body order."""
        return take_rows(x, self.body_of_row)

    def split(self, x: Any) -> Parts:
        return Parts(self.roots(x), self.rows(x))

    def body_order(self, parts: Parts) -> Any:
        """Parts put back in the order of the model's bodies."""
        return take_rows(_concatenate(parts.roots, parts.rows), self._from_parts)

    def to_slots(self, rows: Any, which: np.ndarray) -> Any:
        """Quantities of body rows at their slots (`slot_body`, `slot_first` or `slot_last`), zeros elsewhere."""
        return rows if self.same else take_rows(rows, which)


def _concatenate(roots: Any, rows: Any) -> Any:
    return jax.tree.map(
        lambda a, b: a if b.shape[0] == 0 else b if a.shape[0] == 0 else jnp.concatenate([a, b]), roots, rows
    )


def layout(topology: Topology, execution: str = "levels") -> Layout:
    """The layout of a topology under an execution; `"automatic"` is for what can be in one kernel."""
    if execution == "automatic":
        execution = "one kernel" if expected() else "levels"
    return _layout(topology, execution)


_layout = lru_cache(maxsize=512)(Layout)
