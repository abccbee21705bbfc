"""How forward dynamics is differentiated: `grad`, `jvp`, `jacfwd`, `jacrev` and `hessian` all come here.

The acceleration `a(P, q, v, tau)` of a model with leaves `P` solves `tau = ID(P, q, v, a)`, so its tangent solves

    M da = dtau - dID/dq dq - dID/dv dv - dID/dP dP      at the `a` found.

The right side is the closed form of `tangent`, transposed that of `adjoint`; the solution is the factor of the mass
matrix that forward dynamics has made anyway (`implicit`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from dynax.algorithms.aba import solved
from dynax.algorithms.factor import Factor, factor_at, response, solve
from dynax.algorithms.rnea import rnea
from dynax.compile.batching import KEPT, trailing
from dynax.compile.zeros import along_moving, is_zero
from dynax.derivatives.adjoint import Weights, adjoint, is_local, local_power
from dynax.derivatives.implicit import Change, solution
from dynax.derivatives.linearize import linearize
from dynax.derivatives.tangent import apply, tangent
from dynax.model import Model
from dynax.model.configuration import rate_rows, tangent_rows
from dynax.tree.bodies import world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import setup

# Sums over the ancestor relation are products with a matrix; beyond this many freedoms the recursion's own derivative
# costs less.
MOST_FREEDOMS = 160


class Residuals(NamedTuple):
    """What the derivatives need of one state, all with the full batch."""

    q: jax.Array
    v: jax.Array
    a: jax.Array
    kin: Parts
    inertias: Parts
    factor: Factor


def residuals(model: Model, q, v, tau, external, execution: str) -> tuple[jax.Array, Residuals]:
    """The acceleration and what its derivatives need, for trailing batch axes."""
    x = solved(model, q, v, tau, external, execution)
    found = Residuals(q, v, x.a, x.kin, x.inertias, x.factor)
    return x.a, jax.tree.map(partial(full, batch=q.shape[1:]), found)


def residuals_again(model: Model, at: Point, external, execution: str) -> Residuals:
    """The same where the acceleration has been found before."""
    s = setup(model, at.q, at.v, execution)
    kin = kinematics(model, s, at.v, at.a, positions=True, accelerations=True, gravity=True)
    inertias = world_inertias(s, kin)
    return Residuals(at.q, at.v, at.a, kin, inertias, factor_at(model, s, kin, inertias))


def closed_form(model: Model) -> bool:
    """Whether the rule serves this model."""
    topology = model.topology
    return topology.nv <= MOST_FREEDOMS and all(joint.holonomic for joint in topology.joints)


def differentiable(core: Callable, execution: str, *, kept: bool = False) -> Callable:
    """Forward dynamics `core(model, q, v, tau, external)` for plain `vmap`, with its differentiation rule.

    Derivatives walk by the same `execution` as the core. `kept`: rollouts keep the acceleration, and reverse mode
    begins with that instead of going forward once more, a third to a half less time in a step's gradient. Of forward
    dynamics by itself it would compile half as long again.
    """

    def rule(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        if not closed_form(primals[0]):
            return along_moving(core, primals, tangents)
        a, found = value_and_residuals(*primals)
        if kept:
            a = checkpoint_name(a, KEPT)
        return a, _tangent_of(primals, tangents, a, found, execution, kept)

    def rule_with_residuals(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        a, found = value_and_residuals(*primals)
        return (a, found), (_tangent_of(primals, tangents, a, found, execution), jax.tree.map(jnp.zeros_like, found))

    value_and_residuals = trailing(partial(residuals, execution=execution), rule_with_residuals)
    return trailing(core, rule, like=lambda model, q, v, *_: v)


class Point(NamedTuple):
    """Where inverse dynamics is differentiated, and the leaves of `(model, external)` that move."""

    q: jax.Array
    v: jax.Array
    a: jax.Array
    leaves: tuple


class Moves(NamedTuple):
    """What moves of `(model, q, v, tau, external)`."""

    structure: Any
    which: tuple[int, ...]
    """Leaves of `(model, external)`."""
    leaves: tuple
    """These, with the full batch."""
    change: Change

    @staticmethod
    def of(primals: tuple, tangents: tuple, tree_of: Callable[[Any], Any] = lambda model: model) -> Moves:
        """`tree_of(model)` is what the configuration is that of."""
        model, q, v, _, external = primals
        dmodel, dq, dv, dtau, dexternal = tangents
        constants, structure = jax.tree.flatten((model, external))
        rates = jax.tree.leaves((dmodel, dexternal), is_leaf=is_zero)
        which = tuple(k for k, rate in enumerate(rates) if not is_zero(rate))
        leaves, along = (tuple(full(x[k], v.shape[1:]) for k in which) for x in (constants, rates))
        change = Change(
            leaves=along,
            q=None if is_zero(dq) else tangent_rows(tree_of(model), q, dq),
            v=None if is_zero(dv) else dv,
            last=jnp.zeros_like(v) if is_zero(dtau) else dtau,
        )
        return Moves(structure, which, leaves, change)

    def model(self, constants: list, leaves: tuple) -> tuple[Any, jax.Array | None]:
        """`(model, external)` with these leaves in the place of those that move."""
        current = list(constants)
        for k, leaf in zip(self.which, leaves, strict=True):
            current[k] = leaf
        return jax.tree.unflatten(self.structure, current)


def _tangent_of(
    primals: tuple, tangents: tuple, a: jax.Array, found: Residuals, execution: str, kept: bool = False
) -> jax.Array:
    """The tangent of the acceleration."""
    model, q, v, _, external = primals
    moves = Moves.of(primals, tangents)
    moving, with_leaves, constants = moves.which, moves.model, jax.tree.leaves((model, external))
    paths, structure = jax.tree_util.tree_flatten_with_path((model, external))
    at = Point(q, v, a, moves.leaves)

    def at_hand(known: tuple, at: Point) -> tuple[Residuals, Model, jax.Array | None]:
        found, constants = known
        model, external = jax.tree.unflatten(structure, constants)
        return residuals_again(model, at, external, execution) if found is None else found, model, external

    def inverse_dynamics(constants: list, leaves: tuple, q, v, a) -> jax.Array:
        model, external = with_leaves(constants, leaves)
        return rnea(model, q, v, a, external, execution)

    def paired(known: tuple, found: Residuals, weights: Weights, at: Point, leaves: tuple) -> jax.Array:
        constants = known[1]
        if all(is_local(paths[k][0]) for k in moving):
            model, external = with_leaves(constants, leaves)
            return local_power(model, found.kin, found.q, found.v, found.a, external, weights, execution)
        return jnp.sum(weights.freedoms * inverse_dynamics(constants, leaves, at.q, at.v, at.a), axis=0)

    def system(known: tuple, at: Point, x: Change) -> jax.Array:
        constants = known[1]
        model, _ = with_leaves(constants, at.leaves)
        dq = jnp.zeros_like(at.q) if x.q is None else rate_rows(model, at.q, x.q)
        dv = jnp.zeros_like(at.v) if x.v is None else x.v
        rates = x.leaves, dq, dv, x.last
        return jax.jvp(partial(inverse_dynamics, constants), (at.leaves, at.q, at.v, at.a), rates)[1]

    def forward(known: tuple, at: Point, b: Change) -> jax.Array:
        constants = known[1]
        found, model, external = at_hand(known, at)
        s = setup(model, found.q, found.v, execution)
        linear = linearize(model, s, found.kin, found.inertias, found.v, found.a, external)
        force = b.last - apply(model, tangent(model, linear, found.q, found.v), b.q, b.v)
        if moving:
            by_leaves = partial(inverse_dynamics, constants, q=at.q, v=at.v, a=at.a)
            force = force - jax.jvp(by_leaves, (at.leaves,), (b.leaves,))[1]
        return solve(found.factor, force[:, None])[:, 0]

    def backward(known: tuple, at: Point, bar: jax.Array) -> Change:
        found, model, external = at_hand(known, at)
        force, motions = response(found.factor, bar[:, None])
        weights = Weights(force[:, 0], jax.tree.map(lambda x: x[:, 0], motions))
        bar_q = bar_v = None
        if right.q is not None or right.v is not None:
            s = setup(model, found.q, found.v, execution)
            along = adjoint(model, s, found.kin, found.inertias, found.q, found.v, found.a, external, weights)
            bar_q, bar_v = (None if x is None else -rate for x, rate in zip((right.q, right.v), along, strict=True))
        leaves = ()
        if moving:
            power, along = jax.vjp(partial(paired, known, found, weights, at), at.leaves)
            leaves = jax.tree.map(jnp.negative, *along(jnp.ones_like(power)))
        return Change(leaves, bar_q, bar_v, weights.freedoms)

    def seen(given: tuple) -> tuple:
        (_, constants), at = given
        return (None, constants), at

    right = moves.change
    return solution(right, system, forward, backward, seen=seen if kept else tuple)((found, constants), at)


def full(leaf: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """With batch axes of their whole lengths: those of what is the same for all have length one."""
    return jnp.broadcast_to(leaf, leaf.shape[: leaf.ndim - len(batch)] + batch)
