"""Inverse dynamics of closed loops: the forces of some joints that make a motion (Featherstone 2008, section 8.12).

    G^T tau = G^T tau_ID        G_u^T u = G^T tau_ID        (eqs. 8.61 to 8.63)

`tau_ID` are the forces the tree would need; many others make the same motion, since the loops bear what does not move
them. Only their part in `range(G)`, the admissible velocities, counts. With its projector `P = 1 - K^+ K` in the place
of `G^T` no independent variables need to be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.constraints.independent import independent, separable
from dynax.constraints.residual import rows_at
from dynax.linear.pseudo_inverse import known_inverse, pseudo_inverse
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.routes.inverse_dynamics import inverse_dynamics

# Of the square root of the units of rounding: how small a share of an actuator's velocity must be to count as none.
MARGIN = 10.0


class ActuatedForces(NamedTuple):
    """Forces of the actuated joints, and whether they suffice."""

    tau: jax.Array
    """Shape `(nv,)`, zero at all joints without actuator."""
    residual: jax.Array
    """What is missing of the forces that count, `P (tau_ID - tau)`, shape `(nv,)`; zero if the motion can be made."""
    rank: jax.Array
    """How many freedoms the actuators move independently, `rank G_u`."""
    mobility: jax.Array
    """How many there are."""
    actuators: jax.Array
    """How many forces were to be found."""
    singular_values: jax.Array
    """Of `P` at the actuators, from 1 to 0, shape `(nv,)`: a small one among the first `rank` is an actuator near a
    dead point."""

    @property
    def underactuated(self) -> jax.Array:
        """Whether some motion is out of reach; a redundant actuator may be there all the same."""
        return self.rank < self.mobility

    @property
    def redundant(self) -> jax.Array:
        """Whether actuators can work against one another."""
        return self.actuators > self.rank

    @property
    def properly_actuated(self) -> jax.Array:
        return (self.rank == self.mobility) & (self.actuators == self.rank)


@jax.jit
def _actuated(model: Model, q, v, a, external, driven: jax.Array, tolerance) -> ActuatedForces:
    needed = inverse_dynamics(model, q, v, a, external)
    rows = rows_at(model, q)
    decided = independent(separable(model), rows, tolerance)
    inverse = known_inverse(rows.matrix, decided.inverse)
    projector = jnp.eye(model.nv, dtype=q.dtype) - inverse @ rows.matrix
    own = jnp.where(driven, projector, 0.0)
    # The projector's scale is one: singular values are judged by themselves, also where all of them are rounding.
    least = MARGIN * float(jnp.finfo(q.dtype).eps) ** 0.5
    largest = jnp.sqrt(jnp.sum(jax.lax.stop_gradient(own) ** 2))
    found = pseudo_inverse(own, least / jnp.maximum(largest, float(jnp.finfo(q.dtype).tiny)))
    wanted = projector @ needed
    tau = found.matrix @ wanted
    return ActuatedForces(
        jnp.where(driven, tau, 0.0),
        wanted - own @ tau,
        found.rank,
        model.nv - decided.rank,
        jnp.sum(driven),
        found.singular_values,
    )


def actuated_inverse_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    external: ArrayLike | None = None,
    *,
    actuated: Sequence[str] | None = None,
    tolerance: ArrayLike | None = None,
) -> ActuatedForces:
    """Forces of some joints that make a model with loops, gears and conditions move as given.

    Of all forces that make the motion the smallest: of least `|tau|`, in the units of the joints. Where none does,
    those that come nearest: of least `|residual|`.

    **Arguments:**

    - `q`, `v`, `a`: a motion that closes the loops: see `assemble`, `admissible_velocity` and `constrained_dynamics`.
    - `external`: as for `inverse_dynamics`.
    - `actuated`: names of the joints with actuators, all their freedoms; `KeyError` with near names for an unknown one.
      Default all joints.
    - `tolerance`: of the rank of the conditions, as for `constrained_dynamics`.

    **Returns:** `ActuatedForces`. Singular values below ten square roots of the unit of rounding count as zero.
    """
    names = model.joint_names if actuated is None else tuple(actuated)
    if len(set(names)) != len(names):
        raise ValueError(f"`actuated` names a joint twice: {names}")
    driven = np.zeros(model.nv, dtype=bool)
    for name in names:
        driven[model.v_slice(name)] = True
    state = as_state(model, q=q, v=v, a=a, external=external)
    limit = None if tolerance is None else jnp.asarray(tolerance, state[0].dtype)
    return _actuated(model, *state, jnp.asarray(driven), limit)
