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

from dynax.spatial import ArticulatedInertia, Force, Motion, Scalar, Vec3
from dynax.sweep.sums import summed
from dynax.tree.nodes import Shiftable


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
        return summed(self.gain * x)

    def dual(self, a: Motion) -> jax.Array:
        return self.gain.dot(jax.tree.map(lambda x: x[:, None], a))

    def apply(self, x: jax.Array) -> jax.Array:
        return summed(self.lower * x[:, None], 2)

    def apply_transpose(self, x: jax.Array) -> jax.Array:
        return summed(self.lower * x[:, :, None])

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
        phi = summed(force.shift_to_parent(_per_freedom(self.offset)))
        left, right = (jax.tree.map(lambda a, k=k: jnp.expand_dims(a, k), y) for k, y in ((3, self.column), (2, force)))
        d = summed(left.dot(right)) + self.mass
        return phi if self.coupling is None else phi + self.coupling, d

    def eliminated(self, p: ArticulatedInertia, phi: Force, d: jax.Array) -> tuple[ArticulatedInertia, NodeGains]:
        # `D` and `Phi` in one matrix, a column of which goes with each freedom.
        size, columns = d.shape[1], []
        six = (phi.angular.x, phi.angular.y, phi.angular.z, phi.linear.x, phi.linear.y, phi.linear.z)
        rest = jnp.concatenate([d, jnp.stack(jnp.broadcast_arrays(*six), axis=1)], axis=1)
        for k in range(size):
            own = rest[:, :, 0] / jnp.sqrt(rest[:, 0, 0])[:, None]
            rest = rest[:, 1:, 1:] - own[:, 1:, None] * own[:, None, 1 : size - k]
            columns.append(jnp.pad(own, [(0, 0), (k, 0), *[(0, 0)] * (own.ndim - 2)]))
        factor = jnp.stack(columns, axis=2)
        gain = Force(*(Vec3(*(factor[:, size + first + k] for k in range(3))) for first in (0, 3)))
        for k in range(size):
            p = p.downdate(jax.tree.map(lambda a, k=k: a[:, k], gain))
        return p, NodeGains(gain, factor[:, :size])

    def inertia(self, p: ArticulatedInertia) -> ArticulatedInertia:
        total = summed(p.shift_to_parent(self.offset))
        return total if self.base is None else total + self.base

    def force(self, z: Force) -> Force:
        return summed(z.shift_to_parent(self.offset))

    def dual(self, z: Force) -> jax.Array:
        return summed(self.column.dot(_per_freedom(z)))

    def moved(self, a: Motion, x: jax.Array) -> Motion:
        along = summed(self.column * x[:, None], 2)
        return jax.tree.map(lambda c: c[:, None], a).shift(self.offset) + along

    def handed(self, own: Shiftable) -> Shiftable:
        return jax.tree.map(lambda a: a[:, None] * self.port, own)

    def carried(self, ports: Motion) -> Motion:
        return summed(jax.tree.map(lambda a: a * self.port, ports))

    def ports(self, like: jax.Array) -> jax.Array:
        return jnp.broadcast_to(like, (self.offset.x.shape[1], *like.shape))

    def of_bases(self, ports: Shiftable) -> Shiftable:
        return jax.tree.map(lambda a: a[:, 0], ports)

    def on_bases(self, motion: Motion) -> Motion:
        rest = self.offset.x.shape[1] - 1  # a base is the first port of its node
        return jax.tree.map(lambda a: jnp.pad(a[:, None], ((0, 0), (0, rest), *((0, 0),) * (a.ndim - 1))), motion)
