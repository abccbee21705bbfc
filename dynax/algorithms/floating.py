"""Dynamics of a floating base as the book writes it: the base apart from the joints (Featherstone 2008, 9.3 to 9.5).

    [ I_0^c  F ] [ a_0 ]   [ p_0^c ]   [  0  ]
    [ F^T    H ] [  a  ] + [   C   ] = [ tau ]

A free base is a joint with six freedoms, so `forward_dynamics` and the rest serve it as they are. These are the forms
in which the base is eliminated: functions of the joints alone, for a base on which nothing acts but gravity and
`external`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.crba import composites
from dynax.algorithms.frames import FrameChoice, jacobian
from dynax.algorithms.rnea import project, transmitted
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.spatial import Motion, Vec3
from dynax.tree.bodies import net_forces, passive_force, per_velocity, stacked, world_inertias
from dynax.tree.freedoms import freedoms, on_support, pair, per_freedom
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import setup


class FloatingEquations(NamedTuple):
    """The blocks of eq. 9.13, for `m = nv - 6` joint freedoms; those of the base as its velocities in `v` are."""

    base_inertia: jax.Array
    """`I_0^c`, the inertia of the whole system, shape `(6, 6)`."""
    coupling: jax.Array
    """`F`, whose columns are the forces on the base that unit joint accelerations need, shape `(6, m)`."""
    joint_inertia: jax.Array
    """`H`, shape `(m, m)`."""
    base_bias: jax.Array
    """`p_0^c`, shape `(6,)`, gravity included."""
    joint_bias: jax.Array
    """`C`, shape `(m,)`."""


def _check_floating(model: Model) -> None:
    t = model.topology
    if t.roots != (0,) or tuple(t.free_roots) != (0,):
        names = ", ".join(repr(model.joint_names[k]) for k in t.roots) or "none"
        raise ValueError(
            f"model {model.name!r} is not one floating system: its first body must hang on the world by a free joint "
            f"and be the only one that does, but the joints to the world are: {names}. Load a URDF with root='free'"
        )


class _Inertias(NamedTuple):
    base: jax.Array
    coupling: jax.Array
    joint: jax.Array


@jax.jit
def _inertias(model: Model, q: jax.Array) -> _Inertias:
    s = setup(model, q)
    kin = kinematics(model, s, positions=True)
    total = composites(s, kin, world_inertias(s, kin))
    rows = freedoms(model, s, kin)
    force = per_freedom(s, total) @ rows.column
    armature = model.armature.astype(s.dtype)
    # Positions are relative to the base's origin, so shifting by them brings every F_i to the base (eq. 9.12).
    one = jax.tree.map(lambda a: a[0], s.root_rotation)
    coupling = force.shift_to_parent(rows.position).rotate_back(one)
    base = jax.tree.map(lambda a: a[0], total.roots).rotate(one.T).matrix
    matrix = on_support(model, pair(force, rows.column, rows.position, rows.position))
    return _Inertias(base + jnp.diag(armature[:6]), stacked(coupling).T[:, 6:], matrix[6:, 6:] + jnp.diag(armature[6:]))


@jax.jit
def _relative(model: Model, q, v, a, external):
    """Forces on the base (its axes) and at the joints if the base did not accelerate; `a = None` for joints at rest."""
    whole = None if a is None else jnp.concatenate([jnp.zeros(6, a.dtype), a])
    s = setup(model, q, v)
    kin = kinematics(model, s, v, whole, accelerations=True, gravity=True)
    forces = transmitted(s, kin, net_forces(s, kin, world_inertias(s, kin), external))
    tau = project(model, s, kin, forces) + passive_force(model, q, v)
    return tau if whole is None else tau + per_velocity(model.armature, whole) * whole


def floating_equations(
    model: Model, q: ArrayLike, v: ArrayLike, external: ArrayLike | None = None
) -> FloatingEquations:
    """The blocks of the equation of motion of a floating system, base and joints apart (eqs. 9.11 to 9.13, table 9.5).

    **Arguments:** as `bias_force`. The first body must be the only one that hangs on the world, by a free joint;
    `ValueError` otherwise, here and in the other functions of floating systems.
    """
    _check_floating(model)
    q, v, external = as_state(model, q=q, v=v, external=external)
    bias = _relative(model, q, v, None, external)
    own = _inertias(model, q)
    return FloatingEquations(own.base, own.coupling, own.joint, bias[:6], bias[6:])


def floating_mass_matrix(model: Model, q: ArrayLike) -> jax.Array:
    """`H - F^T (I_0^c)^-1 F`: the inertia the joints feel while the base is free to move, shape `(nv - 6, nv - 6)`
    (eq. 9.15). Symmetric, positive definite and dense."""
    _check_floating(model)
    (q,) = as_state(model, q=q)
    own = _inertias(model, q)
    return own.joint - own.coupling.T @ solve(own.base, own.coupling)


def floating_bias_force(model: Model, q: ArrayLike, v: ArrayLike, external: ArrayLike | None = None) -> jax.Array:
    """`C - F^T (I_0^c)^-1 p_0^c`: with it and `floating_mass_matrix`, `H a + C = tau` for the joints alone, shape
    `(nv - 6,)` (eq. 9.16). Gravity, which moves base and joints alike, is not felt in it."""
    e = floating_equations(model, q, v, external)
    return e.joint_bias - e.coupling.T @ solve(e.base_inertia, e.base_bias)


@jax.jit
def _floating_inverse_dynamics(model: Model, q, v, a, external):
    relative = _relative(model, q, v, a, external)
    s = setup(model, q)
    kin = kinematics(model, s, positions=True)
    total = composites(s, kin, world_inertias(s, kin))
    one = jax.tree.map(lambda x: x[0], s.root_rotation)
    base = jax.tree.map(lambda x: x[0], total.roots).rotate(one.T).matrix + jnp.diag(model.armature[:6].astype(s.dtype))
    own = -solve(base, relative[:6])
    rows = freedoms(model, s, kin)
    # tau_i = S_i . (I_i^c a_0 + p_i^c), with a_0 at the joint (eq. 9.25).
    moved = Motion(Vec3.from_array(own[:3]), Vec3.from_array(own[3:])).rotate(one).shift(rows.position)
    extra = rows.column.dot(per_freedom(s, Parts(total.roots, total.rows)) @ moved)
    return own, (relative + extra)[6:]


def floating_inverse_dynamics(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike, external: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """How a floating base accelerates, and which joint forces it takes, for given accelerations of the joints, O(n).

    Featherstone (2008), section 9.5 (table 9.6): the base is free, so only the joints' accelerations can be chosen.

    **Arguments:**

    - `q`, `v`: configuration `(nq,)` and velocity `(nv,)` of the whole system.
    - `a`: accelerations of the joints without the base, shape `(nv - 6,)`.
    - `external`: as in `forward_dynamics`.

    **Returns:** the base's acceleration `(6,)`, as the first entries of `forward_dynamics`, and the joint forces
    `(nv - 6,)`.
    """
    _check_floating(model)
    joints = jnp.asarray(a)
    if joints.shape != (model.nv - 6,):
        raise ValueError(f"`a` has shape {joints.shape}, expected {(model.nv - 6,)}: the joints without the base")
    q, v, whole, external = as_state(model, q=q, v=v, a=jnp.pad(joints, (6, 0)), external=external)
    return _floating_inverse_dynamics(model, q, v, whole[6:], external)


def floating_jacobian(model: Model, q: ArrayLike, name: str, *, frame: FrameChoice) -> jax.Array:
    """The Jacobian of a body or frame while the base floats: `J - J_0 (I_0^c)^-1 F`, shape `(6, nv - 6)` (example 9.4).

    The velocity of the body for given joint rates at zero momentum, and the change of velocity an impulse between the
    bodies makes. **Arguments:** as `jacobian`.
    """
    _check_floating(model)
    (q,) = as_state(model, q=q)
    j, own = jacobian(model, q, name, frame=frame), _inertias(model, q)
    return j[:, 6:] - j[:, :6] @ solve(own.base, own.coupling)
