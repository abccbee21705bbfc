"""Geoms of an MJCF that are seen, from MuJoCo's compiled model.

| in the file | here |
|---|---|
| sphere, capsule, ellipsoid, cylinder, box, plane | the same; a plane has no end |
| mesh | its triangles |
| `rgba`, `material` | the colour; textures are left out |
| `group` above 2, no opacity | not seen, as in MuJoCo's viewer |
| a mesh or height field that is not found, a signed distance field | left out, and reported |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynax.io._elements import LeftOut
from dynax.io._mesh import Surface
from dynax.io._mjcf_compile import LAST_SHOWN, compile_mjcf, import_mujoco
from dynax.io._mjcf_elements import geometry_of
from dynax.io._mjcf_pose import pose_of
from dynax.io._mujoco_names import body_names
from dynax.io._visual import Visual, Visuals


def read_mjcf_visuals(text: str | bytes, file: str | None) -> Visuals:
    """The geoms that are seen, in MuJoCo's order."""
    compiled, found = compile_mjcf(text, file, show=True), Visuals()
    m, names = compiled.model, body_names(compiled.model)
    lost = {geom.partition(": ")[0].strip("'") for geom in compiled.missing}
    for geom in compiled.missing:
        found.note(f"geom {geom.partition(': ')[0]}", f"left out:{geom.partition(':')[2]}")
    count = [0] * m.nbody
    for g in range(m.ngeom):
        b = int(m.geom_bodyid[g])
        own = m.geom(g).name or f"{names[b]}/{count[b]}"
        count[b] += 1
        material = int(m.geom_matid[g])
        color = m.geom_rgba[g] if material < 0 else m.mat_rgba[material]
        if own in lost or m.geom_group[g] > LAST_SHOWN or color[3] == 0.0:
            continue
        try:
            shape = _surface(m, g) if m.geom_type[g] == import_mujoco().mjtGeom.mjGEOM_MESH else geometry_of(m, g, 0)
        except LeftOut as error:
            found.note(f"geom {own!r}", f"left out: {error}")
            continue
        placement = pose_of(m.geom_quat[g], m.geom_pos[g])
        found.visuals.append(Visual(names[b], shape, placement, tuple(map(float, color))))
    return found


def _surface(m: Any, g: int) -> Surface:
    mesh = int(m.geom_dataid[g])
    vertex, face = int(m.mesh_vertadr[mesh]), int(m.mesh_faceadr[mesh])
    vertices = np.array(m.mesh_vert[vertex : vertex + int(m.mesh_vertnum[mesh])], float)
    return Surface(vertices, np.array(m.mesh_face[face : face + int(m.mesh_facenum[mesh])]), None)
