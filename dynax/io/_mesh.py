"""Meshes as convex sets of a few points."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Corners(NamedTuple):
    points: np.ndarray
    """Shape `(k, 3)` [m]; `k` is a power of two or the most there may be, filled up with the last of them: shapes of
    equal numbers of points are computed at once."""
    missing: float
    """How far the mesh reaches beyond their convex hull [m]."""


def corners(points: np.ndarray, most: int) -> Corners:
    """The vertices whose convex hull comes nearest to that of all.

    One after another that which reaches farthest beyond the hull of those before it, in directions that are spread
    evenly over the sphere (the golden angle, Gonzalez 2010).
    """
    count = 512
    z = 1.0 - (2.0 * np.arange(count) + 1.0) / count
    turn = np.arange(count) * np.pi * (3.0 - 5.0**0.5)
    ring = np.sqrt(1.0 - z * z)
    signs = np.array([[x, y, z] for x in (-1.0, 0.0, 1.0) for y in (-1.0, 0.0, 1.0) for z in (-1.0, 0.0, 1.0)])
    signs = signs[np.any(signs != 0, axis=1)]  # faces, edges and corners of a box
    signs = signs / np.linalg.norm(signs, axis=1, keepdims=True)
    ways = np.concatenate([signs, np.stack([ring * np.cos(turn), ring * np.sin(turn), z], axis=1)])
    outer = points[np.unique([np.argmax(points @ way) for way in ways])]
    reach = outer @ ways.T
    farthest = np.max(reach, axis=0)
    size = np.max(np.ptp(outer, axis=0))
    chosen: list[int] = [int(np.argmax(reach[:, 0]))]
    while True:
        beyond = farthest - np.max(reach[chosen], axis=0)
        way = int(np.argmax(beyond))
        if len(chosen) == most or beyond[way] <= 1e-9 * size:
            break
        chosen.append(int(np.argmax(reach[:, way])))
    filled = min(most, max(4, 1 << (len(chosen) - 1).bit_length()))
    chosen += chosen[-1:] * (filled - len(chosen))
    return Corners(outer[chosen], float(np.max(beyond)))


def read_mesh(path: Path) -> np.ndarray:
    """The vertices of a file, shape `(n, 3)`. `ValueError` that says why there are none."""
    return np.concatenate([surface.vertices for surface in read_surfaces(path)])


class Surface(NamedTuple):
    """A triangulated surface of one colour."""

    vertices: np.ndarray
    """Shape `(n, 3)` [m]."""
    faces: np.ndarray
    """Rows of three vertices, anticlockwise from outside, shape `(f, 3)`."""
    color: tuple[float, ...] | None
    """Red, green, blue and opacity from 0 to 1, where the file says."""


def read_surfaces(path: Path) -> list[Surface]:
    """What is in a file of meshes, each where the file has it. `ValueError` that says why there is nothing."""
    try:
        import trimesh
    except ImportError:
        raise ValueError('meshes need the trimesh package: pip install "dynax[mesh]"') from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scene: Any = trimesh.load(path, force="scene", process=False)
            found = [_surface(mesh) for mesh in scene.dump() if hasattr(mesh, "faces")]
    except Exception as error:  # a foreign reader: whatever it raises is about the file
        if isinstance(error, ImportError) and "collada" in str(error):
            raise ValueError('needs the pycollada package: pip install "dynax[mesh]"') from None
        raise ValueError(f"cannot be read: {str(error) or type(error).__name__}") from None
    if not any(len(surface.vertices) for surface in found):
        raise ValueError("has no points, or some that are no numbers")
    if not all(np.all(np.isfinite(surface.vertices)) for surface in found):
        raise ValueError("has no points, or some that are no numbers")
    return found


def _surface(mesh: Any) -> Surface:
    look = mesh.visual
    told = look.kind == "texture" or (look.kind in ("vertex", "face") and look.defined)
    color = look.material.main_color if look.kind == "texture" else look.main_color
    vertices, faces = np.asarray(mesh.vertices, float).reshape(-1, 3), np.asarray(mesh.faces, int).reshape(-1, 3)
    return Surface(vertices, faces, tuple((np.asarray(color) / 255.0).tolist()) if told else None)


def find_mesh(name: str, file: str | None, packages: Mapping[str, str | os.PathLike]) -> Path | None:
    """Where a mesh is that a robot's file names: `package://name/path`, `model://..`, `file://..`, or a path beside it.

    A package is sought where `packages` says, in the folders around the file, and in those of `ROS_PACKAGE_PATH`.
    """
    scheme, mark, rest = name.partition("://")
    around = list(Path(file).resolve().parents) if file else []
    if not mark:
        tried = [folder / name for folder in around[:1] or [Path()]]
    elif scheme == "file":
        tried = [Path(rest)]
    else:
        package, _, inside = rest.partition("/")
        homes = [Path(packages[package])] if package in packages else []
        homes += [folder for folder in around if folder.name == package]
        ros = [Path(folder) for folder in os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep) if folder]
        homes += [folder / package for folder in (*around, *ros)]
        tried = [home / inside for home in homes]
    return next((path for path in tried if path.is_file()), None)
