"""Forward and inverse dynamics as solvers differentiate them: twice, in closed form, each derivative traced once.

First derivatives are the Jacobians `J` of `dynax.derivatives`, once for all directions. Second ones come contracted,
as a solver wants them: of `bar = J' l`, with multipliers `l` (a costate, as a rule), along `x = (dq, dv, da)`. Those of
inverse dynamics are the derivative of its adjoint, one function of a direction; those of forward dynamics follow at the
acceleration found (the tensor is never formed; Singh, Russo & Wensing 2023, "On second-order derivatives of rigid-body
dynamics: theory and implementation"):

    dbar = H(l) x + J' dl                      for inverse dynamics, whose bar_a = M l moves with q alone
    H_fd(l) = -X' H(m) X,   m = M^-1 l         X = [1 0 0; 0 1 0; J]

Derivatives by leaves of the model, and those of models that are not trees of rigid bodies, are the library's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.compile.batching import by_samples, known, linear, trailing
from dynax.compile.zeros import along_moving, is_zero
from dynax.derivatives.adjoint import Weights, whole_adjoint
from dynax.derivatives.curvature import curvature
from dynax.derivatives.forward_dynamics import forward_dynamics_derivatives
from dynax.derivatives.inverse_dynamics import inverse_dynamics_derivatives
from dynax.derivatives.rule import closed_form, full
from dynax.model import Model
from dynax.model.configuration import rate_rows, tangent_rows
from dynax.routes.forward_dynamics import forward_dynamics
from dynax.routes.inverse_dynamics import inverse_dynamics
from dynax.tree.bodies import world_inertias
from dynax.tree.kinematics import kinematics, moved
from dynax.tree.setup import setup


class Moving(NamedTuple):
    """A state and what drives it, or a tangent or cotangent of these; with trailing batch axes `(nv, *batch)`."""

    q: jax.Array
    v: jax.Array
    last: jax.Array
    """Joint forces, or for inverse dynamics accelerations."""


def _product(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return jnp.einsum("ij...,j...->i...", matrix, vector, precision=lax.Precision.HIGHEST)


def _matrix_product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum("ij...,jk...->ik...", a, b, precision=lax.Precision.HIGHEST)


def _turned(matrix: jax.Array) -> jax.Array:
    return jnp.swapaxes(matrix, 0, 1)


@trailing
def _bends(model: Model, at: Moving, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How `bar` of inverse dynamics changes along each freedom, shape `(3 nv, nv, *batch)`, and its part by velocities
    along each velocity, `(nv, nv, *batch)`. What does not move is computed once for all directions."""
    nv, eye = model.nv, jnp.eye(model.nv, dtype=weights.dtype)

    def bar(q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        s = setup(model, q, v, "levels")
        kin = kinematics(model, s, v, at.last, positions=True, accelerations=True, gravity=True)
        inertias = world_inertias(s, kin)
        paired = Weights(weights, moved(model, s, kin, weights))
        return whole_adjoint(model, s, kin, inertias, q, v, at.last, None, paired)[:3]

    def along(unit: jax.Array) -> jax.Array:
        return jnp.broadcast_to(unit.reshape(nv, *(1 for _ in weights.shape[1:])), weights.shape)

    def by_q(unit: jax.Array) -> jax.Array:
        rates = jax.jvp(lambda q: bar(q, at.v), (at.q,), (rate_rows(model, at.q, along(unit)),))[1]
        return jnp.concatenate(rates)

    def by_v(unit: jax.Array) -> jax.Array:
        return jax.jvp(lambda v: bar(at.q, v)[1], (at.v,), (along(unit),))[1]

    return jax.vmap(by_q, out_axes=1)(eye), jax.vmap(by_v, out_axes=1)(eye)


def _curvature(model: Model, at: Moving, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of `weights` times inverse dynamics: the block by `(q, v)`, shape `(2 nv, 2 nv, *batch)`, and the rows of
    `bar_a`, which moves with `q` alone, `(nv, nv, *batch)`. Where `integrate` does not add, the block by `q` is not
    symmetric: `bar_q` is taken in axes that move."""
    nv = model.nv
    if model.topology.all_screws:
        by_q, mixed, by_v, rows = curvature(model, *at, weights)
    else:
        along, by_v = _bends(model, at, weights)
        by_q, mixed, rows = along[:nv], along[nv : 2 * nv], along[2 * nv :]
    upper, lower = jnp.concatenate([by_q, _turned(mixed)], axis=1), jnp.concatenate([mixed, by_v], axis=1)
    return jnp.concatenate([upper, lower]), rows


def inverse_curvature(model: Model, at: Moving, found: Any, J: jax.Array, weights: jax.Array) -> jax.Array:
    """`H`, shape `(3 nv, 3 nv, *batch)`, rows those of `bar`."""
    block, rows = _curvature(model, at, weights)
    still = jnp.zeros_like(rows)
    right = jnp.concatenate([_turned(rows), still])
    below = jnp.concatenate([rows, still, still], axis=1)
    return jnp.concatenate([jnp.concatenate([block, right], axis=1), below])


def forward_curvature(
    model: Model, at: Moving, found: jax.Array, J: jax.Array, weights: jax.Array, symmetric: bool = False
) -> jax.Array:
    """`H_fd`, as `inverse_curvature`, or its symmetric part; `found` are the accelerations. Of `X' H X` only what is
    not zero."""
    nv = model.nv
    block, rows = _curvature(model, at._replace(last=found), _product(_turned(J[:, 2 * nv :]), weights))
    if symmetric:
        block = 0.5 * (block + _turned(block))
    by_q, by_v, by_tau = jnp.split(_matrix_product(_turned(J), rows), 3)
    bend = block[:nv, :nv] + by_q + _turned(by_q), block[:nv, nv:] + _turned(by_v), block[nv:, :nv] + by_v
    still = jnp.zeros_like(rows)
    below = [[bend[2], block[nv:, nv:], still], [by_tau, still, still]]
    return -jnp.concatenate([jnp.concatenate(row, axis=1) for row in ([*bend[:2], _turned(by_tau)], *below)])


def acceleration_curvature(model: Model, at: Moving, found: jax.Array, J: jax.Array, weights: jax.Array) -> jax.Array:
    """Of `weights` times `acceleration` along the tangent of `(q, v, tau)`, shape `(3 nv, 3 nv)`, where accelerations
    and Jacobian are known. Along the curves of `integrate`: the symmetric part, whatever axes `bar_q` is taken in."""
    return forward_curvature(model, at, found, J, weights, symmetric=True)


def _repeated(given: Any, like: jax.Array) -> Any:
    """With the trailing batch axes of `like`."""
    return jax.tree.map(partial(full, batch=like.shape[1:]), given)


def _again(function: Callable) -> Callable:
    """What `function(model, at)` gives, as a function `(model, at, found)` of what was found; its derivatives are those
    of `function`."""
    samples = by_samples(function)

    def rule(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        return found(*primals), along_moving(samples, primals[:2], tangents[:2])[1]

    found = known(rule)
    return found


def _twice(value: Callable, jacobians: Callable, bending: Callable) -> Callable:
    """`value(model, q, v, last)` with closed forms of both derivatives."""

    def plain(model: Any, at: Moving, x: Moving) -> jax.Array:
        dq = rate_rows(model, at.q, x.q)
        return jax.jvp(lambda *z: value(model, *z), tuple(at), (dq, x.v, x.last))[1]

    def plain_back(model: Any, at: Moving, bar: jax.Array) -> Moving:
        rest = jax.tree.map(jnp.zeros_like, Moving(bar, bar, bar))
        return jax.vjp(lambda x: plain(model, at, x), rest)[1](bar)[0]

    samples, samples_back = by_samples(plain), by_samples(plain_back)
    value_again = _again(lambda model, at: value(model, *at))
    jacobian_again = _again(lambda model, at: jnp.concatenate(jacobians(model, *at), axis=1))

    def forward(model: Any, at: Moving, known: tuple, x: Moving) -> jax.Array:
        return _product(known[1], jnp.concatenate(x))

    def backward(model: Any, at: Moving, known: tuple, bar: jax.Array) -> Moving:
        return Moving(*jnp.split(_product(_turned(known[1]), bar), 3))

    def bent(primals: tuple, tangents: tuple) -> tuple[Moving, Moving]:
        model, at, known, bar = primals
        dmodel, dat, _, dbar = tangents
        found = exact_back(*primals)
        # Third derivatives ask how what is known changes.
        known = value_again(model, at, known[0]), jacobian_again(model, at, known[1])
        rate = jax.tree.map(jnp.zeros_like, found) if is_zero(dbar) else backward(model, at, known, dbar)
        if closed_form(model):
            if not all(is_zero(d) for d in dat):
                x = [jnp.zeros_like(bar) if is_zero(d) else d for d in dat]
                x[0] = x[0] if is_zero(dat.q) else tangent_rows(model, at.q, dat.q)
                along = _product(bending(model, at, *known, bar), jnp.concatenate(x))
                rate = jax.tree.map(jnp.add, rate, Moving(*jnp.split(along, 3)))
            left, rates, by_library = (model,), (dmodel,), lambda model: samples_back(model, at, bar)
        else:
            left, rates, by_library = (model, at), (dmodel, dat), lambda model, at: samples_back(model, at, bar)
        if not all(is_zero(d) for d in jax.tree.leaves(rates, is_leaf=is_zero)):
            rate = jax.tree.map(jnp.add, rate, along_moving(by_library, left, rates)[1])
        return found, rate

    exact_back = trailing(backward, bent)
    # What is known stands in the tree, whose leaves are not repeated for each direction of a Jacobian.
    respond, _ = linear(
        lambda given, x: forward(given[0], given[1], given[2], x),
        lambda given, bar: backward(given[0], given[1], given[2], bar),
        lambda given, x: samples(given[0], _repeated(given[1], x.v), x),
        lambda given, x: x.v,
        lambda given, bar: exact_back(given[0], *_repeated(given[1:], bar), bar),
    )

    @jax.custom_jvp
    def of_tree(model: Model, q: jax.Array, v: jax.Array, last: jax.Array) -> jax.Array:
        return value(model, q, v, last)

    def rate(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        model, q, v, last = primals
        dmodel, dq, dv, dlast = tangents
        found = value(*primals)
        total = jnp.zeros_like(found)
        if not all(is_zero(d) for d in (dq, dv, dlast)):
            still = lax.stop_gradient(primals)
            known = lax.stop_gradient(found), jnp.concatenate(jacobians(*still), axis=1)
            none = jnp.zeros_like(found)
            along = none if is_zero(dq) else tangent_rows(model, q, dq)
            x = Moving(along, *(none if is_zero(d) else d for d in (dv, dlast)))
            total = respond((model, Moving(q, v, last), known), x)
        if not all(is_zero(d) for d in jax.tree.leaves(dmodel, is_leaf=is_zero)):
            known = jax.tree.map(lambda d: jnp.zeros(d.shape, d.dtype) if is_zero(d) else d, dmodel, is_leaf=is_zero)
            total = total + jax.jvp(lambda m: value(m, q, v, last), (model,), (known,))[1]
        return found, total

    of_tree.defjvp(rate, symbolic_zeros=True)

    def function(model: Any, q: jax.Array, v: jax.Array, last: jax.Array) -> jax.Array:
        return (of_tree if isinstance(model, Model) else value)(model, q, v, last)

    return function


acceleration = _twice(forward_dynamics, forward_dynamics_derivatives, forward_curvature)
"""`forward_dynamics(model, q, v, tau)`."""
joint_force = _twice(inverse_dynamics, inverse_dynamics_derivatives, inverse_curvature)
"""`inverse_dynamics(model, q, v, a)`."""
