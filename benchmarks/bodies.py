"""A robot as arrays that every engine can be told: the bodies that move, parents first. Needs NumPy only.

Welded links are merged into what carries them, so that all engines count the same bodies.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

FREE, SPHERICAL, REVOLUTE, PRISMATIC = "free", "spherical", "revolute", "prismatic"


@dataclass(frozen=True, eq=False)
class Bodies:
    name: str
    names: list[str]
    joints: list[str]
    """The name of the joint that carries each body."""
    kinds: list[str]
    parents: list[int]
    """-1 for the world."""
    axes: np.ndarray
    """In body axes, shape `(n, 3)`; zero where there is none."""
    rotation: np.ndarray
    """Body to parent when the joint is at its identity, shape `(n, 3, 3)`."""
    translation: np.ndarray
    """The body's origin, on the joint's axis, in its parent, shape `(n, 3)` [m]."""
    mass: np.ndarray
    com: np.ndarray
    inertia: np.ndarray
    """About the centre of mass, body axes, shape `(n, 3, 3)`."""

    @property
    def free(self) -> bool:
        return self.kinds[0] == FREE

    @property
    def tip(self) -> int:
        """The body with the most joints between it and the world, whose Jacobian is computed."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 1)
        return int(np.argmax(depths))

    def to_json(self) -> str:
        fields = dataclasses.asdict(self)
        return json.dumps({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in fields.items()})

    @classmethod
    def from_json(cls, text: str) -> Bodies:
        fields: dict[str, Any] = json.loads(text)
        for key in ("axes", "rotation", "translation", "mass", "com", "inertia"):
            fields[key] = np.array(fields[key])
        return cls(**fields)

    def world_poses(self) -> tuple[np.ndarray, np.ndarray]:
        """Rotations and origins in the world with all joints at their identity."""
        rotation, translation = self.rotation.copy(), self.translation.copy()
        for k, parent in enumerate(self.parents):
            if parent >= 0:
                translation[k] = translation[parent] + rotation[parent] @ self.translation[k]
                rotation[k] = rotation[parent] @ self.rotation[k]
        return rotation, translation


def roll_pitch_yaw(rotation: np.ndarray) -> str:
    """The angles of URDF and SDF, `Rz(yaw) Ry(pitch) Rx(roll)`, as text."""
    pitch = np.arctan2(-rotation[2, 0], np.hypot(rotation[0, 0], rotation[1, 0]))
    if np.hypot(rotation[0, 0], rotation[1, 0]) < 1e-9:
        roll, yaw = 0.0, np.arctan2(-rotation[0, 1], rotation[1, 1])
    else:
        roll, yaw = np.arctan2(rotation[2, 1], rotation[2, 2]), np.arctan2(rotation[1, 0], rotation[0, 0])
    return numbers([roll, pitch, yaw])


def numbers(values) -> str:
    return " ".join(str(float(value)) for value in values)


def urdf(bodies: Bodies) -> str:
    """The URDF of bodies on revolute and prismatic joints; a first body on a free joint is its root link."""
    lines = [f'<robot name="{bodies.name}">', *([] if bodies.free else ['<link name="base"/>'])]
    for k, kind in enumerate(bodies.kinds):
        i = bodies.inertia[k]
        lines.append(
            f'<link name="{bodies.names[k]}"><inertial><origin xyz="{numbers(bodies.com[k])}"/>'
            f'<mass value="{bodies.mass[k]}"/><inertia ixx="{i[0, 0]}" iyy="{i[1, 1]}" izz="{i[2, 2]}"'
            f' ixy="{i[0, 1]}" iyz="{i[1, 2]}" ixz="{i[0, 2]}"/></inertial></link>'
        )
        if kind == FREE:
            continue
        parent = bodies.names[bodies.parents[k]] if bodies.parents[k] >= 0 else "base"
        lines.append(
            f'<joint name="{bodies.joints[k]}" type="{kind}"><parent link="{parent}"/><child link="{bodies.names[k]}"/>'
            f'<origin xyz="{numbers(bodies.translation[k])}" rpy="{roll_pitch_yaw(bodies.rotation[k])}"/>'
            f'<axis xyz="{numbers(bodies.axes[k])}"/>'
            '<limit lower="-100" upper="100" effort="1000" velocity="100"/></joint>'
        )
    return "\n".join([*lines, "</robot>"])
