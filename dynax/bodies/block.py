"""The node of several freedoms and ports with an inertia of its own, about one point: bodies that bend.

    P_m    what hangs on port m hands over, about the node's point        A_m = 1
    M_bb   the node's own rigid inertia

Freedoms go one at a time, each apart: XLA on a CPU would fuse its elimination into all that follow, compute it again in
each of them, and take minutes to compile. Components have axes (row, port, freedom), those of these they need, then
those of the batch.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.fence import apart
from dynax.spatial import ArticulatedInertia, Force, Motion, RigidInertia, Vec3
from dynax.sweep.sums import summed
from dynax.tree.nodes import Shiftable


def _new_axis(tree, axis: int):
    return jax.tree.map(lambda a: jnp.expand_dims(a, axis), tree)


def _at(tree, k: jax.Array | int, axis: int = 1):
    """One freedom of many."""
    return jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, k, axis, keepdims=False), tree)


class BlockGains(NamedTuple):
    """The factor of a node, a column for each freedom: where an array held them all, XLA on a CPU would choose between
    them for each of its numbers."""

    gain: tuple[jax.Array, ...]
    """Those of `G`, shape `(rows, 6)`."""
    lower: tuple[jax.Array, ...]
    """Those of `L` from the diagonal on, shape `(rows, r - k)`."""

    def along(self, x: jax.Array) -> Force:
        return _six(reduce(jnp.add, [gain * x[:, k, None] for k, gain in enumerate(self.gain)]))

    def dual(self, a: Motion) -> jax.Array:
        return jnp.stack([_six(gain).dot(a) for gain in self.gain], axis=1)

    def apply(self, x: jax.Array) -> jax.Array:
        columns = [own * x[:, k, None] for k, own in enumerate(self.lower)]
        rest = [(0, 0)] * (x.ndim - 2)
        return reduce(jnp.add, [jnp.pad(own, [(0, 0), (k, 0), *rest]) for k, own in enumerate(columns)])

    def apply_transpose(self, x: jax.Array) -> jax.Array:
        return jnp.stack([summed(own * x[:, k:]) for k, own in enumerate(self.lower)], axis=1)

    def solve(self, x: jax.Array) -> jax.Array:
        found = []
        for own in self.lower:
            found.append(apart(x[:, 0] / own[:, 0]))
            x = x[:, 1:] - found[-1][:, None] * own[:, 1:]
        return jnp.stack(found, axis=1)

    def solve_transpose(self, x: jax.Array) -> jax.Array:
        found: list[jax.Array] = []
        for k, own in reversed([*enumerate(self.lower)]):
            rest = [own[:, 1 + j] * new for j, new in enumerate(found)]
            found.insert(0, apart(reduce(jnp.subtract, rest, x[:, k]) / own[:, 0]))
        return jnp.stack(found, axis=1)

    def log_pivots(self) -> jax.Array:
        return reduce(jnp.add, [jnp.log(own[:, 0]) for own in self.lower])


def _six(x: jax.Array) -> Force:
    """Six numbers on axis 1."""
    a, b, c, u, v, w = jnp.unstack(x, axis=1)
    return Force(Vec3(a, b, c), Vec3(u, v, w))


class Block(NamedTuple):
    """Nodes in rows."""

    offset: Vec3
    """From the point of the node that carries it."""
    column: Motion
    """`U_m`."""
    coupling: Force
    """`M_bx`, axes (row, freedom)."""
    mass: tuple[jax.Array, ...]
    """The columns of `M_xx` from the diagonal on, shape `(rows, r - k)`, in which no freedom is a unit: to put them in
    one array would take a fifth of the time of their elimination."""
    own: RigidInertia
    """`M_bb`."""

    def without(self, held: jax.Array) -> Block:
        """With freedoms that do not move, where `held` is one, shape `(rows, r)`."""
        keep = 1.0 - held
        mass = [own * keep[:, k:] * keep[:, k, None] for k, own in enumerate(self.mass)]
        first = [
            jnp.pad(held[:, k, None], [(0, 0), (0, own.shape[1] - 1), *[(0, 0)] * (held.ndim - 2)])
            for k, own in enumerate(mass)
        ]
        return self._replace(
            column=self.column * keep[:, None],
            coupling=self.coupling * keep,
            mass=tuple(map(jnp.add, mass, first)),
        )

    def coupled(self, p: ArticulatedInertia) -> tuple[Force, list[jax.Array]]:
        """`Phi`, and the columns of `D` from the diagonal on."""
        force = jax.tree.map(apart, _new_axis(p, 2) @ self.column)
        columns = []
        for k in range(len(self.mass)):
            below, own = jax.tree.map(lambda a, k=k: a[:, :, k:], self.column), _new_axis(_at(force, k, 2), 2)
            columns.append(summed(below.dot(own)) + self.mass[k])
        return summed(force) + self.coupling, columns

    def eliminated(
        self, p: ArticulatedInertia, phi: Force, d: list[jax.Array]
    ) -> tuple[ArticulatedInertia, BlockGains]:
        """A column of `L` and of `G` after the other, from those before it: no number is written twice."""
        gains: list[jax.Array] = []
        lower: list[jax.Array] = []
        for k, own in enumerate(d):
            gain = jnp.stack(jax.tree.leaves(_at(phi, k)), axis=1)
            for j, (before, column) in enumerate(zip(gains, lower, strict=True)):
                own = own - column[:, k - j :] * column[:, k - j, None]
                gain = gain - before * column[:, k - j, None]
            scale = apart(lax.rsqrt(own[:, 0]))[:, None]
            lower.append(apart(own * scale))
            gains.append(apart(gain * scale))
            p = p.downdate(_six(gains[-1]))
        return p, BlockGains(tuple(gains), tuple(lower))

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
