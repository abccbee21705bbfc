"""Which conditions are independent of one another, decided once and in one way for everything that asks.

    K = L C        T = L^+        C x = T k are the least squares of K x = k        K^T lambda = C^T mu, lambda = T^T mu

`C` has orthonormal rows, as many as conditions that count, then zeros. Conditions that share no freedom are told apart
by themselves, each cluster by its own measure, and a row counts by what is left of it beside the others, as a part of
what joints could do to it (`Rows.weights`): turns and shifts, large and small mechanisms are judged alike.

Real mechanisms repeat conditions in about, not to rounding: five digits of an angle in a file tilt a planar linkage by
4e-6, and a pose that closes up to an error has a Jacobian that is off by about as much. What is left of a row by less
than these is taken for nothing: `CLOSE` of the longest row, and `BEYOND` times the error of position, which is counted
up to `LOOSE`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.constraints.explicit import clusters
from dynax.constraints.rows import Rows, plan
from dynax.linear.each import each
from dynax.linear.orthogonal import decompose
from dynax.linear.pseudo_inverse import known_inverse
from dynax.linear.sums import outer_products
from dynax.model import Model
from dynax.model.kinds import AnyModel
from dynax.model.structure import Structure
from dynax.sweep import take_rows

CLOSE = 1e-5
BEYOND = 10.0
LOOSE = 1e-3


class Independent(NamedTuple):
    """The conditions at one state as independent ones, batch axes trail; none of it has a derivative."""

    rows: jax.Array
    """`C`, shape `(k, nv)`."""
    solved: jax.Array
    """`T`, shape `(k, nc)`."""
    kept: jax.Array
    """One for rows that count and zero for others, shape `(k,)`."""
    pivots: jax.Array
    """What is left of each row, as a part of the longest of its cluster, shape `(k,)`."""

    @property
    def inverse(self) -> jax.Array:
        """`K^+`, shape `(nv, nc)`."""
        return outer_products(self.rows, self.solved)

    @property
    def rank(self) -> jax.Array:
        return jnp.sum(self.kept > 0.5, axis=0)

    @property
    def gap(self) -> jax.Array:
        """The least of what counts by the largest of what does not; infinite where nothing is left of that."""
        if not len(self.kept):
            return jnp.full(self.kept.shape[1:], jnp.inf, self.kept.dtype)
        least = jnp.min(jnp.where(self.kept > 0.5, self.pivots, 1.0), axis=0)
        largest = jnp.max(jnp.where(self.kept > 0.5, 0.0, self.pivots), axis=0)
        return jnp.where(largest > 0.0, least / jnp.where(largest > 0.0, largest, 1.0), jnp.inf)


class _Group(NamedTuple):
    """Clusters of one shape."""

    rows: np.ndarray
    columns: np.ndarray


class _Clusters(NamedTuple):
    groups: tuple[_Group, ...]
    row_entry: np.ndarray
    """Where each entry of `C` stands in the list of all clusters' own, with a zero at its end."""
    solved_entry: np.ndarray
    """The same for `T`."""


@lru_cache(maxsize=256)
def _clusters(structure: Structure) -> _Clusters:
    p = plan(structure)
    pattern = p.entry != p.zero
    nc, nv = pattern.shape
    found: dict[tuple[int, int], list] = {}
    for cluster in clusters(pattern):
        found.setdefault((len(cluster.rows), len(cluster.columns)), []).append(cluster)
    groups, by_rows, by_solved = [], [], []
    at_rows = at_solved = 0
    for (m, n), members in found.items():
        groups.append(_Group(np.array([c.rows for c in members]), np.array([c.columns for c in members])))
        size = min(m, n)
        for k, cluster in enumerate(members):
            # Listed by entry first and cluster last, as batches are.
            own = np.arange(size * n).reshape(size, n) * len(members) + k + at_rows
            other = np.arange(size * m).reshape(size, m) * len(members) + k + at_solved
            entries, solved = np.full((size, nv), -1), np.full((size, nc), -1)
            entries[:, list(cluster.columns)], solved[:, list(cluster.rows)] = own, other
            by_rows.append(entries)
            by_solved.append(solved)
        at_rows += size * n * len(members)
        at_solved += size * m * len(members)
    none = np.zeros((0, 0), int)
    rows = np.concatenate(by_rows) if by_rows else none.reshape(0, nv)
    solved = np.concatenate(by_solved) if by_solved else none.reshape(0, nc)
    return _Clusters(tuple(groups), np.where(rows < 0, at_rows, rows), np.where(solved < 0, at_solved, solved))


