"""The saddle point of accelerations and constraint forces, and how it is differentiated.

    M a - K^T lambda = f        K a = k        lambda in the range of K

A motion's solution `x = (a, lambda)` balances equations `F(P, q, v, x) = 0` with the leaves `P` of the model, so its
tangent solves the same system with another right side,

    [M  -K^T] [ da     ]
    [K   N  ] [ dlambda] = -dF at the `x` found        N = 1 - K K^+

which the factor that found `x` solves again (`derivatives.implicit`): no step of a factorisation is differentiated. `N`
makes the system regular where conditions repeat others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.factor import Factor, solve
from dynax.compile.batching import trailing
from dynax.compile.zeros import is_zero
from dynax.constraints.independent import Independent, independent
from dynax.constraints.rows import Rows
from dynax.derivatives.implicit import Change, solution
from dynax.linear.each import each
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.linear.pseudo_inverse import known_inverse
from dynax.linear.sums import outer_products
from dynax.model import Model
from dynax.model.configuration import rate_rows, tangent_rows
from dynax.model.structure import Structure


class Solver(NamedTuple):
    """The system at one state, factorised, all with the full batch."""

    factor: Factor
    """Of the tree's mass matrix."""
    matrix: jax.Array
    """`K`."""
    conditions: Independent
    responses: jax.Array
    """`M^-1 C^T`, shape `(nv, k)`."""
    inverse: jax.Array
    """`(C M^-1 C^T)^-1`, with ones for rows of zeros, shape `(k, k)`."""


def apply(a: jax.Array, x: jax.Array) -> jax.Array:
    """`a x` for batch axes that trail."""
    return jnp.sum(a * x[None], axis=1)


def apply_transpose(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(a * x[:, None], axis=0)


def solver(
    factor: Factor,
    rows: Rows,
    tolerance: jax.Array | None,
    columns: jax.Array | None = None,
    *,
    structure: Structure | None,
) -> tuple[Solver, jax.Array | None]:
    """The system factorised, and `M^-1 columns` along with it; `structure` as for `independent`."""
    batch = rows.residual.shape[1:]
    conditions = independent(structure, rows, tolerance)
    right = jnp.swapaxes(conditions.rows, 0, 1)
    count = 0 if columns is None else columns.shape[1]
    found = solve(factor, right if columns is None else jnp.concatenate([columns, right], axis=1))
    responses = found[:, count:]
    inverse = each(_schur_inverse, batch, conditions.rows, responses, conditions.kept)
    parts = (factor, rows.matrix, conditions, responses)
    whole = jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[: x.ndim - len(batch)], *batch)), parts)
    return Solver(*whole, inverse=inverse), None if columns is None else found[:, :count]


def _schur_inverse(rows: jax.Array, responses: jax.Array, kept: jax.Array) -> jax.Array:
    eye = jnp.eye(len(kept), dtype=kept.dtype)
    return gauss_jordan(outer_products(rows.T, responses) + eye * (1.0 - kept), eye)


