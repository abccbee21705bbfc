"""The node of several freedoms and ports with an inertia of its own, about one point: bodies that bend.

    P_m    what hangs on port m hands over, about the node's point        A_m = 1
    M_bb   the node's own rigid inertia

Freedoms go one at a time, in loops: written out, XLA on a CPU would fuse each elimination into all that follow, compute
it again in each of them, and take minutes to compile. Components have axes (row, port, freedom), those of these they
need, then those of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.linear.sums import summed
from dynax.spatial import ArticulatedInertia, Force, Motion, RigidInertia, Vec3
from dynax.sweep.scan import scan
from dynax.tree.nodes import Shiftable


def _new_axis(tree, axis: int):
    return jax.tree.map(lambda a: jnp.expand_dims(a, axis), tree)


def _at(tree, k: jax.Array, axis: int = 1):
    """One freedom of many."""
    return jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, k, axis, keepdims=False), tree)


def _each(step, start, size: int, *, reverse: bool = False):
    """A loop over freedoms; the results of all of them on axis 1."""
    carry, found = scan(step, start, jnp.arange(size), reverse=reverse)
    return carry, jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1), found)


class BlockGains(NamedTuple):
    """The factor of a node, in rows."""

    gain: Force
    """`G`, axes (row, freedom)."""
    lower: jax.Array
    """`L`, shape `(rows, r, r)`, its columns on axis 1; what is above the diagonal of `L` counts for nothing."""

    def along(self, x: jax.Array) -> Force:
        return summed(self.gain * x)

    def dual(self, a: Motion) -> jax.Array:
        return self.gain.dot(_new_axis(a, 1))

    def apply(self, x: jax.Array) -> jax.Array:
        return summed(self._clean(x) * x[:, :, None])

    def apply_transpose(self, x: jax.Array) -> jax.Array:
        return summed(self._clean(x) * x[:, None], 2)

    def solve(self, x: jax.Array) -> jax.Array:
        def step(x, k):
            column = _at(self.lower, k)
            found = _at(x, k) / _at(column, k)
            return x - found[:, None] * column, found

        return _each(step, self._full(x), x.shape[1])[1]

    def solve_transpose(self, x: jax.Array) -> jax.Array:
        def step(found, k):
            column = _at(self.lower, k)
            new = (_at(x, k) - summed(column * found)) / _at(column, k)
            return lax.dynamic_update_index_in_dim(found, new, k, 1), None

        return _each(step, jnp.zeros_like(self._full(x)), x.shape[1], reverse=True)[0]

    def log_pivots(self) -> jax.Array:
        return jnp.sum(jnp.log(jnp.diagonal(self.lower, axis1=1, axis2=2)), axis=-1)

    def _full(self, x: jax.Array) -> jax.Array:
        """With the axes of a batch that the factor has."""
        return jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, self.lower.shape[:1] + self.lower.shape[2:]))

    def _clean(self, x: jax.Array) -> jax.Array:
        size = self.lower.shape[1]
        below = np.triu(np.ones((size, size)))  # axes (column, row)
        return self.lower * jnp.asarray(below.reshape(1, size, size, *(1,) * (x.ndim - 2)), x.dtype)


class Block(NamedTuple):
    """Nodes in rows."""

    offset: Vec3
    """From the point of the node that carries it."""
    column: Motion
    """`U_m`."""
    coupling: Force
    """`M_bx`, axes (row, freedom)."""
    mass: jax.Array
    """`M_xx`, shape `(rows, r, r)`; unit on the diagonal where there is no freedom."""
    own: RigidInertia
    """`M_bb`."""

    def without(self, held: jax.Array) -> Block:
        """With freedoms that do not move, where `held` is one, shape `(rows, r)`."""
        keep, eye = 1.0 - held, jnp.eye(held.shape[1], dtype=held.dtype)
        mass = self.mass * keep[:, :, None] * keep[:, None]
        return self._replace(
            column=self.column * keep[:, None],
            coupling=self.coupling * keep,
            mass=mass + held[:, :, None] * eye.reshape(1, *eye.shape, *(1,) * (held.ndim - 2)),
        )

    def coupled(self, p: ArticulatedInertia) -> tuple[Force, jax.Array]:
        def step(_, k):
            force = p @ _at(self.column, k, 2)
            d = summed(self.column.dot(_new_axis(force, 2))) + _at(self.mass, k)
            return None, (summed(force) + _at(self.coupling, k), d)

        return _each(step, None, self.mass.shape[1])[1]

    def eliminated(self, p: ArticulatedInertia, phi: Force, d: jax.Array) -> tuple[ArticulatedInertia, BlockGains]:
        def step(rest, k):
            p, phi, d = rest
            column = _at(d, k)
            root = jnp.sqrt(_at(column, k))
            own, gain = column / root[:, None], jax.tree.map(lambda a: a / root, _at(phi, k))
            d = d - own[:, :, None] * own[:, None]
            phi = jax.tree.map(lambda a, g: a - g[:, None] * own, phi, gain)
            return (p.downdate(gain), phi, d), (gain, own)

        (p, _, _), found = _each(step, (p, phi, d), d.shape[1])
        return p, BlockGains(*found)

    def inertia(self, p: ArticulatedInertia) -> ArticulatedInertia:
        return summed(p) + self.own

    def force(self, z: Force) -> Force:
        return summed(z)

    def dual(self, z: Force) -> jax.Array:
        return summed(self.column.dot(_new_axis(z, 2)))

    def moved(self, a: Motion, x: jax.Array) -> Motion:
        return _new_axis(a, 1) + summed(self.column * x[:, None], 2)

    def handed(self, own: Shiftable) -> Shiftable:
        return own.shift_to_parent(self.offset)

    def carried(self, ports: Motion) -> Motion:
        return ports.shift(self.offset)
