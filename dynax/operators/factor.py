"""The innovations factor of the mass matrix, a square root of it in O(n) (Jain, LEM-0.1 to 0.3, SOA-LOGDET, MB-SAMPLE).

    M = L L^T      L = [1 + H phi K] D^1/2      L^-1 = D^-1/2 [1 - H psi K]

From the articulated recursion: per column `s` the root `sqrt(D)` and the gain `g = P s / sqrt(D)`; a free root is
closed by the root of its 6x6. Then each product is one walk:

    L w       inward    x = sqrt(D) w + s.z        z+ = z + g w            L^-1 x    the same, solved for w
    L^T a     outward   w = sqrt(D) a + g.a+       a_i = a+ + s a          L^-T w    the same, solved for a

With bodies parents first `L` is upper triangular and has no fill-in: it is the transpose of `factor_ltl`'s.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from dynax.algorithms._articulated import (
    Gains,
    Slots,
    accelerate,
    base_accelerations,
    innovate,
    root_forces,
    slot_scalars,
)
from dynax.algorithms._factor import factorize
from dynax.algorithms._layout import layout
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.operators._pytree import pytree_dataclass
from dynax.operators.recursions import mul
from dynax.spatial import Force, Mat3, Motion, Scalar
from dynax.topology import Topology


@pytree_dataclass("topology")
class InnovationsFactor:
    """`M = L L^T` at one configuration, armature included; made by `innovations_factor`, a pytree.

    Every method takes a vector `(nv,)`, or a matrix `(nv, m)` of `m` at once, and costs O(n) for each.
    """

    topology: Topology
    root_rotation: Mat3
    slots: Slots
    gains: Gains
    root: jax.Array
    """The upper triangular roots of the free roots' articulated inertias, in their own axes, shape `(k, 6, 6)`."""

    def apply(self, x) -> jax.Array:
        """`L x`."""
        return _apply(self, self._checked(x))

    def apply_transpose(self, x) -> jax.Array:
        """`L^T x`: of a velocity, the rates in which the kinetic energy is half the sum of squares."""
        return _apply_transpose(self, self._checked(x))

    def solve_root(self, x) -> jax.Array:
        """`L^-1 x`: of joint forces, the whitened innovations."""
        return _solve_root(self, self._checked(x))

    def solve_root_transpose(self, x) -> jax.Array:
        """`L^-T x`."""
        return _solve_root_transpose(self, self._checked(x))

    def solve(self, x) -> jax.Array:
        """`M^-1 x`."""
        return self.solve_root_transpose(self.solve_root(x))

    def mass_product(self, x) -> jax.Array:
        """`M x`."""
        return self.apply(self.apply_transpose(x))

    def inverse(self) -> jax.Array:
        """`M^-1`, shape `(nv, nv)`, exactly symmetric; O(n) for each column."""
        root = self.solve_root(jnp.eye(self.topology.nv, dtype=self.gains.root.dtype))
        inverse = mul(root.T, root)
        return 0.5 * (inverse + inverse.T)

    def logdet(self) -> jax.Array:
        """`log det M`, the sum of `log det D`."""
        pivots = jnp.diagonal(self.root, axis1=-2, axis2=-1)
        return 2.0 * (jnp.sum(jnp.log(self.gains.root)) + jnp.sum(jnp.log(pivots)))  # padding has D = 1

    def sample(self, key: jax.Array, kt=1.0) -> jax.Array:
        """Thermal velocities `(nv,)`: normal, with mean zero and covariance `kt M^-1` (equipartition).

        **Arguments:**

        - `key`: a key of `jax.random`; `jax.vmap` over keys for many samples.
        - `kt`: the temperature as an energy [J].
        """
        noise = jax.random.normal(key, (self.topology.nv,), self.gains.root.dtype)
        return self.solve_root_transpose(jnp.sqrt(jnp.asarray(kt, noise.dtype)) * noise)

    def _checked(self, x) -> jax.Array:
        array, nv = jnp.asarray(x, self.gains.root.dtype), self.topology.nv
        if array.ndim not in (1, 2) or array.shape[0] != nv:
            raise ValueError(f"a factor of this model takes vectors ({nv},) or matrices ({nv}, m), got {array.shape}")
        return array

    def __repr__(self) -> str:
        return f"InnovationsFactor(nv={self.topology.nv})"


def _columns(method: Callable[[InnovationsFactor, jax.Array], jax.Array]):
    """A function of matrices `(nv, m)` for vectors too, compiled when called outside of `jit`."""
    return jax.jit(lambda f, x: method(f, x) if x.ndim == 2 else method(f, x[:, None])[:, 0])


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


@_columns
def _apply(f: InnovationsFactor, w: jax.Array) -> jax.Array:
    def step(z: Force, slot: Slots, gains: Gains, w: Scalar) -> tuple[Force, Scalar]:
        return z + gains.gain * w, gains.root * w + slot.column.dot(z)

    z, x = _gather(f, w, step)
    return _ordered(f, mul(f.root, _of_roots(f, w)) + z, x)


@_columns
def _solve_root(f: InnovationsFactor, x: jax.Array) -> jax.Array:
    z, w = _gather(f, x, lambda z, slot, gains, tau: innovate(z, slot, gains, tau))
    return _ordered(f, solve_triangular(f.root, _of_roots(f, x) - z), w)


@_columns
def _apply_transpose(f: InnovationsFactor, a: jax.Array) -> jax.Array:
    def step(parent: Motion, x: tuple[Slots, Gains, Scalar]) -> tuple[Motion, Scalar]:
        slot, gains, rate = x
        before = parent.shift(slot.offset)
        return slot.column.add(before, rate), gains.root * rate + gains.gain.dot(before)

    own = _of_roots(f, a)
    return _ordered(f, mul(jnp.swapaxes(f.root, -1, -2), own), _scatter(f, a, own, step))


@_columns
def _solve_root_transpose(f: InnovationsFactor, w: jax.Array) -> jax.Array:
    own = solve_triangular(f.root, _of_roots(f, w), trans=1)
    return _ordered(f, own, _scatter(f, w, own, accelerate))


@jax.jit
def _innovations_factor(model: Model, q: jax.Array) -> InnovationsFactor:
    f = factorize(model, q)
    # Columns eliminated from the last, as everywhere else: the root of the matrix read backwards, read backwards.
    inertia = jnp.moveaxis(f.roots.matrix, 2, 0)[:, ::-1, ::-1]
    return InnovationsFactor(
        model.topology, f.root_rotation, f.slots, f.gains, jnp.linalg.cholesky(inertia)[:, ::-1, ::-1]
    )


@for_models
def innovations_factor(model: Model, q) -> InnovationsFactor:
    """A square root of the mass matrix, `M = L L^T`, without forming either, O(n).

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _innovations_factor(model, *as_state(model, q=q))
