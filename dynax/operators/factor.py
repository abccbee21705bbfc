"""The innovations factor of the mass matrix, a square root of it in O(n) (Jain, LEM-0.1 to 0.3, SOA-LOGDET, MB-SAMPLE).

    M = L L^T      L = [1 + H phi K] D^1/2      L^-1 = D^-1/2 [1 - H psi K]

From the articulated recursion: per column `s` the root `sqrt(D)` and the gain `g = P s / sqrt(D)`; a free root is
closed by the root of its 6x6. Then each product is one walk:

    L w       inward    x = sqrt(D) w + s.z        z+ = z + g w            L^-1 x    the same, solved for w
    L^T a     outward   w = sqrt(D) a + g.a+       a_i = a+ + s a          L^-T w    the same, solved for a

With bodies parents first `L` is upper triangular and has no fill-in: it is the transpose of `factor_ltl`'s.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.algorithms.articulated import (
    Gains,
    Slots,
    accelerate,
    base_accelerations,
    innovate,
    root_forces,
    slot_scalars,
)
from dynax.algorithms.factor import factorize
from dynax.linear.cholesky import cholesky
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import mul
from dynax.operators.square_root import SquareRoot, by_columns
from dynax.spatial import Force, Mat3, Motion, Scalar
from dynax.topology import Topology
from dynax.tree.layout import layout


@pytree_dataclass("topology")
class InnovationsFactor(SquareRoot):
    """`M = L L^T` of a tree."""

    topology: Topology
    root_rotation: Mat3
    slots: Slots
    gains: Gains
    root: jax.Array
    """The upper triangular roots of the free roots' articulated inertias, in their own axes, shape `(k, 6, 6)`."""

    @property
    def nv(self) -> int:
        return self.topology.nv

    def logdet(self) -> jax.Array:
        pivots = jnp.diagonal(self.root, axis1=-2, axis2=-1)
        return 2.0 * (jnp.sum(jnp.log(self.gains.root)) + jnp.sum(jnp.log(pivots)))  # padding has D = 1

    @by_columns
    def _apply(self, w: jax.Array) -> jax.Array:
        def step(z: Force, slot: Slots, gains: Gains, w: Scalar) -> tuple[Force, Scalar]:
            return z + gains.gain * w, gains.root * w + slot.column.dot(z)

        z, x = _gather(self, w, step)
        return _ordered(self, mul(self.root, _of_roots(self, w)) + z, x)

    @by_columns
    def _solve_root(self, x: jax.Array) -> jax.Array:
        z, w = _gather(self, x, lambda z, slot, gains, tau: innovate(z, slot, gains, tau))
        return _ordered(self, solve(self.root, _of_roots(self, x) - z), w)

    @by_columns
    def _apply_transpose(self, a: jax.Array) -> jax.Array:
        def step(parent: Motion, x: tuple[Slots, Gains, Scalar]) -> tuple[Motion, Scalar]:
            slot, gains, rate = x
            before = parent.shift(slot.offset)
            return slot.column.add(before, rate), gains.root * rate + gains.gain.dot(before)

        own = _of_roots(self, a)
        return _ordered(self, mul(jnp.swapaxes(self.root, -1, -2), own), _scatter(self, a, own, step))

    @by_columns
    def _solve_root_transpose(self, w: jax.Array) -> jax.Array:
        own = solve(jnp.swapaxes(self.root, -1, -2), _of_roots(self, w))
        return _ordered(self, own, _scatter(self, w, own, accelerate))


def _rows(f: InnovationsFactor, x: jax.Array) -> tuple[Mat3, tuple[Slots, Gains, Scalar]]:
    """Rotations of the roots, and what a walk reads, with an axis for the columns of `x`."""
    rotation, slots, gains = jax.tree.map(lambda a: a[:, None], (f.root_rotation, f.slots, f.gains))
    return rotation, (slots, gains, slot_scalars(layout(f.topology), x))


def _of_roots(f: InnovationsFactor, x: jax.Array) -> jax.Array:
    """The free roots' entries, shape `(k, 6, m)`."""
    return x[layout(f.topology).root_velocity].reshape(-1, 6, x.shape[1])


def _ordered(f: InnovationsFactor, roots: jax.Array, slots: jax.Array) -> jax.Array:
    return layout(f.topology).velocity_order(roots.reshape(-1, slots.shape[1]), slots)


def _gather(f: InnovationsFactor, x: jax.Array, step) -> tuple[jax.Array, jax.Array]:
    """An inward walk of forces: what arrives at the free roots, `(k, 6, m)`, and the results in slot rows."""
    rotation, xs = _rows(f, x)

    def shifted(z: Force, x: tuple[Slots, Gains, Scalar]) -> tuple[Force, Scalar]:
        passed, y = step(z, *x)
        return passed.shift_to_parent(x[0].offset), y

    zero = Force.zero(jnp.zeros(x.shape[1:], x.dtype))
    z, ys = layout(f.topology).slots.gather(shifted, zero, xs)
    return root_forces(rotation, jax.tree.map(lambda a: a[1:], z)).reshape(-1, 6, x.shape[1]), ys


def _scatter(f: InnovationsFactor, x: jax.Array, base: jax.Array, step) -> jax.Array:
    """An outward walk of motions from those of the free roots, `(k, 6, m)`: the results in slot rows."""
    rotation, xs = _rows(f, x)
    bases = base_accelerations(rotation, base.reshape(-1, x.shape[1]))
    return layout(f.topology).slots.scatter(step, bases, xs)


@jax.jit
def _innovations_factor(model: Model, q: jax.Array) -> InnovationsFactor:
    f = factorize(model, q)
    # Columns eliminated from the last, as everywhere else: the root of the matrix read backwards, read backwards.
    inertia = jnp.moveaxis(f.roots.matrix, 2, 0)[:, ::-1, ::-1]
    return InnovationsFactor(model.topology, f.root_rotation, f.slots, f.gains, cholesky(inertia)[:, ::-1, ::-1])


@for_models
def innovations_factor(model: Model, q) -> InnovationsFactor:
    """A square root of the mass matrix, `M = L L^T`, without forming either, O(n).

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _innovations_factor(model, *as_state(model, q=q))
