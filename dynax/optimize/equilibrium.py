"""Where a model stays: configuration and controls under which nothing moves (trim).

    bias(q, 0) = B u + K' lambda        phi(q) = 0        limits of q and u

by `least_squares`, forces in parts of those at the guess and of the weight there. Of many such states one near the
guess is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.constraints.residual import rows_at
from dynax.embedding.model import EmbeddedModel, of_independent, tree_of
from dynax.linear.matrices import product
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.model.checks import as_state
from dynax.model.configuration import integrate
from dynax.model.structure import close_names
from dynax.optimize.least_squares import Functions, least_squares
from dynax.optimize.limits import refuse_uneven, room
from dynax.routes.inverse_dynamics import bias_force
from dynax.simulate.stepper import AnyTree, closed


class Equilibrium(NamedTuple):
    """A state of rest and how well it is one."""

    q: jax.Array
    """Shape `(nq,)`."""
    u: jax.Array
    """Shape `(nu,)`."""
    multipliers: jax.Array
    """Of the loops, as in `ConstrainedDynamics`, shape `(nc,)`; none where they are embedded."""
    error: jax.Array
    """The largest force that is left, as a part of the largest at the guess, with weight along any axis of the world;
    or the largest error of a loop."""
    status: jax.Array
    """An `o.Status`: `INFEASIBLE` where nothing near the guess is an equilibrium; this is then what comes nearest."""
    iterations: jax.Array


class _Known(NamedTuple):
    model: Any
    actuation: jax.Array
    force: jax.Array
    """What forces are measured in."""
    limits: tuple[jax.Array, jax.Array]
    """Of the controls."""
    held: jax.Array
    """One for freedoms that stay."""


def _residual(known: _Known, x: tuple[jax.Array, jax.Array]) -> jax.Array:
    (q, forces), nu = x, known.actuation.shape[1]
    left = bias_force(known.model, q, jnp.zeros(known.model.nv, q.dtype)) / known.force
    left = left - product(known.actuation, forces[:nu])
    if not closed(known.model):
        return left
    rows = rows_at(known.model, q)
    return jnp.concatenate([left - product(rows.matrix.T, forces[nu:]), rows.residual])


def _moved(known: _Known, x: tuple[jax.Array, jax.Array], z: jax.Array) -> tuple[jax.Array, jax.Array]:
    nv = known.model.nv
    return integrate(known.model, x[0], z[:nv]), x[1] + z[nv:]


def _room(known: _Known, x: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    (q, forces), nu = x, known.actuation.shape[1]
    bounds = []
    for side, limit, free in zip(room(known.model, q), known.limits, (-jnp.inf, jnp.inf), strict=True):
        own = limit / known.force - forces[:nu]
        others = jnp.full(len(forces) - nu, free, q.dtype)
        bounds.append(jnp.concatenate([jnp.where(known.held > 0, 0.0, side), own, others]))
    return bounds[0], bounds[1]


_TRIM = Functions(_residual, _moved, _room)


def held_freedoms(model: AnyTree, hold: Sequence[str]) -> np.ndarray:
    """Which freedoms belong to joints that are to stay."""
    held = np.zeros(model.nv, dtype=bool)
    for joint in hold:
        if isinstance(model, EmbeddedModel):
            if joint not in model.independent_joints:
                raise KeyError(close_names(joint, model.independent_joints, "independent joint"))
            held |= np.array(model.independent_joints) == joint
        else:
            held[model.v_slice(joint)] = True
    return held


def find_equilibrium(
    model: AnyTree,
    q: ArrayLike,
    u: ArrayLike | None = None,
    *,
    actuation: ArrayLike | None = None,
    hold: Sequence[str] = (),
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    iterations: int = 100,
    tolerance: ArrayLike | None = None,
) -> Equilibrium:
    """A configuration near `q`, and controls, with which the model stays at rest.

    **Arguments:**

    - `model`: rigid, with bodies that bend, with loops, or embedded. Its `position_limits` are kept, of an embedded one
      those of the independent joints; and where there is no `actuation`, its `effort_limits`.
    - `q`: a guess, shape `(nq,)`; of an embedded model one that closes the loops.
    - `u`: a guess of the controls, shape `(nu,)`; default zeros.
    - `actuation`: joint forces per control, shape `(nv, nu)`, by default the identity: any pose is then an equilibrium,
      so `hold` it; with no columns, nothing drives the joints, and it settles.
    - `hold`: joints that keep their coordinates. `KeyError` with near names for an unknown one.
    - `lower`, `upper`: of the controls, shape `(nu,)` or a scalar; both equal to keep a control as it is.
    - `tolerance`: of `error`.

    **Returns:** `Equilibrium`; look at its `status`. An equilibrium may be unstable: `dx.linearize` tells. Derivatives
    by the model and the limits, with all that rests on a limit moving with it, are of the implicit function; NaN where
    there is no rest.
    `ValueError` for shapes that do not fit.
    """
    (q,) = as_state(model, q=q)
    refuse_uneven(model)
    B = jnp.eye(model.nv, dtype=q.dtype) if actuation is None else jnp.asarray(actuation, q.dtype)
    if B.ndim != 2 or B.shape[0] != model.nv:
        raise ValueError(f"`actuation` has shape {B.shape}, expected ({model.nv}, controls)")
    nu = B.shape[1]
    most = jnp.full(nu, jnp.inf, q.dtype) if actuation is not None else _efforts(model).astype(q.dtype)
    limits = []
    for name, given, own in (("lower", lower, -most), ("upper", upper, most)):
        limit = own if given is None else jnp.asarray(given, q.dtype)
        if limit.shape not in ((), (nu,)):
            raise ValueError(f"`{name}` has shape {limit.shape}, expected ({nu},) or a scalar")
        limits.append(jnp.broadcast_to(limit, (nu,)))
    guess = jnp.zeros(nu, q.dtype) if u is None else jnp.asarray(u, q.dtype)
    if guess.shape != (nu,):
        raise ValueError(f"`u` has shape {guess.shape}, expected ({nu},); for a batch use jax.vmap")
    loose = jnp.asarray(float(jnp.finfo(q.dtype).eps) ** 0.75 if tolerance is None else tolerance, q.dtype)
    held = jnp.asarray(held_freedoms(model, hold), q.dtype)
    known = _Known(model, B, jnp.ones((), q.dtype), tuple(limits), held)
    return _rest(known, q, jnp.clip(guess, *limits), loose, int(iterations))


@partial(jax.jit, static_argnums=4)
def _rest(known: _Known, q: jax.Array, u: jax.Array, loose: jax.Array, iterations: int) -> Equilibrium:
    model, nu = known.model, len(u)
    under = jax.lax.stop_gradient(_needed(model, q))
    # What hangs or stands needs nothing but rounding, that of its weight in other directions.
    needed, size = under[0], jnp.max(jnp.abs(under), initial=0.0)
    force = jnp.where(size > 0, size, 1.0)
    forces = u
    if closed(model):
        rows = jax.lax.stop_gradient(rows_at(model, q).matrix)
        forces = jnp.concatenate([u, product(pseudo_inverse(rows.T).matrix, needed - product(known.actuation, u))])
    start = q, jax.lax.stop_gradient(forces / force)
    fit = least_squares(_TRIM, iterations, known._replace(force=force), start, loose)
    forces = force * fit.x[1]
    return Equilibrium(fit.x[0], forces[:nu], forces[nu:], fit.error, fit.status, fit.iterations)


def _needed(model: AnyTree, q: jax.Array) -> jax.Array:
    """What joints must do at rest, and what if the weight acted along x, y and z, shape `(4, nv)`."""
    gravity = tree_of(model).gravity.astype(q.dtype)
    along = jnp.sqrt(jnp.sum(jax.lax.stop_gradient(gravity) ** 2)) * jnp.eye(3, dtype=q.dtype)
    still = jnp.zeros(model.nv, q.dtype)
    return jax.vmap(lambda g: bias_force(model.replace(gravity=g), q, still))(jnp.concatenate([gravity[None], along]))


def _efforts(model: AnyTree) -> jax.Array:
    if isinstance(model, EmbeddedModel):
        return of_independent(model, model.tree.effort_limits)
    own = getattr(model, "places", None)
    whole = jnp.append(getattr(model, "tree", model).effort_limits, 0.0)
    return whole[:-1] if own is None else whole[own.own_v]
