"""Pictures and films without a screen."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dynax.contact.shapes import Sphere
from dynax.errors import ModelError
from dynax.io._mesh import Surface
from dynax.viz.actors import Actor, actors, reach
from dynax.viz.meshes import mesh, rod
from dynax.viz.raster import Camera, Soup, draw

KINDS = (".png", ".gif", ".mp4")


def render(
    robot: Any,
    motion: Any = None,
    file: str | os.PathLike | None = None,
    *,
    size: tuple[int, int] = (640, 480),
    fps: float = 25.0,
    camera: Camera | None = None,
    ground: float | Literal["below"] | None = "below",
    show: tuple[str, ...] = (),
    **options: Any,
) -> np.ndarray:
    """A picture or a film of robots, drawn in NumPy: no screen, no driver.

        dx.render("robot.urdf", motion, "motion.gif")

    **Arguments:**

    - `robot`, `motion`, and as `options` `look`, `root`, `packages`, `ghost`, `forces`, `most`, `spacing`: as `dx.view`
      takes them.
    - `file`: `.png` for the last moment, `.gif`, or `.mp4` (`pip install "dynax[view]"`); none for the frames alone.
    - `size`: width and height; even numbers. `fps`: frames a second.
    - `camera`: `dx.viz.Camera(position, look_at)` in the world; default one that sees the whole motion.
    - `ground`: its height [m]; `None` for none; `"below"` is at 0, or below the robot where that reaches lower.
    - `show`: of `"com"`, `"frames"`.

    Returns the frames, shape `(T, height, width, 3)`, bytes. `ValueError` for what cannot be drawn, `ModelError` for a
    file that cannot be written.
    """
    path = None if file is None else _checked(Path(file))
    if size[0] % 2 or size[1] % 2:
        raise ValueError(f"`size` must be even numbers, got {size}")
    if not set(show) <= {"com", "frames"}:
        raise ValueError(f"`show` takes 'com' and 'frames', got {show}")
    stage = actors(robot, motion, **options)
    middle, radius = reach(stage)
    seen = camera or Camera(middle + 3.1 * radius * np.array([0.72, -0.58, 0.36]), middle)
    height = _ground(stage, middle, radius) if ground == "below" else ground
    begin, end = min(a.time[0] for a in stage), max(a.time[-1] for a in stage)
    every = begin + np.arange(int((end - begin) * fps + 1e-9) + 1) / fps
    times = [end] if path is not None and path.suffix.lower() == ".png" else every
    power = 10.0 ** np.floor(np.log10(radius))
    tile = power * (0.5 if radius > 4.0 * power else 0.2)
    frames = np.stack([draw(soup(stage, t, radius, show), seen, *size, height, tile) for t in times])
    if path is not None:
        _write(path, frames, fps)
    return frames


def soup(stage: list[Actor], time: float, radius: float, show: tuple[str, ...] = ()) -> Soup:
    """All triangles at a time."""
    corners, colors, above = [], [], []

    def add(surface: Surface, color: Any, over: bool = False) -> None:
        corners.append(surface.vertices[surface.faces])
        colors.append(np.tile(np.asarray(color, float), (len(surface.faces), 1)))
        above.append(np.full(len(surface.faces), over))

    for actor in stage:
        row = actor.row(time)
        for part in actor.parts:
            rotation, position = actor.rotation[row, part.body], actor.position[row, part.body]
            add(part.surface._replace(vertices=part.surface.vertices @ rotation.T + position), part.color)
        for start, end in arrows(actor, row, radius):
            add(rod(start, end, 0.012 * radius), (0.86, 0.15, 0.15, 1.0), True)
        if "com" in show:
            ball = mesh(Sphere(0.04 * radius))
            assert ball is not None
            add(ball._replace(vertices=ball.vertices + actor.center[row]), (0.95, 0.75, 0.1, 1.0), True)
        for k in range(actor.position.shape[1] - 1 if "frames" in show else 0):
            for axis, color in enumerate(np.eye(4)[:3] * 0.8 + [0.1, 0.1, 0.1, 1.0]):
                at = actor.position[row, k]
                add(rod(at, at + 0.15 * radius * actor.rotation[row, k, :, axis], 0.006 * radius), color, True)
    if not corners:
        return Soup(np.zeros((0, 3, 3)), np.zeros((0, 4)), np.zeros(0, bool))
    return Soup(np.concatenate(corners), np.concatenate(colors), np.concatenate(above))


def arrows(actor: Actor, row: int, radius: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Forces as lines from where they press; the largest of the motion is as long as the robot is wide."""
    if actor.forces is None:
        return []
    points, forces = actor.forces[0, row], actor.forces[1, row]
    largest = max(float(np.max(np.linalg.norm(actor.forces[1], axis=-1), initial=0.0)), 1e-30)
    lines = zip(points, points + radius * forces / largest, strict=True)
    return [(start, end) for start, end in lines if np.linalg.norm(end - start) > 1e-2 * radius]


def _ground(stage: list[Actor], middle: np.ndarray, radius: float) -> float:
    """At zero, unless the robot is drawn below it."""
    lowest = middle[2] - radius if not any(actor.parts for actor in stage) else np.inf
    for actor in stage:
        for part in actor.parts:
            axis, place = actor.rotation[:, part.body, 2], actor.position[:, part.body, 2]
            lowest = min(lowest, float(np.min(part.surface.vertices @ axis.T + place)))
    return 0.0 if lowest > -0.05 * radius else lowest - 0.1 * radius


def _checked(path: Path) -> Path:
    if path.suffix.lower() not in KINDS:
        raise ModelError(f"no such kind of picture, of {', '.join(KINDS)}", file=str(path))
    if not path.parent.is_dir():
        raise ModelError("its folder does not exist", file=str(path), hint="make the folder")
    return path


def _write(path: Path, frames: np.ndarray, fps: float) -> None:
    if path.suffix.lower() == ".mp4":
        _film(path, frames, fps)
        return
    try:
        from PIL import Image
    except ImportError:
        raise ModuleNotFoundError('pictures need the pillow package: pip install "dynax[view]"') from None
    pictures = [Image.fromarray(frame) for frame in frames]
    if path.suffix.lower() == ".png":
        pictures[-1].save(path)
        return
    pictures = [picture.quantize(128, dither=Image.Dither.NONE) for picture in pictures]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=1000.0 / fps, loop=0, optimize=True)


def _film(path: Path, frames: np.ndarray, fps: float) -> None:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ImportError:
        raise ModuleNotFoundError('films need the imageio-ffmpeg package: pip install "dynax[view]"') from None
    height, width = frames.shape[1:3]
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
    command = [get_ffmpeg_exe(), "-y", "-loglevel", "error", *given, "-pix_fmt", "yuv420p", str(path)]
    ended = subprocess.run(command, input=frames.tobytes(), capture_output=True)
    if ended.returncode:
        raise ModelError(f"ffmpeg: {ended.stderr.decode(errors='replace').strip()}", file=str(path))
