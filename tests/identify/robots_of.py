"""Arms by their Denavit-Hartenberg parameters, and trees that count their parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import trees
from constraints.mechanisms import four_bar_angles

import dynax as dx

Z = (0.0, 0.0, 1.0)
HALF = np.pi / 2
ARMS = {"Puma 560": "RRRRRR", "Stanford": "RRPRRR", "SCARA": "RRPR"}
# (a, alpha, d) of each joint, a and alpha before its axis and d along it (Craig's convention).
DH = {
    "Puma 560": ((0, 0, 0.6), (0, -HALF, 0.15), (0.43, 0, 0), (0.02, -HALF, 0.43), (0, HALF, 0), (0, -HALF, 0.06)),
    "Stanford": ((0, 0, 0.4), (0, -HALF, 0.15), (0, HALF, 0.3), (0, 0, 0), (0, -HALF, 0), (0, HALF, 0.1)),
    "SCARA": ((0, 0, 0.3), (0.4, 0, 0), (0.3, np.pi, 0.1), (0, 0, 0)),
}


def add_arm(builder: dx.ModelBuilder, name: str) -> dx.ModelBuilder:
    """An arm of `DH` on the ground, its first axis vertical, in a builder that may hold others."""
    parent = "world"
    for k, (kind, (a, alpha, d)) in enumerate(zip(ARMS[name], DH[name], strict=True)):
        turned = dx.Rotation.from_axis_angle((1.0, 0.0, 0.0), alpha).matrix
        pose = dx.Transform(np.asarray(turned), np.array([a, -np.sin(alpha) * d, np.cos(alpha) * d]))
        builder.body(
            f"{name}/{k}",
            parent=parent,
            joint=dx.Revolute(Z) if kind == "R" else dx.Prismatic(Z),
            placement=pose,
            inertia=trees.random_inertia(np.random.default_rng(k)),
        )
        parent = f"{name}/{k}"
    return builder


def add_chain(
    builder: dx.ModelBuilder,
    name: str,
    joints: Sequence[dx.AbstractJoint],
    *,
    reach: Sequence[dx.Transform] | None = None,
) -> dx.ModelBuilder:
    """Joints one on another, each at a random place unless told."""
    rng = np.random.default_rng(len(joints))
    for k, joint in enumerate(joints):
        builder.body(
            f"{name}/{k}",
            parent=f"{name}/{k - 1}" if k else "world",
            joint=joint,
            placement=reach[k] if reach else trees.random_pose(rng),
            inertia=trees.random_inertia(rng),
        )
    return builder


def columns_of(
    model: dx.Model, names: Sequence[str], start: str, but: str = "/nothing/"
) -> tuple[np.ndarray, np.ndarray]:
    """Freedoms and columns of the robot in a forest whose names start so, less the bodies that have `but` in theirs."""
    bodies = [k for k, body in enumerate(model.body_names) if body.startswith(start) and but not in body]
    own = {f"of {name}" for k in bodies for name in (model.body_names[k], model.joint_names[k])}
    columns = [k for k, name in enumerate(names) if name.partition(" ")[2] in own]
    return np.flatnonzero(np.isin(model.topology.body_of_velocity, bodies)), np.array(columns)


def closed(lengths: Sequence[float], cranks: np.ndarray) -> np.ndarray:
    """Configurations of `four_bar(lengths)` on one branch."""
    angles = np.array([four_bar_angles(lengths, crank) for crank in cranks])
    return np.stack([cranks, angles[:, 0] - cranks, angles[:, 1]], axis=1)
