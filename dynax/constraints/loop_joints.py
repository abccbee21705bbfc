"""What the joints that close loops do and bear (Featherstone 2008, sections 8.2, 8.4 and 8.6).

    J_L = J_s - J_p        v_L = J_L v        tau^a = sum of J_L^T f        (eqs. 8.7 to 8.13, 8.28 to 8.33)

All six-vectors stand in the loop's successor frame, hinge along z, about its origin: those axes in which
`constraint_residual` and the multipliers of the loop stand.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.constraints.ends import Ends, loop_paths, relative_motion
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.spatial import Force, Transform, Vec3
from dynax.tree.bodies import stacked
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import rows_mat, rows_vec, setup


def _ends(model: Model, q: jax.Array) -> Ends:
    s = setup(model, q)
    return relative_motion(model, s, kinematics(model, s, positions=True))


@jax.jit
def _poses(model: Model, q: jax.Array) -> Transform:
    ends = _ends(model, q)
    return Transform(ends.rotation.array, ends.translation.array)


def loop_poses(model: Model, q: ArrayLike) -> Transform:
    """The pose of each loop's successor frame in its predecessor frame: `.rotation (l, 3, 3)`, `.translation (l, 3)`.

    Loops in the order of `model.loop_names`. Where the loop is closed, it is the pose of the joint that closes it.
    """
    return _poses(model, *as_state(model, q=q))


@jax.jit
def _jacobians(model: Model, q: jax.Array) -> jax.Array:
    freedom = loop_paths(model.structure).freedom
    columns = stacked(_ends(model, q).columns)  # (l, 6, w)
    loops = np.arange(len(freedom))[:, None]
    whole = jnp.zeros((len(freedom), model.nv + 1, 6), q.dtype)
    filled = whole.at[loops, np.where(freedom < 0, model.nv, freedom)].set(jnp.swapaxes(columns, 1, 2))
    return jnp.swapaxes(filled[:, : model.nv], 1, 2)


def loop_jacobians(model: Model, q: ArrayLike) -> jax.Array:
    """The Jacobian of each loop, shape `(l, 6, nv)`.

    `J v` is the velocity of its successor relative to its predecessor. Joints that carry both ends have exact zeros.
    """
    return _jacobians(model, *as_state(model, q=q))


@jax.jit
def _wrenches(model: Model, q: jax.Array, forces: jax.Array) -> jax.Array:
    ends, loops = _ends(model, q), model.structure.loops
    force = Force(Vec3(*forces[:, :3].T), Vec3(*forces[:, 3:].T))
    across = force.rotate(ends.rotation).shift_to_parent(ends.translation)  # at the predecessor frame

    def on_body(force: Force, place: Transform) -> jax.Array:
        turn, shift = rows_mat(place.rotation.astype(q.dtype)), rows_vec(place.translation.astype(q.dtype))
        return force.rotate(turn).shift_to_parent(shift).array

    n = model.num_bodies
    above, below = (np.array([getattr(loop, end) for loop in loops], dtype=int) % (n + 1)
                    for end in ("successor", "predecessor"))  # fmt: skip
    total = jnp.zeros((n + 1, 6), q.dtype).at[above].add(on_body(force, model.loop_successors))
    return total.at[below].add(-on_body(across, model.loop_predecessors))[:n]


def loop_wrenches(model: Model, q: ArrayLike, forces: ArrayLike) -> jax.Array:
    """What springs, dampers and motors in the joints of loops do to the bodies: wrenches `(n, 6)` for `external=`.

    **Arguments:**

    - `q`: configuration, shape `(nq,)`.
    - `forces`: for each loop the wrench on its successor, shape `(l, 6)`; the predecessor feels the opposite. A motor
      of a revolute loop joint gives `[0, 0, torque, 0, 0, 0]`, one of a prismatic `[0, 0, 0, 0, 0, force]`.
    """
    (q,) = as_state(model, q=q)
    forces = jnp.asarray(forces, q.dtype)
    if forces.shape != (len(model.structure.loops), 6):
        raise ValueError(f"`forces` has shape {forces.shape}, expected ({len(model.structure.loops)}, 6): one per loop")
    return _wrenches(model, q, forces)
