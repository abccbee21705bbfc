"""The derivative of one step by its state and the linear parameters of the model, in closed form.

The accelerations `a_i` of a step solve `ID(q, v_i, a_i) = tau` with `v_i = v + h a_(i-1)`, and `ID` is linear in the
parameters, `Y pi` and what drives add, so that

    M da_i = -dID/dq dq - dID/dv (dv + h da_(i-1)) - Y(q, v_i, a_i) dpi

with derivatives by the state (Singh, Russo & Wensing 2021) and the regressor (Atkeson, An & Hollerbach 1986), and one
inverse of the mass matrix for all. What sticks and what slips is taken as given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.regressor import inverse_dynamics_along
from dynax.compile.zeros import is_zero
from dynax.derivatives.inverse_dynamics import InverseDynamicsDerivatives, inverse_dynamics_derivatives
from dynax.derivatives.rule import closed_form
from dynax.linear.matrices import product
from dynax.linear.solve import solve_definite
from dynax.model import Model
from dynax.model.configuration import difference, integrate
from dynax.model.inertias import inertial_parameters
from dynax.simulate.euler import ExplicitEuler, SemiImplicitEuler
from dynax.simulate.friction import Stepped, law, stiffened
from dynax.simulate.rollout import STEPPERS
from dynax.simulate.stepper import AbstractStepper

BODIES = frozenset({"mass", "com", "first_moment", "inertia"})
DRIVES = ("armature", "damping", "friction_loss", "stiffness")
"""Leaves with a number for each freedom that the equations of motion are linear in."""


class Slopes(NamedTuple):
    """How the linear parameters depend on those searched for, a column for each of these."""

    inertias: jax.Array | None
    """Shape `(10 n, p)`, `None` where nothing moves them."""
    drives: dict[str, jax.Array]
    """Each `(nv, p)`; those which move."""


def slopes_of(build: Callable[[jax.Array], Any], x: jax.Array, stepper: str | AbstractStepper) -> Slopes | None:
    """The slopes where the closed form serves: a tree of rigid bodies, one of the Euler methods, and parameters that
    move nothing but what the equations are linear in; else `None`."""
    model = jax.eval_shape(build, x)
    if euler(stepper) is None or not isinstance(model, Model):
        return None
    if model.constrained or not closed_form(model):
        return None
    moving = _moving(build, x)
    if not moving <= BODIES | set(DRIVES):
        return None

    def of(read: Callable[[Model], jax.Array]) -> jax.Array:
        return jax.jacfwd(lambda x: read(build(x)).ravel())(x)

    inertias = of(inertial_parameters) if moving & BODIES else None
    return Slopes(inertias, {name: of(lambda m, name=name: getattr(m, name)) for name in DRIVES if name in moving})


def euler(stepper: str | AbstractStepper) -> ExplicitEuler | SemiImplicitEuler | None:
    """The method if it is one of the two."""
    method = STEPPERS.get(stepper) if isinstance(stepper, str) else stepper
    return method if isinstance(method, ExplicitEuler | SemiImplicitEuler) else None


def _moving(build: Callable[[jax.Array], Any], x: jax.Array) -> set[str]:
    """The names of the leaves of the model that depend on `x`."""
    found: set[str] = set()

    @jax.custom_jvp
    def seen(model: Any) -> jax.Array:
        return x

    def rule(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        rates = jax.tree_util.tree_leaves_with_path(tangents[0], is_leaf=is_zero)
        found.update(path[0].name for path, rate in rates if not is_zero(rate))
        return x, jnp.zeros_like(x)

    seen.defjvp(rule, symbolic_zeros=True)
    jax.eval_shape(lambda x, dx: jax.jvp(lambda x: seen(build(x)), (x,), (dx,)), x, x)
    return found


def step_slopes(
    model: Model,
    slopes: Slopes,
    q: jax.Array,
    v: jax.Array,
    found: Stepped,
    after: jax.Array,
    dt: jax.Array,
    stepper: str | AbstractStepper,
) -> jax.Array:
    """The derivative of `[q+; v+]` by `[q, v, x]`, along the tangent, shape `(2 nv, 2 nv + p)`.

    `found` is what `simulated` found in the step, to `after`: `q+`.
    """
    explicit = isinstance(euler(stepper), ExplicitEuler)
    da = (_explicit if explicit else _semi_implicit)(model, slopes, q, v, found, dt)
    flow = v if explicit else v + dt * found.accelerations[-1]
    columns = da.shape[1]
    still = jnp.eye(2 * model.nv, columns, dtype=v.dtype)
    dq, dv = still[: model.nv], still[model.nv :]
    dv_after = dv + dt * da
    along = dv if explicit else dv_after
    if model.topology.all_screws and not len(model.topology.free_roots):
        return jnp.concatenate([dq + dt * along, dv_after])

    def ahead(dq: jax.Array, w: jax.Array) -> jax.Array:
        return difference(model, after, integrate(model, integrate(model, q, dq), w))

    by_q, by_flow = jax.jacfwd(ahead, argnums=(0, 1))(jnp.zeros_like(v), dt * flow)
    return jnp.concatenate([product(by_q, dq) + dt * product(by_flow, along), dv_after])


def _columns(model: Model, slopes: Slopes, drives: dict[str, jax.Array], q, v, a) -> jax.Array:
    """`Y dpi`, shape `(nv, p)`; `drives`: what a unit of each adds to the force of its own freedom."""
    parts = [drives[name][:, None] * rate for name, rate in slopes.drives.items()]
    if slopes.inertias is not None:
        parts.append(inverse_dynamics_along(model, q, v, a, slopes.inertias))
    return sum(parts, jnp.zeros((), v.dtype))


def _explicit(model: Model, slopes: Slopes, q: jax.Array, v: jax.Array, found: Stepped, dt: jax.Array) -> jax.Array:
    """The derivative of the acceleration."""
    a = found.accelerations[0]
    by: InverseDynamicsDerivatives = inverse_dynamics_derivatives(model, q, v, a)
    drives = {
        "armature": a,
        "damping": v,
        "friction_loss": jnp.tanh(v / model.friction_velocity.astype(v.dtype)),
        "stiffness": difference(model, model.spring_reference.astype(q.dtype), q),
    }
    right = jnp.concatenate([by.q, by.v, _columns(model, slopes, drives, q, v, a)], axis=1)
    return -solve_definite(by.a, right)


def _semi_implicit(
    model: Model, slopes: Slopes, q: jax.Array, v: jax.Array, found: Stepped, dt: jax.Array
) -> jax.Array:
    """The derivative of the last acceleration."""
    friction = law(model, found.sense)
    stiff = stiffened(model, dt, friction)
    slope = model.damping.astype(v.dtype) + friction.slope
    holds = law(model.replace(friction_loss=jnp.ones_like(model.friction_loss)), found.sense)
    stretch = difference(model, model.spring_reference.astype(q.dtype), q)
    a = found.accelerations
    at = v + 0.5 * dt * jnp.concatenate([jnp.zeros_like(a[:1]), a[:-1]])

    def right(v_mean: jax.Array, a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        by: InverseDynamicsDerivatives = inverse_dynamics_derivatives(stiff, q, v_mean, a)
        reached = v + dt * a
        drives = {
            "armature": a,
            "damping": reached,
            "friction_loss": holds.force + holds.slope * reached,
            "stiffness": stretch,
        }
        columns = _columns(model, slopes, drives, q, v_mean, a)
        return jnp.concatenate([by.q, by.v + jnp.diag(slope), columns], axis=1), by.v, by.a

    rows, by_v, mass = jax.vmap(right)(at, a)
    inverse = solve_definite(mass[0], jnp.eye(model.nv, dtype=v.dtype))
    da = -product(inverse, rows[0])
    for own, along in zip(rows[1:], by_v[1:], strict=True):
        da = -product(inverse, own + 0.5 * dt * product(along, da))
    return da
