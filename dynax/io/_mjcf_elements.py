"""Geoms of an MJCF that can collide, from MuJoCo's compiled model.

| in the file | here |
|---|---|
| plane, sphere, capsule, ellipsoid, cylinder, box | the same; a plane has no end |
| mesh | `Points`: the vertices whose hull is nearest to the mesh's |
| height field | `HeightField`, if its grid is square; what lies below it is all ground |
| `contype`, `conaffinity`, `<exclude>` | which pairs may touch; so may not a body and its parent, but for the world |
| `<pair>` | a pair that may touch, whatever the others say |
| sliding `friction` | of a pair the larger one, or that of the geom of higher `priority`; 0 where `condim` is 1 |
| `o_friction` and `o_solref` of the option, where its flag `override` is on | of all pairs |
| the flags `contact`, `limit`, `constraint` | obeyed, and reported |
| `solref` of geoms, pairs, limits and limited tendons | stiffness and damping of compliant contact (`_mjcf_soft`) |
| limits of ball joints, and of tendons through sites | `Cone` and `Rope` |
| torsional and rolling friction, `margin`, `gap`, `solimp` | left out; all but the last are reported |
| a mesh that is not found, a signed distance field | left out, and reported |
| no name | `<body>/<number>` |
"""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np

from dynax.contact.material import Material
from dynax.contact.scene import Collider
from dynax.contact.shapes import Box, Capsule, Cylinder, Ellipsoid, Geometry, HeightField, Plane, Points, Sphere
from dynax.io._elements import Elements, LeftOut
from dynax.io._mesh import corners
from dynax.io._mjcf_apart import compile_apart
from dynax.io._mjcf_compile import Compiled, compile_mjcf, import_mujoco
from dynax.io._mjcf_pose import pose_of
from dynax.io._mjcf_soft import add_stops, contact_spring, overridden
from dynax.io._mujoco_names import body_names


def read_mjcf_elements(
    text: str | bytes, file: str | None, vertices: int, self_contact: bool, isolate: bool
) -> Elements:
    """The geoms that can collide, and the pairs of them that may; within one robot on request, or in a `<pair>`."""
    compiled: Compiled = (compile_apart if isolate else compile_mjcf)(text, file, collide=True)
    m, found = compiled.model, Elements()
    for geom in compiled.missing:
        found.note(f"geom {geom.partition(': ')[0]}", f"left out:{geom.partition(':')[2]}")
    paired = {int(g) for g in (*m.pair_geom1, *m.pair_geom2)}
    names = _geoms(found, m, paired, vertices)
    add_stops(found, m)
    off = import_mujoco().mjtDisableBit
    if m.opt.disableflags & int(off.mjDSBL_CONTACT | off.mjDSBL_CONSTRAINT):
        found.note("contact", "a flag of the file switches contacts off; its pairs are left out")
        return found
    for k in range(m.npair):
        a, b = sorted((int(m.pair_geom1[k]), int(m.pair_geom2[k])))
        if a in names and b in names:
            friction = float(m.opt.o_friction[0] if overridden(m) else m.pair_friction[k, 0])
            friction *= bool(m.pair_dim[k] > 1)
            found.pairs[names[a], names[b]] = dataclasses.replace(contact_spring(m, a, b, k), friction=friction)
    within = 0
    for a, b in combinations(names, 2):
        if (names[a], names[b]) in found.pairs or not _may(m, a, b):
            continue
        if m.body_rootid[m.geom_bodyid[a]] == m.body_rootid[m.geom_bodyid[b]] and not self_contact:
            within += 1
        else:
            found.pairs[names[a], names[b]] = dataclasses.replace(contact_spring(m, a, b), friction=_friction(m, a, b))
    if within:
        found.note("contact", f"{within} pairs within a robot are left out; self_contact=True takes them")
    if any(m.geom_condim[g] > 3 for g in names):
        found.note("contact", "torsional and rolling friction are left out")
    if any(m.geom_margin[g] or m.geom_gap[g] for g in names):
        found.note("contact", "margins and gaps are left out")
    return found


