"""What every function of a model means for an embedded one. Importing it teaches them.

All follow from `v_tree = X v` and `tau = X^T tau_tree`, and O(n) algorithms of the tree; forward dynamics, the inverse
of the mass matrix and its factor run over the aggregated nodes.
"""

from __future__ import annotations

from functools import partial, singledispatch
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax import sweep
from dynax.algorithms.center_of_mass import center_of_mass
from dynax.algorithms.coriolis import coriolis_matrix
from dynax.algorithms.crba import mass_matrix
from dynax.algorithms.factor import Factor, factorize, factorized, inverse_mass_matrix
from dynax.algorithms.frame_pose import frame_pose
from dynax.algorithms.frames import (
    body_accelerations,
    body_velocities,
    forward_kinematics,
    jacobian,
    jacobian_bias,
)
from dynax.algorithms.momentum import (
    centroidal_momentum,
    centroidal_momentum_matrix,
    kinetic_energy,
    momentum,
    potential_energy,
)
from dynax.algorithms.regressor import inverse_dynamics_regressor
from dynax.algorithms.rnea import gravity_force
from dynax.compile.batching import batch_last, walking
from dynax.constraints.assembly import assemble
from dynax.constraints.residual import rows_at
from dynax.derivatives.forward_dynamics import (
    ForwardDynamicsDerivatives,
    forward_dynamics_and_derivatives,
    forward_dynamics_derivatives,
)
from dynax.derivatives.inverse_dynamics import InverseDynamicsDerivatives, inverse_dynamics_derivatives
from dynax.derivatives.rule import full
from dynax.embedding.adjoint import closed_adjoint, has_closed_adjoint
from dynax.embedding.closing import closing, displaced
from dynax.embedding.coefficients import dense, expanded, plan_of
from dynax.embedding.dynamics import MovedBy, Resisted, at, inverse, motion_of, moved_by, solved
from dynax.embedding.model import EmbeddedModel, embedding_matrix, factors, of_independent
from dynax.embedding.rule import differentiable, kept_solution, known_solution
from dynax.embedding.slopes import forward_slopes
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import (
    bracket_rows,
    configuration_rate,
    difference,
    integrate,
    neutral,
    normalize,
    random_configuration,
    rate_rows,
)
from dynax.model.kinds import extend
from dynax.operators.determinant import log_determinant
from dynax.operators.factor import innovations_factor
from dynax.routes.forward_dynamics import EXECUTIONS, forward_dynamics
from dynax.routes.inverse_dynamics import bias_force, inverse_dynamics


class Motion(NamedTuple):
    """The tree's motion for embedded velocities."""

    x: jax.Array
    """`X`, shape `(tree nv, nv)`."""
    v: jax.Array
    bias: jax.Array
    """`Xdot v`."""


@singledispatch
def tree_configuration(model: Any, q: jax.Array) -> jax.Array:
    """That of the rigid tree that a model is, or that it is made of in the end."""
    return q


@tree_configuration.register
def _(model: EmbeddedModel, q: jax.Array) -> jax.Array:
    return tree_configuration(model.tree, q)


@singledispatch
def tree_motion(model: Any, q: jax.Array, v: jax.Array) -> Motion:
    """Of a kind of model that is made of a tree."""
    raise TypeError(f"a {type(model).__name__} is not made of a tree")


@tree_motion.register
@jax.jit
def _(model: EmbeddedModel, q: jax.Array, v: jax.Array) -> Motion:
    c, whole, drift = motion_of(model.tree, q, v, model.embedding, model.chart)
    return Motion(dense(c.plan, c.x), whole, drift)


def rigid_motion(model: Any, q: jax.Array, v: jax.Array) -> Motion:
    """Of the rigid tree that a model is made of in the end."""
    found = tree_motion(model, q, v)
    if isinstance(model.tree, Model):
        return found
    inner = rigid_motion(model.tree, q, found.v)
    return Motion(inner.x @ found.x, inner.v, inner.x @ found.bias + inner.bias)


def _by_configuration(function):
    """Functions of `q` alone are those of the tree."""

    @extend(function, EmbeddedModel)
    def _(model, q, *rest):
        return function(model.tree, q, *rest)


for _function in (forward_kinematics, frame_pose, center_of_mass, potential_energy):
    _by_configuration(_function)


def _by_velocity(function):
    """Functions of `q` and `v` are those of the tree at its velocity."""

    @extend(function, EmbeddedModel)
    def _(model, q, v):
        q, v = as_state(model, q=q, v=v)
        return function(model.tree, q, tree_motion(model, q, v).v)


for _function in (body_velocities, kinetic_energy, momentum, centroidal_momentum, configuration_rate):
    _by_velocity(_function)


