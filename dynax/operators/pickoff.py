"""Pick-off of nodes: points fixed to bodies at which motion is read and forces act (Jain, SOA-B)."""

from __future__ import annotations

import jax
import numpy as np

from dynax.operators.blocks import Blocks, add_at
from dynax.operators.operator import Operator
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import mul, transpose
from dynax.sweep import take_rows


@pytree_dataclass("rows", "bodies")
class PickOff(Operator):
    """`B`: takes forces at nodes to the bodies that hold them, its transpose motions of bodies to the nodes.

    `B(m, k) = phi(O_m, C_k)` for a node `k` on body `m`; a body may hold several nodes.
    """

    rows: Blocks
    bodies: tuple[int, ...]
    """The body of each node; -1 for one that is at rest, whose columns are zero."""
    blocks: jax.Array
    """Shape `(nodes, rows.width, 6)`."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, 6 * len(self.bodies)

    def _apply(self, x: jax.Array) -> jax.Array:
        forces = mul(self.blocks, x.reshape(len(self.bodies), 6, -1))
        return self.rows.flat(add_at(np.array(self.bodies, int), forces, self.rows.count))

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        motions = take_rows(self.rows.pad(y), np.array(self.bodies, int))
        return mul(transpose(self.blocks), motions).reshape(self.shape[1], -1)
