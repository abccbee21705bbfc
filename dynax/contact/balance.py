"""The balance of momentum of a step with contact, `H (v - v*) = J^T gamma`: its systems, and its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dynax.contact.coulomb import Impact, Law, unbalanced
from dynax.contact.grouping import Parts, pressed, stiffened
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.linear.solve import solve


def matrix(problem: Impact, stiffness: jax.Array) -> jax.Array:
    """`H + J^T K J`."""
    count, freedoms = len(problem.jacobian), problem.stops.freedoms
    single = count + len(freedoms)
    total = pressed(problem.inertia, freedoms, stiffness[count:single, 2, 2])
    whole = jnp.concatenate([stiffness[:count], stiffness[single:]])
    return stiffened(total, problem.jacobian, problem.stops.rows, whole)


def solution(problem: Impact, parts: Parts | None) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The function `(K, b)` whose value is `(H + J^T K J)^-1 b`, for trailing batch axes; `parts`: of the matrix."""
    if parts is None:
        return lambda stiffness, b: gauss_jordan(matrix(problem, stiffness), b[:, None])[:, 0]
    parted: Any = parts.parted(problem.inertia, problem.jacobian, problem.stops)
    return partial(parts.solve, parted)


@jax.custom_jvp
def balanced(problem: Impact, law: Law, v: jax.Array) -> jax.Array:
    """The velocity `v` that was found, with derivatives of any order: the momentum stays in balance, whatever
    changes."""
    return v


@balanced.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    problem, law, _ = primals
    v = balanced(*primals)

    def rest(problem: Impact, law: Law) -> jax.Array:
        return unbalanced(problem, v, problem.impulses(law, v))

    moved = jax.jvp(rest, primals[:2], tangents[:2])[1]
    return v, -solve(matrix(problem, problem.stiffness(law, v)), moved)
