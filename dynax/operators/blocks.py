"""Operators made of one block per node of a tree: H, M, P, D and their like, E and phi (Jain, OP-H to OP-PSI).

Blocks may differ in size from node to node (a joint's freedoms, a flexible body's modes, an aggregate's bodies); they
are padded with zeros to the largest.

    block diagonal     X(k, k)                          H, M, R, P, D, G, tau, Upsilon
    child to parent    E(p(k), k), nilpotent            E, K, E_psi
    propagation        phi = (1 - E)^-1                 one sweep inward, its transpose one outward
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from dynax.linear.solve import inverse as inverse_of
from dynax.operators.operator import Identity, Operator, Sum
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import Parents, accumulate, distribute, mul, transpose
from dynax.sweep import take_rows


@dataclass(frozen=True)
class Blocks:
    """How a flat vector is cut into blocks, one per node."""

    sizes: tuple[int, ...]
    width: int = 0
    """What they are padded to, by default the largest."""

    def __post_init__(self):
        object.__setattr__(self, "width", max(self.width, 1, *self.sizes))

    @property
    def count(self) -> int:
        return len(self.sizes)

    @cached_property
    def size(self) -> int:
        return sum(self.sizes)

    @cached_property
    def mask(self) -> np.ndarray:
        """What is not padding, shape `(count, width)`."""
        return np.arange(self.width) < np.array(self.sizes, int).reshape(-1, 1)

    def pad(self, x: jax.Array) -> jax.Array:
        """`(size, m)` as `(count, width, m)`."""
        at = np.full(self.mask.size, -1)
        at[np.flatnonzero(self.mask)] = np.arange(self.size)
        return take_rows(x, at).reshape(self.count, self.width, *x.shape[1:])

    def flat(self, y: jax.Array) -> jax.Array:
        """`(count, width, m)` as `(size, m)`."""
        return take_rows(y.reshape(self.count * self.width, *y.shape[2:]), np.flatnonzero(self.mask))

    def take(self, nodes: tuple[int, ...]) -> Blocks:
        """Those of some nodes."""
        return Blocks(tuple(self.sizes[k] for k in nodes), self.width)


@pytree_dataclass("rows", "columns", "kind")
class BlockDiagonal(Operator):
    """One block per node, on the diagonal."""

    rows: Blocks
    columns: Blocks
    blocks: jax.Array
    """Shape `(n, rows.width, columns.width)`, zeros in the padding."""
    kind: str = "general"
    """`"symmetric"` or `"positive"` (symmetric and positive semidefinite) where all blocks are."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, self.columns.size

    @property
    def symmetric(self) -> bool:
        return self.kind != "general"

    @property
    def positive(self) -> bool:
        return self.kind == "positive"

    @property
    def inv(self) -> BlockDiagonal:
        """Block by block, which must be square."""
        if self.rows != self.columns:
            raise ValueError(f"{self!r} has no inverse: its blocks are not square")
        padding = jnp.where(self.rows.mask[:, None], 0.0, jnp.eye(self.rows.width, dtype=self.blocks.dtype))
        full = self.blocks + padding
        found = inverse_of(full)
        if self.symmetric:
            found = 0.5 * (found + transpose(found))
        return BlockDiagonal(self.rows, self.rows, found - padding, self.kind)

    def _apply(self, x: jax.Array) -> jax.Array:
        return self.rows.flat(mul(self.blocks, self.columns.pad(x)))

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return self.columns.flat(mul(transpose(self.blocks), self.rows.pad(y)))

    def take(self, nodes: tuple[int, ...]) -> BlockDiagonal:
        """The blocks of some nodes."""
        own = self.blocks[np.array(nodes, int)]
        return BlockDiagonal(self.rows.take(nodes), self.columns.take(nodes), own, self.kind)


@pytree_dataclass("parents", "rows", "columns")
class ChildToParent(Operator):
    """One block from each node to its parent, none where the parent is -1: `E` and `K`."""

    parents: Parents
    rows: Blocks
    columns: Blocks
    blocks: jax.Array
    """`E(p(k), k)` for each node `k`, shape `(n, rows.width, columns.width)`, zeros in the padding."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, self.columns.size

    def _apply(self, x: jax.Array) -> jax.Array:
        handed = mul(self.blocks, self.columns.pad(x))
        return self.rows.flat(add_at(np.array(self.parents, int), handed, self.rows.count))

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        above = take_rows(self.rows.pad(y), np.array(self.parents, int))
        return self.columns.flat(mul(transpose(self.blocks), above))

    def after(self, right: BlockDiagonal) -> ChildToParent:
        """`E X` for a block diagonal `X`."""
        return ChildToParent(self.parents, self.rows, right.columns, mul(self.blocks, right.blocks))

    def take(self, nodes: tuple[int, ...]) -> ChildToParent:
        """What passes between some nodes."""
        place = {node: k for k, node in enumerate(nodes)}
        parents = tuple(place.get(self.parents[node], -1) for node in nodes)
        rows, columns = self.rows.take(nodes), self.columns.take(nodes)
        return ChildToParent(parents, rows, columns, self.blocks[np.array(nodes, int)])


def add_at(nodes: np.ndarray, values: jax.Array, count: int) -> jax.Array:
    """The values of each node added up, leading axis `count`; what belongs to node -1 is dropped."""
    where = np.where(nodes < 0, count, nodes)
    return jnp.zeros((count + 1, *values.shape[1:]), values.dtype).at[where].add(values)[:count]


@pytree_dataclass()
class Propagation(Operator):
    """`phi = (1 - E)^-1`: from every node to all that carry it. Its blocks are products of those of `E` along paths."""

    step: ChildToParent

    @property
    def shape(self) -> tuple[int, int]:
        return self.step.shape

    @property
    def inv(self) -> Operator:
        return Sum((Identity(self.shape[0]), self.step), (1, -1))

    def _apply(self, x: jax.Array) -> jax.Array:
        e = self.step
        return e.rows.flat(accumulate(e.parents, e.blocks, e.rows.pad(x)))

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        e = self.step
        return e.rows.flat(distribute(e.parents, e.blocks, e.rows.pad(y)))
