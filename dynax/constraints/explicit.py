"""Conditions solved for independent variables (Featherstone 2008, sections 8.8 and 8.9).

    K x = k        =>        x = G y + g        y some of the entries of x

With `r` pivot rows and columns, found by Gaussian elimination with complete pivoting, in front:

    G = Q_2^T [-K_11^-1 K_12; 1]        g = Q_2^T [K_11^-1 k_1; 0]            (eqs. 8.48 to 8.51)

The rows that are no pivots depend on the others and are left out. Conditions that share no variable form clusters, and
each is solved on its own. Which entries are `y` is a choice, made once in NumPy; with it the rest is one small solve
for each cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.constraints.rows import plan
from dynax.linear.singular_values import singular_values
from dynax.linear.solve import solve
from dynax.model import Model

# Pivots below this part of the largest entry of the matrix count as zero.
TOLERANCE = 1e-9


class Cluster(NamedTuple):
    """Conditions that share variables, and no variable with any others."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]


class Pivots(NamedTuple):
    """A cluster solved for some of its variables."""

    rows: tuple[int, ...]
    """The rows that are kept, as many as the rank."""
    dependent: tuple[int, ...]
    """The variables they are solved for."""
    independent: tuple[int, ...]


class IndependentChoice(NamedTuple):
    """Which variables follow from which: static, hashable."""

    blocks: tuple[Pivots, ...]
    """One for each cluster."""
    independent: tuple[int, ...]
    """Where the entries of `y` stand in `x`, in order; those in no cluster are among them."""
    rank: int


class ExplicitConstraints(NamedTuple):
    """`x = G y + g`."""

    matrix: jax.Array
    """`G`, shape `(n, n - r)`; its rows at the independent variables are those of the identity."""
    offset: jax.Array
    """`g`, shape `(n,)`; zero at the independent variables."""
    quality: jax.Array
    """Of each cluster the least singular value of `K_11` by its largest: near zero, choose other variables."""


def constraint_pattern(model: Model) -> np.ndarray:
    """Where `constraint_jacobian` may be nonzero at some configuration: booleans, shape `(nc, nv)`.

    Loops and gears move what stands on their paths. A condition of the user's own counts as moving everything.
    """
    p = plan(model.structure)
    return p.entry != p.zero


def clusters(pattern) -> tuple[Cluster, ...]:
    """The minimal clusters of conditions, shape `(m, n)`: sorted so, the matrix is block diagonal (section 8.9)."""
    used = np.asarray(pattern) != 0
    waiting, found = [int(i) for i in np.flatnonzero(used.any(axis=1))], []
    while waiting:
        rows, columns = np.zeros(len(used), dtype=bool), used[waiting[0]]
        while True:
            grown = used[:, columns].any(axis=1)
            if np.array_equal(grown, rows):
                break
            rows, columns = grown, used[grown].any(axis=0)
        found.append(Cluster(_indices(rows), _indices(columns)))
        waiting = [i for i in waiting if not rows[i]]
    return tuple(found)


def _indices(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.flatnonzero(mask))


def _pivots(matrix: np.ndarray, allowed: np.ndarray, most: int, least: float) -> tuple[list[int], list[int]]:
    """Rows and columns of up to `most` pivots above `least`, the largest first, in `allowed` columns."""
    rest, rows, columns = np.array(matrix, dtype=np.float64), [], []
    open_rows, open_columns = np.ones(len(rest), dtype=bool), allowed.copy()
    while len(rows) < most and open_rows.any() and open_columns.any():
        sizes = np.abs(rest) * open_rows[:, None] * open_columns
        i, j = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
        if sizes[i, j] <= least:
            break
        rest -= np.outer(rest[:, j] / rest[i, j] * open_rows * (np.arange(len(rest)) != i), rest[i])
        open_rows[i] = open_columns[j] = False
        rows.append(int(i))
        columns.append(int(j))
    return rows, columns


