"""The node of any number of freedoms and ports: loops embedded in the tree (Jain, EMBED-ABA, eqs. 50 to 57), bodies
that bend, whatever has an inertia between its freedoms.

Nodes of different sizes share a walk: what one lacks is a zero column of unit inertia, or a port that never moves. `D`
is eliminated one freedom at a time, so that a node of one freedom divides once. Components have axes (row, port) or
(row, port, freedom), then those of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.spatial import ArticulatedInertia, Force, Motion, Scalar, Vec3
from dynax.tree.nodes import Shiftable


def _summed(tree, axis: int = 1):
    return jax.tree.map(lambda a: jnp.sum(a, axis), tree)


def _per_freedom(tree):
    """Quantities of ports, with an axis for freedoms."""
    return jax.tree.map(lambda a: a[:, :, None], tree)


class NodeGains(NamedTuple):
    """The factor of a node, in rows."""

    gain: Force
    """`G`, axes (row, freedom)."""
    lower: jax.Array
    """`L`, shape `(rows, r, r)`."""

    def along(self, x: jax.Array) -> Force:
        return _summed(self.gain * x)

    def dual(self, a: Motion) -> jax.Array:
        return self.gain.dot(jax.tree.map(lambda x: x[:, None], a))

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.lower * x[:, None], axis=2)

    def apply_transpose(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.lower * x[:, :, None], axis=1)

    def solve(self, x: jax.Array) -> jax.Array:
        found: list[Scalar] = []
        for k in range(x.shape[1]):
            found.append(x[:, k] / self.lower[:, k, k])
            x = x - found[-1][:, None] * self.lower[:, :, k]
        return jnp.stack(found, axis=1)

    def solve_transpose(self, x: jax.Array) -> jax.Array:
        found: list[Scalar] = []
        for k in reversed(range(x.shape[1])):
            found.insert(0, x[:, k] / self.lower[:, k, k])
            x = x - found[0][:, None] * self.lower[:, k]
        return jnp.stack(found, axis=1)

    def log_pivots(self) -> jax.Array:
        return jnp.sum(jnp.log(jnp.diagonal(self.lower, axis1=1, axis2=2)), axis=-1)


class Node(NamedTuple):
    """Nodes in rows. The point of a node is the joint of the body that carries it."""

    offset: Vec3
    """From the node's point to each port, which `A_m` shifts by."""
    column: Motion
    """`U_m`, axes (row, port, freedom)."""
    mass: jax.Array
    """`M_xx`, shape `(rows, r, r)`; unit on the diagonal where there is no freedom."""
    port: jax.Array
    """One for the port of the parent that the node hangs on, zero for the others, shape `(rows, m)`."""
    coupling: Force | None = None
    """`M_bx`, axes (row, freedom)."""
    base: ArticulatedInertia | None = None
    """`M_bb`."""

    def coupled(self, p: ArticulatedInertia) -> tuple[Force, jax.Array]:
        force = _per_freedom(p) @ self.column
        phi = _summed(force.shift_to_parent(_per_freedom(self.offset)))
        left, right = (jax.tree.map(lambda a, k=k: jnp.expand_dims(a, k), y) for k, y in ((3, self.column), (2, force)))
        d = jnp.sum(left.dot(right), axis=1) + self.mass
        return phi if self.coupling is None else phi + self.coupling, d

    def eliminated(self, p: ArticulatedInertia, phi: Force, d: jax.Array) -> tuple[ArticulatedInertia, NodeGains]:
        size, lower, gains = d.shape[1], [], []
        index = np.arange(size).reshape(1, size, *(1,) * (d.ndim - 3))
        for k in range(size):
            root = jnp.sqrt(d[:, k, k])
            below = jnp.where(index >= k, d[:, :, k] / root[:, None], 0.0)
            gain = jax.tree.map(lambda a, k=k, root=root: a[:, k] / root, phi)
            p = p.downdate(gain)
            phi = jax.tree.map(lambda a, g, below=below: a - g[:, None] * below, phi, gain)
            d = d - below[:, :, None] * below[:, None]
            lower.append(below)
            gains.append(gain)
        gain = jax.tree.map(lambda *a: jnp.stack(a, axis=1), *gains)
        return p, NodeGains(gain, jnp.stack(lower, axis=2))

    def inertia(self, p: ArticulatedInertia) -> ArticulatedInertia:
        total = _summed(p.shift_to_parent(self.offset))
        return total if self.base is None else total + self.base

    def force(self, z: Force) -> Force:
        return _summed(z.shift_to_parent(self.offset))

    def dual(self, z: Force) -> jax.Array:
        return jnp.sum(self.column.dot(_per_freedom(z)), axis=1)

    def moved(self, a: Motion, x: jax.Array) -> Motion:
        along = _summed(self.column * x[:, None], 2)
        return jax.tree.map(lambda c: c[:, None], a).shift(self.offset) + along

    def handed(self, own: Shiftable) -> Shiftable:
        return jax.tree.map(lambda a: a[:, None] * self.port, own)

    def carried(self, ports: Motion) -> Motion:
        return _summed(jax.tree.map(lambda a: a * self.port, ports))

    def ports(self, like: jax.Array) -> jax.Array:
        return jnp.broadcast_to(like, (self.offset.x.shape[1], *like.shape))

    def of_bases(self, ports: Shiftable) -> Shiftable:
        return jax.tree.map(lambda a: a[:, 0], ports)

    def on_bases(self, motion: Motion) -> Motion:
        rest = self.offset.x.shape[1] - 1  # a base is the first port of its node
        return jax.tree.map(lambda a: jnp.pad(a[:, None], ((0, 0), (0, rest), *((0, 0),) * (a.ndim - 1))), motion)
