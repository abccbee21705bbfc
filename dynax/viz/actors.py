"""Robots on the stage: what is drawn of each, and where its bodies are at every moment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.center_of_mass import center_of_mass
from dynax.algorithms.frames import forward_kinematics
from dynax.constraints.assembly import assemble
from dynax.contact.scene import Scene
from dynax.embedding.model import EmbeddedModel
from dynax.io._mesh import Surface
from dynax.io.load import is_mjcf, is_saved, load
from dynax.io.mjcf import as_drawn
from dynax.io.source import read_source
from dynax.model import Model
from dynax.model.configuration import neutral
from dynax.model.flexible import FlexibleModel
from dynax.viz.parts import Part, parts_of, skeleton

GHOST = (0.35, 0.65, 0.95, 0.3)
Paths = Mapping[str, str | os.PathLike]


@dataclass(frozen=True)
class Actor:
    """One robot and its motion, in NumPy."""

    name: str
    model: Any
    parts: list[Part]
    time: np.ndarray
    """[s], shape `(T,)`."""
    q: np.ndarray
    """Shape `(T, nq)`."""
    rotation: np.ndarray
    """Axes of the bodies in the world, and of the world itself as the last, shape `(T, n + 1, 3, 3)`."""
    position: np.ndarray
    """Shape `(T, n + 1, 3)` [m]."""
    center: np.ndarray
    """Of mass, shape `(T, 3)` [m]."""
    forces: np.ndarray | None = None
    """What presses: where, and the forces in world axes, shape `(2, T, k, 3)` [m, N]."""

    def row(self, time: float) -> int:
        """The row nearest to a time."""
        return int(np.argmin(np.abs(self.time - time)))


def actors(
    robot: Any,
    motion: Any = None,
    *,
    look: str | os.PathLike | None = None,
    root: str = "fixed",
    packages: Paths | None = None,
    ghost: Any = None,
    forces: Any = None,
    most: int = 16,
    spacing: float = 0.0,
    name: str | None = None,
) -> list[Actor]:
    """A robot by each of its motions, and the ghosts of what they should have been.

    **Arguments:**

    - `robot`: a file, or its text; a model of any kind; a `contact.Scene`.
    - `motion`: a `Trajectory`, or one of each robot of a batch, its leaves with an axis in front; a configuration
      `(nq,)`, or one of each robot `(B, nq)`; default `home`.
    - `look`: the URDF or MJCF that says what a model looks like; a `robot` that is a file says it itself.
    - `root`, `packages`: as `dx.load_scene` takes them.
    - `ghost`: a motion as `motion`, drawn transparent.
    - `forces`: what `contact_forces` gives, of one robot.
    - `most`: robots of a batch, evenly picked. `spacing`: how far apart on a square grid they are put [m].
    - `name`: of the robot in the viewer.
    """
    if isinstance(robot, str | os.PathLike):
        look = look or (None if is_saved(read_source(robot)[0]) else robot)
        file, robot = robot, load(robot, root=root)
        motion = home(robot, file) if motion is None else motion
    model = robot.model if isinstance(robot, Scene) else robot
    if not isinstance(model, Model | EmbeddedModel | FlexibleModel):
        raise TypeError(f"a robot is a file, a model or a scene, not a {type(robot).__name__}")
    parts, name = parts_of(robot, look, packages), name or model.name or "robot"
    found = _moving(name, model, parts, motion, most, spacing)
    if forces is not None:
        if len(found) != 1:
            raise ValueError("`forces` are those of one robot, not of a batch")
        told = np.asarray(forces, float)
        if told.ndim != 4 or told.shape[0] != 2 or told.shape[1] != len(found[0].time) or told.shape[3] != 3:
            raise ValueError(f"`forces` has shape {told.shape}, expected (2, {len(found[0].time)}, k, 3)")
        found = [replace(found[0], forces=told)]
    if ghost is not None:
        faint = [replace(part, color=GHOST, surface=_around(part.surface)) for part in parts if part.body >= 0]
        found += _moving(f"{name} ghost", model, faint, ghost, most, spacing)
    return found


def _around(surface: Surface) -> Surface:
    """A little larger, so that where ghost and robot agree the one is seen around the other, and not in stripes."""
    low, high = surface.vertices.min(axis=0), surface.vertices.max(axis=0)
    return surface._replace(vertices=surface.vertices + 0.005 * (surface.vertices - 0.5 * (low + high)))


def _moving(name: str, model: Any, parts: list[Part], motion: Any, most: int, spacing: float) -> list[Actor]:
    times, qs = _sampled(model, motion, most)
    poses = jax.jit(jax.vmap(jax.vmap(lambda q: (forward_kinematics(model, q), center_of_mass(model, q)))))
    pose, center = jax.tree.map(np.asarray, poses(jnp.asarray(qs)))
    batch, rows = qs.shape[:2]
    still = np.broadcast_to(np.eye(3), (batch, rows, 1, 3, 3)), np.zeros((batch, rows, 1, 3))
    rotation = np.concatenate([pose.rotation, still[0]], axis=2)
    position = np.concatenate([pose.translation, still[1]], axis=2)
    side = int(np.ceil(np.sqrt(batch)))
    found = []
    for k in range(batch):
        shift = spacing * np.array([k % side - 0.5 * (side - 1), k // side - 0.5 * (side - 1), 0.0])
        own = f"{name} {k}" if batch > 1 else name
        found.append(
            Actor(own, model, parts, times[k], qs[k], rotation[k], position[k] + shift, np.asarray(center[k]) + shift)
        )
    return found


def _sampled(model: Any, motion: Any, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Times `(B, T)` and configurations `(B, T, nq)`."""
    if motion is None:
        motion = home(model)
    if hasattr(motion, "q"):
        time, q = np.asarray(motion.time, float), np.asarray(motion.q)
        if q.ndim == 2:
            time, q = time[None], q[None]
        time = np.broadcast_to(time, q.shape[:-1])
    else:
        q = np.asarray(motion)
        q = np.atleast_2d(q)[:, None]
        time = np.zeros(q.shape[:2])
    if q.ndim != 3 or q.shape[-1] != model.nq:
        raise ValueError(f"a motion of {model.name!r} has configurations of {model.nq} numbers; got shape {q.shape}")
    if not np.all(np.isfinite(q)):
        raise ValueError(f"the motion of {model.name!r} is not finite")
    picked = np.unique(np.linspace(0, len(q) - 1, min(most, len(q))).round().astype(int))
    return time[picked], q[picked]


