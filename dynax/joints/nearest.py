"""From a pose back to a joint's coordinates, and the forces a joint bears: what a joint that closes a loop is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.spatial import Force, Mat3, Motion, Scalar, Vec3
from dynax.spatial.complement import complement
from dynax.spatial.elimination import solve_small

if TYPE_CHECKING:
    from dynax.joints.base import AbstractJoint, Coordinates

# Gauss-Newton converges quadratically where the joint can reach the pose; one more step carries the derivative.
STEPS = 12


def turn_error(rotation: Mat3) -> Vec3:
    """`2 tan(angle / 2)` about the axis of a rotation: to second order its vector, and zero at the identity alone."""
    r, size = rotation, 1.0 + rotation.trace  # 4 cos^2 of half the angle
    scale = 2.0 / jnp.where(size > 1e-9, size, 1e-9)
    return Vec3(r.zy - r.yz, r.xz - r.zx, r.yx - r.xy) * scale


def tilt_error(rotation: Mat3) -> tuple[Scalar, Scalar]:
    """The same for the part that takes z out of its direction: its x and y, in successor axes."""
    size = 1.0 + rotation.zz
    scale = 2.0 / jnp.where(size > 1e-9, size, 1e-9)
    return rotation.zy * scale, -rotation.zx * scale


def pose_error(rotation: Mat3, translation: Vec3, to_rotation: Mat3, to_translation: Vec3) -> Motion:
    """The displacement that takes the first pose to the second, in the first one's axes: a turn, a shift."""
    shift = rotation.transpose_apply(to_translation - translation)
    return Motion(turn_error(rotation.T @ to_rotation), shift)


def borne_error(
    joint: AbstractJoint, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar
) -> tuple[Scalar, ...]:
    """`T(q)^T d` at the nearest coordinates `q`, `X_err = exp(d)`."""
    q = joint.nearest(rotation, translation, parameters, time)
    d = pose_error(*joint.pose(q, parameters, time), rotation, translation)
    return tuple(d.dot(force) for force in joint.complement(q, parameters, time))


def angle_about_z(rotation: Mat3) -> Scalar:
    """The rotation about z nearest to a rotation; zero where all are equally near."""
    sine, cosine = rotation.yx - rotation.xy, rotation.xx + rotation.yy
    known = sine * sine + cosine * cosine > 1e-20
    return jnp.where(known, jnp.arctan2(jnp.where(known, sine, 0.0), jnp.where(known, cosine, 1.0)), 0.0)


def gauss_newton(
    joint: AbstractJoint, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar
) -> Coordinates:
    """The coordinates whose pose is nearest, from the neutral ones."""
    given = (rotation, translation, parameters, time)
    shape = jnp.broadcast_shapes(*(jnp.shape(a) for a in jax.tree.leaves(given)))

    def improved(q: Coordinates, given) -> Coordinates:
        rotation, translation, parameters, time = given
        error = pose_error(*joint.pose(q, parameters, time), rotation, translation)
        columns = _array(joint.columns(q, parameters, time), shape)
        left = jnp.einsum("i...j,i...k->...jk", columns, columns)
        right = jnp.einsum("i...j,i...->...j", columns, _array((error,), shape)[..., 0])
        dv = solve_small(left, right[..., None])[..., 0]
        return joint.integrate(q, tuple(dv[..., k] for k in range(joint.nv)), parameters)

    if not joint.nv:
        return ()
    start = tuple(jnp.full(shape, x, jnp.result_type(rotation.xx)) for x in joint.neutral())
    still = lax.stop_gradient(given)
    q = lax.scan(lambda q, _: (improved(q, still), None), start, length=STEPS)[0]
    return improved(lax.stop_gradient(q), given)


def constant_forces(indices: Sequence[int]) -> tuple[Force, ...]:
    """Unit forces: `e_0 .. e_2` moments, `e_3 .. e_5` forces."""
    return tuple(Force(Vec3(*row[:3]), Vec3(*row[3:])) for row in np.eye(6)[list(indices)].tolist())


def forces_borne(joint: AbstractJoint, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Force, ...]:
    """A basis of the forces that do no work on the joint's freedoms."""
    columns = joint.columns(q, parameters, time) if joint.nv else ()
    parts = jax.tree.leaves(columns)
    if all(isinstance(x, float) for x in parts):
        free = np.array(parts).reshape(len(columns), 6)
        if not np.any(np.sum(free != 0.0, axis=1) > 1):  # each along one axis
            return constant_forces([k for k in range(6) if not free[:, k].any()])
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in parts))
    flat = _array(columns, shape).reshape(6, -1, joint.nv)
    basis = jax.vmap(complement, in_axes=1, out_axes=1)(flat).reshape(6, *shape, 6 - joint.nv)
    return tuple(Force(Vec3(*basis[:3, ..., k]), Vec3(*basis[3:, ..., k])) for k in range(6 - joint.nv))


def _array(motions: Sequence[Motion], shape: tuple[int, ...]) -> jax.Array:
    """Shape `(6, *shape, len(motions))`."""
    rows = [jnp.stack([jnp.broadcast_to(x, shape) for x in jax.tree.leaves(motion)]) for motion in motions]
    return jnp.stack(rows, axis=-1)
