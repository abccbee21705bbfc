"""Poses, velocities and bias accelerations of any tree in logarithmic depth: outward walks as products along paths.

Rotations multiply, `R_i = R_p E_i R_J`. Velocities are sums in world axes: angular ones of what the joints add, then
linear ones of `omega_p x d_i` and what the joints add; accelerations alike (as in `routes.chain`, for one chain).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dynax.linear.matrices import product
from dynax.model import Model
from dynax.spatial import Mat3, Motion, Vec3
from dynax.sweep.doubling import of_parents, paths
from dynax.tree.kinematics import Kinematics, _Row, in_world, place, root_motion
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, joint_biases, joint_rates


def path_kinematics(model: Model, s: Setup, v: jax.Array) -> Parts:
    """What `kinematics` gives with `accelerations` and `gravity`, for a state without batch axes."""
    parents, zero = model.topology.carried_parents, jnp.zeros(1, s.dtype)

    def bases(world, roots):
        return jax.tree.map(lambda w, r: jnp.concatenate([jnp.broadcast_to(w, (1, *r.shape[1:])), r]), world, roots)

    row = s.layout.bodies.restore(
        _Row(s.constants.rows.rotation, s.constants.rows.offset, s.joints, joint_rates(s, model, v), None, None)
    )
    turn, reach = place(Mat3.identity(zero), row)
    axes = bases(Mat3.identity(zero), s.root_rotation)
    rotation = Mat3.from_array(paths(product, axes.array, _rows(turn.array, parents), parents))
    offset = of_parents(axes, rotation, parents) @ reach

    joint = in_world(rotation, row.joints, row.rate)
    root_velocity = root_motion(s, v).rotate(s.root_rotation)
    velocity = _running(bases(Motion.zero(zero), root_velocity), joint, offset, parents)
    bias = joint_biases(s, model)
    own = Motion.zero() if bias is None else s.layout.bodies.restore(bias).rotate(rotation)
    up = Vec3(zero - s.gravity.x, zero - s.gravity.y, zero - s.gravity.z)
    root_acceleration = jax.tree.map(lambda a, r: a + jnp.zeros_like(r), Motion(Vec3.zero(zero), up), root_velocity)
    acceleration = _running(
        bases(Motion(Vec3.zero(zero), up), root_acceleration), own + velocity.cross(joint), offset, parents
    )
    return Parts(
        Kinematics(s.root_rotation, s.root_position, None, root_velocity, root_acceleration),
        s.layout.bodies.arrange(Kinematics(rotation, offset, None, velocity, acceleration)),
    )


def _rows(x: jax.Array, parents: tuple[int, ...]) -> jax.Array:
    return jnp.broadcast_to(x, (len(parents), *x.shape[1:]))


def _running(base: Motion, own: Motion, offset: Vec3, parents: tuple[int, ...]) -> Motion:
    """`m_i = phi* m_p + own_i` along the paths."""

    def total(start: Vec3, x: Vec3) -> Vec3:
        return Vec3.from_array(paths(jnp.add, start.array, _rows(x.array, parents), parents))

    angular = total(base.angular, own.angular)
    moved = own.linear + of_parents(base.angular, angular, parents).cross(offset)
    return Motion(angular, total(base.linear, moved))
