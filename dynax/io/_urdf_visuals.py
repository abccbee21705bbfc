"""`<visual>` of a URDF.

| in the file | here |
|---|---|
| `<box>`, `<sphere>`, `<cylinder>`, `<capsule>`, `<origin>` | as those of `<collision>` |
| `<mesh>`, with its `scale` | its triangles, in the colours that its own file gives; needs the `trimesh` package |
| `<material>` with `<color>`, or the name of one of the robot's | the colour, before that of a mesh's file |
| `<texture>` | left out |
| a mesh that is not found or cannot be read, another shape | left out, and reported |
"""

from __future__ import annotations

import numpy as np

from dynax.io._elements import LeftOut
from dynax.io._mesh import Surface, read_surfaces
from dynax.io._urdf_elements import Packages, mesh_of, primitive, shape_of
from dynax.io._visual import Visual, Visuals
from dynax.io._xml import Element, parse
from dynax.io.urdf import placement_of

Color = tuple[float, ...]


def read_urdf_visuals(text: str | bytes, file: str | None, packages: Packages) -> Visuals:
    """The visual elements, in the order of the file."""
    found, robot = Visuals(), parse(text, file)
    known = {m.attributes.get("name", ""): _own_color(m) for m in robot.all("material")}
    for link in robot.all("link"):
        name = link.attribute("name")
        for k, element in enumerate(link.all("visual")):
            placement, color = placement_of(element), _color(element, known)
            try:
                shape = shape_of(element)
                parts = _mesh(shape, file, packages) if shape.tag == "mesh" else [primitive(shape)]
            except LeftOut as error:
                own = element.attributes.get("name") or f"{name}/{k}"
                found.note(f"visual {own!r}", f"left out: {error}", element.line)
                continue
            for part in parts:
                own_color = part.color if isinstance(part, Surface) else None
                found.visuals.append(Visual(name, part, placement, color or own_color))
    return found


def _mesh(shape: Element, file: str | None, packages: Packages) -> list[Surface]:
    path, scale = mesh_of(shape, file, packages)
    try:
        surfaces = read_surfaces(path)
    except ValueError as error:
        raise LeftOut(f"the mesh {shape.attribute('filename')!r} {error}") from None
    turned = np.prod(scale) < 0  # a mirror turns inside out
    return [
        Surface(scale * part.vertices, part.faces[:, ::-1] if turned else part.faces, part.color) for part in surfaces
    ]


def _color(element: Element, known: dict[str, Color | None]) -> Color | None:
    material = element.child("material")
    if material is None:
        return None
    return _own_color(material) or known.get(material.attributes.get("name", ""))


def _own_color(material: Element) -> Color | None:
    color = material.child("color")
    return None if color is None else color.vector_or("rgba", (0.7, 0.7, 0.7, 1.0))
