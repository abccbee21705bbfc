"""Planar vector algebra: the motions of the x-y plane in three numbers (Featherstone 2008, section 2.16, table A.1).

Motions are arrays `[omega, vx, vy]`, forces `[nz, fx, fy]`: entries 3, 4 and 5 of their spatial partners (counted from
one), and every matrix here is that 3x3 submatrix of its spatial partner. As in `plucker`, arrays know no types.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from dynax.spatial.components import Scalar, Vec3, stack
from dynax.spatial.inertia import ArticulatedInertia, RigidInertia
from dynax.spatial.motion import Force, Motion
from dynax.spatial.transform import Transform


def of_motion(motion: Motion) -> jax.Array:
    """The planar part of a motion, shape `(..., 3)`."""
    return stack((motion.angular.z, motion.linear.x, motion.linear.y))


def of_force(force: Force) -> jax.Array:
    """The planar part of a force, shape `(..., 3)`."""
    return stack((force.angular.z, force.linear.x, force.linear.y))


def of_inertia(inertia: RigidInertia | ArticulatedInertia) -> jax.Array:
    """The planar part of an inertia, shape `(..., 3, 3)`: four parameters for a rigid body."""
    full = inertia.matrix
    return full[..., 2:5, 2:5]


def to_motion(v: ArrayLike) -> Motion:
    v = jnp.asarray(v)
    zero = jnp.zeros_like(v[..., 0])
    return Motion(Vec3(zero, zero, v[..., 0]), Vec3(v[..., 1], v[..., 2], zero))


def to_force(f: ArrayLike) -> Force:
    f = jnp.asarray(f)
    zero = jnp.zeros_like(f[..., 0])
    return Force(Vec3(zero, zero, f[..., 0]), Vec3(f[..., 1], f[..., 2], zero))


def to_pose(angle: ArrayLike, position: ArrayLike) -> Transform:
    """The pose of a frame turned by `angle` about z with its origin at `position`, shape `(..., 2)`."""
    c, s = jnp.cos(jnp.asarray(angle)), jnp.sin(jnp.asarray(angle))
    p, zero = jnp.asarray(position), jnp.zeros_like(c)
    rotation = stack((c, -s, zero, s, c, zero, zero, zero, jnp.ones_like(c)), (3, 3))
    return Transform(rotation, stack((p[..., 0], p[..., 1], jnp.zeros_like(p[..., 0]))))


def Xpln(angle: ArrayLike, position: ArrayLike) -> jax.Array:
    """The coordinate transform of motions to a frame turned by `angle` about `position` (eq. 2.76, table A.1)."""
    c, s = jnp.cos(jnp.asarray(angle)), jnp.sin(jnp.asarray(angle))
    p, zero = jnp.asarray(position), jnp.zeros_like(c)
    x, y = p[..., 0], p[..., 1]
    return stack((jnp.ones_like(c), zero, zero, s * x - c * y, c, s, c * x + s * y, -s, c), (3, 3))


def dual(x: ArrayLike) -> jax.Array:
    """The force transform `X^-T` of a planar motion transform."""
    _, c, s, px, py = _parts(x)
    zero = jnp.zeros_like(c)
    return stack((jnp.ones_like(c), py, -px, zero, c, s, zero, -s, c), (3, 3))


def crm(v: ArrayLike) -> jax.Array:
    """`v x` for planar motions (eq. 2.75)."""
    v = jnp.asarray(v)
    w, x, y, zero = v[..., 0], v[..., 1], v[..., 2], jnp.zeros_like(v[..., 0])
    return stack((zero, zero, zero, y, zero, -w, -x, w, zero), (3, 3))


def crf(v: ArrayLike) -> jax.Array:
    """`v x*` for planar forces, `-crm(v)^T`."""
    return -crm(v).swapaxes(-1, -2)


def mcI(mass: ArrayLike, com: ArrayLike, inertia: ArrayLike) -> jax.Array:
    """Planar inertia from mass, centre of mass `(x, y)` and rotational inertia about it (eq. 2.78)."""
    m, i, c = jnp.asarray(mass), jnp.asarray(inertia), jnp.asarray(com)
    x, y = m * c[..., 0], m * c[..., 1]
    zero = jnp.zeros_like(m)
    about_origin = i + x * c[..., 0] + y * c[..., 1]
    return stack((about_origin, -y, x, -y, m, zero, x, zero, m), (3, 3))


def xtov(x: ArrayLike) -> jax.Array:
    """The twist of a planar displacement `X`, up to a factor of second order in the angle (table A.1, version 2).

    `X v = v`. `v asin(X23) / X23` is exact for angles below 90 degrees: `xtov_exact`.
    """
    (a, b), _, s, px, py = _parts(x)
    return stack((s, 0.5 * (b + px), 0.5 * (py - a)))


def xtov_exact(x: ArrayLike) -> jax.Array:
    """The twist `u` with `exp(-u x) = X`, for angles up to pi."""
    _, c, s, px, py = _parts(x)
    return of_motion(to_pose(jnp.arctan2(s, c), stack((px, py))).log())


def _parts(x: ArrayLike) -> tuple[tuple[Scalar, Scalar], Scalar, Scalar, Scalar, Scalar]:
    """Of a motion transform: its first column, cosine, sine, and the new origin in the old axes."""
    x = jnp.asarray(x)
    a, b, c, s = x[..., 1, 0], x[..., 2, 0], x[..., 1, 1], x[..., 1, 2]
    return (a, b), c, s, c * b + s * a, s * b - c * a
