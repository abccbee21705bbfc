"""How inverse dynamics is differentiated: `grad`, `jvp`, `jacfwd` and `jacrev` all come here.

    dtau = dID/dq dq + dID/dv dv + M da + dID/dP dP

for a model with leaves `P`: the first two terms in the closed form of `tangent`, transposed that of `adjoint`, each a
function of its own, which is one kernel where that can be. Second derivatives are those of the recursion itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.rnea import forces_of, rnea
from dynax.compile.batching import linear, trailing
from dynax.compile.prepared import Lines
from dynax.compile.zeros import along_moving, is_zero
from dynax.derivatives.adjoint import Weights, adjoint, is_local, local_power
from dynax.derivatives.implicit import Change
from dynax.derivatives.linearize import linearize
from dynax.derivatives.rule import Moves, Point, closed_form, full
from dynax.derivatives.tangent import apply, tangent
from dynax.model.configuration import rate_rows
from dynax.tree.kinematics import moved
from dynax.tree.layout import Parts
from dynax.tree.setup import setup


class Found(NamedTuple):
    """What the derivatives need of one state, all with the full batch."""

    tau: jax.Array
    q: jax.Array
    v: jax.Array
    a: jax.Array
    kin: Parts
    inertias: Parts


def differentiable(execution: str) -> Callable:
    """Inverse dynamics `(model, q, v, a, external)` for plain `vmap`, with its differentiation rule; `a = None` is
    zero."""

    def both(model, q, v, a, external) -> Found:
        tau, kin, inertias = forces_of(model, q, v, a, external, execution)
        found = Found(tau, q, v, jnp.zeros_like(v) if a is None else a, kin, inertias)
        return jax.tree.map(partial(full, batch=q.shape[1:]), found)

    def rule_of_both(primals: tuple, tangents: tuple) -> tuple[Found, Found]:
        found = value(*primals)
        still = jax.tree.map(jnp.zeros_like, found)
        return found, still._replace(tau=_tangent_of(primals, tangents, found, execution))

    def rule(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        if not closed_form(primals[0]):
            return along_moving(partial(rnea, execution="levels"), primals, tangents)
        found = value(*primals)
        return found.tau, _tangent_of(primals, tangents, found, execution)

    value = trailing(both, rule_of_both, lines=Lines.PARTS)
    forces = partial(rnea, execution=execution)
    return jax.jit(trailing(forces, rule, like=lambda model, q, v, *_: v, lines=Lines.PARTS))


def _tangent_of(primals: tuple, tangents: tuple, found: Found, execution: str) -> jax.Array:
    """The tangent of the forces."""
    model, q, v, a, external = primals
    moves = Moves.of(primals, tangents)
    drives = a is not None and not is_zero(tangents[3])
    right = moves.change if drives else moves.change._replace(last=None)
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path((model, external))[0]]

    def needed(constants: list, leaves: tuple, q, v, a, execution: str = execution) -> jax.Array:
        model, external = moves.model(constants, leaves)
        return rnea(model, q, v, a, external, execution)

    def exact(known: tuple, at: Point, x: Change) -> jax.Array:
        constants = known[1]
        model, _ = moves.model(constants, at.leaves)
        dq = jnp.zeros_like(at.q) if x.q is None else rate_rows(model, at.q, x.q)
        dv, da = (jnp.zeros_like(at.v) if rate is None else rate for rate in (x.v, x.last))
        plain = partial(needed, constants, execution="levels")
        return jax.jvp(plain, (at.leaves, at.q, at.v, at.a), (x.leaves, dq, dv, da))[1]

    def exact_back(known: tuple, at: Point, bar: jax.Array) -> Change:
        constants = known[1]

        def power(leaves: tuple, dq: jax.Array | None, v: jax.Array | None, a: jax.Array | None) -> jax.Array:
            q = at.q if dq is None else at.q + rate_rows(moves.model(constants, leaves)[0], at.q, dq)
            v, a = at.v if v is None else v, at.a if a is None else a
            return jnp.sum(bar * needed(constants, leaves, q, v, a, execution="levels"), axis=0)

        rest = jnp.zeros_like(at.v)
        near = (None if x is None else start for x, start in zip(right[1:], (rest, at.v, at.a), strict=True))
        total, along = jax.vjp(power, at.leaves, *near)
        return Change(*along(jnp.ones_like(total)))

    def there(known: tuple, at: Point, x: Change) -> jax.Array:
        found, constants = known
        model, external = jax.tree.unflatten(moves.structure, constants)
        force = jnp.zeros_like(at.v)
        if x.q is not None or x.v is not None:
            s = setup(model, found.q, found.v, execution)
            rows = linearize(model, s, found.kin, found.inertias, found.v, found.a, external)
            force = apply(model, tangent(model, rows, found.q, found.v), x.q, x.v)
        if moves.which or drives:
            along = partial(needed, constants, q=at.q, v=at.v)
            rates = x.leaves, jnp.zeros_like(at.a) if x.last is None else x.last
            force = force + jax.jvp(lambda leaves, a: along(leaves, a=a), (at.leaves, at.a), rates)[1]
        return force

    def back(known: tuple, at: Point, bar: jax.Array) -> Change:
        found, constants = known
        model, external = jax.tree.unflatten(moves.structure, constants)
        s = setup(model, found.q, found.v, execution)
        weights = Weights(bar, moved(model, s, found.kin, bar))
        bar_q = bar_v = None
        bar_a: Any = None
        if right.q is not None or right.v is not None:
            both = adjoint(model, s, found.kin, found.inertias, found.q, found.v, found.a, external, weights)
            known_to_move = (right.q, right.v)
            bar_q, bar_v = (None if x is None else rate for x, rate in zip(known_to_move, both, strict=True))
        if drives:  # the mass matrix is symmetric
            bar_a = jax.jvp(lambda a: needed(constants, at.leaves, at.q, at.v, a), (at.a,), (bar,))[1]
        leaves = ()
        if moves.which:

            def paired(leaves: tuple) -> jax.Array:
                if all(is_local(paths[k]) for k in moves.which):
                    model, external = moves.model(constants, leaves)
                    return local_power(model, found.kin, found.q, found.v, found.a, external, weights, execution)
                return jnp.sum(bar * needed(constants, leaves, at.q, at.v, at.a), axis=0)

            power, along = jax.vjp(paired, at.leaves)
            (leaves,) = along(jnp.ones_like(power))
        return Change(leaves, bar_q, bar_v, bar_a)

    response, _ = linear(there, back, exact, lambda known, at, x: at.v, exact_back, like_transpose=right.like(v))
    point = Point(q, v, jnp.zeros_like(v) if a is None else a, moves.leaves)
    return response((found._replace(tau=None), jax.tree.leaves((model, external))), point, right)


rnea_with_rule = differentiable("automatic")
"""`(model, q, v, a, external)`, for plain `vmap` and for trailing batch axes."""
