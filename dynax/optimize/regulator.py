"""The linear regulator of infinite horizon, as it holds a model at an equilibrium.

    min  sum of 1/2 x'Qx + x'Su + 1/2 u'Ru      or its integral      u = K x

What `lqr` gives far from the end (Bertsekas 2017, section 3.1; Anderson & Moore 1990, chapters 2 and 3).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.linear.matrices import product, symmetric
from dynax.linear.riccati import stationary, stationary_in_time
from dynax.linear.solve import solve
from dynax.simulate.linearize import Linearization


class Regulator(NamedTuple):
    """What is best from any state, for ever; not finite where nothing makes the system stable."""

    K: jax.Array
    """Gains of `u = K x`, shape `(m, n)`: with a model's, `u0 + K difference(state0, state)`."""
    P: jax.Array
    """Of the value `1/2 x'Px`, shape `(n, n)`."""
    residual: jax.Array
    """What is left of Riccati's equation, the largest entry as a part of that of `P`."""


def regulator(system: Linearization, Q: ArrayLike, R: ArrayLike, S: ArrayLike | None = None) -> Regulator:
    """The gains that hold a linear system at the origin at least cost.

    **Arguments:**

    - `system`: made by `dx.linearize` at an equilibrium, or `dx.Linearization(A, B)`, with `dt=` where time is
      discrete: costs are then a sum over the steps, and else an integral. Where loops are, costs of the states that
      keep them.
    - `Q`: shape `(n, n)`; `R`: positive definite, shape `(m, m)`; `S`: shape `(n, m)`; with `Q - S R^-1 S'` positive
      semidefinite. What `Q` does not see must be stable by itself, what `B` does not reach too: else NaN.

    **Returns:** `Regulator`; derivatives by all of the numbers are exact. `ValueError` for shapes that do not fit.
    """
    A, B = system.A, system.B
    if A.ndim != 2 or B.ndim != 2:
        raise ValueError(
            f"`A`, `B` have shapes {A.shape}, {B.shape}, expected (n, n), (n, m); for a batch use jax.vmap"
        )
    (n, m), dtype = B.shape, A.dtype
    given = (
        jnp.asarray(Q, dtype),
        jnp.asarray(R, dtype),
        jnp.zeros((n, m), dtype) if S is None else jnp.asarray(S, dtype),
    )
    for name, x, shape in zip("AQRS", (A, *given), ((n, n), (n, n), (m, m), (n, m)), strict=True):
        if x.shape != shape:
            raise ValueError(f"`{name}` has shape {x.shape}, expected {shape} for {n} states, {m} controls")
    Q, R, S = symmetric(given[0]), symmetric(given[1]), given[2]
    if system.projection is not None:
        keep = system.projection
        Q, S = product(keep.T, product(Q, keep)), product(keep.T, S)
        if system.dt is None:
            # States that open the loops are not met: they are made to vanish.
            A = A - jnp.max(jnp.abs(A)) * (jnp.eye(n, dtype=dtype) - keep)
    both = solve(R, jnp.concatenate([B.T, S.T], axis=1))
    along, mixed = both[:, :n], both[:, n:]
    a, g, h = A - product(B, mixed), symmetric(product(B, along)), symmetric(Q - product(S, mixed))
    if system.dt is None:
        P = stationary_in_time(a, g, h)
        K = -product(along, P) - mixed
        left = product(a.T, P) + product(P, a) - product(P, product(g, P)) + h
    else:
        P = stationary(a, g, h)
        K = -solve(R + product(B.T, product(P, B)), product(B.T, product(P, A)) + S.T)
        left = product(A.T, product(P, A)) + Q - P + product(product(A.T, product(P, B)) + S, K)
    size = jnp.max(jnp.abs(P))
    return Regulator(K, P, jnp.max(jnp.abs(left)) / jnp.where(size > 0, size, 1.0))
