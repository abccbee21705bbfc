"""What every function of a model means for one with bodies that bend. Importing it teaches them.

Kinematics are those of the skeleton where the modes place it, with `v_skeleton = X v`; inertias and forces have what
bends beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from dynax import sweep
from dynax.algorithms.center_of_mass import center_of_mass
from dynax.algorithms.crba import mass_matrix
from dynax.algorithms.factor import factorize, factorized, inverse_mass_matrix, inverse_of
from dynax.algorithms.frame_pose import frame_pose
from dynax.algorithms.frames import (
    body_accelerations,
    body_velocities,
    forward_kinematics,
    jacobian,
    jacobian_bias,
    root_offsets,
)
from dynax.algorithms.hybrid import hybrid_dynamics, prescribed_mask
from dynax.algorithms.momentum import (
    centroidal_momentum,
    centroidal_momentum_matrix,
    kinetic_energy,
    momentum,
    potential_energy,
)
from dynax.algorithms.rnea import gravity_force, joint_forces, transmitted
from dynax.bodies.flexible import prepared, stacked
from dynax.compile.batching import batch_last
from dynax.derivatives.forward_dynamics import (
    ForwardDynamicsDerivatives,
    forward_dynamics_and_derivatives,
    forward_dynamics_derivatives,
)
from dynax.derivatives.inverse_dynamics import InverseDynamicsDerivatives, inverse_dynamics_derivatives
from dynax.embedding.flexible import (
    at_frames,
    at_rest,
    expanded,
    inertias_at,
    inverse,
    moving,
    on_frames,
    state,
    with_bending,
)
from dynax.embedding.flexible_adjoint import closed_adjoint
from dynax.embedding.flexible_composite import composite
from dynax.embedding.flexible_nodes import forward, nodes, solved
from dynax.embedding.flexible_plan import plan
from dynax.embedding.flexible_slopes import forward_slopes
from dynax.embedding.meanings import Motion as TreeMotion
from dynax.embedding.meanings import tree_configuration, tree_motion
from dynax.embedding.rule import differentiable, kept_solution, known_solution
from dynax.model.checks import as_state
from dynax.model.configuration import (
    difference_rows,
    integrate,
)
from dynax.model.flexible import FlexibleModel
from dynax.model.kinds import extend
from dynax.operators.determinant import log_determinant
from dynax.operators.factor import innovations_factor
from dynax.routes.forward_dynamics import EXECUTIONS, forward_dynamics
from dynax.routes.inverse_dynamics import bias_force, inverse_dynamics
from dynax.tree.bodies import per_velocity, public_force
from dynax.tree.bodies import stacked as as_rows
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import setup

Result = TypeVar("Result")

# Kinematics: those of the skeleton.


def _kernel(core: Callable[..., Result]) -> Callable[..., Result]:
    """A function `(model, q, ...)` for trailing batch axes, for plain `vmap`."""
    made: Callable[..., Any] = batch_last(core)
    return lambda model, q, *rest: made(prepared(model, q), q, *rest)


class Skeleton(NamedTuple):
    """Its state, and `Xdot v`, its accelerations while `v` stays."""

    q: jax.Array
    v: jax.Array
    bias: jax.Array


@_kernel
def _configuration(model: FlexibleModel, q: jax.Array) -> jax.Array:
    return state(model, q).q


@_kernel
def _skeleton(model: FlexibleModel, q: jax.Array, v: jax.Array) -> Skeleton:
    at = state(model, q, v)
    return Skeleton(at.q, at.v, at.drift)


@_kernel
def _matrix(model: FlexibleModel, q: jax.Array) -> jax.Array:
    at = state(model, q)
    eye = jnp.eye(model.nv, dtype=q.dtype).reshape(model.nv, model.nv, *(1,) * (q.ndim - 1))
    return expanded(model, at.bodies, at.columns[:, :, :, None], jnp.broadcast_to(eye, (*eye.shape[:2], *q.shape[1:])))


@tree_configuration.register
def _(model: FlexibleModel, q: jax.Array) -> jax.Array:
    return _configuration(model, q)


@tree_motion.register
def _(model: FlexibleModel, q: jax.Array, v: jax.Array) -> TreeMotion:
    at = _skeleton(model, q, v)
    return TreeMotion(_matrix(model, q), at.v, at.bias)


def _by_configuration(function):
    @extend(function, FlexibleModel)
    def _(model, q, *rest):
        return function(model.skeleton, _configuration(model, *as_state(model, q=q)), *rest)


for _function in (forward_kinematics, frame_pose):
    _by_configuration(_function)


@extend(body_velocities, FlexibleModel)
def _(model, q, v):
    at = _skeleton(model, *as_state(model, q=q, v=v))
    return body_velocities(model.skeleton, at.q, at.v)


@extend(body_accelerations, FlexibleModel)
def _(model, q, v, a):
    q, v, a = as_state(model, q=q, v=v, a=a)
    at = _skeleton(model, q, v)
    return body_accelerations(model.skeleton, at.q, at.v, _matrix(model, q) @ a + at.bias)


@extend(jacobian, FlexibleModel)
def _(model, q, name, *, frame):
    (q,) = as_state(model, q=q)
    return jacobian(model.skeleton, _configuration(model, q), name, frame=frame) @ _matrix(model, q)


@extend(jacobian_bias, FlexibleModel)
def _(model, q, v, name, *, frame):
    at = _skeleton(model, *as_state(model, q=q, v=v))
    whole = jacobian(model.skeleton, at.q, name, frame=frame) @ at.bias
    return whole + jacobian_bias(model.skeleton, at.q, at.v, name, frame=frame)


# Forces.


@_kernel
def _inverse(model: FlexibleModel, q, v, a, external) -> jax.Array:
    return inverse(model, q, v, a, external)


@extend(inverse_dynamics, FlexibleModel)
def _(model, q, v, a, external=None):
    return _inverse(model, *as_state(model, q=q, v=v, a=a, external=external))


@extend(bias_force, FlexibleModel)
def _(model, q, v, external=None):
    q, v, external = as_state(model, q=q, v=v, external=external)
    return _inverse(model, q, v, None, external)


@_kernel
def _gravity(model: FlexibleModel, q) -> jax.Array:
    return inverse(model, q, jnp.zeros((model.nv, *q.shape[1:]), q.dtype), None, None, rest=True)


@extend(gravity_force, FlexibleModel)
def _(model, q):
    return _gravity(model, *as_state(model, q=q))


@_kernel
def _transmitted(model: FlexibleModel, q, v, a, external) -> jax.Array:
    m = moving(model, state(model, q, v), a, external)
    forces, s = transmitted(m.setup, m.kin, m.forces), m.setup
    parts = Parts(
        public_force(s.constants.roots, m.kin.roots.rotation, forces.roots),
        public_force(s.constants.rows, m.kin.rows.rotation, forces.rows),
    )
    return as_rows(s.layout.body_order(parts))


@extend(joint_forces, FlexibleModel)
def _(model, q, v, a, external=None):
    return _transmitted(model, *as_state(model, q=q, v=v, a=a, external=external))


# Inertia, and what is solved with it.

_composite = _kernel(composite)


@extend(mass_matrix, FlexibleModel)
def _(model, q):
    return _composite(model, *as_state(model, q=q))


@extend(factorize, FlexibleModel)
def _(model, q):
    at, s, kin = at_rest(model, q)
    return factorized(nodes(model, at, s, kin, inertias_at(at, s, kin), plan(model.skeleton.topology, model.members)))


# All that is made of the factor alone is the same function.
for _function in (inverse_mass_matrix, innovations_factor, log_determinant):
    extend(_function, FlexibleModel)(_function.__wrapped__)


def _on_stacked(function: Callable[..., Result]) -> Callable[..., Result]:
    """For the steps of a rollout: the bodies are the same in all, and stacked once."""
    return lambda model, q, *rest: function(stacked(model, q.dtype), q, *rest)


_FORWARD = {
    execution: differentiable(partial(solved, execution=execution), inverse, closed_adjoint)
    for execution in sweep.EXECUTIONS
}
_FORWARD["automatic"] = _FORWARD["levels"]
kept_flexible_dynamics = _on_stacked(kept_solution(solved, factorize, inverse, closed_adjoint))
"""Forward dynamics `(model, q, v, tau, external)` in the steps of rollouts."""
flexible_solution = _on_stacked(known_solution(inverse, closed_adjoint))
"""The same where it is known, `(model, q, v, tau, external, factor, a)`, with its derivatives."""


@extend(forward_dynamics, FlexibleModel)
def _(model, q, v, tau, external=None, *, execution: str = "automatic"):
    if execution not in _FORWARD:
        known = "is for trees of rigid bodies" if execution in EXECUTIONS else "is unknown"
        raise ValueError(
            f"execution {execution!r} {known}: for the model {model.name!r}, with bodies that bend, choose one of "
            f"{', '.join(_FORWARD)}"
        )
    q, *rest = as_state(model, q=q, v=v, tau=tau, external=external)
    return _FORWARD[execution](prepared(model, q), q, *rest)


@partial(jax.jit, static_argnames=("prescribed",))
def _hybrid(model: FlexibleModel, q, v, tau, a, external, *, prescribed: tuple[str, ...]):
    given = prescribed_mask(model, prescribed)
    a = jnp.where(given, a, 0.0)
    a = jnp.where(given, a, forward(model, q, v, tau, external, locked=given, a=a))
    return a, jnp.where(given, inverse(model, q, v, a, external), tau)


@extend(hybrid_dynamics, FlexibleModel)
def _(model, q, v, tau, a, prescribed, external=None):
    q, v, tau, a, external = as_state(model, q=q, v=v, tau=tau, a=a, external=external)
    prescribed_mask(model, prescribed)
    return _hybrid(model, q, v, tau, a, external, prescribed=tuple(prescribed))


# Derivatives along the tangent space.


def _by_state(model, q, v, a, external):
    """The derivatives of the forces needed, by `q` and `v`."""

    def needed(d, v):
        return inverse_dynamics(model, integrate(model, q, d), v, a, external)

    return jax.jacfwd(needed, argnums=(0, 1))(jnp.zeros_like(v), v)


@extend(inverse_dynamics_derivatives, FlexibleModel)
def _(model, q, v, a, external=None):
    return _inverse_slopes(model, *as_state(model, q=q, v=v, a=a, external=external))


@jax.jit
def _inverse_slopes(model: FlexibleModel, q, v, a, external) -> InverseDynamicsDerivatives:
    by_q, by_v = _by_state(model, q, v, a, external)
    return InverseDynamicsDerivatives(q=by_q, v=by_v, a=mass_matrix(model, q))


@_kernel
def _with_inverse_mass(model: FlexibleModel, q, v, tau, external) -> tuple[jax.Array, jax.Array]:
    a, factor = solved(model, q, v, tau, external)
    return a, inverse_of(factor, q)


@extend(forward_dynamics_derivatives, FlexibleModel)
def _(model, q, v, tau, external=None):
    return _and_slopes(model, *as_state(model, q=q, v=v, tau=tau, external=external))[1]


@extend(forward_dynamics_and_derivatives, FlexibleModel)
def _and_slopes(model: FlexibleModel, q, v, tau, external=None) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    return _forward_slopes(prepared(model, q), q, v, tau, external)


@jax.jit
def _forward_slopes(model: FlexibleModel, q, v, tau, external=None) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    if closed_adjoint(model, []) is not None:
        return forward_slopes(model, q, v, tau, external)
    a, inverse_mass = _with_inverse_mass(model, q, v, tau, external)
    by_q, by_v = _by_state(model, q, v, a, external)
    return a, ForwardDynamicsDerivatives(q=-inverse_mass @ by_q, v=-inverse_mass @ by_v, tau=inverse_mass)


# Energies and momenta.


class Whole(NamedTuple):
    momentum: jax.Array
    """About the world's origin, shape `(6,)`."""
    center: jax.Array
    kinetic: jax.Array
    potential: jax.Array


