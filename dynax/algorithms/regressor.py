"""Inverse dynamics as a linear function of the inertial parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.compile.batching import batch_last
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Force, RigidInertia, Sym3, Vec3
from dynax.tree.bodies import body_force
from dynax.tree.freedoms import freedoms, pair
from dynax.tree.kinematics import Kinematics, kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Constants, setup


def regressor(model: Model, q, v, a) -> jax.Array:
    """The regressor `(nv, n, 10, *batch)`."""
    s = setup(model, q, v)
    kin = kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True)
    rows = freedoms(model, s, kin)

    position = s.layout.body_order(Parts(kin.roots.position, kin.rows.position))

    def column(values: jax.Array) -> jax.Array:
        """Joint forces `[body, freedom]` when each body has the inertial parameters `values`, shape `(10,)`."""

        def force(constants: Constants, k: Kinematics) -> Force:
            assert k.velocity is not None
            assert k.acceleration is not None
            # Parameters stand in body axes about the body's origin, the recursion in internal ones about the joint.
            own = RigidInertia(values[0], Vec3(*values[1:4]), Sym3(*values[4:]))
            internal = own.shift_to_parent(-constants.hinge_offset).rotate(constants.hinge_rotation.T)
            return body_force(internal.rotate(k.rotation), k.velocity, k.acceleration)

        forces = Parts(force(s.constants.roots, kin.roots), force(s.constants.rows, kin.rows))
        return pair(s.layout.body_order(forces), rows.column, position, rows.position)

    # One unit parameter at a time, side by side: the forces are linear in them.
    columns = jnp.swapaxes(jax.vmap(column, out_axes=2)(jnp.eye(10, dtype=s.dtype)), 0, 1)
    carried = model.topology.support[:, model.topology.body_of_velocity].T  # [freedom, body]
    return jnp.where(carried.reshape(carried.shape + (1,) * (columns.ndim - 2)), columns, 0.0)


@batch_last
def _regressor(model: Model, q, v, a) -> jax.Array:
    return regressor(model, q, v, a).reshape(model.nv, 10 * model.num_bodies, *q.shape[1:])


@for_models
def inverse_dynamics_regressor(model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> jax.Array:
    """The matrix `Y` with `Y parameters` the joint forces of the rigid bodies, shape `(nv, 10 n)`.

    Parameters of each body in body order: `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the body's origin in its own
    axes, as `inertial_parameters` gives them. Gravity is included; armature, damping, friction and springs are not.
    """
    return _regressor(model, *as_state(model, q=q, v=v, a=a))
