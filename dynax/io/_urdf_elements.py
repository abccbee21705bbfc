"""`<collision>` of a URDF.

| in the file | here |
|---|---|
| `<box>`, `<sphere>`, `<cylinder>`, `<capsule>` | the same |
| `<mesh>`, with its `scale` | `Points`: the vertices whose hull is nearest to the mesh's; needs the `trimesh` package |
| `<origin>` | the placement in the link |
| `name` | that of the collider; else `<link>/<number>` |
| numbers that are malformed, or too many or few | error |
| a mesh that is not found or cannot be read, another shape, none, or one without size | left out, and reported |
| the link `world` | the world, which the robot may touch |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dynax.contact.scene import Collider
from dynax.contact.shapes import Box, Capsule, Cylinder, Geometry, Points, Sphere
from dynax.io._elements import Elements, LeftOut
from dynax.io._mesh import corners, find_mesh, read_mesh
from dynax.io._urdf_tree import listed
from dynax.io._xml import Element, parse
from dynax.io.urdf import placement_of
from dynax.model.structure import WORLD

Packages = Mapping[str, str | os.PathLike]


def read_urdf_elements(text: str | bytes, file: str | None, packages: Packages, vertices: int) -> Elements:
    """The collision elements, in the order of the file; which may touch each other is not said in it."""
    found, cut = Elements(), {}
    for link in parse(text, file).all("link"):
        name = link.attribute("name")
        for k, element in enumerate(link.all("collision")):
            own = element.attributes.get("name") or f"{name}/{k}"
            try:
                geometry, missing = _geometry(element, file, packages, vertices)
            except LeftOut as error:
                found.note(f"collision {own!r}", f"left out: {error}", element.line)
                continue
            collider = found.add(Collider(name, geometry, placement_of(element), name=own))
            if missing > 1e-4:
                cut[collider.name] = missing
            if name == WORLD:
                found.still.add(collider.name)
    if cut:
        worst = max(cut, key=lambda name: cut[name])
        found.note(
            "meshes",
            f"stand for their convex hulls with {vertices} vertices at most, {listed(cut)}; the farthest beyond them "
            f"is {worst!r}, by {1e3 * cut[worst]:.1f} mm; `vertices` gives more",
        )
    return found


def _geometry(element: Element, file: str | None, packages: Packages, vertices: int) -> tuple[Geometry, float]:
    """The shape, and what of it is missing [m]; `LeftOut` for what can be."""
    shape = shape_of(element)
    if shape.tag != "mesh":
        return primitive(shape), 0.0
    path, scale = mesh_of(shape, file, packages)
    try:
        found = corners(scale * read_mesh(path), vertices)
    except ValueError as error:
        raise LeftOut(f"the mesh {shape.attribute('filename')!r} {error}") from None
    return Points(found.points), found.missing


def shape_of(element: Element) -> Element:
    """The one shape of a `<collision>` or `<visual>`."""
    geometry = element.child("geometry")
    shapes = geometry.children if geometry is not None else []
    if len(shapes) != 1:
        raise LeftOut(f"it has {len(shapes)} shapes instead of one")
    return shapes[0]


def primitive(shape: Element) -> Geometry:
    """What is no mesh."""
    if shape.tag == "box":
        shape.attribute("size")
        half = 0.5 * np.array(shape.vector_or("size", (0.0, 0.0, 0.0)))
        return _with_size(half, Box(half))
    if shape.tag == "sphere":
        radius = shape.number("radius")
        return _with_size(radius, Sphere(radius))
    if shape.tag in ("cylinder", "capsule"):
        sizes = shape.number("radius"), 0.5 * shape.number("length")
        return _with_size(sizes, (Cylinder if shape.tag == "cylinder" else Capsule)(*sizes))
    raise LeftOut(f"<{shape.tag}> is no shape that is known")


def mesh_of(shape: Element, file: str | None, packages: Packages) -> tuple[Path, np.ndarray]:
    """The file of a `<mesh>`, and its scale along each axis."""
    name = shape.attribute("filename")
    path = find_mesh(name, file, packages)
    if path is None:
        hint = "; `packages` says where packages are" if "://" in name else ""
        raise LeftOut(f"the mesh {name!r} is not found{hint}")
    return path, np.array(shape.vector_or("scale", (1.0, 1.0, 1.0)))


def _with_size(sizes: object, shape: Geometry) -> Geometry:
    if np.any(np.asarray(sizes) <= 0.0):
        raise LeftOut(f"its size is {np.round(sizes, 6).tolist()}")  # pyright: ignore[reportArgumentType, reportCallIssue]
    return shape
