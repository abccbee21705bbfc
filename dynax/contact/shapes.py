"""Shapes that touch, each in a frame of its own, and where a point stands to them.

What touches is said in three ways, and a shape has those that suit it. A **surface** gives the signed distance of any
point and the direction away from it; **balls** are points with a radius that stand for the whole of a convex shape
against anything flatter than themselves; an **extreme** is the point of a strictly convex shape that lies farthest in a
direction. All of it is smooth where the shape is, and has finite derivatives where it is not (chapter 11.6).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.operators.pytree import pytree_dataclass


@pytree_dataclass()
class Plane:
    """All that lies below `z = 0` of its frame."""


@pytree_dataclass()
class Sphere:
    """A ball about the origin of its frame."""

    radius: Any
    """[m]; zero for a point."""


@pytree_dataclass()
class Capsule:
    """All within `radius` of a segment along `z`, from `-half_length` to `half_length`."""

    radius: Any
    half_length: Any


@pytree_dataclass()
class Ellipsoid:
    """About the origin of its frame, along its axes."""

    radii: Any
    """Semi-axes along x, y, z, shape `(3,)` [m]."""


@pytree_dataclass()
class Box:
    """Against a plane it has its eight corners. Rounded edges have one normal at each point, as rolling and sliding
    need; what is sharp jumps from one to the next."""

    half: Any
    """Half of its edges, rounding and all, shape `(3,)` [m]."""
    rounding: Any = 0.0
    """Radius of its edges and corners [m]."""


@pytree_dataclass()
class Cylinder:
    """About `z`, from `-half_length` to `half_length`."""

    radius: Any
    half_length: Any


@pytree_dataclass()
class Points:
    """A convex mesh by its vertices, each with a `radius` about it."""

    points: Any
    """Shape `(k, 3)` [m]."""
    radius: Any = 0.0


@pytree_dataclass()
class HeightField:
    """Ground of the heights given, `z` over a grid in x and y with its middle in the origin; flat beyond its edges.

    Between the heights cubic (Catmull and Rom), so that normals are continuous. Distances are to the plane through the
    ground below, which is right to first order.
    """

    heights: Any
    """Shape `(nx, ny)` [m]."""
    spacing: Any
    """Of the grid [m]."""


@pytree_dataclass("function")
class Ground:
    """Ground of the height `function(x, y, parameters)` [m], smooth; distances as those of a `HeightField`."""

    function: Callable
    parameters: Any = None


Geometry = Plane | Sphere | Capsule | Ellipsoid | Box | Cylinder | Points | HeightField | Ground
FIELDS: dict[type, tuple[tuple[str, bool, tuple[int | None, ...]], ...]] = {
    Plane: (),
    Sphere: (("radius", True, ()),),
    Capsule: (("radius", False, ()), ("half_length", False, ())),
    Ellipsoid: (("radii", False, (3,)),),
    Box: (("half", False, (3,)), ("rounding", True, ())),
    Cylinder: (("radius", False, ()), ("half_length", False, ())),
    Points: (("radius", True, ()),),
    HeightField: (("spacing", False, ()),),
    Ground: (),
}
"""What must be positive, or may be zero as well, and of which shape."""


class Away(NamedTuple):
    """Of a point from a surface."""

    distance: jax.Array
    normal: jax.Array
    """Out of the surface, of unit length, shape `(3,)`."""


def unit(x: jax.Array, otherwise: Any) -> tuple[jax.Array, jax.Array]:
    """Direction and length; of no length the direction is `otherwise`."""
    square = jnp.sum(x * x)
    some = square > jnp.finfo(x.dtype).tiny
    length = jnp.sqrt(jnp.where(some, square, 1.0))
    return jnp.where(some, x / length, otherwise.astype(x.dtype)), jnp.where(some, length, 0.0)


EX, EZ = np.eye(3)[0], np.eye(3)[2]


@singledispatch
def surface(shape: Any, p: jax.Array) -> Away:
    """How far a point `(3,)` is from a shape, negative inside; both in the shape's frame."""
    raise NotImplementedError


