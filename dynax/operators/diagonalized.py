"""Diagonalised dynamics: velocities in which the mass matrix is the identity (Jain and Rodriguez 1995; Jain, DIAG).

With the innovations factor `M = F D F^T`, `F = 1 + H phi K`, and `L = F D^1/2`,

    nu = L^T v      eps = L^-1 tau      nu' + C(q, nu) = eps      C = L^-1 C_std - (dL/dt)^T v      nu . C = 0

so that the kinetic energy is `|nu|^2 / 2` and every entry of `nu` has an equation of its own, which the others enter
by `C` alone. Without the root,

    nu = F^T v      eps = F^-1 tau      D nu' + C = eps           C = F^-1 C_std - D (dF/dt)^T v

where `C` does work as `D` changes. Either `nu` is a quasi-velocity: in general no coordinates have it as their rates.
`L` is the triangular factor that the recursions find, not the symmetric root of `M`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.rnea import project, rigid_forces, rnea
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import rate_rows
from dynax.operators.factor import innovations_factor
from dynax.operators.operator import Identity, Operator
from dynax.operators.spatial import spatial_operators


class Diagonal(NamedTuple):
    """The maps at one configuration, each a sweep or two."""

    to: Callable[[jax.Array], jax.Array]
    """`v` to `nu`"""
    back: Callable[[jax.Array], jax.Array]
    """`nu` to `v`"""
    force: Callable[[jax.Array], jax.Array]
    """`tau` to `eps`"""
    mass: Operator
    """What multiplies `nu'`."""


def diagonal(model: Model, q: jax.Array, normalized: bool) -> Diagonal:
    if normalized:
        f = innovations_factor(model, q)
        return Diagonal(f.apply_transpose, f.solve_root_transpose, f.solve_root, Identity(model.nv, q.dtype))
    o = spatial_operators(model, q)
    return Diagonal(o.F.T.mv, o.W.T.mv, o.W.mv, o.D)


def drift(model: Model, q: jax.Array, v: jax.Array, normalized: bool, tick: float) -> jax.Array:
    """The rate of `nu` at constant `v`, while joints move with `v` and the clock of driven ones with `tick`."""

    def held(q: jax.Array, time: jax.Array) -> jax.Array:
        return diagonal(model.replace(time=time), q, normalized).to(v)

    return jax.jvp(held, (q, model.time), (rate_rows(model, q, v), jnp.full_like(model.time, tick)))[1]


_compiled = partial(jax.jit, static_argnames="normalized")


@_compiled
def _dynamics(model: Model, q, nu, tau, external, normalized: bool) -> jax.Array:
    d = diagonal(model, q, normalized)
    v = d.back(nu)
    return d.mass.solve(d.force(tau - rnea(model, q, v, None, external))) + drift(model, q, v, normalized, 1.0)


@_compiled
def _coriolis(model: Model, q, nu, normalized: bool) -> jax.Array:
    d = diagonal(model, q, normalized)
    v = d.back(nu)
    weightless = model.replace(gravity=jnp.zeros_like(model.gravity))
    s, kin, forces = rigid_forces(weightless, q, v, None, None, stopped=True)
    return d.force(project(weightless, s, kin, forces)) - d.mass.mv(drift(model, q, v, normalized, 0.0))


@_compiled
def _to(model: Model, q, v, normalized: bool) -> jax.Array:
    return diagonal(model, q, normalized).to(v)


@_compiled
def _back(model: Model, q, nu, normalized: bool) -> jax.Array:
    return diagonal(model, q, normalized).back(nu)


@_compiled
def _force(model: Model, q, tau, normalized: bool) -> jax.Array:
    return diagonal(model, q, normalized).force(tau)


def diagonal_velocity(model: Model, q: ArrayLike, v: ArrayLike, *, normalized: bool = True) -> jax.Array:
    """The quasi-velocities `nu` of `diagonalized_dynamics`, in which the kinetic energy is `|nu|^2 / 2`, in O(n).

    **Arguments:**

    - `q`, `v`: configuration `(nq,)` and velocity `(nv,)`.
    - `normalized`: whether the mass matrix becomes the identity, by `nu = L^T v` with `L` of `innovations_factor`;
      otherwise it becomes `D`, by `nu = F^T v` with `F`, `D` of `spatial_operators`, in the units of `v`.

    **Returns:** `nu`, shape `(nv,)`.
    """
    return _to(model, *as_state(model, q=q, v=v), normalized=normalized)


def velocity_from_diagonal(model: Model, q: ArrayLike, nu: ArrayLike, *, normalized: bool = True) -> jax.Array:
    """The velocity `v`, shape `(nv,)`, whose quasi-velocities are `nu`, in O(n); the inverse of `diagonal_velocity`."""
    return _back(model, *as_state(model, q=q, nu=nu), normalized=normalized)


def diagonal_force(model: Model, q: ArrayLike, tau: ArrayLike, *, normalized: bool = True) -> jax.Array:
    """Joint forces `tau` as the innovations `eps` that drive `diagonalized_dynamics`, shape `(nv,)`, in O(n).

    The power stays the same, `eps @ nu == tau @ v`.
    """
    return _force(model, *as_state(model, q=q, tau=tau), normalized=normalized)


def diagonal_coriolis(model: Model, q: ArrayLike, nu: ArrayLike, *, normalized: bool = True) -> jax.Array:
    """The velocity terms `C(q, nu)` of `diagonalized_dynamics`, quadratic in `nu`, shape `(nv,)`, in O(n).

    Normalised they do no work, `nu @ C == 0`. Driven joints are taken at rest, as in `coriolis_matrix`.
    """
    return _coriolis(model, *as_state(model, q=q, nu=nu), normalized=normalized)


def diagonalized_dynamics(
    model: Model,
    q: ArrayLike,
    nu: ArrayLike,
    tau: ArrayLike,
    external: ArrayLike | None = None,
    *,
    normalized: bool = True,
) -> jax.Array:
    """The rates of the quasi-velocities `nu` that joint forces produce, in O(n) (Jain and Rodriguez 1995).

    Solves `nu' + C(q, nu) = eps`, or `D nu' + C(q, nu) = eps` if not `normalized`, with `eps` the `diagonal_force` of
    `tau` less gravity, damping, friction, springs and the effect of `external`. It is `forward_dynamics` in other
    velocities: integrate it together with the rate of `q`, `configuration_rate(model, q, v)` with `v` from
    `velocity_from_diagonal`.

    **Arguments:**

    - `q`: configuration, shape `(nq,)`; quaternions of unit length.
    - `nu`: quasi-velocities from `diagonal_velocity`, shape `(nv,)`.
    - `tau`, `external`: joint forces `(nv,)` and wrenches on the bodies `(n, 6)`, as in `forward_dynamics`.
    - `normalized`: as in `diagonal_velocity`.

    **Returns:** `nu'`, shape `(nv,)`.
    """
    q, nu, tau, external = as_state(model, q=q, nu=nu, tau=tau, external=external)
    return _dynamics(model, q, nu, tau, external, normalized=normalized)
