"""Dynamics of a floating base as the book writes it: the base apart from the joints (Featherstone 2008, 9.3 to 9.5).

    [ I_0^c  F ] [ a_0 ]   [ p_0^c ]   [  0  ]
    [ F^T    H ] [  a  ] + [   C   ] = [ tau ]

A free base is a joint with six freedoms, so `forward_dynamics` and the rest serve it as they are. These are the forms
in which the base is eliminated: functions of the joints alone, for a base on which nothing acts but gravity and
`external`. The blocks are those of the mass matrix and of the bias force.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.algorithms.crba import composites, mass_matrix
from dynax.algorithms.frames import FrameChoice, jacobian
from dynax.compile.batching import batch_last
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.routes.inverse_dynamics import bias_force, inverse_dynamics
from dynax.tree.bodies import world_inertias
from dynax.tree.freedoms import diagonal
from dynax.tree.kinematics import kinematics
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


def floating_equations(
    model: Model, q: ArrayLike, v: ArrayLike, external: ArrayLike | None = None
) -> FloatingEquations:
    """The blocks of the equation of motion of a floating system, base and joints apart (eqs. 9.11 to 9.13, table 9.5).

    **Arguments:** as `bias_force`. The first body must be the only one that hangs on the world, by a free joint;
    `ValueError` otherwise, here and in the other functions of floating systems.
    """
    _check_floating(model)
    q, v, external = as_state(model, q=q, v=v, external=external)
    inertia, bias = mass_matrix(model, q), bias_force(model, q, v, external)
    return FloatingEquations(inertia[:6, :6], inertia[:6, 6:], inertia[6:, 6:], bias[:6], bias[6:])


def floating_mass_matrix(model: Model, q: ArrayLike) -> jax.Array:
    """`H - F^T (I_0^c)^-1 F`: the inertia the joints feel while the base is free to move, shape `(nv - 6, nv - 6)`
    (eq. 9.15). Symmetric, positive definite and dense."""
    _check_floating(model)
    inertia = mass_matrix(model, q)
    return inertia[6:, 6:] - inertia[6:, :6] @ solve(inertia[:6, :6], inertia[:6, 6:])


def floating_bias_force(model: Model, q: ArrayLike, v: ArrayLike, external: ArrayLike | None = None) -> jax.Array:
    """`C - F^T (I_0^c)^-1 p_0^c`: with it and `floating_mass_matrix`, `H a + C = tau` for the joints alone, shape
    `(nv - 6,)` (eq. 9.16). Gravity, which moves base and joints alike, is not felt in it."""
    e = floating_equations(model, q, v, external)
    return e.joint_bias - e.coupling.T @ solve(e.base_inertia, e.base_bias)


@batch_last
def _base_inertia(model: Model, q: jax.Array) -> jax.Array:
    """`I_0^c` in the axes of the base, with its armature, shape `(6, 6, *batch)`, in O(n)."""
    s = setup(model, q)
    kin = kinematics(model, s, positions=True)
    roots = composites(s, kin, world_inertias(s, kin)).roots, s.root_rotation
    total, rotation = jax.tree.map(lambda a: a[0], roots)
    inertia = jnp.moveaxis(total.rotate(rotation.T).matrix, (-2, -1), (0, 1))
    return inertia + diagonal(model.armature[:6].astype(s.dtype))


def floating_inverse_dynamics(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike, external: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """How a floating base accelerates, and which joint forces it takes, for given accelerations of the joints, O(n).

    Featherstone (2008), section 9.5: the base is free, so only the joints' accelerations can be chosen. It accelerates
    so that of the forces on it, which a first recursion finds for a base that does not, a second one finds none.

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
    inertia = _base_inertia(model, q)

    def recursion(base: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        tau = inverse_dynamics(model, q, v, jnp.concatenate([base, whole[6:]]), external)
        return base - solve(inertia, tau[:6]), (base, tau[6:])

    # A loop, since the same program twice takes twice as long to compile.
    _, (bases, forces) = lax.scan(recursion, whole[:6], length=2)
    return bases[1], forces[1]


def floating_jacobian(model: Model, q: ArrayLike, name: str, *, frame: FrameChoice) -> jax.Array:
    """The Jacobian of a body or frame while the base floats: `J - J_0 (I_0^c)^-1 F`, shape `(6, nv - 6)` (example 9.4).

    The velocity of the body for given joint rates at zero momentum, and the change of velocity an impulse between the
    bodies makes. **Arguments:** as `jacobian`.
    """
    _check_floating(model)
    j, inertia = jacobian(model, q, name, frame=frame), mass_matrix(model, q)
    return j[:, 6:] - j[:, :6] @ solve(inertia[:6, :6], inertia[:6, 6:])