def _geoms(found: Elements, m: Any, paired: set[int], vertices: int) -> dict[int, str]:
    """Adds them; the names of those that are taken."""
    bodies, count, names = body_names(m), [0] * m.nbody, {}
    for g in range(m.ngeom):
        b = int(m.geom_bodyid[g])
        own = m.geom(g).name or f"{bodies[b]}/{count[b]}"
        count[b] += 1
        if not (m.geom_contype[g] or m.geom_conaffinity[g] or g in paired):
            continue
        try:
            geometry = geometry_of(m, g, vertices)
        except LeftOut as error:
            found.note(f"geom {own!r}", f"left out: {error}")
            continue
        material = Material(friction=float(m.geom_friction[g, 0]) if m.geom_condim[g] > 1 else 0.0)
        collider = found.add(
            Collider(bodies[b], geometry, pose_of(m.geom_quat[g], m.geom_pos[g]), material=material, name=own)
        )
        names[g] = collider.name
        if not m.body_weldid[b]:
            found.still.add(collider.name)
    return names


def geometry_of(m: Any, g: int, vertices: int) -> Geometry:
    kinds, size = import_mujoco().mjtGeom, np.array(m.geom_size[g])
    kind = int(m.geom_type[g])
    if kind == kinds.mjGEOM_PLANE:
        return Plane()
    if kind == kinds.mjGEOM_SPHERE:
        return Sphere(float(size[0]))
    if kind == kinds.mjGEOM_CAPSULE:
        return Capsule(float(size[0]), float(size[1]))
    if kind == kinds.mjGEOM_CYLINDER:
        return Cylinder(float(size[0]), float(size[1]))
    if kind == kinds.mjGEOM_ELLIPSOID:
        return Ellipsoid(size)
    if kind == kinds.mjGEOM_BOX:
        return Box(size)
    if kind == kinds.mjGEOM_MESH:
        mesh = int(m.geom_dataid[g])
        first = int(m.mesh_vertadr[mesh])
        points = np.array(m.mesh_vert[first : first + int(m.mesh_vertnum[mesh])], float)
        return Points(corners(points, vertices).points)
    if kind == kinds.mjGEOM_HFIELD:
        return _height_field(m, int(m.geom_dataid[g]))
    raise LeftOut("a signed distance field is no shape that is known")


def _height_field(m: Any, k: int) -> HeightField:
    rows, columns, first = int(m.hfield_nrow[k]), int(m.hfield_ncol[k]), int(m.hfield_adr[k])
    x, y, top, _ = m.hfield_size[k]
    spacing = 2.0 * x / (columns - 1), 2.0 * y / (rows - 1)
    if not np.isclose(*spacing):
        raise LeftOut(f"the grid of its height field is {spacing[0]:g} by {spacing[1]:g} m, and not square")
    heights = np.array(m.hfield_data[first : first + rows * columns], float).reshape(rows, columns)
    return HeightField(top * heights.T, float(spacing[0]))


def _may(m: Any, a: int, b: int) -> bool:
    """MuJoCo's rules (its chapter on collision detection)."""
    one, other = int(m.geom_bodyid[a]), int(m.geom_bodyid[b])
    welds = int(m.body_weldid[one]), int(m.body_weldid[other])
    if welds[0] == welds[1]:
        return False
    above = [int(m.body_weldid[m.body_parentid[weld]]) for weld in welds]
    filtered = not m.opt.disableflags & int(import_mujoco().mjtDisableBit.mjDSBL_FILTERPARENT)
    if filtered and all(welds) and (welds[0] == above[1] or welds[1] == above[0]):
        return False
    signature = (min(one, other) << 16) + max(one, other)
    if signature in m.exclude_signature:
        return False
    return bool(m.geom_contype[a] & m.geom_conaffinity[b] or m.geom_contype[b] & m.geom_conaffinity[a])


def _friction(m: Any, a: int, b: int) -> float:
    one, other = int(m.geom_priority[a]), int(m.geom_priority[b])
    say = [a, b] if one == other else [a if one > other else b]
    if max(m.geom_condim[say]) == 1:
        return 0.0
    return float(m.opt.o_friction[0] if overridden(m) else max(m.geom_friction[say, 0]))