def moved(s: Solver, free: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`a` and `lambda` from `M^-1 f` and `k`."""
    push = apply(s.inverse, apply(s.conditions.solved, right) - apply(s.conditions.rows, free))
    push = push * s.conditions.kept
    return free + apply(s.responses, push), apply_transpose(s.conditions.solved, push)


def _regular(model: Model, s: Solver, right: jax.Array) -> jax.Array:
    """The solution of the regular system for both right sides in one."""
    first, second = right[: model.nv], right[model.nv :]
    a, multipliers = moved(s, solve(s.factor, first[:, None])[:, 0], second)
    return jnp.concatenate([a, multipliers + second - _projected(s.matrix, s.conditions.inverse, second)])


@jax.custom_jvp
def _projected(matrix: jax.Array, known: jax.Array, y: jax.Array) -> jax.Array:
    """`K K^+ y`, the part of `y` in the range of `K`, whose `K^+` is known."""
    return apply(matrix, apply(known, y))


@_projected.defjvp
def _projected_rate(primals, tangents):
    (matrix, known, y), (dmatrix, _, dy) = primals, tangents
    inverse = known_inverse(matrix, known)
    found = apply(matrix, apply(inverse, y))
    turned = apply(dmatrix, apply(inverse, y))
    back = apply_transpose(inverse, apply_transpose(dmatrix, y - found))
    return found, turned - apply(matrix, apply(inverse, turned)) + back + apply(matrix, apply(inverse, dy))


Found = tuple[jax.Array, Solver, Any]
"""The solution, the factorised system, and what is told about it."""


def saddle_point(core: Callable[..., Found], balance: Callable[..., jax.Array]) -> Callable[..., tuple[jax.Array, Any]]:
    """`core(tree, q, v, tau)` with the derivative of what it solves: the solution and what is told about it.

    **Arguments:**

    - `core`: for trailing batch axes; `tree` begins with the model.
    - `balance(tree, q, v, x, project)`: `F + tau` on its first rows, shape `(nv + nc, *batch)`; `project(K, y)` is the
      part of `y` in the range of `K`.
    """

    def values(tree, q, v, tau):
        x, _, told = core(tree, q, v, tau)
        return x, told

    def rule(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        x, known, told = found_with_rule(*primals)
        return (x, told), (_tangent(primals, tangents, x, known), jax.tree.map(jnp.zeros_like, told))

    def rule_of_all(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        x, known, told = found_with_rule(*primals)
        still = jax.tree.map(jnp.zeros_like, (known, told))
        return (x, known, told), (_tangent(primals, tangents, x, known), *still)

    found_with_rule = trailing(core, rule_of_all)

    def _tangent(primals: tuple, tangents: tuple, x: jax.Array, known: Solver) -> jax.Array:
        tree, q, v, _ = primals
        dtree, dq, dv, dtau = tangents
        batch = v.shape[1:]
        constants, structure = jax.tree.flatten(tree)
        rates = jax.tree.leaves(dtree, is_leaf=is_zero)
        moving = tuple(k for k, rate in enumerate(rates) if not is_zero(rate))

        def full(leaf: jax.Array) -> jax.Array:
            return jnp.broadcast_to(leaf, leaf.shape[: leaf.ndim - len(batch)] + batch)

        def equations(constants: list, inverse: jax.Array, q, v, x, leaves: tuple) -> jax.Array:
            current = list(constants)
            for k, leaf in zip(moving, leaves, strict=True):
                current[k] = leaf
            return balance(structure.unflatten(current), q, v, x, lambda k, y: _projected(k, inverse, y))

        at = q, v, x, tuple(full(constants[k]) for k in moving)
        force = jnp.zeros_like(x) if is_zero(dtau) else jnp.concatenate([dtau, jnp.zeros_like(x[len(dtau) :])])
        right = Change(
            leaves=tuple(full(rates[k]) for k in moving),
            q=None if is_zero(dq) else tangent_rows(tree[0], q, dq),
            v=None if is_zero(dv) else dv,
            last=force,
        )

        def change_of(of: Callable, at: tuple, change: Change) -> jax.Array:
            q, v, x, leaves = at
            dq = jnp.zeros_like(q) if change.q is None else rate_rows(tree[0], q, change.q)
            dv = jnp.zeros_like(v) if change.v is None else change.v
            return jax.jvp(of, (q, v, x, leaves), (dq, dv, change.last, change.leaves))[1]

        def system(given: tuple, at: tuple, change: Change) -> jax.Array:
            known, constants = given
            return change_of(partial(equations, constants, known.conditions.inverse), at, change)

        def forward(given: tuple, at: tuple, b: Change) -> jax.Array:
            known, constants = given
            of = partial(equations, constants, known.conditions.inverse)
            along = change_of(of, at, b._replace(last=jnp.zeros_like(at[2])))
            return _regular(structure.unflatten(constants)[0], known, b.last - along)

        def backward(given: tuple, at: tuple, bar: jax.Array) -> Change:
            (known, constants), (q, v, x, leaves) = given, at
            model = structure.unflatten(constants)[0]
            nv = model.nv
            sides = _regular(model, known, jnp.concatenate([bar[:nv], -bar[nv:]]))
            weights = jnp.concatenate([sides[:nv], -sides[nv:]])

            def power(change: Change) -> jax.Array:
                """What the equations do along the weights."""
                place = q if change.q is None else q + rate_rows(model, q, change.q)
                speed = v if change.v is None else v + change.v
                at_change = jax.tree.map(jnp.add, leaves, change.leaves)
                of = equations(constants, known.conditions.inverse, place, speed, x, at_change)
                return jnp.sum(weights * of, axis=0)

            def nothing(x: jax.Array) -> jax.Array:
                return jnp.zeros((*x.shape[: x.ndim - len(batch)], *bar.shape[1:]), x.dtype)

            still = jax.tree.map(nothing, right._replace(last=None))
            value, pull = jax.vjp(power, still)
            return jax.tree.map(jnp.negative, pull(jnp.ones_like(value))[0])._replace(last=weights)

        return solution(right, system, forward, backward)((known, constants), at)

    return trailing(values, rule)