@surface.register
def _(shape: Plane, p: jax.Array) -> Away:
    return Away(p[2], jnp.asarray(EZ, p.dtype))


@surface.register
def _(shape: Sphere, p: jax.Array) -> Away:
    normal, length = unit(p, EZ)
    return Away(length - shape.radius, normal)


@surface.register
def _(shape: Capsule, p: jax.Array) -> Away:
    along = jnp.clip(p[2], -shape.half_length, shape.half_length)
    normal, length = unit(p - along * jnp.asarray(EZ, p.dtype), EX)
    return Away(length - shape.radius, normal)


@surface.register
def _(shape: Box, p: jax.Array) -> Away:
    rounding = jnp.asarray(shape.rounding, p.dtype)
    return _of_block(p, jnp.asarray(shape.half, p.dtype) - rounding, rounding)


@surface.register
def _(shape: Cylinder, p: jax.Array) -> Away:
    radial, length = unit(jnp.stack([p[0], p[1], jnp.zeros_like(p[2])]), EX)
    flat = jnp.stack([length, p[2]])
    away = _of_block(flat, jnp.stack([jnp.asarray(x, p.dtype) for x in (shape.radius, shape.half_length)]), 0.0)
    return Away(away.distance, away.normal[0] * radial + away.normal[1] * jnp.asarray(EZ, p.dtype))


def _of_block(p: jax.Array, half: jax.Array, rounding: Any) -> Away:
    """Of a box of two or three dimensions, rounded by a sphere of that radius."""
    sides = jnp.where(p < 0, -1.0, 1.0).astype(p.dtype)
    beyond = sides * p - half
    index = np.arange(len(p))  # no `argmax`, which is no loop of XLA's own
    nearest = jnp.min(jnp.where(beyond == jnp.max(beyond), index, len(p))) == index
    outward, length = unit(jnp.maximum(beyond, 0.0), np.eye(len(p))[0])
    outside = jnp.any(beyond > 0)
    distance = jnp.where(outside, length, jnp.sum(nearest * beyond))
    return Away(distance - rounding, sides * jnp.where(outside, outward, nearest))


HALVINGS = {"float64": 60, "float32": 30}


@surface.register
def _(shape: Ellipsoid, p: jax.Array) -> Away:
    squares = jnp.asarray(shape.radii, p.dtype) ** 2
    return Away(_beyond_ellipsoid(p, squares), _out_of_ellipsoid(p, squares))


@jax.custom_jvp
def _beyond_ellipsoid(p: jax.Array, squares: jax.Array) -> jax.Array:
    """`n . p - sqrt(sum a^2 n^2)`, how far the point is beyond the plane that touches. The normal is the direction in
    which this is largest, and so has no part in the slope, which is finite where the normal's is not."""
    normal = _out_of_ellipsoid(p, squares)
    return normal @ p - jnp.sqrt(squares @ normal**2)


@_beyond_ellipsoid.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (p, squares), (dp, dsquares) = primals, tangents
    normal = _out_of_ellipsoid(p, squares)
    reach = jnp.sqrt(squares @ normal**2)
    return _beyond_ellipsoid(p, squares), normal @ dp - 0.5 * (normal**2 @ dsquares) / reach


def _out_of_ellipsoid(p: jax.Array, squares: jax.Array) -> jax.Array:
    """The foot `x` of the point has `p - x` along the normal `x / a^2`: `x_i = a_i^2 p_i / (a_i^2 + t)` for the root
    `t > -min a^2` of `sum (a_i p_i / (a_i^2 + t))^2 = 1` (Eberly 2013)."""

    def excess(t: jax.Array, p: jax.Array, squares: jax.Array) -> jax.Array:
        return jnp.sum(squares * (p / (squares + t)) ** 2) - 1.0

    def halve(_, ends: tuple) -> tuple:
        low, high = ends
        middle = 0.5 * (low + high)
        outside = excess(middle, *fixed) > 0
        return jnp.where(outside, middle, low), jnp.where(outside, high, middle)

    fixed = lax.stop_gradient((p, squares))
    least = jnp.min(fixed[1])
    # Kept off the pole, where the foot of a point on the plane of symmetry is not one point.
    low = -least * (1 - 1e-6)
    high = jnp.linalg.norm(jnp.sqrt(jnp.max(fixed[1])) * fixed[0]) + low + least
    _, t = lax.fori_loop(0, HALVINGS[p.dtype.name], halve, (low, high))
    for _ in range(2):  # one correction carries first derivatives, two carry second ones
        value, slope = jax.jvp(lambda t: excess(t, p, squares), (t,), (jnp.ones_like(t),))
        found = (slope < 0) & (t > low)
        t = t - jnp.where(found, value / jnp.where(found, slope, 1.0), 0.0)
    return unit(p / (squares + t), EZ)[0]


