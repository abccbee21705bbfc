"""The motion of a mechanism whose tree is closed by loops, gears and conditions.

    M a + bias = tau + K^T lambda        K a = k + k_stab        (Featherstone 2008, eqs. 8.4 to 8.6, 8.36; Jain, 0.22)

By Gauss's principle the acceleration is the one nearest to the free one in the metric of `M`. With `M = L L^T`, the
innovations factor, and `Y = L^-1 K^T`:

    x = L^-1 (tau - bias)        lambda = (Y^T Y)^+ (k - Y^T x)        a = L^-T (x + Y lambda)

Redundant conditions leave `a` unique and `lambda` of least norm (section 8.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.algorithms.crba import mass_matrix
from dynax.algorithms.factor import Factor, factor_at, factorize, solve
from dynax.algorithms.rnea import project, transmitted
from dynax.constraints.independent import Independent, correction, independent, separable
from dynax.constraints.residual import rows_at
from dynax.constraints.rows import Rows, accelerated, constraint_rows
from dynax.constraints.saddle import apply, apply_transpose, moved, saddle_point, solver
from dynax.linear.each import each
from dynax.linear.ltl import factor_ltl
from dynax.linear.singular_values import singular_values
from dynax.linear.solve import solve as solve_linear
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import integrate_rows
from dynax.model.kinds import AnyModel, for_models
from dynax.tree.bodies import net_forces, passive_force, per_velocity, world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import setup


class ConstrainedDynamics(NamedTuple):
    """What a constrained system does, and how well its conditions are met and told apart."""

    a: jax.Array
    """Accelerations, shape `(nv,)`."""
    multipliers: jax.Array
    """`lambda`, one per row of `constraint_residual`, shape `(nc,)`: forces that pair with the rates of the rows."""
    force: jax.Array
    """`K^T lambda`, what the conditions do to the joints, shape `(nv,)`."""
    rank: jax.Array
    """Of the conditions; less than `nc` where some are redundant or singular. `nv - rank` is the mobility."""
    gap: jax.Array
    """How clear the rank is: what is left of the last row that counts, beside the others, by what is left of the first
    that does not. Infinite where nothing is; a few tens or less is a mechanism between two ranks."""
    singular_values: jax.Array
    """Of `K`, the largest first; a small one that counts is a mechanism near a singular pose."""
    residual: jax.Array
    """`phi(q)`, shape `(nc,)`: how far the configuration has drifted."""
    rate: jax.Array
    """Its rate, shape `(nc,)`: how far the velocity is from admissible."""


def _recursive(model: Model, q: jax.Array, force: jax.Array, c: Independent, wanted: jax.Array) -> jax.Array:
    """O(n) for each condition; the mass matrix is never formed."""
    found = solve(factorize(model, q), jnp.concatenate([force[:, None], c.rows.T], axis=1))
    free, responses = found[:, 0], found[:, 1:]
    push = solve_linear(c.rows @ responses + jnp.diag(1.0 - c.kept), c.solved @ wanted - c.rows @ free) * c.kept
    return jnp.concatenate([free + responses @ push, c.solved.T @ push])


def _kkt(model: Model, q: jax.Array, force: jax.Array, c: Independent, wanted: jax.Array) -> jax.Array:
    """Method 1 of section 8.5: accelerations and multipliers together, from the symmetric indefinite system 8.36."""
    system = jnp.block([[mass_matrix(model, q), c.rows.T], [c.rows, jnp.diag(c.kept - 1.0)]])
    both = solve_linear(system, jnp.concatenate([force, c.solved @ wanted]))
    return jnp.concatenate([both[: model.nv], -c.solved.T @ (both[model.nv :] * c.kept)])


def _parents(model: AnyModel) -> list[int]:
    """Of each freedom the one that carries it; in a row where modes are among them."""
    return model.topology.expanded_parents.tolist() if isinstance(model, Model) else list(range(-1, model.nv - 1))


def _multipliers(model: Model, q: jax.Array, force: jax.Array, c: Independent, wanted: jax.Array) -> jax.Array:
    """Method 2: multipliers first, with the sparse factor `M = L^T L` (eqs. 8.37 to 8.41)."""
    factor = factor_ltl(mass_matrix(model, q), _parents(model))
    y, z = jax.vmap(factor.solve_transpose, 1, 1)(c.rows.T), factor.solve_transpose(force)
    push = solve_linear(y.T @ y + jnp.diag(1.0 - c.kept), c.solved @ wanted - y.T @ z) * c.kept
    return jnp.concatenate([factor.solve_lower(z + y @ push), c.solved.T @ push])


def _null_space(model: Model, q: jax.Array, force: jax.Array, c: Independent, wanted: jax.Array) -> jax.Array:
    """Method 3: `a = G y + g` with `G` the projector on the admissible velocities (eqs. 8.42 to 8.46)."""
    mass = mass_matrix(model, q)
    g = c.rows.T @ (c.solved @ wanted)
    held = c.rows.T @ c.rows
    projector = jnp.eye(model.nv, dtype=g.dtype) - held
    # On the other directions the reduced matrix is made the projector's complement, so that it can be inverted.
    a = projector @ solve_linear(projector @ mass @ projector + held, projector @ (force - mass @ g)) + g
    return jnp.concatenate([a, c.solved.T @ (c.rows @ (mass @ a - force))])


METHODS = {"recursive": _recursive, "kkt": _kkt, "multipliers": _multipliers, "null_space": _null_space}


class _Told(NamedTuple):
    """Of the decision; as numbers that have a derivative of zero."""

    rank: jax.Array
    gap: jax.Array


class Tree(NamedTuple):
    """A tree in motion, and the conditions on it; batch axes trail."""

    rows: Rows
    """Where freedoms accelerate, the bias is what is missing of `K a`."""
    force: Callable[[], jax.Array]
    """What the freedoms must do for the motion, shape `(nv, *batch)`."""
    factor: Callable[[], Factor]
    """Of the mass matrix."""


@for_models
def moving_tree(model: Model, q: jax.Array, v: jax.Array, a: jax.Array | None = None, external=None) -> Tree:
    """At one state, with freedoms that accelerate or do not."""
    s = setup(model, q, v, "automatic")
    kin = kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True)
    inertias = world_inertias(s, kin)

    def force() -> jax.Array:
        forces = transmitted(s, kin, net_forces(s, kin, inertias, external))
        needed = project(model, s, kin, forces) + passive_force(model, q, v)
        return needed if a is None else needed + per_velocity(model.armature, a) * a

    rows = constraint_rows(model, s, kin, v)
    if a is not None:
        rows = accelerated(model.structure, rows, a)
    return Tree(rows, force, lambda: factor_at(model, s, kin, inertias))


@for_models
def impulse(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    """What joints must give for a jump `v` of the velocities, `M v`."""
    s = setup(model, q, v, "automatic")
    kin = kinematics(model, s, v, positions=True)
    momenta = Parts(*(i @ part.velocity for i, part in zip(world_inertias(s, kin), kin, strict=True)))
    return project(model, s, kin, transmitted(s, kin, momenta)) + per_velocity(model.armature, v) * v


def _stabilized(rows: Rows, settle: jax.Array | None) -> jax.Array:
    """`k`, with what takes errors out."""
    assert rows.rate is not None
    assert rows.bias is not None
    if settle is None:
        return rows.bias
    return rows.bias - 2.0 / settle * rows.rate - rows.residual / settle**2


def _solved(method: str, tree: tuple, q, v, tau) -> tuple:
    """Accelerations and multipliers for trailing batch axes, the system's factor, and what was decided."""
    model, external, settle, tolerance = tree
    moving = moving_tree(model, q, v, None, external)
    force = tau - moving.force()
    known, free = solver(moving.factor(), moving.rows, tolerance, force[:, None], structure=separable(model))
    assert free is not None
    wanted = _stabilized(moving.rows, settle)
    if method == "recursive":
        x = jnp.concatenate(moved(known, free[:, 0], wanted))
    else:
        own = known.conditions
        x = each(METHODS[method], q.shape[1:], model, q, force, own, wanted)
    return x, known, _Told(known.conditions.rank.astype(q.dtype), known.conditions.gap)


