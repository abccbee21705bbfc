"""Spatial algebra as plain matrices, for teaching, tests and operators (Featherstone 2008, tables 2.2 and A.2).

Nothing here knows types: a motion or force is an array `[angular; linear]`, a transform a 6x6 matrix. Two habits meet:

- `rx`, `rotx`, `xlt`, ... are the book's coordinate transforms. They are named by how a frame A is moved to reach B and
  take A coordinates to B coordinates, so `rz(angle)` is the transpose of the usual rotation matrix.
- `motion_matrix(pose)` and `force_matrix(pose)` are what `pose @ motion` and `pose @ force` do: body to parent. With
  `pose` that of B in A, the book's `B_X_A` is `motion_matrix(pose.inverse)`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from dynax.spatial.components import Vec3
from dynax.spatial.elimination import solve_small
from dynax.spatial.motion import Force, Motion
from dynax.spatial.transform import Transform


def _block(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    a, b, c, d = jnp.broadcast_arrays(a, b, c, d)
    return jnp.concatenate([jnp.concatenate([a, b], axis=-1), jnp.concatenate([c, d], axis=-1)], axis=-2)


def skew(a: ArrayLike) -> jax.Array:
    """The matrix `a x` of the 3-D cross product, shape `(..., 3, 3)` (table 2.1)."""
    return Vec3.from_array(a).skew().array


def rx(angle: ArrayLike) -> jax.Array:
    """Coordinates in a frame turned by `angle` about x, shape `(..., 3, 3)` (table 2.2)."""
    return _coordinate_rotation(angle, 0)


def ry(angle: ArrayLike) -> jax.Array:
    """Coordinates in a frame turned by `angle` about y (table 2.2)."""
    return _coordinate_rotation(angle, 1)


def rz(angle: ArrayLike) -> jax.Array:
    """Coordinates in a frame turned by `angle` about z (table 2.2)."""
    return _coordinate_rotation(angle, 2)


def _coordinate_rotation(angle: ArrayLike, axis: int) -> jax.Array:
    c, s = jnp.cos(jnp.asarray(angle)), jnp.sin(jnp.asarray(angle))
    rows = [[jnp.zeros_like(c)] * 3 for _ in range(3)]
    i, j = (axis + 1) % 3, (axis + 2) % 3
    rows[axis][axis] = jnp.ones_like(c)
    rows[i][i], rows[i][j], rows[j][i], rows[j][j] = c, s, -s, c
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def rot(rotation: ArrayLike) -> jax.Array:
    """The motion transform of a coordinate rotation `E`; for a pure rotation it is also the force transform."""
    e = jnp.asarray(rotation)
    zero = jnp.zeros_like(e)
    return _block(e, zero, zero, e)


def xlt(translation: ArrayLike) -> jax.Array:
    """The motion transform to a frame whose origin lies at `translation`: `[1 0; -r x 1]`."""
    r = skew(translation)
    one = jnp.broadcast_to(jnp.eye(3, dtype=r.dtype), r.shape)
    return _block(one, jnp.zeros_like(r), -r, one)


def rotx(angle: ArrayLike) -> jax.Array:
    return rot(rx(angle))


def roty(angle: ArrayLike) -> jax.Array:
    return rot(ry(angle))


def rotz(angle: ArrayLike) -> jax.Array:
    return rot(rz(angle))


def motion_matrix(pose: Transform) -> jax.Array:
    """The matrix of `pose @ motion`, shape `(..., 6, 6)` (eqs. 2.24 and 2.26)."""
    e = jnp.asarray(pose.rotation)
    return _block(e, jnp.zeros_like(e), skew(pose.translation) @ e, e)


def force_matrix(pose: Transform) -> jax.Array:
    """The matrix of `pose @ force`: `motion_matrix(pose)^-T` (eqs. 2.25 and 2.27)."""
    e = jnp.asarray(pose.rotation)
    return _block(e, skew(pose.translation) @ e, jnp.zeros_like(e), e)


def dual(x: ArrayLike) -> jax.Array:
    """The force transform `X* = X^-T` of a motion transform, or the other way round: the blocks change places."""
    x = jnp.asarray(x)
    return _block(x[..., :3, :3], x[..., 3:, :3], x[..., :3, 3:], x[..., 3:, 3:])


def pose_of(x: ArrayLike) -> Transform:
    """The pose whose `motion_matrix` is `x`."""
    x = jnp.asarray(x)
    e = x[..., :3, :3]
    r = x[..., 3:, :3] @ e.swapaxes(-1, -2)
    return Transform(e, -_axial(r))


def crm(v: ArrayLike) -> jax.Array:
    """`v x`: the matrix of the cross product with motions (eq. 2.31)."""
    v = jnp.asarray(v)
    w = skew(v[..., :3])
    return _block(w, jnp.zeros_like(w), skew(v[..., 3:]), w)


def crf(v: ArrayLike) -> jax.Array:
    """`v x*`: the matrix of the cross product with forces, `-crm(v)^T` (eq. 2.32)."""
    return -crm(v).swapaxes(-1, -2)


def mcI(mass: ArrayLike, com: ArrayLike, inertia: ArrayLike) -> jax.Array:
    """The 6x6 inertia of a rigid body from that about its centre of mass (eq. 2.63, table A.2)."""
    m = jnp.asarray(mass)[..., None, None]
    c = skew(com)
    return _block(jnp.asarray(inertia) - m * c @ c, m * c, -m * c, m * jnp.eye(3, dtype=c.dtype))


def inverse_mcI(mass: ArrayLike, com: ArrayLike, inertia: ArrayLike) -> jax.Array:
    """The inverse of `mcI`, in closed form: what maps the force on a body to its acceleration (eq. 2.74)."""
    m = jnp.asarray(mass)[..., None, None]
    c = skew(com)
    tensor = jnp.asarray(inertia)
    inverse = solve_small(tensor, jnp.broadcast_to(jnp.eye(3, dtype=tensor.dtype), tensor.shape))
    return _block(inverse, -inverse @ c, c @ inverse, jnp.eye(3, dtype=c.dtype) / m - c @ inverse @ c)


def dyad(a: Motion | Force, b: Motion | Force) -> jax.Array:
    """The rank-one map `a b.`, which takes `c` to `a (b . c)` (section 2.1); any map is a sum of dyads."""
    return a.array[..., :, None] * b.array[..., None, :]


def swap_halves(a: ArrayLike) -> jax.Array:
    """A vector `[angular; linear]` in the order `[linear; angular]` of other authors, or back (section 2.4)."""
    a = jnp.asarray(a)
    return jnp.concatenate([a[..., 3:], a[..., :3]], axis=-1)


def swap_blocks(a: ArrayLike) -> jax.Array:
    """The 6x6 matrix of a map in the other order of halves."""
    a = jnp.asarray(a)
    return _block(a[..., 3:, 3:], a[..., 3:, :3], a[..., :3, 3:], a[..., :3, :3])


def xtov(x: ArrayLike) -> jax.Array:
    """The approximate twist of a small displacement `X = B_X_A`, book's direction (table A.2).

    Exact for translations and correct to second order in the angle otherwise; `X v = v`, so it is the same in both
    frames. The exact twist is `pose.log()`.
    """
    x = jnp.asarray(x)
    return jnp.concatenate([_axial(x[..., :3, :3]), _axial(x[..., 3:, :3])], axis=-1)


def _axial(a: jax.Array) -> jax.Array:
    """The vector `v` with `-v x` the skew part of `a`."""
    pairs = ((1, 2), (2, 0), (0, 1))
    return 0.5 * jnp.stack([a[..., i, j] - a[..., j, i] for i, j in pairs], axis=-1)