def least_of(rows: Rows, tolerance: jax.Array | None) -> jax.Array:
    """What is left of a row up to which it counts for nothing, of its cluster's longest, shape `(*batch)`."""
    if tolerance is not None:
        return tolerance
    assert rows.weights is not None
    residual, dtype = lax.stop_gradient(rows.residual), rows.residual.dtype
    closest = max(CLOSE, 10.0 * max(rows.matrix.shape[:2], default=1) * float(jnp.finfo(dtype).eps))
    error = jnp.max(jnp.abs(residual) * rows.weights, axis=0, initial=0.0)
    return closest + jnp.minimum(BEYOND * error, LOOSE)


def separable(model: AnyModel) -> Structure | None:
    """What tells which conditions share no freedom; `None` where freedoms are not those of joints alone."""
    return model.structure if isinstance(model, Model) else None


def independent(structure: Structure | None, rows: Rows, tolerance: jax.Array | None = None) -> Independent:
    """The decision; `tolerance` of one's own in the place of those above, shape `(*batch)`. Without the structure all
    rows are one cluster."""
    assert rows.weights is not None
    matrix, weights, least = lax.stop_gradient((rows.matrix, rows.weights, least_of(rows, tolerance)))
    if structure is None:
        found = each(_decided, matrix.shape[2:], matrix, weights, jnp.broadcast_to(least, matrix.shape[2:]))
        return Independent(*found)
    batch, static = matrix.shape[2:], _clusters(structure)
    zero = jnp.zeros((1, *batch), matrix.dtype)
    listed, solved, kept, pivots = [], [], [], []
    for group in static.groups:
        count = len(group.rows)
        own = matrix[group.rows.T[:, None, :], group.columns.T[None, :, :]]  # (m, n, clusters, *batch)
        limit = jnp.broadcast_to(least, (count, *batch))
        found = each(_decided, (count, *batch), own, weights[group.rows.T], limit)
        listed.append(lax.collapse(found[0], 0, 3))
        solved.append(lax.collapse(found[1], 0, 3))
        # One cluster after another.
        kept.append(lax.collapse(jnp.swapaxes(found[2], 0, 1), 0, 2))
        pivots.append(lax.collapse(jnp.swapaxes(found[3], 0, 1), 0, 2))
    return Independent(
        take_rows(jnp.concatenate([*listed, zero]), static.row_entry),
        take_rows(jnp.concatenate([*solved, zero]), static.solved_entry),
        jnp.concatenate([*kept, zero])[:-1],
        jnp.concatenate([*pivots, zero])[:-1],
    )


@jax.custom_jvp
def correction(matrix: jax.Array, known: jax.Array, residual: jax.Array) -> jax.Array:
    """`K^+ phi`, whose `K^+` is known, for trailing batch axes."""
    return jnp.sum(known * residual[None], axis=1)


@correction.defjvp
def _correction_rate(primals, tangents):
    (k, known, residual), (dk, _, dresidual) = primals, tangents
    inverse = known_inverse(k, known)

    def solved(y: jax.Array) -> jax.Array:
        return jnp.sum(inverse * y[None], axis=1)

    def turned(y: jax.Array) -> jax.Array:
        return jnp.sum(dk * y[:, None], axis=0)

    x = solved(residual)
    pull = turned(jnp.sum(inverse * x[:, None], axis=0))
    rest = jnp.sum(inverse * turned(residual - jnp.sum(k * x[None], axis=1))[:, None], axis=0)
    within = jnp.sum(k * pull[None], axis=1)
    return x, solved(dresidual - jnp.sum(dk * x[None], axis=1) + rest - within) + pull


def _decided(matrix: jax.Array, weights: jax.Array, least: jax.Array) -> tuple:
    found = decompose(matrix, least, weights)
    longest = found.pivots[0]
    relative = found.pivots / jnp.where(longest > 0.0, longest, 1.0)
    return found.rows, found.solved, found.kept.astype(matrix.dtype), relative
