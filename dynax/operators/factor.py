"""The innovations factor of the mass matrix, a square root of it in O(n) (Jain, LEM-0.1 to 0.3, SOA-LOGDET, MB-SAMPLE,
EMBED-INV).

    M = L L^T      L = [1 + H phi K] D^1/2      L^-1 = D^-1/2 [1 - H psi K]

From the articulated recursion over nodes of every kind: of each the root of its `D` and its gain; a free base is closed
by the root of its 6x6. Then each product is one walk: `L w` and `L^-1 x` inward, `L^T a` and `L^-T w` outward.

With bodies parents first `L` of a tree is upper triangular and has no fill-in: it is the transpose of `factor_ltl`'s.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.factor import Factor, factorize, inward, log_det, outward
from dynax.linear.cholesky import cholesky
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import mul
from dynax.tree.nodes import excite, innovate, observe


def by_columns(
    method: Callable[[InnovationsFactor, jax.Array], jax.Array],
) -> Callable[[InnovationsFactor, jax.Array], jax.Array]:
    """A function of matrices `(nv, m)` for vectors too, compiled when called outside of `jit`."""
    return jax.jit(lambda f, x: method(f, x) if x.ndim == 2 else method(f, x[:, None])[:, 0])


@pytree_dataclass()
class InnovationsFactor:
    """`M = L L^T` at one configuration of a tree, or of one with embedded loops, armature included; a pytree.

    Every method takes a vector `(nv,)`, or a matrix `(nv, m)` of `m` at once, and costs O(n) for each.
    """

    factor: Factor
    root: jax.Array
    """The upper triangular roots of the free bases' articulated inertias, in their own axes, shape `(k, 6, 6)`."""

    @property
    def nv(self) -> int:
        """The length of a velocity."""
        return len(self.factor.order.places)

    def logdet(self) -> jax.Array:
        """`log det M`, the sum of `log det D`."""
        return log_det(self.factor)

    def apply(self, x) -> jax.Array:
        """`L x`."""
        return self._apply(self._checked(x))

    def apply_transpose(self, x) -> jax.Array:
        """`L^T x`: of a velocity, the rates in which the kinetic energy is half the sum of squares."""
        return self._apply_transpose(self._checked(x))

    def solve_root(self, x) -> jax.Array:
        """`L^-1 x`: of joint forces, the whitened innovations."""
        return self._solve_root(self._checked(x))

    def solve_root_transpose(self, x) -> jax.Array:
        """`L^-T x`."""
        return self._solve_root_transpose(self._checked(x))

    def solve(self, x) -> jax.Array:
        """`M^-1 x`."""
        return self.solve_root_transpose(self.solve_root(x))

    def mass_product(self, x) -> jax.Array:
        """`M x`."""
        return self.apply(self.apply_transpose(x))

    def inverse(self) -> jax.Array:
        """`M^-1`, shape `(nv, nv)`, exactly symmetric; O(n) for each column."""
        root = self.solve_root(jnp.eye(self.nv, dtype=self.root.dtype))
        inverse = mul(root.T, root)
        return 0.5 * (inverse + inverse.T)

    def sample(self, key: jax.Array, kt=1.0) -> jax.Array:
        """Thermal velocities `(nv,)`: normal, with mean zero and covariance `kt M^-1` (equipartition).

        **Arguments:**

        - `key`: a key of `jax.random`; `jax.vmap` over keys for many samples.
        - `kt`: the temperature as an energy [J].
        """
        noise = jax.random.normal(key, (self.nv,), self.root.dtype)
        return self.solve_root_transpose(jnp.sqrt(jnp.asarray(kt, noise.dtype)) * noise)

    def _checked(self, x) -> jax.Array:
        array = jnp.asarray(x, self.root.dtype)
        if array.ndim not in (1, 2) or array.shape[0] != self.nv:
            raise ValueError(
                f"a factor of this model takes vectors ({self.nv},) or matrices ({self.nv}, m), got {array.shape}"
            )
        return array

    def __repr__(self) -> str:
        return f"{type(self).__name__}(nv={self.nv})"

    @by_columns
    def _apply(self, x: jax.Array) -> jax.Array:
        z, rows = inward(self.factor, x, excite)
        return self._vector(mul(self.root, self._of_bases(x)) + _six(z), rows)

    @by_columns
    def _solve_root(self, x: jax.Array) -> jax.Array:
        z, rows = inward(self.factor, x, innovate)
        return self._vector(solve(self.root, self._of_bases(x) - _six(z)), rows)

    @by_columns
    def _apply_transpose(self, x: jax.Array) -> jax.Array:
        rows, _ = outward(self.factor, x[self.factor.order.roots], self.factor.order.rows(x), observe)
        return self._vector(mul(jnp.swapaxes(self.root, -1, -2), self._of_bases(x)), rows)

    @by_columns
    def _solve_root_transpose(self, x: jax.Array) -> jax.Array:
        base = solve(jnp.swapaxes(self.root, -1, -2), self._of_bases(x))
        rows, _ = outward(self.factor, base.reshape(-1, x.shape[1]), self.factor.order.rows(x))
        return self._vector(base, rows)

    def _of_bases(self, x: jax.Array) -> jax.Array:
        """The free bases' entries, shape `(k, 6, m)`."""
        return _six(x[self.factor.order.roots])

    def _vector(self, bases: jax.Array, rows: jax.Array) -> jax.Array:
        return self.factor.order.vector(bases.reshape(-1, bases.shape[-1]), rows)


def _six(x: jax.Array) -> jax.Array:
    return x.reshape(-1, 6, x.shape[1])


@jax.jit
def _innovations_factor(model: Model, q: jax.Array) -> InnovationsFactor:
    f = factorize(model, q)
    # Columns eliminated from the last, as everywhere else: the root of the matrix read backwards, read backwards.
    inertia = jnp.moveaxis(f.roots.matrix, 2, 0)[:, ::-1, ::-1]
    return InnovationsFactor(f, cholesky(inertia)[:, ::-1, ::-1])


@for_models
def innovations_factor(model: Model, q: ArrayLike) -> InnovationsFactor:
    """A square root of the mass matrix, `M = L L^T`, without forming either, O(n).

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _innovations_factor(model, *as_state(model, q=q))