@extend(body_accelerations, EmbeddedModel)
def _(model, q, v, a):
    q, v, a = as_state(model, q=q, v=v, a=a)
    m = tree_motion(model, q, v)
    return body_accelerations(model.tree, q, m.v, m.x @ a + m.bias)


@extend(jacobian, EmbeddedModel)
def _(model, q, name, *, frame):
    (q,) = as_state(model, q=q)
    return jacobian(model.tree, q, name, frame=frame) @ embedding_matrix(model, q)


@extend(centroidal_momentum_matrix, EmbeddedModel)
def _(model, q):
    (q,) = as_state(model, q=q)
    return centroidal_momentum_matrix(model.tree, q) @ embedding_matrix(model, q)


@extend(jacobian_bias, EmbeddedModel)
def _(model, q, v, name, *, frame):
    q, v = as_state(model, q=q, v=v)
    m = tree_motion(model, q, v)
    whole = jacobian(model.tree, q, name, frame=frame) @ m.bias
    return whole + jacobian_bias(model.tree, q, m.v, name, frame=frame)


def _needed(model: EmbeddedModel, q, v, a, external, execution: str = "automatic") -> jax.Array:
    return inverse(model.tree, q, v, a, external, model.embedding, model.chart, execution)


_inverse = walking(batch_last)(_needed)


@extend(inverse_dynamics, EmbeddedModel)
def _(model, q, v, a, external=None):
    return _inverse(model, *as_state(model, q=q, v=v, a=a, external=external))


@extend(bias_force, EmbeddedModel)
def _(model, q, v, external=None):
    q, v, external = as_state(model, q=q, v=v, external=external)
    return _inverse(model, q, v, None, external)


@extend(gravity_force, EmbeddedModel)
def _(model, q):
    (q,) = as_state(model, q=q)
    needed = gravity_force(model.tree, q)
    return embedding_matrix(model, q).T @ (needed if model.chart is None else needed - model.chart.force)


@extend(mass_matrix, EmbeddedModel)
def _(model, q):
    (q,) = as_state(model, q=q)
    x = embedding_matrix(model, q)
    m = x.T @ mass_matrix(model.tree, q) @ x
    return 0.5 * (m + m.T)


@extend(coriolis_matrix, EmbeddedModel)
def _(model, q, v):
    q, v = as_state(model, q=q, v=v)
    m = tree_motion(model, q, v)
    rate = jax.jvp(lambda q: embedding_matrix(model, q), (q,), (configuration_rate(model.tree, q, m.v),))[1]
    return m.x.T @ (coriolis_matrix(model.tree, q, m.v) @ m.x + mass_matrix(model.tree, q) @ rate)


@extend(inverse_dynamics_regressor, EmbeddedModel)
def _(model, q, v, a):
    q, v, a = as_state(model, q=q, v=v, a=a)
    m = tree_motion(model, q, v)
    return m.x.T @ inverse_dynamics_regressor(model.tree, q, m.v, m.x @ a + m.bias)


def _by_walks(execution: str):
    def found(model: EmbeddedModel, q, v, tau, external) -> tuple[jax.Array, Factor]:
        return solved(model.tree, q, v, tau, external, model.embedding, execution, model.chart)

    return differentiable(found, _needed, closed_adjoint)


def _kept() -> Any:
    def found(model: EmbeddedModel, q, v, tau, external) -> tuple[jax.Array, Factor]:
        return solved(model.tree, q, v, tau, external, model.embedding, "levels", model.chart)

    def factor(model: EmbeddedModel, q: jax.Array) -> Factor:
        return factorized(at(model.tree, q, model.embedding, "automatic", model.chart).tree)

    return kept_solution(found, factor, _needed, closed_adjoint)


kept_dynamics = _kept()
"""Forward dynamics `(model, q, v, tau, external)` in the steps of rollouts, for rigid trees."""

_FORWARD = {execution: _by_walks(execution) for execution in sweep.EXECUTIONS}
_FORWARD["automatic"] = _FORWARD["levels"]


def _moved_by(model: EmbeddedModel, q, v, tau, resisted: Resisted) -> MovedBy:
    return moved_by(model.tree, q, v, tau, None, model.embedding, chart=model.chart, resisted=resisted)