def home(model: Any, file: str | os.PathLike | None = None) -> jax.Array:
    """A configuration to begin with, within the limits and with loops closed: that in which an MJCF is drawn, of which
    `file` is the path or the text, or else the neutral one."""
    q = as_drawn(file, model) if file is not None and is_mjcf(read_source(file)[0]) else neutral(model)
    if isinstance(model, Model):
        q = jnp.clip(q, model.position_limits[:, 0], model.position_limits[:, 1])
        return assemble(model, q).q if model.constrained else q
    return q


def reach(stage: list[Actor]) -> tuple[np.ndarray, float]:
    """The middle of all that moves, at all times, and how far it goes from there [m]."""
    points = []
    for actor in stage:
        rows = np.unique(np.linspace(0, len(actor.time) - 1, min(30, len(actor.time))).astype(int))
        for part in actor.parts:
            if part.body >= 0 and len(part.surface.vertices):
                low, high = part.surface.vertices.min(0), part.surface.vertices.max(0)
                corners = np.stack(np.meshgrid(*np.stack([low, high], 1)), -1).reshape(-1, 3)
                turned = np.einsum("tij,kj->tki", actor.rotation[rows, part.body], corners)
                points.append((turned + actor.position[rows, part.body][:, None]).reshape(-1, 3))
        points.append(actor.position[rows, :-1].reshape(-1, 3))
    every = np.concatenate(points)
    every = every if len(every) else np.zeros((1, 3))
    low, high = every.min(0), every.max(0)
    middle = 0.5 * (low + high)
    return middle, max(float(np.max(np.linalg.norm(every - middle, axis=1))), 1e-2)


def node_names(name: str, model: Any) -> tuple[str, list[str]]:
    """In the tree of a viewer: that of a robot, and below it those of its bodies and of what is fixed to the world."""
    names = [*skeleton(model).body_names, "world"]
    return f"/{name.replace('/', '_')}", [each.replace("/", "_") for each in names]


def quaternions(rotations: np.ndarray) -> np.ndarray:
    """Of rotation matrices, shape `(n, 4)`, the scalar first (Shepperd 1978: the largest of the four leads)."""
    m = np.asarray(rotations, float)
    x, y, z = m[:, 0, 0], m[:, 1, 1], m[:, 2, 2]
    squares = np.stack([1 + x + y + z, 1 + x - y - z, 1 - x + y - z, 1 - x - y + z], axis=1)
    a, b, c = m[:, 2, 1] - m[:, 1, 2], m[:, 0, 2] - m[:, 2, 0], m[:, 1, 0] - m[:, 0, 1]
    d, e, f = m[:, 0, 1] + m[:, 1, 0], m[:, 0, 2] + m[:, 2, 0], m[:, 1, 2] + m[:, 2, 1]
    s0, s1, s2, s3 = squares.T
    rows = ([s0, a, b, c], [a, s1, d, e], [b, d, s2, f], [c, e, f, s3])
    table = np.stack([np.stack(row, axis=1) for row in rows], axis=1)
    found = table[np.arange(len(m)), np.argmax(squares, axis=1)]
    return found / np.linalg.norm(found, axis=1, keepdims=True)