def choose_independent(
    matrix: ArrayLike,
    *,
    independent: Sequence[int] = (),
    columns: Sequence[int] | None = None,
    rank: int | None = None,
    pattern=None,
    tolerance: float = TOLERANCE,
) -> IndependentChoice:
    """Which variables of `K x = k` to solve for, by complete pivoting on a known matrix.

    The choice may become singular as the matrix changes: `explicit_constraints` tells.

    **Arguments:**

    - `matrix`: `K`, shape `(m, n)`, not traced; for a model, `constraint_jacobian` at a configuration that closes.
    - `independent`: variables that must be among `y`. Where they leave no other choice, pivoting is by rows alone.
    - `columns`: the variables that the conditions move; all others are independent. Default all.
    - `rank`: of the matrix, where it is known. Default: pivots below `tolerance` times the largest entry are zeros.
    - `pattern`: where the matrix may ever be nonzero, as from `constraint_pattern`; then cluster by cluster. Default:
      one cluster.

    Raises `ValueError` when the variables named cannot be independent, or the matrix has not that rank.
    """
    known = np.asarray(matrix, dtype=np.float64)
    size = known.shape[1]
    moved = np.ones(size, dtype=bool)
    if columns is not None:
        moved[:] = False
        moved[list(columns)] = True
    if np.any(known[:, ~moved]):
        left_out = _indices(np.any(known != 0, axis=0) & ~moved)
        raise ValueError(f"`columns` leaves out {left_out}, where the matrix is not zero")
    shape = np.ones(known.shape, dtype=bool) if pattern is None else np.asarray(pattern, dtype=bool)
    if np.any(known[~shape]):
        raise ValueError("the matrix is nonzero where `pattern` says it is not")
    least = tolerance * np.abs(known).max(initial=0.0)
    free = moved.copy()
    free[list(independent)] = False
    blocks = []
    for cluster in clusters(shape & moved):
        own = known[np.ix_(cluster.rows, cluster.columns)]
        most = min(own.shape) if rank is None or pattern is not None else rank
        rows, dependent = _pivots(own, free[list(cluster.columns)], most, least)
        reached = len(_pivots(own, np.ones(own.shape[1], dtype=bool), most, least)[0])
        if len(rows) < reached:
            named = [j for j in cluster.columns if j in set(independent)]
            raise ValueError(
                f"of variables {cluster.columns} only {len(cluster.columns) - reached} are independent, and {named} "
                "cannot be: they depend on one another"
            )
        solved = sorted(cluster.columns[j] for j in dependent)
        left = tuple(j for j in cluster.columns if j not in solved)
        blocks.append(Pivots(tuple(sorted(cluster.rows[i] for i in rows)), tuple(solved), left))
    total = sum(len(block.dependent) for block in blocks)
    if rank is not None and total != rank:
        raise ValueError(f"the matrix has rank {total}, not {rank}")
    gone = {j for block in blocks for j in block.dependent}
    return IndependentChoice(tuple(blocks), tuple(j for j in range(size) if j not in gone), total)


def explicit_constraints(
    matrix: ArrayLike, right: ArrayLike | None = None, choice: IndependentChoice | None = None
) -> ExplicitConstraints:
    """`G` and `g` with which `x = G y + g` solves `K x = k`.

    **Arguments:**

    - `matrix`: `K`, shape `(m, n)`; `right`: `k`, shape `(m,)`, default zero.
    - `choice`: from `choose_independent`, static: then this works under `jit`, `vmap` and `grad`. Default: chosen for
      this matrix, which must be known.

    **Returns:** `ExplicitConstraints`. Rows that the choice leaves out are not looked at.
    """
    matrix = jnp.asarray(matrix)
    right = jnp.zeros(len(matrix), matrix.dtype) if right is None else jnp.asarray(right, matrix.dtype)
    if right.shape != matrix.shape[:1]:
        raise ValueError(f"`right` has shape {right.shape}, expected ({len(matrix)},): one for each row of the matrix")
    if choice is None:
        choice = choose_independent(matrix)
    n, place = matrix.shape[1], {j: i for i, j in enumerate(choice.independent)}
    g = jnp.zeros(n, matrix.dtype)
    whole = jnp.asarray(np.eye(n)[:, list(choice.independent)], matrix.dtype)
    quality = []
    for block in choice.blocks:
        rows, dependent, independent = (np.array(part, dtype=int) for part in block)
        if not len(dependent):
            quality.append(jnp.ones((), matrix.dtype))
            continue
        first = matrix[rows[:, None], dependent]
        both = jnp.concatenate([-matrix[rows[:, None], independent], right[rows, None]], axis=1)
        solved = solve(first, both)
        places = np.array([place[int(j)] for j in independent], dtype=int)
        whole = whole.at[dependent[:, None], places].set(solved[:, :-1])
        g = g.at[dependent].set(solved[:, -1])
        values = singular_values(first)
        quality.append(values[-1] / values[0])
    return ExplicitConstraints(whole, g, jnp.stack(quality) if quality else jnp.zeros(0, matrix.dtype))