@_kernel
def _whole(model: FlexibleModel, q, v) -> Whole:
    tree, at = model.skeleton, state(model, q, v)
    s = setup(tree, at.q, at.v)
    kin = kinematics(tree, s, at.v, positions=True)
    modal, inertias = with_bending(model, at, s, kin)
    position, velocity = s.layout.body_order(Parts(*((k.position, k.velocity) for k in kin)))
    position = position + root_offsets(tree, s)
    inertia = s.layout.body_order(inertias)
    (own,) = at_frames(model, s, Parts(*((k.velocity,) for k in kin)))
    along = jax.tree.map(lambda a: jnp.sum(a, axis=1), modal.coupling * at.rate)
    bent = s.layout.body_order(on_frames(model, s, along))

    def total(x):
        return jax.tree.map(lambda a: jnp.sum(jnp.broadcast_to(a, (a.shape[0], *s.batch)), axis=0), x)

    mass, moment = total(inertia.mass), total(inertia.moment + position * inertia.mass)
    whole = total((inertia @ velocity + bent).shift_to_parent(position))
    rotors = 0.5 * jnp.sum(per_velocity(tree.armature, at.v) * at.v**2, axis=0)
    modes = total(own.dot(along) + 0.5 * _square(modal.mass, at.rate))
    kinetic = total(inertia.kinetic_energy(velocity)) + modes + rotors
    reference = per_velocity(tree.spring_reference, at.q) + jnp.zeros_like(at.q)
    stretch = difference_rows(tree, reference, at.q)
    springs = 0.5 * jnp.sum(per_velocity(tree.stiffness, stretch) * stretch**2, axis=0)
    elastic = 0.5 * total(jnp.sum(at.eta * at.bodies.elastic(at.eta, jnp.zeros_like(at.eta)), axis=1))
    potential = springs + elastic - moment.dot(s.gravity)
    h, c = whole, moment / mass
    six = jnp.stack([h.angular.x, h.angular.y, h.angular.z, h.linear.x, h.linear.y, h.linear.z])
    return Whole(six, jnp.stack([c.x, c.y, c.z]), kinetic, potential)


