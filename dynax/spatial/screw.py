"""Screw decomposition: every motion is a turn about a line plus a slide along it (Featherstone 2008, section 2.5)."""

from __future__ import annotations

from typing import Generic, TypeVar

import jax.numpy as jnp

from dynax.spatial.components import Scalar, Vec3, component_dataclass
from dynax.spatial.motion import Force, Motion

SpatialVector = TypeVar("SpatialVector", Motion, Force)


@component_dataclass
class Screw(Generic[SpatialVector]):
    """A motion or a force as `line + free`, the line part on the screw's axis and the free part parallel to it.

    - `line`: a pure rotation, or a force without couple: its pitch is zero.
    - `free`: a pure translation, or a couple.
    - `pitch`: free per line; infinite where the vector is free.
    - `point`: the point of the axis nearest to the origin; the origin where the vector is free, for then no line is.
    - `direction`: unit vector along the axis, or along a free vector; zero for zero.
    - `magnitude`: length of the line part, or of a free vector. Compare it only among rotations, among translations,
      among forces or among couples.
    """

    line: SpatialVector
    free: SpatialVector
    pitch: Scalar
    point: Vec3
    direction: Vec3
    magnitude: Scalar


def screw_decomposition(x: SpatialVector) -> Screw[SpatialVector]:
    """The decomposition of `x`; finite, as are its derivatives, for free vectors too (but for their infinite pitch)."""
    moving = isinstance(x, Motion)
    s, moment = (x.angular, x.linear) if moving else (x.linear, x.angular)
    square = s.dot(s)
    is_free = square == 0.0
    safe = jnp.where(is_free, 1.0, square)
    pitch = s.dot(moment) / safe
    along = _select(is_free, moment, s * pitch)
    about = moment - along
    zero = Vec3.zero(square)
    line, free = ((s, about), (zero, along)) if moving else ((about, s), (along, zero))
    main = _select(is_free, moment, s)
    length = main.dot(main)
    nothing = length == 0.0
    magnitude = jnp.where(nothing, 0.0, jnp.sqrt(jnp.where(nothing, 1.0, length)))
    direction = main / jnp.where(nothing, 1.0, magnitude)
    kind = type(x)
    return Screw(
        kind(*line), kind(*free), jnp.where(is_free, jnp.inf, pitch), s.cross(moment) / safe, direction, magnitude
    )


def _select(condition: Scalar, a: Vec3, b: Vec3) -> Vec3:
    return Vec3(*(jnp.where(condition, p, q) for p, q in ((a.x, b.x), (a.y, b.y), (a.z, b.z))))
