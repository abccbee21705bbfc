"""Robots and motions in Rerun."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dynax.viz.actors import actors, node_names, quaternions


def log_to_rerun(recording: Any, robot: Any, motion: Any = None, **options: Any) -> None:
    """Log a robot and its motion to a recording of Rerun, on a timeline `time` [s].

        recording = rerun.RecordingStream("robots")
        recording.spawn()                       # or .save("motion.rrd"), .connect_grpc(...)
        dx.viz.log_to_rerun(recording, "robot.urdf", motion)

    **Arguments:**

    - `recording`: a `rerun.RecordingStream`; where it goes is its own affair.
    - `robot`, `motion`, and as `options` `look`, `root`, `packages`, `ghost`, `forces`, `most`, `spacing`, `name`: as
      `dx.view` takes them.

    Each body is a node `/robot/body` with its pose in the world, its surfaces below it, and `/robot/center_of_mass` a
    point; of `forces` arrows at `/robot/forces`. Needs `pip install "dynax[rerun]"`.
    """
    try:
        rr: Any = import_module("rerun")  # no dependency of the type checker's
    except ImportError:
        raise ModuleNotFoundError('this needs the rerun-sdk package: pip install "dynax[rerun]"') from None

    recording.log("/", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    for actor in actors(robot, motion, **options):
        root, bodies = node_names(actor.name, actor.model)
        times = [rr.TimeColumn("time", duration=actor.time)]
        for k, body in enumerate(bodies):
            parts = [part for part in actor.parts if part.body in (k, k - len(bodies))]
            for number, part in enumerate(parts):
                surface = part.surface
                shown = rr.Mesh3D(
                    vertex_positions=surface.vertices, triangle_indices=surface.faces, albedo_factor=part.color
                )
                recording.log(f"{root}/{body}/{number}", shown, static=True)
            turned = np.roll(quaternions(actor.rotation[:, k]), -1, axis=1)  # w comes last
            moved = rr.Transform3D.columns(translation=actor.position[:, k], quaternion=turned)
            recording.send_columns(f"{root}/{body}", times, moved)
        recording.send_columns(f"{root}/center_of_mass", times, rr.Points3D.columns(positions=actor.center))
        if actor.forces is not None:
            points, forces = actor.forces
            columns = rr.Arrows3D.columns(origins=points.reshape(-1, 3), vectors=forces.reshape(-1, 3))
            recording.send_columns(f"{root}/forces", times, columns.partition([points.shape[1]] * len(points)))