@surface.register
def _(shape: HeightField, p: jax.Array) -> Away:
    heights = jnp.asarray(shape.heights, p.dtype)

    def height(xy: jax.Array) -> jax.Array:
        at = xy / shape.spacing + 0.5 * (np.array(heights.shape) - 1)
        at = jnp.clip(at, 0.0, np.array(heights.shape) - 1.0)
        first = lax.stop_gradient(jnp.floor(at)).astype(int)
        near = first[:, None] + np.arange(-1, 3)
        patch = heights[jnp.ix_(*jnp.clip(near, 0, np.array(heights.shape)[:, None] - 1))]
        x, y = (_cubic(t) for t in at - first)
        return x @ patch @ y

    return _above(height, p)


def _cubic(t: jax.Array) -> jax.Array:
    """Weights of the four neighbours of a point `t` between the middle two."""
    return 0.5 * jnp.stack(
        [
            -t + 2 * t**2 - t**3,
            2 - 5 * t**2 + 3 * t**3,
            t + 4 * t**2 - 3 * t**3,
            -(t**2) + t**3,
        ]
    )


@surface.register
def _(shape: Ground, p: jax.Array) -> Away:
    return _above(lambda xy: shape.function(xy[0], xy[1], shape.parameters), p)


def _above(height: Callable, p: jax.Array) -> Away:
    z, slope = jax.value_and_grad(height)(p[:2])
    steep = jnp.sqrt(1 + slope @ slope)
    return Away((p[2] - z) / steep, jnp.concatenate([-slope, jnp.ones(1, p.dtype)]) / steep)


@singledispatch
def balls(shape: Any) -> tuple[Any, Any] | None:
    """Centres `(k, 3)` and the radius of the balls that stand for a shape, if there are such."""
    return None


@balls.register
def _(shape: Sphere):
    return jnp.zeros((1, 3)), shape.radius


@balls.register
def _(shape: Capsule):
    return jnp.array([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]]) * shape.half_length, shape.radius


@balls.register
def _(shape: Box):
    signs = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    return signs * (jnp.asarray(shape.half) - jnp.asarray(shape.rounding)), shape.rounding


@balls.register
def _(shape: Points):
    return jnp.asarray(shape.points), shape.radius


@singledispatch
def extremes(shape: Any, direction: jax.Array) -> jax.Array | None:
    """The points `(k, 3)` of a shape that lie farthest in a direction, if there are a few; in its frame."""
    return None


@extremes.register
def _(shape: Ellipsoid, direction: jax.Array) -> jax.Array:
    radii = jnp.asarray(shape.radii, direction.dtype)
    foot, _ = unit(radii * direction, EZ)
    return (radii * foot)[None]


@extremes.register
def _(shape: Cylinder, direction: jax.Array) -> jax.Array:
    """Of each rim the lowest point and those a third of a turn from it, on which it stands when upright.

    The others are points of the body as far as derivatives go, so that the rate of their gap is their velocity.
    """
    lowest, _ = unit(direction.at[2].set(0.0), EX)
    x, y, z = lax.stop_gradient(lowest)
    others = [jnp.stack([c * x - s * y, c * y + s * x, z]) for c, s in ((-0.5, 0.75**0.5), (-0.5, -(0.75**0.5)))]
    rim = shape.radius * jnp.stack([lowest, *others])
    up = shape.half_length * jnp.asarray(EZ, rim.dtype)
    return jnp.concatenate([rim - up, rim + up])
