"""Inverse dynamics as a linear function of the inertial parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.algorithms._bodies import body_force
from dynax.algorithms._crba import freedoms, pair
from dynax.algorithms._kinematics import Kinematics, kinematics
from dynax.algorithms._layout import Parts
from dynax.algorithms._setup import Constants, setup
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.spatial import Force, RigidInertia, Sym3, Vec3


def regressor(model: Model, q, v, a) -> jax.Array:
    """The regressor `(nv, n, 10, *batch)`."""
    s = setup(model, q, v)
    kin = kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True)
    rows = freedoms(model, s, kin)

    def unit(parameter: int, like: jax.Array) -> RigidInertia:
        values = [jnp.full_like(like, float(k == parameter)) for k in range(10)]
        return RigidInertia(values[0], Vec3(*values[1:4]), Sym3(*values[4:]))

    def unit_forces(constants: Constants, k: Kinematics) -> list[Force]:
        """The force each unit parameter of the body needs: parameters stand in body axes about the body's origin."""
        assert k.velocity is not None and k.acceleration is not None
        like = jnp.zeros((constants.hinge_rotation.xx.shape[0], *s.batch), s.dtype)
        forces = []
        for parameter in range(10):
            inertia = unit(parameter, like).shift_to_parent(-constants.hinge_offset)
            internal = inertia.rotate(constants.hinge_rotation.T)
            forces.append(body_force(internal.rotate(k.rotation), k.velocity, k.acceleration))
        return forces

    both = zip(unit_forces(s.constants.roots, kin.roots), unit_forces(s.constants.rows, kin.rows), strict=True)
    position = s.layout.body_order(Parts(kin.roots.position, kin.rows.position))
    parts = [pair(s.layout.body_order(Parts(*forces)), rows.column, position, rows.position) for forces in both]
    carried = model.topology.support[:, model.topology.body_of_velocity].T  # [freedom, body]
    columns = jnp.stack([jnp.swapaxes(part, 0, 1) for part in parts], axis=2)
    return jnp.where(carried.reshape(carried.shape + (1,) * (columns.ndim - 2)), columns, 0.0)


@jax.jit
def _regressor(model: Model, q, v, a) -> jax.Array:
    return regressor(model, q, v, a).reshape(model.nv, 10 * model.num_bodies)


def inverse_dynamics_regressor(model: Model, q, v, a) -> jax.Array:
    """The matrix `Y` with `Y parameters` the joint forces of the rigid bodies, shape `(nv, 10 n)`.

    Parameters of each body in body order: `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the body's origin in its own
    axes, as `inertial_parameters` gives them. Gravity is included; armature, damping, friction and springs are not.
    """
    return _regressor(model, *as_state(model, q=q, v=v, a=a))


def inertial_parameters(model: Model) -> jax.Array:
    """The linear inertial parameters of all bodies, `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the origin, `(n,
    10)`."""
    inertia = RigidInertia.from_com(model.mass, Vec3.from_array(model.com), Sym3.from_six(model.inertia))
    return inertia.parameters


def with_inertial_parameters(model: Model, parameters) -> Model:
    """The model with the given parameters, shape `(n, 10)`; masses must not be zero."""
    p = RigidInertia.from_parameters(jnp.asarray(parameters, model.mass.dtype))
    com = p.moment / p.mass
    about_com = p.inertia - RigidInertia.from_com(p.mass, com, Sym3.zero(p.mass)).inertia
    return model.replace(mass=p.mass, com=com.array, inertia=about_com.six)
