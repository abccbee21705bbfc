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

from dynax.algorithms.regressor import along, regressor_at
from dynax.compile.batching import trailing
from dynax.compile.fence import apart
from dynax.compile.zeros import is_zero
from dynax.derivatives.inverse_dynamics import (
    ELEMENTWISE,
    InverseDynamicsDerivatives,
    inverse_dynamics_derivatives,
    jacobians,
)
from dynax.derivatives.linearize import linearize
from dynax.derivatives.rule import closed_form
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.linear.inverse import inverse as dense_inverse
from dynax.linear.matrices import product
from dynax.linear.row_products import batch_leading, batch_trailing
from dynax.model import Model
from dynax.model.configuration import difference, integrate
from dynax.model.inertias import inertial_parameters
from dynax.simulate.euler import ExplicitEuler, SemiImplicitEuler
from dynax.simulate.friction import Stepped, law, stiffened
from dynax.simulate.rollout import STEPPERS
from dynax.simulate.stepper import AbstractStepper
from dynax.tree.bodies import world_inertias
from dynax.tree.freedoms import diagonal
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import setup

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
    if not moving or not moving <= BODIES | set(DRIVES):
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
    equation = (_explicit if explicit else _semi_implicit)(model, q, v, found, dt)
    da = _accelerations(slopes, q, equation, dt)
    flow = v if explicit else v + dt * found.accelerations[-1]
    columns = da.shape[1]
    still = jnp.eye(2 * model.nv, columns, dtype=v.dtype)
    dq, dv = still[: model.nv], still[model.nv :]
    dv_after = dv + dt * da
    along_flow = dv if explicit else dv_after
    if model.topology.all_screws and not len(model.topology.free_roots):
        return jnp.concatenate([dq + dt * along_flow, dv_after])

    def ahead(dq: jax.Array, w: jax.Array) -> jax.Array:
        return difference(model, after, integrate(model, integrate(model, q, dq), w))

    by_q, by_flow = jax.jacfwd(ahead, argnums=(0, 1))(jnp.zeros_like(v), dt * flow)
    return jnp.concatenate([product(by_q, dq) + dt * product(by_flow, along_flow), dv_after])


class _Equation(NamedTuple):
    """`ID(model; q, v_i, a_i) + slope (v + h a_i) = tau` of each evaluation, and what a unit of each drive adds."""

    model: Model
    v: jax.Array
    """Shape `(k, nv)`, as the next."""
    a: jax.Array
    slope: jax.Array
    """Of forces that the derivatives of inverse dynamics do not have, shape `(nv,)`."""
    drives: dict[str, jax.Array]
    """Each `(k, nv)` or `(nv,)`."""


def _explicit(model: Model, q: jax.Array, v: jax.Array, found: Stepped, dt: jax.Array) -> _Equation:
    drives = {
        "armature": found.accelerations,
        "damping": v,
        "friction_loss": jnp.tanh(v / model.friction_velocity.astype(v.dtype)),
        "stiffness": difference(model, model.spring_reference.astype(q.dtype), q),
    }
    return _Equation(model, v[None], found.accelerations, jnp.zeros_like(v), drives)


def _semi_implicit(model: Model, q: jax.Array, v: jax.Array, found: Stepped, dt: jax.Array) -> _Equation:
    friction = law(model, found.sense)
    holds = law(model.replace(friction_loss=jnp.ones_like(model.friction_loss)), found.sense)
    a = found.accelerations
    at = v + 0.5 * dt * jnp.concatenate([jnp.zeros_like(a[:1]), a[:-1]])
    reached = v + dt * a
    drives = {
        "armature": a,
        "damping": reached,
        "friction_loss": holds.force + holds.slope * reached,
        "stiffness": difference(model, model.spring_reference.astype(q.dtype), q),
    }
    slope = model.damping.astype(v.dtype) + friction.slope
    return _Equation(stiffened(model, dt, friction), at, a, slope, drives)


def _accelerations(slopes: Slopes, q: jax.Array, equation: _Equation, dt: jax.Array) -> jax.Array:
    """The derivative of the last acceleration by `[q, v, x]`, shape `(nv, 2 nv + p)`."""
    model = equation.model

    def parts(v: jax.Array, a: jax.Array) -> tuple[InverseDynamicsDerivatives, jax.Array | None]:
        if slopes.inertias is None:
            return inverse_dynamics_derivatives(model, q, v, a), None
        by, ten = _with_regressor(model, q, v, a)
        if by is None:
            by = inverse_dynamics_derivatives(model, q, v, a)
        return by, along(model, ten, slopes.inertias)

    if len(equation.a) == 1:
        by, columns = jax.tree.map(lambda x: x[None], parts(equation.v[0], equation.a[0]))
    else:
        by, columns = jax.vmap(parts)(equation.v, equation.a)
    drives = {name: jnp.broadcast_to(equation.drives[name], equation.a.shape) for name in slopes.drives}
    few = model.nv <= ELEMENTWISE
    inverse = (_inverse_of_few if few else _inverse)((), by.a[0])
    given = inverse, by.q, by.v, equation.slope, columns, drives, slopes.drives, 0.5 * dt
    return jnp.concatenate(_in_turn_written_out((), *given) if few else _in_turn(product, *given), axis=1)


def _rows(model: Model, q, v, a) -> tuple[InverseDynamicsDerivatives | None, tuple[jax.Array, ...]]:
    """The derivatives and the regressor from the same walk; of many freedoms, whose derivatives are products of
    matrices and in no kernel, the regressor alone."""
    s = setup(model, q, v, "automatic")
    kin = kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True)
    ten = regressor_at(model, s, kin)
    if model.nv > ELEMENTWISE:
        return None, ten
    along_q, along_v, mass = jacobians(model, linearize(model, s, kin, world_inertias(s, kin), v, a, None), q, v)
    assert mass is not None
    return InverseDynamicsDerivatives(along_q, along_v, mass), ten


_with_regressor = trailing(_rows)


@trailing
def _inverse_of_few(_, mass):
    n, batch = len(mass), mass.shape[2:]
    return gauss_jordan(mass, jnp.eye(n, dtype=mass.dtype).reshape((n, n) + (1,) * len(batch)))


@trailing
def _inverse(_, mass):
    return batch_trailing(dense_inverse(batch_leading(mass)), mass.shape[2:])


def _in_turn(times: Callable, inverse, by_q, by_v, slope, columns, drives, rates, half) -> list[jax.Array]:
    """The derivatives of the last acceleration by `q`, `v` and `x`, that of one evaluation after another, for trailing
    batch axes if `times`, the product of two matrices, is."""
    own = [drives[name][:, :, None] * rate for name, rate in rates.items()]
    columns = sum(own[1:], own[0]) if columns is None else sum(own, columns)
    found = []
    for k, along_v in enumerate(by_v):
        rows = [by_q[k], along_v + diagonal(slope), columns[k]]
        if found:
            rows = [x + half * times(along_v, before) for x, before in zip(rows, found, strict=True)]
        found = [-times(inverse, x) for x in rows]
    return found


def _written_out(a: jax.Array, b: jax.Array) -> jax.Array:
    """The product as a kernel can hold it; what stands in it is computed once."""
    b = apart(b)
    return apart(sum((a[:, j, None] * b[j] for j in range(1, len(b))), a[:, 0, None] * b[0]))


_in_turn_written_out = trailing(lambda _, *given: _in_turn(_written_out, *given))
