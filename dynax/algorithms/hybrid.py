"""Hybrid dynamics: some joints' accelerations are given, the others' forces (Featherstone 2008, sections 9.1 and
9.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.algorithms.articulated import eliminate
from dynax.algorithms.crba import crba
from dynax.algorithms.rnea import rnea
from dynax.bodies.hinge import slot_rows
from dynax.compile.batching import batch_last, walking
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.tree.bodies import net_forces, passive_force, world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import setup


def prescribed_mask(model: Any, prescribed: Sequence[str]) -> np.ndarray:
    """Which freedoms belong to the prescribed joints, shape `(nv,)`."""
    if isinstance(prescribed, str):
        raise ValueError(f"`prescribed` must be a tuple of joint names, got the string {prescribed!r}")
    mask = np.zeros(model.nv, dtype=bool)
    for joint in prescribed:
        mask[model.v_slice(joint)] = True
    return mask


@cache
def _hybrid(prescribed: tuple[str, ...]) -> Callable:
    return walking(batch_last)(partial(_solved, prescribed=prescribed))


def _solved(model: Model, q, v, tau, a, external, *, prescribed: tuple[str, ...], execution: str):
    mask = prescribed_mask(model, prescribed)
    given = mask.reshape(-1, *(1,) * (q.ndim - 1))
    a = jnp.where(given, a, 0.0)
    s = setup(model, q, v, execution)
    kin = kinematics(model, s, v, a, accelerations=True, gravity=True)
    inertias = world_inertias(s, kin)
    forces = net_forces(s, kin, inertias, external)
    # With the given accelerations in the bias, their joints are rigid for what remains (eqs. 9.6 to 9.10).
    rest = eliminate(
        model, s, slot_rows(model, s, kin, mask), inertias, forces, tau - passive_force(model, q, v), mask
    ).a
    a = jnp.where(given, a, rest)
    return a, jnp.where(given, rnea(model, q, v, a, external, execution), tau)


@for_models
def hybrid_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    a: ArrayLike,
    prescribed: Sequence[str],
    external: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Accelerations and forces of all joints when some accelerations and the other forces are given, in O(n).

    Articulated-body hybrid dynamics, Featherstone (2008), section 9.2.

    **Arguments:**

    - `q`, `v`: configuration `(nq,)` and velocity `(nv,)`.
    - `tau`, `a`: joint forces and accelerations `(nv,)`; of each, the entries of the other kind of joint are ignored.
    - `prescribed`: names of the joints whose `a` is given (static).
    - `external`: as in `forward_dynamics`.

    **Returns:** the full `(a, tau)`.
    """
    q, v, tau, a, external = as_state(model, q=q, v=v, tau=tau, a=a, external=external)
    prescribed_mask(model, prescribed)
    return _hybrid(tuple(prescribed))(model, q, v, tau, a, external)


@partial(jax.jit, static_argnames=("prescribed",))
def _hybrid_by_matrix(model: Model, q, v, tau, a, external, *, prescribed: tuple[str, ...]):
    given = prescribed_mask(model, prescribed)
    free = np.flatnonzero(~given)
    a = jnp.where(given, a, 0.0)
    bias = rnea(model, q, v, None, external) + crba(model, q) @ a
    mass = crba(model, q)[np.ix_(free, free)]
    solution = solve(mass, (tau - bias)[free]) if len(free) else jnp.zeros(0, q.dtype)
    a = a.at[free].set(solution)
    return a, jnp.where(given, rnea(model, q, v, a, external), tau)


def hybrid_dynamics_by_matrix(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    a: ArrayLike,
    prescribed: Sequence[str],
    external: ArrayLike | None = None,
):
    """`hybrid_dynamics` by the four steps of section 9.1: bias with the given accelerations, the mass matrix of the
    other joints, a solution, inverse dynamics. O(n^3); the route the O(n) one is tested against."""
    q, v, tau, a, external = as_state(model, q=q, v=v, tau=tau, a=a, external=external)
    return _hybrid_by_matrix(model, q, v, tau, a, external, prescribed=tuple(prescribed))
