"""How the acceleration of a step is differentiated, whose velocity terms are those of the mean velocity.

The accelerations `a_i` of all evaluations solve `ID(P, q, v + h a_(i-1), a_i) = tau`, so their tangents

    M da_i = dtau - dID/dq dq - dID/dv (dv + dh a_(i-1) + h da_(i-1)) - dID/dP dP      at the `a_i` found,

one after another with one factor, transposed in the order reversed. All else is as in `rule`: one linear system whose
unknowns include what moves. Of a geared tree `a` stands before what its gears bear, and their conditions follow the
equation (`geared`). From the state and the `a_i` everything is computed again, so that reverse mode keeps no
more than these.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.geared import balance
from dynax.algorithms.mean_velocity import evaluations, place
from dynax.algorithms.rnea import rnea
from dynax.compile.batching import known, trailing
from dynax.compile.zeros import along_moving, is_zero
from dynax.derivatives.adjoint import Weights, adjoint, is_local, local_power
from dynax.derivatives.implicit import Change, solution
from dynax.derivatives.linearize import linearize
from dynax.derivatives.rule import closed_form, full
from dynax.derivatives.tangent import apply, tangent
from dynax.model import Model
from dynax.model.configuration import rate_rows, tangent_rows
from dynax.sweep.scan import scan


class Points(NamedTuple):
    """Where inverse dynamics is differentiated, once for each evaluation, and the leaves of the model that move."""

    q: jax.Array
    half: jax.Array
    """Half a step."""
    v: jax.Array
    """The velocities of the evaluations, shape `(k, nv, *batch)`."""
    a: jax.Array
    """With what gears bear, shape `(k, n, *batch)`."""
    leaves: tuple = ()


def _rule(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    if not closed_form(primals[0]):
        return along_moving(_plain(len(primals[-1])), primals[:-1], tangents[:-1])
    a = accelerations(*primals)
    return a, rate(primals[:-1], tangents[:-1], a)


def rate(primals: tuple, tangents: tuple, a: jax.Array) -> jax.Array:
    """How the `a_i` change with `(model, q, v, tau, half)`, for trailing batch axes.

    Of the last one other forces may be known which are zero at first, as those of contact: at an `a_k` with these the
    equation is that of the whole motion, so that its change is seen with that of the mass matrix they act on."""
    model, q, v, _, half = primals
    dmodel, dq, dv, dtau, dhalf = tangents
    nv, batch = len(v), v.shape[1:]
    before = jnp.concatenate([jnp.zeros_like(a[:1, :nv]), a[:-1, :nv]])
    paths, structure = jax.tree_util.tree_flatten_with_path((model, None))
    constants = [leaf for _, leaf in paths]
    rates = jax.tree.leaves(dmodel, is_leaf=is_zero)
    moving = tuple(k for k, rate in enumerate(rates) if not is_zero(rate))
    at = Points(q, half, v + half * before, a, tuple(full(constants[k], batch) for k in moving))

    def with_leaves(constants: list, leaves: tuple) -> Model:
        current = list(constants)
        for k, leaf in zip(moving, leaves, strict=True):
            current[k] = leaf
        return jax.tree.unflatten(structure, current)[0]

    def inverse_dynamics(constants: list, leaves: tuple, q, v, a) -> jax.Array:
        model = with_leaves(constants, leaves)
        return balance(model, rnea(model, q, v, a[:nv], None, "automatic"), a)

    def system(known: tuple, at: Points, x: Change) -> jax.Array:
        constants, _ = known
        dq = jnp.zeros_like(at.q) if x.q is None else rate_rows(with_leaves(constants, at.leaves), at.q, x.q)
        da = x.last.reshape(at.a.shape)
        dv = at.half * jnp.concatenate([jnp.zeros_like(da[:1, :nv]), da[:-1, :nv]])
        if x.v is not None:
            dv = dv + x.v.reshape(at.v.shape)

        def along(v, a, dv, da):
            rates = x.leaves, dq, dv, da
            return jax.jvp(partial(inverse_dynamics, constants), (at.leaves, at.q, v, a), rates)[1]

        return jax.vmap(along)(at.v, at.a, dv, da).reshape(x.last.shape)

    def forward(known: tuple, at: Points, b: Change) -> jax.Array:
        constants, point = known
        model = jax.tree.unflatten(structure, constants)[0]
        x = place(model, point.q, positions=True)
        inverse = x.system(model, point.v[0])
        force = b.last.reshape(at.a.shape)
        moved = jnp.zeros_like(at.v) if b.v is None else b.v.reshape(at.v.shape)

        def solved(da: jax.Array, own: tuple) -> tuple[jax.Array, jax.Array]:
            v, a, force, dv, at_v, at_a = own
            s, kin = x.moving(model, v, a[:nv])
            map_ = tangent(model, linearize(model, s, kin, x.inertias, v, a[:nv], None), point.q, v)
            tree = force[:nv] - apply(model, map_, b.q, dv + point.half * da[:nv])
            force = jnp.concatenate([tree, force[nv:]])
            if moving:
                by_leaves = partial(inverse_dynamics, constants, q=at.q, v=at_v, a=at_a)
                force = force - jax.jvp(by_leaves, (at.leaves,), (b.leaves,))[1]
            da = inverse.solve(force)
            return da, da

        last = scan(solved, jnp.zeros_like(force[0]), (point.v, point.a, force, moved, at.v, at.a))[1]
        return last.reshape(b.last.shape)

    def backward(known: tuple, at: Points, bar: jax.Array) -> Change:
        constants, point = known
        model = jax.tree.unflatten(structure, constants)[0]
        x = place(model, point.q, positions=True)
        inverse = x.system(model, point.v[0])

        def solved(carry: tuple, own: tuple) -> tuple[tuple, tuple]:
            later, bar_q, bar = carry
            v, a, last, at_v, at_a = own
            s, kin = x.moving(model, v, a[:nv])
            sides, motions = inverse.response(jnp.concatenate([last[:nv] - later, last[nv:]]))
            weights = Weights(sides[:nv], jax.tree.map(lambda x: x[:, 0], motions))
            along_q, along_v = adjoint(model, s, kin, x.inertias, point.q, v, a[:nv], None, weights)

            def power(leaves: tuple) -> jax.Array:
                if all(is_local(paths[k][0]) for k in moving):
                    return local_power(with_leaves(constants, leaves), kin, point.q, v, a[:nv], None, weights)
                return jnp.sum(sides * inverse_dynamics(constants, leaves, at.q, at_v, at_a), axis=0)

            if moving:
                value, along = jax.vjp(power, at.leaves)
                bar = jax.tree.map(jnp.subtract, bar, *along(jnp.ones_like(value)))
            carry = point.half * along_v, None if bar_q is None else bar_q - along_q, bar
            return carry, (sides, along_v)

        last = bar.reshape(at.a.shape)
        nothing = jnp.zeros_like(last[0, :nv])
        start = nothing, None if right.q is None else nothing, jax.tree.map(jnp.zeros_like, at.leaves)
        (_, bar_q, bars), (y, along_v) = scan(solved, start, (point.v, point.a, last, at.v, at.a), reverse=True)
        bar_v = None if right.v is None else -along_v.reshape(-1, *bar.shape[1:])
        return Change(bars, bar_q, bar_v, y.reshape(bar.shape))

    moved = jnp.zeros_like(before) if is_zero(dv) else jnp.broadcast_to(dv, before.shape)
    if not is_zero(dhalf):
        moved = moved + dhalf * before
    right = Change(
        leaves=tuple(full(rates[k], batch) for k in moving),
        q=None if is_zero(dq) else tangent_rows(model, q, dq),
        v=None if is_zero(dv) and is_zero(dhalf) else moved.reshape(-1, *batch),
        last=(jnp.zeros_like(a) if is_zero(dtau) else jnp.broadcast_to(dtau, a.shape)).reshape(-1, *batch),
    )
    known = constants, at._replace(leaves=())
    return solution(right, system, forward, backward)(known, at).reshape(a.shape)


# The accelerations of all evaluations, shape `(k, nv)`, which are found before: `(model, q, v, tau, half, found)`. A
# primitive, since JAX forgets the rule of a `custom_jvp` where it takes a scan apart, and this one is all there is.
accelerations = known(_rule)


@lru_cache
def _plain(count: int):
    """The same by the derivative of the evaluations themselves."""

    def evaluated(model: Model, q, v, tau, half) -> jax.Array:
        x = place(model, q)
        return evaluations(model, x, x.system(model, tau), v, tau, half, count)

    return trailing(evaluated)
