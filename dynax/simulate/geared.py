"""Steps of a tree whose joints are tied by linear gears and nothing else: mimic joints, differentials, held joints.

Their conditions are the same at every configuration, `K v = 0` with a constant `K` that has full rank. So nothing is
decided in a step, an acceleration is forward dynamics with a column more for each gear (`algorithms.geared`), and what
a step makes of velocities that the gears allow is allowed again.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from dynax.algorithms.geared import gear_matrix
from dynax.algorithms.mean_velocity import evaluations, place
from dynax.compile.batching import KEPT, trailing
from dynax.constraints.dynamics import OPEN
from dynax.constraints.saddle import apply, apply_transpose
from dynax.derivatives.mean_velocity import accelerations
from dynax.linear.solve import solve
from dynax.linear.sums import outer_products
from dynax.model import Model
from dynax.model.configuration import integrate_rows
from dynax.sweep import take_rows
from dynax.tree.bodies import resistance


def geared(model: Any) -> bool:
    """Whether these steps serve."""
    return isinstance(model, Model) and model.structure.geared


def closing(model: Model, v: jax.Array, dt: jax.Array) -> jax.Array:
    """What gears ask of the accelerations of a step of `dt`, `-K v / dt`, shape `(nc,)`: at its end nothing is left of
    velocities that they do not allow. That is the jump of `admissible_velocity`."""
    if not geared(model):
        return v[:0]
    once = jnp.where(dt == 0.0, 0.0, 1.0 / jnp.where(dt == 0.0, 1.0, dt))
    return -once * apply(gear_matrix(model, v), v)


@trailing
def _found(model: Model, q, v, tau) -> jax.Array:
    x = place(model, q)
    return evaluations(model, x, x.system(model, tau), v, tau, jnp.zeros((), v.dtype), 1)


def geared_acceleration(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
    """`v'`, shape `(nv,)`, as `constrained_dynamics` has it."""
    nothing = jnp.zeros_like(v)
    smooth = model.replace(damping=nothing, friction_loss=nothing)
    force = jnp.concatenate([tau - resistance(model, v), jnp.zeros(len(model.couplings), v.dtype)])
    return _known(smooth, q, v, force)


def _known(model: Model, q: jax.Array, v: jax.Array, force: jax.Array) -> jax.Array:
    """The solution `a` of `M a + bias(q, v) = force` on the gears, without damping and friction."""
    found = checkpoint_name(_found(*lax.stop_gradient((model, q, v, force))), KEPT)
    return accelerations(model, q, v, force, jnp.zeros((), v.dtype), found)[0, : model.nv]


def allowed(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    """The velocity nearest to `v` that the gears allow, `admissible_velocity`: with the change by an impulse as the
    acceleration of a tree at rest, without weight and springs."""
    nothing = jnp.zeros_like(v)
    bare = model.replace(
        gravity=jnp.zeros_like(model.gravity), stiffness=nothing, damping=nothing, friction_loss=nothing
    )
    asked = jnp.concatenate([nothing, -apply(gear_matrix(model, v), v)])
    return v + _known(bare, q, nothing, asked)


def on_gears(model: Model, q: jax.Array) -> jax.Array:
    """The configuration nearest to `q`, by the sum of squares of what joints move, that the gears allow; not a number
    where they are open."""
    topology = model.topology
    own = np.full(model.nv, -1)
    for joint in {joint for gear in model.couplings for joint in gear}:
        k = model.joint_index(joint)
        own[topology.v_start[k]] = topology.q_start[k]
    matrix = gear_matrix(model, q)
    residual = apply(matrix, take_rows(q, own)) - model.coupling_offset.astype(q.dtype)
    size = jnp.maximum(jnp.max(jnp.abs(lax.stop_gradient(matrix)), axis=1), 1.0)
    change = apply_transpose(solve(outer_products(matrix.T, matrix.T), matrix), residual)
    return integrate_rows(model, q, jnp.where(jnp.max(jnp.abs(residual) / size) < OPEN, -change, jnp.nan))
