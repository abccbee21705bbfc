"""How forward dynamics of embedded loops, and of bodies that bend, is differentiated: as that of rigid trees
(`dynax.derivatives.rule`), with the derivatives of inverse dynamics itself in the place of closed forms.

    M da = dtau - dID(P, q, v, a)               there: `jax.jvp` of inverse dynamics, and the factor
    dP, dq, dv = -d(w^T ID)    M w = da bar     back: the factor, and the power of the weights, by its closed form
                                                (`embedding.adjoint`) or by `jax.vjp`

So the derivative differentiates no elimination, and each way is one function of its own, which one kernel can hold.
Where the way back has a closed form, second derivatives are the change of that at constant weights,

    d(dP, dq, dv) = -d(d(w^T ID)) - dw^T dID    M dw = d(da bar) - dM w

the last of which is the way back again, of what `dw` solves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from dynax.algorithms.factor import Factor, solve
from dynax.compile.batching import KEPT, known, trailing
from dynax.compile.zeros import along_moving, is_zero
from dynax.derivatives.implicit import Change, solution
from dynax.derivatives.rule import Moves, Point, full
from dynax.embedding.model import tree_of
from dynax.model.configuration import rate_rows


class Found(NamedTuple):
    """Of one state, with the full batch."""

    a: jax.Array
    factor: Factor | None
    """`None` where it is not kept."""


class ClosedForm(NamedTuple):
    """The power of weights and the way back, where some leaves of `(model, external)` move; `given(leaves)` is that
    pair."""

    rates: Callable[..., Change]
    """`(given, at, weights)`: how the power `weights . ID` changes with the leaves, along the tangent of `q`, with `v`
    and with `a`."""
    back: Callable[..., Change]
    """`(given, at, bar, factor)`: the first three of these with their signs turned, and the weights, by a factor that
    may be `None`."""


Adjoint = Callable[[Any, list], ClosedForm | None]
"""For `(model, paths)` of the leaves of `(model, external)` that move; `None` where there is no closed form."""


def differentiable(
    solved: Callable[..., tuple[jax.Array, Factor]], inverse: Callable[..., jax.Array], adjoint: Adjoint | None = None
) -> Callable:
    """Forward dynamics `(model, q, v, tau, external)` for plain `vmap`, with its differentiation rule.

    **Arguments:** for trailing batch axes, `solved(model, q, v, tau, external)`, the accelerations and the factor of
    the mass matrix; `inverse(model, q, v, a, external)`, inverse dynamics; `adjoint`: the way back in closed form.
    """

    def both(model, q, v, tau, external) -> Found:
        found = Found(*solved(model, q, v, tau, external))
        return jax.tree.map(partial(full, batch=q.shape[1:]), found)

    def forward(*state: Any) -> jax.Array:
        return solved(*state)[0]

    def rule_of_both(primals: tuple, tangents: tuple) -> tuple[Found, Found]:
        found = value(*primals)
        return found, Found(
            _tangent_of(primals, tangents, found, inverse, adjoint), jax.tree.map(jnp.zeros_like, found.factor)
        )

    def rule(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        found = value(*primals)
        return found.a, _tangent_of(primals, tangents, found, inverse, adjoint)

    value = trailing(both, rule_of_both)
    return jax.jit(trailing(forward, rule))


def known_solution(inverse: Callable[..., jax.Array], adjoint: Adjoint | None = None) -> Callable:
    """`a`, as a function `(model, q, v, tau, external, factor, a)` with the derivatives of forward dynamics, which has
    found it with the factor; of these two none are taken."""

    def rule(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        a = solution_of(*primals)  # and not the one given, so that second derivatives know it
        return a, _tangent_of(primals[:5], tangents[:5], Found(a, primals[5]), inverse, adjoint)

    solution_of = known(rule)
    return solution_of


def kept_solution(
    solved: Callable[..., tuple[jax.Array, Factor]],
    factor: Callable[..., Factor],
    inverse: Callable[..., jax.Array],
    adjoint: Adjoint | None = None,
) -> Callable:
    """`differentiable`, of which rollouts keep the accelerations: their way back asks for the factor alone,
    `factor(model, q)`."""

    def rule(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        a = checkpoint_name(value(*primals), KEPT)
        return a, _tangent_of(primals, tangents, Found(a, None), inverse, adjoint, factor)

    value = trailing(lambda *state: solved(*state)[0], rule)
    return value


def _tangent_of(
    primals: tuple,
    tangents: tuple,
    found: Found,
    inverse: Callable[..., jax.Array],
    adjoint: Adjoint | None,
    factor_of: Callable[..., Factor] | None = None,
) -> jax.Array:
    """The tangent of the acceleration."""
    model, q, v, _, external = primals
    moves = Moves.of(primals, tangents, tree_of)
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path((model, external))[0]]
    closed = None if adjoint is None else adjoint(model, [paths[k] for k in moves.which])
    tree = tree_of(model)

    def factor_at(known: tuple, at: Point) -> Factor:
        factor, constants = known
        if factor is not None:
            return factor
        assert factor_of is not None
        return factor_of(moves.model(constants, at.leaves)[0], at.q)

    def nowhere(at: Point) -> jax.Array:
        """No displacement of `q`, which is the tree's and may leave the loops too."""
        return jnp.zeros((tree.nv, *at.v.shape[1:]), at.v.dtype)

    def needed(constants: list, at: Point, leaves: tuple, dq: jax.Array, v: jax.Array, a: jax.Array) -> jax.Array:
        """Inverse dynamics near `at`, where `q` is moved along the tangent `dq`."""
        model, external = moves.model(constants, leaves)
        return inverse(model, at.q + rate_rows(tree_of(model), at.q, dq), v, a, external)

    def change(constants: list, at: Point, x: Change, rate: jax.Array) -> jax.Array:
        rates = x.leaves, nowhere(at) if x.q is None else x.q, jnp.zeros_like(at.v) if x.v is None else x.v, rate
        return jax.jvp(partial(needed, constants, at), (at.leaves, nowhere(at), at.v, at.a), rates)[1]

    def moved(x: Change) -> Change:
        """The rates by what moves."""
        right = moves.change
        return x._replace(q=None if right.q is None else x.q, v=None if right.v is None else x.v)

    def system(known: tuple, at: Point, x: Change) -> jax.Array:
        return change(known[1], at, x, x.last)

    def there(known: tuple, at: Point, b: Change) -> jax.Array:
        factor, constants = factor_at(known, at), known[1]
        return solve(factor, (b.last - change(constants, at, b, jnp.zeros_like(at.a)))[:, None])[:, 0]

    def back(known: tuple, at: Point, bar: jax.Array) -> Change:
        constants = known[1]
        if closed is not None:
            return moved(closed.back(partial(moves.model, constants), at, bar, known[0]))
        weights = weigh(known, at, bar)

        def power(leaves: tuple, dq: jax.Array, v: jax.Array) -> jax.Array:
            return -jnp.sum(weights * needed(constants, at, leaves, dq, v, at.a), axis=0)

        total, pull = jax.vjp(power, at.leaves, nowhere(at), at.v)
        leaves, bar_q, bar_v = pull(jnp.ones_like(total))
        return moved(Change(leaves, bar_q, bar_v, weights))

    def weigh(known: tuple, at: Point, bar: jax.Array) -> jax.Array:
        return solve(factor_at(known, at), bar[:, None])[:, 0]

    def rates(constants: list, at: Point, weights: jax.Array) -> Change:
        assert closed is not None
        return moved(closed.rates(partial(moves.model, constants), at, weights))

    def left(change: jax.Array, dbar: Any) -> jax.Array:
        """The right side of the weights' rates."""
        return -change if is_zero(dbar) else dbar - change

    def weigh_again(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        (known, at, _), (dknown, dat, dbar) = primals, tangents
        found = weights_of(*primals)
        borne = along_moving(lambda c, at: rates(c, at, found).last, (known[1], at), (dknown[1], dat))[1]
        return found, weights_of(known, at, left(borne, dbar))

    def back_again(primals: tuple, tangents: tuple) -> tuple[Change, Change]:
        (known, at, _), (dknown, dat, dbar) = primals, tangents
        assert exact_back is not None
        weights = weights_of(*primals)
        power, change = along_moving(lambda c, at: rates(c, at, weights), (known[1], at), (dknown[1], dat))
        more = exact_back(known, at, left(change.last, dbar))
        found = jax.tree.map(jnp.negative, power)._replace(last=weights)
        return found, jax.tree.map(jnp.subtract, more, change._replace(last=jnp.zeros_like(weights)))

    weights_of = trailing(weigh, weigh_again)
    exact_back = None if closed is None else trailing(back, back_again)
    known = found.factor, jax.tree.leaves((model, external))
    return solution(moves.change, system, there, back, exact_back)(known, Point(q, v, found.a, moves.leaves))
