"""Triangles of shapes, anticlockwise from outside. Edges have vertices of their own, so that they look sharp."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from dynax.contact.shapes import Box, Capsule, Cylinder, Ellipsoid, HeightField, Points, Sphere
from dynax.io._mesh import Surface

ROUND = 32
"""Corners of a circle."""


@singledispatch
def mesh(shape: Any) -> Surface | None:
    """The surface of a shape in its own frame; none of what has no end."""
    return None


@mesh.register
def _(shape: Surface) -> Surface:
    return shape


@mesh.register
def _(shape: Sphere) -> Surface | None:
    radius = float(shape.radius)
    return turned(*_arc(radius, 0.0)) if radius > 0.0 else None


@mesh.register
def _(shape: Ellipsoid) -> Surface:
    ball = turned(*_arc(1.0, 0.0))
    return ball._replace(vertices=ball.vertices * np.asarray(shape.radii, float))


@mesh.register
def _(shape: Capsule) -> Surface:
    return turned(*_arc(float(shape.radius), float(shape.half_length)))


@mesh.register
def _(shape: Cylinder) -> Surface:
    r, h = float(shape.radius), float(shape.half_length)
    return joined(*(turned(*ends) for ends in (((0.0, r), (-h, -h)), ((r, r), (-h, h)), ((r, 0.0), (h, h)))))


@mesh.register
def _(shape: Box) -> Surface:
    return box(np.asarray(shape.half, float))


@mesh.register
def _(shape: Points) -> Surface | None:
    """Their convex hull, by SciPy, which JAX brings."""
    from scipy.spatial import ConvexHull, QhullError

    points = np.asarray(shape.points, float)
    try:
        hull = ConvexHull(points)
    except QhullError:  # flat, or fewer than four
        return None
    corners = points[hull.simplices]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    inward = np.sum(normals * hull.equations[:, :3], axis=1) < 0
    corners[inward] = corners[inward, ::-1]
    return Surface(corners.reshape(-1, 3), np.arange(3 * len(corners)).reshape(-1, 3), None)


@mesh.register
def _(shape: HeightField) -> Surface:
    heights = np.asarray(shape.heights, float)
    nx, ny = heights.shape
    x, y = (float(shape.spacing) * (np.arange(n) - 0.5 * (n - 1)) for n in (nx, ny))
    vertices = np.stack([*np.meshgrid(x, y, indexing="ij"), heights], axis=-1).reshape(-1, 3)
    return Surface(vertices, _grid(nx, ny), None)


def box(half: np.ndarray) -> Surface:
    """Of a box by half its edges, shape `(3,)` [m]."""
    square = np.array([[1.0, -1, -1], [1, 1, -1], [1, 1, 1], [1, -1, 1]])
    sides = [sign * np.roll(square, turn, axis=1)[::sign] for turn in range(3) for sign in (1, -1)]
    # Mirrored through the centre a side is inside out: its corners are taken the other way round.
    faces = np.concatenate([np.array([[0, 1, 2], [0, 2, 3]]) + 4 * k for k in range(6)])
    return Surface(np.concatenate(sides) * half, faces, None)


def turned(radii: Any, heights: Any) -> Surface:
    """The surface that a line turned about z makes, its points `(radius, height)` from below to above."""
    angle = np.linspace(0.0, 2.0 * np.pi, ROUND + 1)
    r, z = np.asarray(radii, float)[None, :], np.asarray(heights, float)[None, :]
    vertices = np.stack(
        [r * np.cos(angle)[:, None], r * np.sin(angle)[:, None], np.broadcast_to(z, (ROUND + 1, z.shape[1]))], axis=-1
    )
    vertices[-1] = vertices[0]
    return Surface(vertices.reshape(-1, 3), _grid(ROUND + 1, z.shape[1]), None)


def rod(start: Any, end: Any, radius: float) -> Surface:
    """A cylinder between two points."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    z = (end - start) / np.linalg.norm(end - start)
    x = np.cross(z, np.eye(3)[np.argmin(np.abs(z))])
    x /= np.linalg.norm(x)
    found = mesh(Cylinder(radius, 0.5 * np.linalg.norm(end - start)))
    assert found is not None
    return found._replace(vertices=found.vertices @ np.stack([x, np.cross(z, x), z]) + 0.5 * (start + end))


def joined(*parts: Surface) -> Surface:
    starts = np.cumsum([0, *(len(part.vertices) for part in parts)])
    faces = [part.faces + start for part, start in zip(parts, starts, strict=False)]
    return Surface(np.concatenate([part.vertices for part in parts]), np.concatenate(faces), parts[0].color)


def _arc(radius: float, half_length: float) -> tuple[np.ndarray, np.ndarray]:
    angle = np.linspace(-0.5 * np.pi, 0.5 * np.pi, ROUND // 2 + 1)
    if half_length:
        angle = np.insert(angle, ROUND // 4, 0.0)
    height = radius * np.sin(angle)
    height[: len(angle) // 2] -= half_length
    height[len(angle) // 2 :] += half_length
    return radius * np.abs(np.cos(angle)), height


def _grid(rows: int, columns: int) -> np.ndarray:
    """Two triangles for each cell of a grid of vertices."""
    k = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = k[:-1, :-1], k[1:, :-1], k[1:, 1:], k[:-1, 1:]
    return np.stack([np.stack([a, b, c], -1), np.stack([a, c, d], -1)], 2).reshape(-1, 3)
