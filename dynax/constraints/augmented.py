"""Two systems coupled at their nodes, each a tree, closed in the augmented form (Rodriguez, Jain and Kreutz, CC-6STEP).

    [ M_P   0    J_P^T A_P^T ] [ a_P ]   [ tau_P - C_P ]
    [ 0    M_S   J_S^T A_S^T ] [ a_S ] = [ tau_S - C_S ]        U' = dU/dt - dA/dt V - A dJ/dt v
    [ A_P J_P  A_S J_S   0   ] [  f  ]   [     U'      ]

    A, B, C   each system alone: a^f, alpha^f = J a^f, Lambda = J M^-1 J^T      (dynax.constraints.open_system)
    D         [A_P Lambda_P A_P^T + A_S Lambda_S A_S^T] f = A_P alpha_P^f + A_S alpha_S^f - U'
    E         a^d = -M^-1 J^T A^T f, one walk inward and one outward in each system
    F         a = a^f + a^d

The forces of the constraints on the joints are `-J^T A^T f`. Conditions that repeat others leave the accelerations
unique and `f` not: it is then the least of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.algorithms.crba import crba
from dynax.constraints.couplings import Coupling
from dynax.constraints.open_system import OpenSystem, bodies_of
from dynax.linear.pseudo_inverse import PseudoInverse, pseudo_inverse
from dynax.linear.solve import solve
from dynax.model.configuration import integrate
from dynax.operators.nodes import jacobian_rows
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import setup

_times = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class CoupledMotion(NamedTuple):
    """How two coupled systems move; `None` for a system there is not."""

    primary: jax.Array | None
    """Accelerations of the primary system's joints, shape `(nv,)`."""
    secondary: jax.Array | None
    force: jax.Array
    """`f`, shape `(e,)`, one entry per condition: the wrenches `-A^T f` act on the nodes."""
    rank: jax.Array
    """Of the matrix that was inverted for `f`, an integer."""
    singular_values: jax.Array
    """Of that matrix, the largest first, shape `(e,)`."""


class Side(NamedTuple):
    """One of the systems, and its part of the conditions' matrix."""

    system: OpenSystem
    matrix: jax.Array


def _sides(primary: OpenSystem | None, secondary: OpenSystem | None, coupling: Coupling) -> dict[str, Side]:
    rows = {part.shape[0] for part in coupling if part is not None}
    if len(rows) > 1:
        raise ValueError(f"the parts of the coupling have different numbers of conditions: {sorted(rows)}")
    sides = {}
    for name, system, matrix in zip(("primary", "secondary"), (primary, secondary), coupling[:2], strict=True):
        if system is None:
            if matrix is not None:
                raise ValueError(f"the coupling has a matrix for the {name} system, which is None")
            continue
        shape = (next(iter(rows), 0), system.free.compliance.shape[0])
        matrix = jnp.zeros(shape, system.v.dtype) if matrix is None else jnp.asarray(matrix)
        if matrix.shape != shape:
            raise ValueError(f"coupling.{name} has shape {matrix.shape}, expected {shape}: six columns for each node")
        sides[name] = Side(system, matrix)
    if not sides:
        raise ValueError("there is neither a primary nor a secondary system")
    return sides


def _along(side: Side, motions: jax.Array) -> jax.Array:
    """`A x` for motions of the nodes, shape `(m, 6)`."""
    return _times(side.matrix, motions.reshape(-1))


def _total(parts: Iterable[jax.Array]) -> jax.Array:
    return jnp.stack([*parts]).sum(0)


def _or_zero(part: jax.Array | None) -> jax.Array | float:
    return 0.0 if part is None else part


def _schur(side: Side) -> jax.Array:
    return _times(_times(side.matrix, side.system.free.compliance), side.matrix.T)


def _velocity_error(sides: dict[str, Side], coupling: Coupling) -> jax.Array:
    found = _total(_along(side, side.system.free.node_velocities) for side in sides.values())
    return found - _or_zero(coupling.velocity)


def _closing(sides: dict[str, Side], gap: jax.Array, tolerance) -> tuple[jax.Array, PseudoInverse, dict]:
    """The forces that close a gap (step D), and what they do to both systems (step E)."""
    found = pseudo_inverse(_total(map(_schur, sides.values())), tolerance)
    force = _times(found.matrix, gap)
    return force, found, {name: side.system.deflection(-_times(side.matrix.T, force)) for name, side in sides.items()}