def _balance(tree: tuple, q, v, x, projected) -> jax.Array:
    """`M a + bias - K^T lambda`, and `K a - k` at what is independent of it; `lambda` must be in the range of `K`."""
    model, external, settle, _ = tree
    a, multipliers = x[: model.nv], x[model.nv :]
    rows, force, _ = moving_tree(model, q, v, a, external)
    across, along = apply(rows.matrix, a), multipliers + _stabilized(rows, settle)
    along = along + across
    first = force() - apply_transpose(rows.matrix, multipliers)
    return jnp.concatenate([first, across + multipliers - projected(rows.matrix, along)])


_MOTION = {method: saddle_point(partial(_solved, method), _balance) for method in METHODS}


@partial(jax.jit, static_argnames=("method",))
def _constrained(model: Model, q, v, tau, external, settle, tolerance, *, method: str) -> ConstrainedDynamics:
    x, told = _MOTION[method]((model, external, settle, tolerance), q, v, tau)
    rows = rows_at(model, q, v)
    assert rows.rate is not None
    a, multipliers = x[: model.nv], x[model.nv :]
    return ConstrainedDynamics(
        a,
        multipliers,
        rows.matrix.T @ multipliers,
        told.rank.astype(int),
        told.gap,
        singular_values(rows.matrix),
        rows.residual,
        rows.rate,
    )


