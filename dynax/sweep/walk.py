"""The two walks over a forest, whatever way they are executed.

    scatter   base -> tips    carry_i = step(carry of the parent, x_i)
    gather    tips -> base    to_parent_i = step(sum of what the children hand over, x_i)

Rows are the bodies in the order of the execution, some of them padding. Data stay in that order for a whole algorithm:
`arrange` brings them into it, `restore` takes them out. A padded row holds zeros; a step must map it to finite
values and hand nothing on (zero inputs give zero outputs).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.sweep.rows import take_rows

Step = Callable[[Any, Any], tuple[Any, Any]]


class Walk(abc.ABC):
    """An execution of the walks over one forest.

    `parents[i]` is the parent of body `i`, or `-1 - b` when it hangs on base `b`.
    """

    parents: tuple[int, ...]
    rows: np.ndarray
    """The body in each row, -1 for padding."""

    def __init__(self, parents: tuple[int, ...], num_bases: int):
        self.parents = parents
        self.num_bases = num_bases

    def _set_rows(self, rows: np.ndarray) -> None:
        self.rows = rows
        self.inverse = np.zeros(len(self.parents), dtype=int)
        self.inverse[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        self.identity = len(rows) == len(self.parents) and bool(np.all(rows == np.arange(len(rows))))

    def arrange(self, x: Any) -> Any:
        """From body order to row order, zeros in padded rows."""
        return take_rows(x, self.rows)

    def restore(self, y: Any) -> Any:
        """From row order to body order."""
        return take_rows(y, self.inverse)

    @abc.abstractmethod
    def scatter(self, step: Step, base: Any, xs: Any) -> Any:
        """`step(parent's carry, x) -> (carry, y)` from the bases to the tips; returns all `y`.

        `base` holds the carries of the bases, leading axis `num_bases`; `xs` and `y` have the rows leading.
        """

    @abc.abstractmethod
    def gather(self, step: Step, zero: Any, xs: Any) -> tuple[Any, Any]:
        """`step(sum over children, x) -> (to_parent, y)` from the tips to the bases.

        `zero` is what a tip receives, without the leading axis of rows. Returns the sums handed to each base (leading
        axis `num_bases`) and all `y`.
        """


# Rows that are added one by one: XLA on a CPU hands large sums over an axis to a library, outside of its own kernels.
WRITTEN_OUT = 16


def base_sums(handed: Any, base_of_row: np.ndarray, num_bases: int) -> Any:
    """What the top rows hand over, summed per base; `base_of_row` is -1 for rows that hand nothing to a base."""

    def total(a: jax.Array) -> jax.Array:
        sums = []
        for base in range(num_bases):
            rows = np.flatnonzero(base_of_row == base)
            few = 0 < len(rows) <= WRITTEN_OUT
            sums.append(reduce(jnp.add, [a[row] for row in rows]) if few else a[rows].sum(0))
        return jnp.stack(sums)

    return jax.tree.map(total, handed)
