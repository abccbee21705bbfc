"""The forces a joint can transmit without power: an orthonormal basis of all that its motion columns do not reach.

For motion columns `S (6 x k)` the constraint forces are the range of `T (6 x (6 - k))` with `T^T S = 0` (Featherstone
2008, section 3.5). `S` is in the space of motions and `T` in that of forces, so the complement is one of the dual
space; that the columns of `T` are of unit length in the coordinates used has no meaning, it only keeps digits.

**Derivatives.** A factorisation picks one basis among many and has no derivative of its own. Let `Q, T_0` be
orthonormal bases of `range(S)` and of its complement at the present `S`, taken as constants. Nearby, the complement is
the graph over `T_0`

    T = (T_0 + Q X) (1 + X^T X)^-1/2        X = -(S^T Q)^-1 S^T T_0

which is zero at the present `S`: the value is `T_0`, its derivatives those of the subspace, and they turn the basis
within the subspace no more than they must.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from dynax.spatial.elimination import orthonormal_basis, solve_small

product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def complement(columns: jax.Array) -> jax.Array:
    """An orthonormal basis `T` of the vectors perpendicular to some columns, shape `(..., n, n - k)`.

    **Arguments:** `columns`: `k` independent vectors of `n` entries, shape `(..., n, k)`; `k` may be 0 or `n`.

    `T` can be differentiated by the columns; its derivatives are exact up to the third. Which of the many bases it is
    may jump as the columns move, the space it spans does not: use it where only that space counts. Derivatives grow
    without bound as the columns become dependent.
    """
    columns = jnp.asarray(columns)
    n, k = columns.shape[-2:]
    if k == 0 or k >= n:
        eye = jnp.eye(n, max(n - k, 0), dtype=columns.dtype)
        return jnp.broadcast_to(eye, (*columns.shape[:-2], *eye.shape))
    basis, _ = orthonormal_basis(lax.stop_gradient(columns))
    reached, rest = basis[..., :k], basis[..., k:]
    rows = jnp.swapaxes(columns, -1, -2)
    # Zero but for rounding, which columns that are nearly dependent would enlarge.
    out = product(rows, rest)
    # `S^T Q` is lower triangular where `Q` comes from `S`, and only there is it solved with.
    tilt = -solve_small(product(rows, reached), out - lax.stop_gradient(out))
    # (1 + X^T X)^-1/2 about X = 0; what is left out is of fourth order.
    square = product(jnp.swapaxes(tilt, -1, -2), tilt)
    graph = rest + product(reached, tilt)
    return graph - 0.5 * product(graph, square)