@for_models
def constrained_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    external: ArrayLike | None = None,
    *,
    method: str = "recursive",
    settle=None,
    tolerance: ArrayLike | None = None,
) -> ConstrainedDynamics:
    """Accelerations and constraint forces of a model with loops, gears and conditions.

    `forward_dynamics` takes the tree alone; this closes it. The conditions act through `K^T lambda`, of least norm
    where some are redundant. They hold for accelerations: start from a configuration that closes (`assemble`) and a
    velocity that keeps it closed (`admissible_velocity`), and give `settle` or project against drift.

    **Arguments:**

    - `q`, `v`, `tau`, `external`: as for `forward_dynamics`.
    - `method`: the same result by each. `"recursive"`: innovations factor, O(n) for each condition. Of section 8.5,
      with the mass matrix: `"kkt"`, `"multipliers"`, `"null_space"`.
    - `settle`: the time constant [s] with which errors of position and velocity die out (Baumgarte's stabilisation,
      section 8.3, with both gains `1 / settle`); about the time in which the motion itself changes. Default: not.

    - `tolerance`: what is left of a condition beside the others, as a part of what the joints could do to it, up to
      which it counts as their repetition. Default: 1e-5, since files have five digits, and ten times the error of
      position (in angles and in parts of the mechanism's length), but for that no more than 1e-3.

    **Returns:** `ConstrainedDynamics`.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}")
    q, v, tau, external = as_state(model, q=q, v=v, tau=tau, external=external)
    settle = None if settle is None else jnp.asarray(settle, q.dtype)
    tolerance = None if tolerance is None else jnp.asarray(tolerance, q.dtype)
    return _constrained(model, q, v, tau, external, settle, tolerance, method=method)


def _with_held(rows: Rows, held: tuple[int, ...]) -> Rows:
    """The conditions, and that some freedoms keep their rates."""
    assert rows.weights is not None
    count, nv = len(held), rows.matrix.shape[1]
    batch, dtype = rows.residual.shape[1:], rows.residual.dtype
    unit = jnp.asarray(np.eye(nv)[list(held)], dtype).reshape((count, nv) + (1,) * len(batch))
    none = jnp.zeros((count, *batch), dtype)
    matrix = jnp.concatenate([rows.matrix, jnp.broadcast_to(unit, (count, nv, *batch))])
    rate = None if rows.rate is None else jnp.concatenate([rows.rate, none])
    weights = jnp.concatenate([jnp.broadcast_to(rows.weights, rows.residual.shape), none + 1.0])
    return Rows(jnp.concatenate([rows.residual, none]), matrix, rate, None, None, weights)


def _held_rows(tree: Tree, held: tuple[int, ...]) -> Rows:
    return _with_held(tree.rows, held) if held else tree.rows


def _nearest(held: tuple[int, ...], tree: tuple, q, v, still) -> tuple:
    """The admissible velocity and the impulses that make it, the system's factor, and what was decided."""
    model, tolerance = tree
    moving = moving_tree(model, q, v)
    rows = _held_rows(moving, held)
    assert rows.rate is not None
    known, _ = solver(moving.factor(), rows, tolerance, structure=None if held else separable(model))
    change, push = moved(known, jnp.zeros_like(v), -rows.rate)
    return jnp.concatenate([v + change, push]), known, ()


