"""Where two shapes may touch: for each pair of kinds a fixed number of candidates, whether they touch or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.shapes import (
    EX,
    EZ,
    Box,
    Capsule,
    Cylinder,
    Ellipsoid,
    Ground,
    HeightField,
    Plane,
    Points,
    Sphere,
    balls,
    extremes,
    surface,
    unit,
)


class Candidates(NamedTuple):
    """Points where two shapes `a` and `b` are nearest, in the world; rows of candidates."""

    gap: jax.Array
    """Distance of the surfaces there, negative where they overlap, shape `(k,)` [m]."""
    point: jax.Array
    """Midway between the surfaces, shape `(k, 3)` [m]."""
    normal: jax.Array
    """From `a` to `b`, of unit length, shape `(k, 3)`."""


class Posed(NamedTuple):
    """A shape and where it stands."""

    shape: Any
    rotation: jax.Array
    translation: jax.Array


GROUND = (Plane, Ground, HeightField)
FLATTEST_FIRST = (*GROUND, Box, Cylinder, Ellipsoid, Capsule, Points, Sphere)


def _rank(shape: Any) -> int:
    return FLATTEST_FIRST.index(type(shape))


def supported(a: Any, b: Any) -> bool:
    """Whether it is known where shapes of these kinds touch."""
    return _rule(*sorted((a, b), key=_rank)) is not None


def candidates(a: Posed, b: Posed) -> Candidates:
    """Where two shapes may touch, which are `supported`."""
    turned = _rank(a.shape) > _rank(b.shape)
    flat, round_one = (b, a) if turned else (a, b)
    rule = _rule(flat.shape, round_one.shape)
    assert rule is not None
    found = rule(flat, round_one)
    return _turned(found) if turned else found


def _rule(a: Any, b: Any) -> Callable[[Posed, Posed], Candidates] | None:
    """What finds the candidates, `a` the flatter of the two."""
    match b:
        case Sphere() | Points() if not isinstance(a, Points):
            return _on_surface
        case Capsule() if isinstance(a, GROUND):
            return _on_surface
        case Capsule():
            return BESIDE_CAPSULE.get(type(a), _along_capsule)
        case Box():
            return _on_surface if isinstance(a, GROUND) else _each_on_other
        case Ellipsoid() | Cylinder() if isinstance(a, Plane):
            return _on_plane
    return None


def _on_surface(a: Posed, b: Posed) -> Candidates:
    """The balls of `b` on the surface of `a`."""
    found = balls(b.shape)
    assert found is not None
    centres, radius = found
    return jax.vmap(lambda centre: _ball(a, b.rotation @ centre + b.translation, radius))(
        jnp.asarray(centres, a.rotation.dtype)
    )


def _ball(a: Posed, centre: jax.Array, radius: Any) -> Candidates:
    away = surface(a.shape, a.rotation.T @ (centre - a.translation))
    normal = a.rotation @ away.normal
    return Candidates(away.distance - radius, centre - 0.5 * (away.distance + radius) * normal, normal)


def _each_on_other(a: Posed, b: Posed) -> Candidates:
    """Corners of each on the other. Edges that cross are not seen until a corner is inside."""
    return _both(_on_surface(a, b), _turned(_on_surface(b, a)))


def _turned(found: Candidates) -> Candidates:
    return found._replace(normal=-found.normal)


def _both(one: Candidates, other: Candidates) -> Candidates:
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), one, other)


def _on_plane(a: Posed, b: Posed) -> Candidates:
    normal = a.rotation[:, 2]
    found = extremes(b.shape, b.rotation.T @ -normal)
    assert found is not None
    points = found @ b.rotation.T + b.translation
    gaps = (points - a.translation) @ normal
    return Candidates(gaps, points - 0.5 * gaps[:, None] * normal, jnp.tile(normal, (len(points), 1)))


SHRINKS = 40
"""Of an interval by the golden section: to 4e-9 of its length."""
GOLDEN = 0.5 * (5.0**0.5 - 1.0)
LEVEL = {"float64": 1e-5, "float32": 1e-2}
"""Slope at which a minimum is a smooth one."""


def _nearest(shape: Any, middle: jax.Array, axis: jax.Array) -> jax.Array:
    """`s` from -1 to 1 where `middle + s axis` is nearest to a shape, in the frame of that."""

    def shrink(_, ends: tuple) -> tuple:
        low, high = ends
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        nearer = surface(shape, middle + left * axis).distance < surface(shape, middle + right * axis).distance
        return jnp.where(nearer, low, left), jnp.where(nearer, right, high)

    one = jnp.ones((), axis.dtype)
    low, high = lax.fori_loop(0, SHRINKS, shrink, (-one, one))
    return 0.5 * (low + high)


def _along_capsule(a: Posed, b: Posed) -> Candidates:
    """Both ends of a capsule and the point between them that is nearest, of the capsule `b` to the surface of `a`.

    The distance is convex along the axis if `a` is convex, so the golden section finds its least value, under
    `stop_gradient`; corrections by Newton carry the derivatives of the place.
    """
    capsule: Capsule = b.shape
    axis = b.rotation[:, 2] * capsule.half_length

    def distance(s: jax.Array, a: Posed, middle: jax.Array, axis: jax.Array) -> jax.Array:
        return surface(a.shape, a.rotation.T @ (middle + s * axis - a.translation)).distance

    own = a.rotation.T @ (b.translation - a.translation), a.rotation.T @ axis
    one = jnp.ones((), axis.dtype)
    s = _nearest(*lax.stop_gradient((a.shape, *own)))
    inside = (s > -1 + 1e-6) & (s < 1 - 1e-6)

    def slope(s: jax.Array) -> jax.Array:
        return jax.grad(distance)(s, a, b.translation, axis)

    for _ in range(2):
        value, curvature = jax.jvp(slope, (s,), (one,))
        # Deep inside, the least distance may be at a kink, where the nearest way out changes. The place stays there.
        flat = jnp.abs(value) <= LEVEL[axis.dtype.name] * capsule.half_length
        round_there = inside & flat & (curvature > 1e-3 * jnp.abs(capsule.half_length))
        s = s - jnp.where(round_there, value / jnp.where(round_there, curvature, 1.0), 0.0)
    places = jnp.stack([-one, jnp.clip(s, -1.0, 1.0), one])
    return jax.vmap(lambda s: _ball(a, b.translation + s * axis, capsule.radius))(places)


def _capsule_on_capsule(a: Posed, b: Posed) -> Candidates:
    """With the ends of `a` on `b`, which bear where both are parallel and `a` is the shorter."""
    return _both(_along_capsule(a, b), _turned(_on_surface(b, a)))


def _capsule_on_box(a: Posed, b: Posed) -> Candidates:
    """With the four edges of the nearest face of the box, which bear where the capsule lies across them. Where it lies
    along one, beside the face, the ends of that bear it, in which two others end too."""
    found = _along_capsule(a, b)
    box, capsule = a.shape, b.shape
    rounding = jnp.asarray(box.rounding, a.rotation.dtype)
    half = jnp.asarray(box.half, a.rotation.dtype) - rounding
    middle = a.rotation.T @ (b.translation - a.translation)
    axis = capsule.half_length * (a.rotation.T @ b.rotation[:, 2])
    nearest = a.rotation.T @ (found.point[1] - a.translation)
    sides = _edges(*lax.stop_gradient((half, nearest)))

    def at_edge(side: jax.Array) -> Candidates:
        """Where the axis and an edge are nearest, of which `side` has the signs of its two faces."""
        free = side == 0
        own, along = jnp.where(free, 0.0, side * half), free * half
        s = _foot(jnp.where(free, 0.0, own - middle), jnp.where(free, 0.0, axis))
        t = jnp.clip(middle + s * axis, -along, along) + own
        s = _foot(t - middle, axis)
        away = middle + s * axis - t
        normal, length = unit(away, side / 2**0.5)
        gap = length - rounding - capsule.radius
        outside = Candidates(
            gap, a.translation + a.rotation @ (t + (rounding + 0.5 * gap) * normal), a.rotation @ normal
        )
        # Of what is not outside of this edge its distance is none.
        other = _ball(a, b.translation + lax.stop_gradient(s) * capsule.half_length * b.rotation[:, 2], capsule.radius)
        return jax.tree.map(partial(jnp.where, away @ side >= 0), outside, other)

    return _both(found, jax.vmap(at_edge)(sides))


def _edges(half: jax.Array, nearest: jax.Array) -> jax.Array:
    """Of a box the edges of the face at the point `nearest`: the signs of the two faces of each, shape `(4, 3)`."""
    face = jnp.eye(3, dtype=half.dtype)[jnp.argmax(jnp.abs(nearest) - half)]
    up = jnp.where(nearest < 0, -1.0, 1.0).astype(half.dtype) * face
    return jnp.stack([up + way * jnp.roll(face, k) for k in (1, 2) for way in (-1, 1)])


TURNS = 12
"""Of the search along a rim."""


def _capsule_on_cylinder(a: Posed, b: Posed) -> Candidates:
    """With the two rims of the cylinder, which bear where the capsule lies along its side and ends beyond it, or lies
    across an end: over a rim it passes twice then, so a point is sought from the direction of either end.

    Of a rim that point is nearest which has the foot on the axis that it is nearest to itself: each is found for the
    other in turn, under `stop_gradient`, and two corrections by Newton carry the derivatives of the place.
    """
    found = _along_capsule(a, b)
    cylinder, capsule = a.shape, b.shape
    dtype = a.rotation.dtype
    middle = a.rotation.T @ (b.translation - a.translation)
    axis = capsule.half_length * (a.rotation.T @ b.rotation[:, 2])
    up = jnp.asarray(EZ, dtype)

    def on_rim(side: jax.Array, way: jax.Array) -> Candidates:
        """Of the rim at the end `side`, 1 or -1, from that end of the capsule."""

        def foot(t: jax.Array, middle: jax.Array, axis: jax.Array) -> jax.Array:
            return middle + _foot(t - middle, axis) * axis

        def rim(out: jax.Array, radius: Any, length: Any) -> jax.Array:
            return radius * out + side * length * up

        def turn(_, out: jax.Array) -> jax.Array:
            at = foot(rim(out, *fixed[:2]), *fixed[2:])
            return unit(at.at[2].set(0.0), EX)[0]

        own = cylinder.radius, cylinder.half_length, middle, axis
        fixed = lax.stop_gradient(own)
        begin = fixed[2] + way * fixed[3]
        out = lax.fori_loop(0, TURNS, turn, unit(begin.at[2].set(0.0), EX)[0])
        across = jnp.cross(up, out)

        def square(angle: jax.Array) -> jax.Array:
            t = rim(jnp.cos(angle) * out + jnp.sin(angle) * across, *own[:2])
            away = foot(t, *own[2:]) - t
            return 0.5 * away @ away

        angle, one = jnp.zeros((), dtype), jnp.ones((), dtype)
        for _ in range(2):
            slope, curvature = jax.jvp(jax.grad(square), (angle,), (one,))
            known = curvature > 1e-6 * fixed[0] ** 2
            angle = angle - jnp.where(known, slope / jnp.where(known, curvature, 1.0), 0.0)
        outward = jnp.cos(angle) * out + jnp.sin(angle) * across
        t = rim(outward, *own[:2])
        s = _foot(t - middle, axis)
        away = middle + s * axis - t
        normal, length = unit(away, EX)
        gap = length - capsule.radius
        point = a.translation + a.rotation @ (t + 0.5 * gap * normal)
        # Of what is not outside of this rim its distance is none.
        place = b.translation + lax.stop_gradient(s) * capsule.half_length * b.rotation[:, 2]
        outside = away @ (outward + side * up) >= 0
        return jax.tree.map(
            partial(jnp.where, outside),
            Candidates(gap, point, a.rotation @ normal),
            _ball(a, place, capsule.radius),
        )

    return _both(found, jax.vmap(on_rim)(*jnp.array([[-1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, -1.0, 1.0]], dtype)))


BESIDE_CAPSULE = {Box: _capsule_on_box, Capsule: _capsule_on_capsule, Cylinder: _capsule_on_cylinder}
"""What a capsule lies along: more than its own ends may bear it."""


def _foot(x: jax.Array, axis: jax.Array) -> jax.Array:
    """`s` from -1 to 1 where `s axis` is nearest to `x`; of no axis 0."""
    square = axis @ axis
    some = square > jnp.finfo(axis.dtype).tiny
    return jnp.where(some, jnp.clip(x @ axis / jnp.where(some, square, 1.0), -1.0, 1.0), 0.0)
