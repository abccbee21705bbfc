"""Where two shapes may touch: for each pair of kinds a fixed number of candidates, whether they touch or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.contact.shapes import (
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
    return found._replace(normal=-found.normal) if turned else found


def _rule(a: Any, b: Any) -> Callable[[Posed, Posed], Candidates] | None:
    """What finds the candidates, `a` the flatter of the two."""
    match b:
        case Sphere() | Points() if not isinstance(a, Points):
            return _on_surface
        case Capsule():
            return _on_surface if isinstance(a, GROUND) else _along_capsule
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
    one, other = _on_surface(a, b), _on_surface(b, a)
    other = other._replace(normal=-other.normal)
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


def _along_capsule(a: Posed, b: Posed) -> Candidates:
    """Both ends of a capsule and the point between them that is nearest, of the capsule `b` to the surface of `a`.

    The distance is convex along the axis if `a` is convex, so the golden section finds its least value, under
    `stop_gradient`; corrections by Newton carry the derivatives of the place.
    """
    capsule: Capsule = b.shape
    axis = b.rotation[:, 2] * capsule.half_length

    def distance(s: jax.Array, a: Posed, middle: jax.Array, axis: jax.Array) -> jax.Array:
        return surface(a.shape, a.rotation.T @ (middle + s * axis - a.translation)).distance

    fixed = lax.stop_gradient((a, b.translation, axis))

    def shrink(_, ends: tuple) -> tuple:
        low, high = ends
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        nearer = distance(left, *fixed) < distance(right, *fixed)
        return jnp.where(nearer, low, left), jnp.where(nearer, right, high)

    one = jnp.ones((), axis.dtype)
    low, high = lax.fori_loop(0, SHRINKS, shrink, (-one, one))
    s = 0.5 * (low + high)
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