def _square(matrix: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(matrix * x[:, :, None] * x[:, None], axis=(1, 2))


@extend(center_of_mass, FlexibleModel)
def _(model, q):
    (q,) = as_state(model, q=q)
    return _whole(model, q, jnp.zeros(model.nv, q.dtype)).center


@extend(potential_energy, FlexibleModel)
def _(model, q):
    """Weight, joint springs and what modes store."""
    (q,) = as_state(model, q=q)
    return _whole(model, q, jnp.zeros(model.nv, q.dtype)).potential


@extend(kinetic_energy, FlexibleModel)
def _(model, q, v):
    return _whole(model, *as_state(model, q=q, v=v)).kinetic


@extend(momentum, FlexibleModel)
def _(model, q, v):
    return _whole(model, *as_state(model, q=q, v=v)).momentum


@extend(centroidal_momentum, FlexibleModel)
def _(model, q, v):
    found = _whole(model, *as_state(model, q=q, v=v))
    angular, linear = found.momentum[:3], found.momentum[3:]
    return jnp.concatenate([angular - jnp.cross(found.center, linear), linear])


@extend(centroidal_momentum_matrix, FlexibleModel)
def _(model, q):
    (q,) = as_state(model, q=q)
    return jax.jacfwd(lambda v: centroidal_momentum(model, q, v))(jnp.zeros(model.nv, q.dtype))