def coupled_dynamics(
    primary: OpenSystem | None,
    secondary: OpenSystem | None,
    coupling: Coupling,
    *,
    method: Literal["schur", "primary"] = "schur",
    stabilization=0.0,
    tolerance: ArrayLike | None = None,
) -> CoupledMotion:
    """The accelerations of two systems under conditions on the velocities of their nodes, and the forces of these.

    **Arguments:**

    - `primary`, `secondary`: from `open_system`; either may be `None`.
    - `coupling`: at the same state, from `joint_coupling`, by hand, or several in one from `join_couplings`.
    - `method`: `"schur"` solves for the forces; `"primary"` for the accelerations of a small secondary system, and
      inverts the conditions' matrix of the primary system alone. That must be of full rank: the result holds only if
      `rank` is the number of conditions.
    - `stabilization`: a rate [1/s] at which errors of position and velocity die out (Baumgarte, critically damped).
      Where there is such an error the acceleration is no longer exact.
    - `tolerance`: of the rank, as in `dx.operational_space`.
    """
    if method not in ("schur", "primary"):
        raise ValueError(f"unknown method {method!r}: choose 'schur' or 'primary'")
    sides = _sides(primary, secondary, coupling)
    rates = {name: side.system.free.node_accelerations + side.system.free.node_biases for name, side in sides.items()}
    gap = _total(_along(side, rates[name]) for name, side in sides.items())
    gap = gap + _or_zero(coupling.rate) - _or_zero(coupling.acceleration)
    error = 2.0 * _velocity_error(sides, coupling) + stabilization * _or_zero(coupling.residual)
    gap = gap + stabilization * error
    if method == "primary":
        return _by_secondary(sides, gap, tolerance)
    force, found, change = _closing(sides, gap, tolerance)
    moved = {name: side.system.free.acceleration + change[name] for name, side in sides.items()}
    return CoupledMotion(moved.get("primary"), moved.get("secondary"), force, found.rank, found.singular_values)


def _by_secondary(sides: dict[str, Side], gap: jax.Array, tolerance) -> CoupledMotion:
    """`[M_S + B^T K B] (a_S - a_S^f) = -B^T K gap` with `B = A_S J_S` and `K` the inverse of `A_P Lambda_P A_P^T`."""
    if len(sides) < 2:
        raise ValueError("method='primary' needs a primary and a secondary system")
    (one, two) = sides["primary"], sides["secondary"]
    found, own = pseudo_inverse(_schur(one), tolerance), two.system
    s = setup(own.model, own.q)
    kin = kinematics(own.model, s, positions=True)
    b = _times(two.matrix, jacobian_rows(own.model, s, kin, bodies_of(own), own.free.rows))
    mass = crba(own.model, own.q)
    kb = _times(found.matrix, b)
    change = -solve(mass + _times(b.T, kb), _times(kb.T, gap))
    force = _times(found.matrix, gap + _times(b, change))
    start = one.system.free.acceleration
    return CoupledMotion(
        start + one.system.deflection(-_times(one.matrix.T, force)),
        own.free.acceleration + change,
        force,
        found.rank,
        found.singular_values,
    )


def coupled_impulse(
    primary: OpenSystem | None, secondary: OpenSystem | None, coupling: Coupling, *, tolerance: ArrayLike | None = None
) -> CoupledMotion:
    """The velocities after two systems are suddenly coupled, and the impulses `p` that do it.

    `[A Lambda A^T] p = A V - U`, then `v - M^-1 J^T A^T p`: of all velocities that fulfil the conditions those nearest
    in kinetic energy, as in a perfectly inelastic impact. It takes out the drift of velocities too.

    **Arguments:** as for `coupled_dynamics`. **Returns:** velocities in place of accelerations, impulses in place of
    forces.
    """
    sides = _sides(primary, secondary, coupling)
    impulse, found, change = _closing(sides, _velocity_error(sides, coupling), tolerance)
    moved = {name: side.system.v + change[name] for name, side in sides.items()}
    return CoupledMotion(moved.get("primary"), moved.get("secondary"), impulse, found.rank, found.singular_values)


def coupled_projection(
    primary: OpenSystem | None, secondary: OpenSystem | None, coupling: Coupling, *, tolerance: ArrayLike | None = None
) -> tuple[jax.Array | None, jax.Array | None]:
    """Configurations of two systems with the error of position taken out to first order: one step of Newton's method.

    The motion is the smallest in kinetic energy. For another step open the systems anew at the result.

    **Arguments:** as for `coupled_dynamics`; the coupling with its `residual`. **Returns:** `q` of both systems.
    """
    if coupling.residual is None:
        raise ValueError("the coupling has no `residual` to take out")
    sides = _sides(primary, secondary, coupling)
    change = _closing(sides, coupling.residual, tolerance)[2]
    moved = {name: integrate(side.system.model, side.system.q, change[name]) for name, side in sides.items()}
    return moved.get("primary"), moved.get("secondary")