@batch_last
def resisted_motion(model: EmbeddedModel, q, v, tau, resisted: Resisted) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Accelerations of the independent freedoms, and of all joints of a rigid tree, and the velocities of these that
    are resisted."""
    found = _moved_by(model, q, v, tau, resisted)
    return found.a, found.whole, found.u


def _needed_against(model: EmbeddedModel, q, v, a, resisted: Resisted) -> jax.Array:
    return inverse(model.tree, q, v, a, None, model.embedding, model.chart, resisted=resisted)


resisted_solution = known_solution(_needed_against, closed_adjoint)
"""The first of these with its derivatives, once it is found: `(model, q, v, tau, resisted, factor, a)`."""


@extend(forward_dynamics, EmbeddedModel)
def _(model, q, v, tau, external=None, *, execution: str = "automatic"):
    if execution not in _FORWARD:
        known = "is for trees without loops" if execution in EXECUTIONS else "is unknown"
        raise ValueError(
            f"execution {execution!r} {known}: for the embedded model {model.name!r} choose one of "
            f"{', '.join(_FORWARD)}"
        )
    return _FORWARD[execution](model, *as_state(model, q=q, v=v, tau=tau, external=external))


@extend(factorize, EmbeddedModel)
def _(model, q):
    return factorized(at(model.tree, q, model.embedding, chart=model.chart).tree)


@batch_last
def mass_factor(model: Any, q: jax.Array) -> Factor:
    """The factor of any model for plain `vmap`."""
    return jax.tree.map(partial(full, batch=q.shape[1:]), factorize(model, q))


# All that is made of the factor alone is the same function.
for _function in (inverse_mass_matrix, innovations_factor, log_determinant):
    extend(_function, EmbeddedModel)(_function.__wrapped__)


# Derivatives along the tangent space, which for an embedded model is that of the independent velocities. To first order
# `q` moves as its rate says, and loops need not be closed again.


@extend(inverse_dynamics_derivatives, EmbeddedModel)
def _(model, q, v, a, external=None):
    return _inverse_slopes(model, *as_state(model, q=q, v=v, a=a, external=external))


@jax.jit
def _inverse_slopes(model: EmbeddedModel, q, v, a, external) -> InverseDynamicsDerivatives:
    def needed(d, v):
        return inverse_dynamics(model, q + rate_rows(model, q, d), v, a, external)

    by_q, by_v = jax.jacfwd(needed, argnums=(0, 1))(jnp.zeros_like(v), v)
    return InverseDynamicsDerivatives(q=by_q, v=by_v, a=mass_matrix(model, q))


@extend(forward_dynamics_derivatives, EmbeddedModel)
def _(model, q, v, tau, external=None):
    return _forward_slopes(model, *as_state(model, q=q, v=v, tau=tau, external=external))[1]


@extend(forward_dynamics_and_derivatives, EmbeddedModel)
@jax.jit
def _forward_slopes(model: EmbeddedModel, q, v, tau, external=None) -> tuple[jax.Array, ForwardDynamicsDerivatives]:
    if has_closed_adjoint(model):
        return forward_slopes(model, q, v, tau, external)

    def found(d, v, tau):
        a = forward_dynamics(model, q + rate_rows(model, q, d), v, tau, external)
        return a, a

    by, a = jax.jacfwd(found, argnums=(0, 1, 2), has_aux=True)(jnp.zeros_like(v), v, tau)
    return a, ForwardDynamicsDerivatives(by[0], by[1], 0.5 * (by[2] + by[2].T))


# Configurations.


@extend(neutral, EmbeddedModel)
def _(model):
    return assemble(model.tree, neutral(model.tree)).q


@extend(random_configuration, EmbeddedModel)
def _(model, key):
    return assemble(model.tree, random_configuration(model.tree, key)).q


@extend(integrate, EmbeddedModel)
def _(model, q, dv):
    return displaced(model, *as_state(model, q=q, v=dv))


@extend(difference, EmbeddedModel)
def _(model, q0, q1):
    q0, q1 = as_state(model, q=q0, q1=q1)
    return of_independent(model, difference(model.tree, q0, q1))


@extend(rate_rows, EmbeddedModel)
def _(model, q, v):
    x = factors(model, rows_at(model.tree, q))[1]
    return rate_rows(model.tree, q, expanded(plan_of(model.tree, model.embedding), x, v))


@extend(bracket_rows, EmbeddedModel)
def _(model, a, b):
    tree, independent = model.tree, np.array(model.independent, int)
    owners = tree.topology.body_of_velocity
    # The other freedoms of a joint that follows in part would have to move as they do.
    for body in set(owners[independent]) & set(np.delete(owners, independent)):
        if not tree.joints[body].adds:
            raise ValueError(
                f"joint {tree.joint_names[body]!r} of model {model.name!r} is independent in part, so that its "
                "velocities have no bracket of their own; pass `independent=` to dx.embed, so that it follows"
            )
    whole = (jnp.zeros((tree.nv, *x.shape[1:]), x.dtype).at[independent].set(x) for x in (a, b))
    return sweep.take_rows(bracket_rows(tree, *whole), independent)


@extend(normalize, EmbeddedModel)
def _(model, q):
    (q,) = as_state(model, q=q)
    return closing(model, normalize(model.tree, q))
