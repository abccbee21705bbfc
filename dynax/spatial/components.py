"""Vectors and matrices of three dimensions as tuples of named components.

Every component is an array of any shape (rows of bodies, then batch axes, or nothing), so each operation is elementwise
and a step of an algorithm written for one body runs unchanged over all bodies and a whole batch. XLA turns such code
into few fused loops with the batch innermost; the same formulas on trailing axes of length 3 become many strided ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, dataclass_transform, overload

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

Scalar = Any  # an array, a tracer or a Python number: one component of a vector


@dataclass_transform(frozen_default=True, eq_default=False)
def component_dataclass(cls):
    """A frozen dataclass that is also a pytree, all of whose fields are children."""
    cls = dataclass(frozen=True, eq=False)(cls)
    cls.__array_ufunc__ = None  # a NumPy array times a vector is our `__rmul__`, not an array of objects
    return register_fields(cls)


def register_fields(cls):
    """Make a dataclass a pytree, its fields the children, of a structure equal to that of no other class.

    The structures of classes in `jax.tree_util.register_dataclass` compare equal when their fields do (JAX 0.10), so a
    loop would take a `Force` for a `Motion`, and a cache may too.
    """
    names = tuple(field.name for field in fields(cls))
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in names)

    def flatten(x):
        return tuple([getattr(x, name) for name in names]), None

    def flatten_with_keys(x):
        return tuple([(key, getattr(x, name)) for key, name in zip(keys, names, strict=True)]), None

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, lambda _, children: cls(*children), flatten)
    return cls


def stack(components, shape: tuple[int, ...] = ()) -> jax.Array:
    """Components, which may still differ in shape, stacked on a new last axis and folded to `shape`."""
    array = jnp.stack(jnp.broadcast_arrays(*components), axis=-1)
    return array.reshape(array.shape[:-1] + shape) if shape else array


@component_dataclass
class Vec3:
    """A vector of three dimensions, `x`, `y`, `z`."""

    x: Scalar
    y: Scalar
    z: Scalar

    @staticmethod
    def from_array(a: ArrayLike) -> Vec3:
        """From an array whose last axis has length 3."""
        a = jnp.asarray(a)
        return Vec3(a[..., 0], a[..., 1], a[..., 2])

    @staticmethod
    def zero(like: Scalar = 0.0) -> Vec3:
        zero = jnp.zeros_like(like)
        return Vec3(zero, zero, zero)

    @property
    def array(self) -> jax.Array:
        """The components on a new last axis of length 3."""
        return stack((self.x, self.y, self.z))

    def __add__(self, other: Vec3) -> Vec3:
        return Vec3(self.x + other.x, self.y + other.y, self.z + other.z)

    def __sub__(self, other: Vec3) -> Vec3:
        return Vec3(self.x - other.x, self.y - other.y, self.z - other.z)

    def __neg__(self) -> Vec3:
        return Vec3(-self.x, -self.y, -self.z)

    def __mul__(self, scale: Scalar) -> Vec3:
        return Vec3(self.x * scale, self.y * scale, self.z * scale)

    __rmul__ = __mul__

    def __truediv__(self, scale: Scalar) -> Vec3:
        return Vec3(self.x / scale, self.y / scale, self.z / scale)

    def dot(self, other: Vec3) -> Scalar:
        return self.x * other.x + self.y * other.y + self.z * other.z

    def cross(self, other: Vec3) -> Vec3:
        return Vec3(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )

    def outer(self, other: Vec3) -> Mat3:
        return Mat3(
            self.x * other.x, self.x * other.y, self.x * other.z,
            self.y * other.x, self.y * other.y, self.y * other.z,
            self.z * other.x, self.z * other.y, self.z * other.z,
        )  # fmt: skip

    def skew(self) -> Mat3:
        """The matrix `a x` of the cross product with this vector (Featherstone 2008, table 2.1)."""
        zero = jnp.zeros_like(self.x)
        return Mat3(zero, -self.z, self.y, self.z, zero, -self.x, -self.y, self.x, zero)


@component_dataclass
class Mat3:
    """A general 3x3 matrix, nine components row by row."""

    xx: Scalar
    xy: Scalar
    xz: Scalar
    yx: Scalar
    yy: Scalar
    yz: Scalar
    zx: Scalar
    zy: Scalar
    zz: Scalar

    @staticmethod
    def from_array(a: ArrayLike) -> Mat3:
        """From an array whose last two axes are 3x3."""
        a = jnp.asarray(a)
        return Mat3(*(a[..., i, j] for i in range(3) for j in range(3)))

    @staticmethod
    def identity(like: Scalar = 0.0) -> Mat3:
        one, zero = jnp.ones_like(like), jnp.zeros_like(like)
        return Mat3(one, zero, zero, zero, one, zero, zero, zero, one)

    @staticmethod
    def from_columns(x: Vec3, y: Vec3, z: Vec3) -> Mat3:
        return Mat3(x.x, y.x, z.x, x.y, y.y, z.y, x.z, y.z, z.z)

    @property
    def components(self) -> tuple[Scalar, ...]:
        return (self.xx, self.xy, self.xz, self.yx, self.yy, self.yz, self.zx, self.zy, self.zz)

    @property
    def array(self) -> jax.Array:
        return stack(self.components, (3, 3))

    @property
    def rows(self) -> tuple[Vec3, Vec3, Vec3]:
        return Vec3(self.xx, self.xy, self.xz), Vec3(self.yx, self.yy, self.yz), Vec3(self.zx, self.zy, self.zz)

    @property
    def columns(self) -> tuple[Vec3, Vec3, Vec3]:
        return self.T.rows

    @property
    def T(self) -> Mat3:
        return Mat3(self.xx, self.yx, self.zx, self.xy, self.yy, self.zy, self.xz, self.yz, self.zz)

    @property
    def trace(self) -> Scalar:
        return self.xx + self.yy + self.zz

    def __add__(self, other: Mat3) -> Mat3:
        return Mat3(*(a + b for a, b in zip(self.components, other.components, strict=True)))

    def __sub__(self, other: Mat3) -> Mat3:
        return Mat3(*(a - b for a, b in zip(self.components, other.components, strict=True)))

    def __mul__(self, scale: Scalar) -> Mat3:
        return Mat3(*(a * scale for a in self.components))

    __rmul__ = __mul__

    @overload
    def __matmul__(self, other: Vec3) -> Vec3: ...

    @overload
    def __matmul__(self, other: Mat3) -> Mat3: ...

    def __matmul__(self, other):
        if isinstance(other, Vec3):
            return Vec3(*(row.dot(other) for row in self.rows))
        return Mat3(*(row.dot(column) for row in self.rows for column in other.columns))

    def transpose_apply(self, v: Vec3) -> Vec3:
        """`self.T @ v`."""
        return Vec3(*(column.dot(v) for column in self.columns))

    def rotate_z(self, cosine: Scalar, sine: Scalar) -> Mat3:
        """`self @ Rz(angle)`: four of the nine products of a general matrix product remain, and z stays."""
        x, y, z = self.columns
        return Mat3.from_columns(x * cosine + y * sine, y * cosine - x * sine, z)


@component_dataclass
class Sym3:
    """A symmetric 3x3 matrix, six components: the diagonal, then xy, yz, xz."""

    xx: Scalar
    yy: Scalar
    zz: Scalar
    xy: Scalar
    yz: Scalar
    xz: Scalar

    @staticmethod
    def from_array(a: ArrayLike) -> Sym3:
        """From an array whose last two axes are a symmetric 3x3 matrix (its two halves are averaged)."""
        a = jnp.asarray(a)
        a = 0.5 * (a + jnp.swapaxes(a, -1, -2))
        return Sym3(a[..., 0, 0], a[..., 1, 1], a[..., 2, 2], a[..., 0, 1], a[..., 1, 2], a[..., 0, 2])

    @staticmethod
    def from_six(a: ArrayLike) -> Sym3:
        """From an array whose last axis is `(xx, yy, zz, xy, yz, xz)`."""
        a = jnp.asarray(a)
        return Sym3(*(a[..., k] for k in range(6)))

    @staticmethod
    def diagonal(x: Scalar, y: Scalar, z: Scalar) -> Sym3:
        zero = jnp.zeros_like(x)
        return Sym3(x, y, z, zero, zero, zero)

    @staticmethod
    def zero(like: Scalar = 0.0) -> Sym3:
        zero = jnp.zeros_like(like)
        return Sym3.diagonal(zero, zero, zero)

    @property
    def components(self) -> tuple[Scalar, ...]:
        return (self.xx, self.yy, self.zz, self.xy, self.yz, self.xz)

    @property
    def six(self) -> jax.Array:
        return stack(self.components)

    @property
    def rows(self) -> tuple[Vec3, Vec3, Vec3]:
        return Vec3(self.xx, self.xy, self.xz), Vec3(self.xy, self.yy, self.yz), Vec3(self.xz, self.yz, self.zz)

    @property
    def matrix(self) -> Mat3:
        (a, b, c) = self.rows
        return Mat3(a.x, a.y, a.z, b.x, b.y, b.z, c.x, c.y, c.z)

    @property
    def array(self) -> jax.Array:
        return self.matrix.array

    @property
    def trace(self) -> Scalar:
        return self.xx + self.yy + self.zz

    def __add__(self, other: Sym3) -> Sym3:
        return Sym3(*(a + b for a, b in zip(self.components, other.components, strict=True)))

    def __sub__(self, other: Sym3) -> Sym3:
        return Sym3(*(a - b for a, b in zip(self.components, other.components, strict=True)))

    def __mul__(self, scale: Scalar) -> Sym3:
        return Sym3(*(a * scale for a in self.components))

    __rmul__ = __mul__

    def __matmul__(self, v: Vec3) -> Vec3:
        return Vec3(*(row.dot(v) for row in self.rows))

    def congruence(self, r: Mat3) -> Sym3:
        """`r @ self @ r.T`."""
        rows = r.rows
        images = tuple(self @ row for row in rows)

        def entry(i: int, j: int) -> Scalar:
            return rows[i].dot(images[j])

        return Sym3(entry(0, 0), entry(1, 1), entry(2, 2), entry(0, 1), entry(1, 2), entry(0, 2))


def self_outer(a: Vec3) -> Sym3:
    """`a a^T`."""
    return Sym3(a.x * a.x, a.y * a.y, a.z * a.z, a.x * a.y, a.y * a.z, a.x * a.z)


def outer_square(a: Vec3, b: Vec3) -> Sym3:
    """The symmetric `-(a x b x + b x a x) / 2 = (a.b) 1 - (a b^T + b a^T) / 2`; with `a = b` it is `a x (a x)^T`."""
    ab = a.dot(b)
    return Sym3(
        ab - a.x * b.x,
        ab - a.y * b.y,
        ab - a.z * b.z,
        -0.5 * (a.x * b.y + a.y * b.x),
        -0.5 * (a.y * b.z + a.z * b.y),
        -0.5 * (a.x * b.z + a.z * b.x),
    )
