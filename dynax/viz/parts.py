"""What is drawn of a robot: surfaces fixed to its bodies."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynax.contact.scene import Scene
from dynax.contact.shapes import Sphere
from dynax.embedding.model import tree_of
from dynax.io._mesh import Surface
from dynax.io.visuals import load_visuals
from dynax.model import Model
from dynax.model.structure import Finding
from dynax.viz.meshes import box, joined, mesh, rod

Color = tuple[float, ...]
PLAIN: Color = (0.72, 0.74, 0.78, 1.0)
SOFT: tuple[Color, ...] = (
    (0.30, 0.47, 0.66, 1.0), (0.93, 0.60, 0.31, 1.0), (0.46, 0.70, 0.60, 1.0),
    (0.85, 0.45, 0.42, 1.0), (0.62, 0.51, 0.67, 1.0), (0.90, 0.79, 0.38, 1.0),
)  # fmt: skip
"""Of bodies of which no file says how they look, one after another."""
DENSITY = 1000.0
"""Of a point mass [kg/m^3], which has no size to be drawn by."""


@dataclass(frozen=True)
class Part:
    """A surface in the frame of a body."""

    body: int
    """Its row, -1 for the world."""
    surface: Surface
    color: Color


def parts_of(
    robot: Any, look: str | os.PathLike | None = None, packages: Mapping[str, str | os.PathLike] | None = None
) -> list[Part]:
    """What there is to draw of a model or a scene.

    A body looks as its file says, `look`; or as the shapes of a `contact.Scene`; and where neither has anything, as the
    box with its mass and inertia if it were all of one density, with rods to the joints of what it carries. What has
    neither look nor mass in a file that shows other bodies is no more than a place. Warns of what cannot be shown.
    """
    scene = robot if isinstance(robot, Scene) else None
    model = skeleton(robot)
    found: list[Part] = []
    if look is not None:
        visuals = load_visuals(look, packages=packages)
        _warn(model.name, visuals.report)
        for visual in visuals.visuals:
            surface = mesh(visual.shape)
            if surface is not None:
                body, pose = model.locate(visual.on)
                placement = visual.placement if pose is None else pose @ visual.placement
                found.append(Part(body, _moved(surface, placement), visual.color or PLAIN))
    seen, shown = {part.body for part in found}, bool(found)
    if scene is not None:
        rotation, shift = np.asarray(scene.placements.rotation), np.asarray(scene.placements.translation)
        for k, (body, shape) in enumerate(zip(scene.bodies, scene.shapes, strict=True)):
            surface = None if body in seen else mesh(shape)
            if surface is not None:
                vertices = surface.vertices @ rotation[k].T + shift[k]
                found.append(Part(body, surface._replace(vertices=vertices), SOFT[body % len(SOFT)]))
        seen = {part.body for part in found}
    for body in set(range(model.num_bodies)) - seen:
        if shown and not float(model.mass[body]):  # as between two joints of one body of an MJCF
            continue
        surface = _by_inertia(model, body)
        if surface is not None:
            found.append(Part(body, surface, SOFT[body % len(SOFT)]))
    return found


def _warn(name: str, report: list[Finding]) -> None:
    if report:
        told = "; ".join(map(str, report[:3])) + (f"; and {len(report) - 3} more" if len(report) > 3 else "")
        warnings.warn(f"not all of {name!r} is shown: {told}", stacklevel=4)


def skeleton(robot: Any) -> Model:
    """The tree whose bodies and frames have names, of any kind of model."""
    tree: Any = tree_of(robot.model if isinstance(robot, Scene) else robot)
    return getattr(tree, "skeleton", tree)


def _moved(surface: Surface, placement: Any) -> Surface:
    rotation, shift = np.asarray(placement.rotation, float), np.asarray(placement.translation, float)
    return surface._replace(vertices=surface.vertices @ rotation.T + shift)


def _by_inertia(model: Model, body: int) -> Surface | None:
    """The box of equal inertia, whose edges `l` obey `I_x = m (l_y^2 + l_z^2) / 12`, and rods to what hangs there."""
    mass, children = float(model.mass[body]), [k for k, parent in enumerate(model.parents) if parent == body]
    ends = [np.asarray(model.placements.translation[k], float) for k in children]
    ends += [
        np.asarray(model.frames.translation[k], float)
        for k, on in enumerate(model.structure.frame_bodies)
        if on == body
    ]
    solid: list[Surface] = []
    if mass > 0.0:
        xx, yy, zz, xy, yz, xz = np.asarray(model.inertia[body], float)
        moments, axes = np.linalg.eigh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
        axes[:, 0] *= np.linalg.det(axes)
        edges = np.sqrt(np.maximum(6.0 * (np.sum(moments) - 2.0 * moments) / mass, 0.0))
        longest = np.max(edges)
        if longest > 1e-4:
            solid.append(box(0.5 * np.maximum(edges, 0.06 * longest)))
        else:
            ball = mesh(Sphere((0.75 * mass / np.pi / DENSITY) ** (1.0 / 3.0)))
            assert ball is not None
            solid.append(ball)
        centre = np.asarray(model.com[body] + model.first_moment[body] / model.mass[body], float)
        solid[0] = solid[0]._replace(vertices=solid[0].vertices @ axes.T + centre)
        ends.append(centre)
    reach = max((float(np.linalg.norm(end)) for end in ends), default=0.0)
    solid += [rod(np.zeros(3), end, 0.02 * reach) for end in ends if np.linalg.norm(end) > 1e-3 * reach > 0.0]
    return joined(*solid) if solid else None
