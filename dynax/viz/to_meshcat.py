"""Robots and motions in MeshCat."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dynax.viz.actors import actors, node_names

RATE = 30.0
"""Pictures a second, MeshCat's default."""


def show_in_meshcat(visualizer: Any, robot: Any, motion: Any = None, **options: Any) -> None:
    """Put a robot on a page of MeshCat; a motion becomes an animation, to be played there.

        visualizer = meshcat.Visualizer()
        dx.viz.show_in_meshcat(visualizer, "robot.urdf", motion)

    **Arguments:**

    - `visualizer`: a `meshcat.Visualizer`, or a node of one, such as that of Pinocchio's or Drake's page.
    - `robot`, `motion`, and as `options` `look`, `root`, `packages`, `ghost`, `most`, `spacing`, `name`: as `dx.view`
      takes them.

    Each body is a node `robot/body` with its pose in the world. Needs `pip install "dynax[meshcat]"`.
    """
    try:
        animation: Any = import_module("meshcat.animation")  # no dependency of the type checker's
        geometry: Any = import_module("meshcat.geometry")
    except ImportError:
        raise ModuleNotFoundError('this needs the meshcat package: pip install "dynax[meshcat]"') from None

    film, stage = animation.Animation(default_framerate=RATE), actors(robot, motion, **options)
    for actor in stage:
        root, bodies = node_names(actor.name, actor.model)
        nodes = [visualizer[root[1:]][body] for body in bodies]
        for number, part in enumerate(actor.parts):
            color = sum(round(255 * x) << shift for x, shift in zip(part.color, (16, 8, 0), strict=False))
            material = geometry.MeshLambertMaterial(
                color=color, opacity=part.color[3], transparent=part.color[3] < 0.99, side=2
            )
            surface = part.surface
            shape = geometry.TriangularMeshGeometry(
                surface.vertices.astype(np.float32), surface.faces.astype(np.uint32)
            )
            nodes[part.body][str(number)].set_object(shape, material)
        for frame in range(int((actor.time[-1] - actor.time[0]) * RATE) + 1):
            row = actor.row(actor.time[0] + frame / RATE)
            for k, node in enumerate(nodes):
                pose = np.eye(4)
                pose[:3, :3], pose[:3, 3] = actor.rotation[row, k], actor.position[row, k]
                if frame == 0:
                    node.set_transform(pose)
                film.at_frame(node, frame).set_transform(pose)
    if any(len(actor.time) > 1 for actor in stage):
        visualizer.set_animation(film)
