"""The motion of a mechanism whose tree is closed by loops, gears and conditions.

    M a + bias = tau + K^T lambda        K a = k + k_stab        (Featherstone 2008, eqs. 8.4 to 8.6, 8.36; Jain, 0.22)

By Gauss's principle the acceleration is the one nearest to the free one in the metric of `M`. With `M = L L^T`, the
innovations factor, and `Y = L^-1 K^T`:

    x = L^-1 (tau - bias)        lambda = (Y^T Y)^+ (k - Y^T x)        a = L^-T (x + Y lambda)

Redundant conditions leave `a` unique and `lambda` of least norm (section 8.5).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.crba import mass_matrix
from dynax.algorithms.rnea import bias_force
from dynax.constraints.residual import rows_at
from dynax.linear.ltl import factor_ltl
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import integrate_rows
from dynax.model.kinds import for_models
from dynax.operators.factor import innovations_factor


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
    singular_values: jax.Array
    """What `rank` counts, the largest first; a small one that counts is a mechanism near a singular pose."""
    residual: jax.Array
    """`phi(q)`, shape `(nc,)`: how far the configuration has drifted."""
    rate: jax.Array
    """Its rate, shape `(nc,)`: how far the velocity is from admissible."""


def _recursive(model: Model, q: jax.Array, force: jax.Array, k: jax.Array, wanted: jax.Array) -> tuple:
    """O(n) for each condition; the mass matrix is never formed."""
    factor = innovations_factor(model, q)
    x, y = factor.solve_root(force), factor.solve_root(k.T)
    inverse = pseudo_inverse(y.T)
    pulled = inverse.matrix @ (wanted - y.T @ x)
    return factor.solve_root_transpose(x + pulled), inverse.matrix.T @ pulled, inverse


def _kkt(model: Model, q: jax.Array, force: jax.Array, k: jax.Array, wanted: jax.Array) -> tuple:
    """Method 1 of section 8.5: accelerations and multipliers together, from the symmetric indefinite system 8.36."""
    nv, nc = model.nv, len(wanted)
    system = jnp.block([[mass_matrix(model, q), k.T], [k, jnp.zeros((nc, nc), k.dtype)]])
    both = pseudo_inverse(system).matrix @ jnp.concatenate([force, wanted])
    return both[:nv], -both[nv:], pseudo_inverse(k)


def _multipliers(model: Model, q: jax.Array, force: jax.Array, k: jax.Array, wanted: jax.Array) -> tuple:
    """Method 2: multipliers first, with the sparse factor `M = L^T L` (eqs. 8.37 to 8.41)."""
    factor = factor_ltl(mass_matrix(model, q), model.topology.expanded_parents.tolist())
    y, z = jax.vmap(factor.solve_transpose, 1, 1)(k.T), factor.solve_transpose(force)
    inverse = pseudo_inverse(y.T @ y)
    found = inverse.matrix @ (wanted - y.T @ z)
    return factor.solve_lower(z + y @ found), found, pseudo_inverse(y.T)


def _null_space(model: Model, q: jax.Array, force: jax.Array, k: jax.Array, wanted: jax.Array) -> tuple:
    """Method 3: `a = G y + g` with `G` the projector on the admissible velocities (eqs. 8.42 to 8.46)."""
    mass, inverse = mass_matrix(model, q), pseudo_inverse(k)
    g = inverse.matrix @ wanted
    projector = jnp.eye(model.nv, dtype=k.dtype) - inverse.matrix @ k
    # On the other directions the reduced matrix is made the projector's complement, so that it can be inverted.
    reduced = projector @ mass @ projector + inverse.matrix @ k
    a = projector @ jnp.linalg.solve(reduced, projector @ (force - mass @ g)) + g
    return a, inverse.matrix.T @ (mass @ a - force), inverse


METHODS = {"recursive": _recursive, "kkt": _kkt, "multipliers": _multipliers, "null_space": _null_space}


@partial(jax.jit, static_argnames=("method",))
def _constrained(model: Model, q, v, tau, external, settle, *, method: str) -> ConstrainedDynamics:
    rows = rows_at(model, q, v)
    assert rows.rate is not None
    assert rows.bias is not None
    wanted = rows.bias
    if settle is not None:
        wanted = wanted - 2.0 / settle * rows.rate - rows.residual / settle**2
    force = tau - bias_force(model, q, v, external)
    a, multipliers, inverse = METHODS[method](model, q, force, rows.matrix, wanted)
    return ConstrainedDynamics(
        a, multipliers, rows.matrix.T @ multipliers, inverse.rank, inverse.singular_values, rows.residual, rows.rate
    )


@for_models
def constrained_dynamics(
    model: Model, q, v, tau, external=None, *, method: str = "recursive", settle=None
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

    **Returns:** `ConstrainedDynamics`. Singular values below `10 max(shape)` units of rounding of the largest count as
    zero.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}")
    q, v, tau, external = as_state(model, q=q, v=v, tau=tau, external=external)
    settle = None if settle is None else jnp.asarray(settle, q.dtype)
    return _constrained(model, q, v, tau, external, settle, method=method)


@jax.jit
def _admissible(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    rows = rows_at(model, q, v)
    assert rows.rate is not None
    factor = innovations_factor(model, q)
    return v - factor.solve_root_transpose(pseudo_inverse(factor.solve_root(rows.matrix.T).T).matrix @ rows.rate)


@for_models
def admissible_velocity(model: Model, q, v) -> jax.Array:
    """The velocity nearest to `v`, in the metric of the kinetic energy, that keeps all conditions, shape `(nv,)`.

    It is what an impulse of the constraints makes of `v`: the jump when a loop is closed at once.
    """
    return _admissible(model, *as_state(model, q=q, v=v))


# After one step of an integrator two corrections take a residual of 1e-4 to rounding.
CORRECTIONS = 2


def settled(model: Model, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A state that has drifted a little, projected back on the conditions."""

    def corrected(q: jax.Array, _) -> tuple[jax.Array, None]:
        rows = rows_at(model, q)
        return integrate_rows(model, q, -pseudo_inverse(rows.matrix).matrix @ rows.residual), None

    q = jax.lax.scan(corrected, q, length=CORRECTIONS)[0]
    return q, _admissible(model, q, v)
