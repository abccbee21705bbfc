"""The innovations factor of the mass matrix, a square root of it in O(n) (Jain, LEM-0.1 to 0.3, SOA-LOGDET, MB-SAMPLE,
EMBED-INV).

    M = L L^T      L = [1 + H phi K] D^1/2      L^-1 = D^-1/2 [1 - H psi K]

From the articulated recursion over nodes of every kind: of each the root of its `D` and its gain; a free base is closed
by the root of its 6x6. Then each product is one walk: `L w` and `L^-1 x` inward, `L^T a` and `L^-T w` outward.

With bodies parents first `L` of a tree is upper triangular and has no fill-in: it is the transpose of `factor_ltl`'s.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from dynax.algorithms.factor import Factor, factorize, inward, log_det, outward
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import mul
from dynax.operators.square_root import SquareRoot, by_columns
from dynax.tree.nodes import excite, innovate, observe


@pytree_dataclass()
class InnovationsFactor(SquareRoot):
    """`M = L L^T` of a tree, or of one with embedded loops."""

    factor: Factor
    root: jax.Array
    """The upper triangular roots of the free bases' articulated inertias, in their own axes, shape `(k, 6, 6)`."""

    @property
    def nv(self) -> int:
        return len(self.factor.order.places)

    def logdet(self) -> jax.Array:
        return log_det(self.factor)

    @by_columns
    def _apply(self, x: jax.Array) -> jax.Array:
        z, rows = inward(self.factor, x, excite)
        return self._vector(mul(self.root, self._of_bases(x)) + _six(z), rows)

    @by_columns
    def _solve_root(self, x: jax.Array) -> jax.Array:
        z, rows = inward(self.factor, x, innovate)
        return self._vector(solve_triangular(self.root, self._of_bases(x) - _six(z)), rows)

    @by_columns
    def _apply_transpose(self, x: jax.Array) -> jax.Array:
        rows, _ = outward(self.factor, x[self.factor.order.roots], self.factor.order.rows(x), observe)
        return self._vector(mul(jnp.swapaxes(self.root, -1, -2), self._of_bases(x)), rows)

    @by_columns
    def _solve_root_transpose(self, x: jax.Array) -> jax.Array:
        base = solve_triangular(self.root, self._of_bases(x), trans=1)
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
    return InnovationsFactor(f, jnp.linalg.cholesky(inertia)[:, ::-1, ::-1])


@for_models
def innovations_factor(model: Model, q) -> InnovationsFactor:
    """A square root of the mass matrix, `M = L L^T`, without forming either, O(n).

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _innovations_factor(model, *as_state(model, q=q))
