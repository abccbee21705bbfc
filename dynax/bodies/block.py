"""The node of several freedoms and ports with an inertia of its own, about one point: bodies that bend.

    P_m    what hangs on port m hands over, about the node's point        A_m = 1
    M_bb   the node's own rigid inertia

Freedoms go one at a time, each apart: XLA on a CPU would fuse its elimination into all that follow, compute it again in
each of them, and take minutes to compile. Components have axes (row, port, freedom), those of these they need, then
those of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.fence import apart
from dynax.linear.sums import summed
from dynax.spatial import ArticulatedInertia, Force, Motion, RigidInertia, Vec3
from dynax.sweep.scan import scan
from dynax.tree.nodes import Shiftable


def _new_axis(tree, axis: int):
    return jax.tree.map(lambda a: jnp.expand_dims(a, axis), tree)


def _at(tree, k: jax.Array | int, axis: int = 1):
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

    def coupled(self, p: ArticulatedInertia) -> tuple[Force, list[jax.Array]]:
        """`Phi`, and the columns of `D` from the diagonal on."""
        force = jax.tree.map(apart, _new_axis(p, 2) @ self.column)
        columns = []
        for k in range(self.mass.shape[1]):
            below, own = jax.tree.map(lambda a, k=k: a[:, :, k:], self.column), _new_axis(_at(force, k, 2), 2)
            columns.append(summed(below.dot(own)) + self.mass[:, k, k:])
        return summed(force) + self.coupling, columns

    def eliminated(
        self, p: ArticulatedInertia, phi: Force, d: list[jax.Array]
    ) -> tuple[ArticulatedInertia, BlockGains]:
        """A column of `L` and of `G` after the other, from those before it: no number is written twice."""
        size = len(d)
        columns: list[tuple[jax.Array, jax.Array]] = []
        six = jnp.stack([apart(a) for a in jax.tree.leaves(phi)], axis=2)  # (row, freedom, 6)
        lower = jnp.zeros((len(six), size, size, *six.shape[3:]), six.dtype)
        for k, own in enumerate(d):
            gain = six[:, k]
            for j, (column, before) in enumerate(columns):
                own = own - column[:, k - j :] * column[:, k - j, None]
                gain = gain - before * column[:, k - j, None]
            scale = apart(lax.rsqrt(own[:, 0]))[:, None]
            own, gain = apart(own * scale), apart(gain * scale)
            columns.append((own, gain))
            lower = lax.dynamic_update_slice(lower, own[:, None], (0, k, k, *(0,) * (own.ndim - 2)))
            x, y, z, u, v, w = jnp.unstack(gain, axis=1)
            p = p.downdate(Force(Vec3(x, y, z), Vec3(u, v, w)))
        x, y, z, u, v, w = jnp.unstack(jnp.stack([gain for _, gain in columns], axis=2), axis=1)
        return p, BlockGains(Force(Vec3(x, y, z), Vec3(u, v, w)), lower)

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