def _impulses(held: tuple[int, ...], tree: tuple, q, v, x, projected) -> jax.Array:
    """`M (v' - v) - K^T p`, and `K v'` at what is independent of it; `p` must be in the range of `K`."""
    model, _ = tree
    change, push = x[: model.nv] - v, x[model.nv :]
    rows = _held_rows(moving_tree(model, q, v), held)
    assert rows.rate is not None
    across = apply(rows.matrix, change) + push + projected(rows.matrix, rows.rate - push)
    return jnp.concatenate([impulse(model, q, change) - apply_transpose(rows.matrix, push), across])


@lru_cache(maxsize=256)
def _impulsive(held: tuple[int, ...]) -> Callable:
    return saddle_point(partial(_nearest, held), partial(_impulses, held))


@partial(jax.jit, static_argnames=("held",))
def _admissible(model: Model, q, v, tolerance=None, *, held: tuple[int, ...] = ()) -> jax.Array:
    return _impulsive(held)((model, tolerance), q, v, jnp.zeros_like(v))[0][: model.nv]


@for_models
def admissible_velocity(
    model: Model, q: ArrayLike, v: ArrayLike, *, hold: Sequence[str] = (), tolerance: ArrayLike | None = None
) -> jax.Array:
    """The velocity nearest to `v`, in the metric of the kinetic energy, that keeps all conditions, shape `(nv,)`.

    It is what an impulse of the constraints makes of `v`: the jump when a loop is closed at once.

    **Arguments:**

    - `q`: a configuration that closes, shape `(nq,)`; `v`: shape `(nv,)`.
    - `hold`: joints that keep their rates, such as a crank that is driven; where the conditions leave them no such
      rate, what comes nearest. `KeyError` with near names for an unknown one.
    - `tolerance`: as for `constrained_dynamics`.
    """
    held = tuple(j for joint in hold for j in range(*model.v_slice(joint).indices(model.nv)))
    q, v = as_state(model, q=q, v=v)
    return _admissible(model, q, v, None if tolerance is None else jnp.asarray(tolerance, q.dtype), held=held)


# After one step of an integrator two corrections take a residual of 1e-4 to rounding.
CORRECTIONS = 2
# An error of position, of an angle or of a mechanism's length, that no step of an integrator makes.
OPEN = 0.2


def settled(model: Model, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A state that has drifted a little, projected back on the conditions; not a number if they are open."""

    def corrected(q: jax.Array, _) -> tuple[jax.Array, None]:
        rows = rows_at(model, q)
        assert rows.weights is not None
        known = independent(separable(model), rows).inverse
        error = jnp.max(jnp.abs(rows.residual) * rows.weights, initial=0.0)
        change = correction(rows.matrix, known, rows.residual)
        return integrate_rows(model, q, jnp.where(error < OPEN, -change, jnp.nan)), None

    q = jax.lax.scan(corrected, q, length=CORRECTIONS)[0]
    return q, _admissible(model, q, v)
