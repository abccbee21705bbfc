"""How the velocity after a step with contact is differentiated, of trees.

With `v* = w + dt a_k` the velocity without contact, and `w` that of the beginning (`simulate.turning`), it obeys

    H (v+ - v*) = J^T gamma(J v+)        M(q) a_k + bias(q, v + h a_(k-1)) = tau

The whole motion has the acceleration `a' = (v+ - w) / dt`, and what both equations change by with the mass matrix is
what inverse dynamics changes by at `a'`. So with `da'` how `a_k` would change if it were `a'` (`mean_velocity.rate`)

    (H + J^T K J) dv+ = H (dw + dt da' + ddt a_k) + d(J^T gamma), at the `v+` found        K = -dgamma/du

and no mass matrix is differentiated. How soft contacts are is taken as given.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.crba import crba
from dynax.compile.batching import along_moving, is_zero, trailing
from dynax.contact.alart_curnier import matrix
from dynax.contact.coulomb import Impact, coulomb, stiffness
from dynax.derivatives.mean_velocity import accelerations, rate
from dynax.linear.solve import solve_rows
from dynax.linear.sums import combined
from dynax.model import Model
from dynax.simulate.turning import Turning


class Surfaces(NamedTuple):
    """Of an `Impact` what may change."""

    jacobian: jax.Array
    target: jax.Array
    friction: jax.Array
    stops: jax.Array


class Known(NamedTuple):
    """What was found before, without derivatives."""

    accelerations: jax.Array
    """Without contact, of all evaluations, shape `(k, nv)`."""
    v: jax.Array
    """After the step."""
    compliance: jax.Array


def _found(model: Model, q, v, tau, dt, axes: Turning, surfaces: Surfaces, known: Known) -> jax.Array:
    """`known.v`, the velocity after a step from `q, v` under `tau` and contact, with its derivatives."""
    return known.v


def _rule(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    model, q, v, tau, dt, axes, surfaces, known = primals
    dmodel, dq, dv, dtau, ddt, daxes, dsurfaces, _ = tangents
    after = velocity(*primals)
    half, dhalf = 0.5 * dt, ddt if is_zero(ddt) else 0.5 * ddt
    a = accelerations(model, q, v, tau, half, known.accelerations)
    mean = v + half * a[-2]
    whole = jnp.concatenate([a[:-1], ((after - axes.begun(v, mean)) / dt)[None]])
    da = rate((model, q, v, tau, half), (dmodel, dq, dv, dtau, dhalf), whole)
    change, later = jnp.zeros_like(v) if is_zero(dv) else dv, dt * da[-1]
    dmean = change + half * da[-2]
    if not is_zero(ddt):
        dmean, later = dmean + dhalf * a[-2], later + ddt * a[-1]
    free = later + along_moving(lambda axes, v, mean: axes.begun(v, mean), (axes, v, mean), (daxes, change, dmean))[1]

    def problem(surfaces: Surfaces) -> Impact:
        j, target, friction, stops = surfaces
        return Impact(inertia, v, v, j, target, known.compliance, known.compliance, friction, stops)

    def push(surfaces: Surfaces) -> jax.Array:
        own = problem(surfaces)
        return own.push(coulomb(own, after))

    inertia = mass(model, q)
    own = problem(surfaces)
    forces = combined(inertia, free) + along_moving(push, (surfaces,), (dsurfaces,))[1]
    return after, solve_rows(matrix(own, stiffness(own, after)), forces)


mass = trailing(crba)
velocity = trailing(_found, _rule)
