"""How a step of the implicit midpoint rule is differentiated.

Its mean velocity `vm` is where

    f = ID(P, qm, vm, a) + friction(P, v+) - tau = 0     qm = integrate(q, dt/2 vm), a = (vm - v) 2/dt, v+ = 2 vm - v

so that its tangent is `dvm = -(df/dvm)^-1 df`, the implicit function theorem (Hairer, Lubich & Wanner 2006, II.1.3),
with `df` along what moves at a fixed `vm`. With the Jacobians of inverse dynamics in closed form,

    df = dID/dq dqm + M da + dID/dP dP + dfriction - dtau
    dt/2 df/dvm = M + dt/2 (dID/dv + 2 dfriction/dv+) + (dt/2)^2 dID/dq dexp

where `dexp` turns a change of `dt/2 vm` into one of `qm`, in the tangent space there: the identity for hinges.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.compile.batching import trailing
from dynax.compile.zeros import along_moving, is_zero
from dynax.derivatives.inverse_dynamics import rnea_derivatives
from dynax.derivatives.inverse_rule import rnea_with_rule
from dynax.linear.solve import solve_rows
from dynax.model import Model
from dynax.model.configuration import integrate_rows, tangent_rows
from dynax.simulate.friction import law
from dynax.tree.freedoms import diagonal


class System(NamedTuple):
    """The equation at what was found, linear in what changes."""

    q: jax.Array
    """`dID/dq`, and so on: shape `(nv, nv, *batch)`."""
    a: jax.Array
    vm: jax.Array
    """`dt/2 df/dvm`"""


def rate(primals: tuple, tangents: tuple, vm: jax.Array, sense: jax.Array) -> jax.Array:
    """How `vm` changes with `(model, q, v, tau, dt)`, for what slips and sticks as in `sense`, for trailing batch axes
    and a model with `closed_form`."""

    def known(model: Model, q, v, tau, dt) -> tuple[jax.Array, jax.Array, jax.Array]:
        half, friction = 0.5 * dt, law(model, sense)
        rest = friction.force + friction.slope * (2.0 * vm - v) - tau
        return integrate_rows(model, q, half * vm), (vm - v) / half, rest

    def needed(model: Model) -> jax.Array:
        return rnea_with_rule(_smooth(model), qm, vm, a, None)

    model, q, v, _, dt = primals
    (qm, a, _), (dqm, da, df) = along_moving(known, primals, tangents)
    along = _system(model, q, v, dt, vm, sense)
    df = df + _times(along.q, tangent_rows(model, qm, dqm)) + _times(along.a, da)
    if not all(is_zero(leaf) for leaf in jax.tree.leaves(tangents[0], is_leaf=is_zero)):
        df = df + along_moving(needed, primals[:1], tangents[:1])[1]
    return -solve_rows(along.vm, 0.5 * dt * df)


@trailing
def _system(model: Model, q, v, dt, vm, sense) -> System:
    """A function of its own, which one kernel can hold where freedoms are few."""
    half = 0.5 * dt
    qm = integrate_rows(model, q, half * vm)
    along = rnea_derivatives(_smooth(model), qm, vm, (vm - v) / half)
    damping = along.v + diagonal(jnp.broadcast_to(2.0 * law(model, sense).slope, vm.shape))
    return System(along.q, along.a, along.a + half * (damping + half * _turned(model, q, half * vm, qm, along.q)))


def _smooth(model: Model) -> Model:
    """Without dry friction, which is a law of the step's end."""
    return dataclasses.replace(model, friction_loss=jnp.zeros_like(model.friction_loss))


def _times(matrix: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(matrix * x, axis=1)


def _turned(model: Model, q: jax.Array, step: jax.Array, qm: jax.Array, along: jax.Array) -> jax.Array:
    """`along dexp`, shape `(nv, nv, *batch)`."""
    topology = model.topology
    if topology.all_screws and not len(topology.free_roots):
        return along

    def column(unit: jax.Array) -> jax.Array:
        unit = jnp.broadcast_to(unit.reshape(-1, *(1,) * (step.ndim - 1)), step.shape)
        moved = jax.jvp(lambda x: integrate_rows(model, q, x), (step,), (unit,))[1]
        return _times(along, tangent_rows(model, qm, moved))

    return jax.vmap(column, out_axes=1)(jnp.eye(model.nv, dtype=step.dtype))
