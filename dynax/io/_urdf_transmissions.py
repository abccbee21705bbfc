"""The transmissions of a URDF, as ROS's `transmission_interface` defines them, as actuators that give a force.

| type | `length = matrix q` |
|---|---|
| `SimpleTransmission` | `n q` |
| `DifferentialTransmission` | `[[a0 j0, a0 j1], [a1 j0, -a1 j1]] q` |

with reductions `a` of the actuators and `j` of the joints. A reduction may stand in the actuator, in the joint or, in
old files, in the transmission itself. What an actuator is asked for (position, velocity, effort) is the controller's:
here all are asked for effort.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from dynax.actuate.actuators import Actuators, coupled, on_joints, together
from dynax.actuate.law import Direct
from dynax.io._mujoco_names import unused
from dynax.io._xml import Element, parse
from dynax.model import Model


class Transmission(NamedTuple):
    joints: tuple[str, ...]
    actuators: tuple[str, ...]
    matrix: np.ndarray


def transmission(element: Element, joints: Collection[str]) -> Transmission | str:
    """One `<transmission>`; or why it cannot be read. `joints`: those of one freedom."""
    kind = element.child("type")
    name = (kind.text.strip() if kind else element.attributes.get("type", "")).rpartition("/")[2]
    ends = [sorted(element.all(tag), key=_role) for tag in ("joint", "actuator")]
    size = {"SimpleTransmission": 1, "DifferentialTransmission": 2}.get(name)
    if size is None:
        return f"its type {name!r} is another" if name else "it has no type"
    if [len(end) for end in ends] != [size, size]:
        return f"a {name} has {size} joints and as many actuators"
    moved, moving = (tuple(part.attribute("name") for part in end) for end in ends)
    away = [joint for joint in moved if joint not in joints]
    if away:
        return f"no joint {away[0]!r} has one freedom"
    j, a = (np.array([_reduction(part) for part in end]) for end in ends)
    if size == 1:
        own = _reduction(element)
        return Transmission(moved, moving, np.array([[own * a[0] * j[0]]]))
    return Transmission(moved, moving, a[:, None] * j * np.array([[1.0, 1.0], [1.0, -1.0]]))


def _role(element: Element) -> str:
    """`joint1`, `actuator2`: where there are roles, these are the order."""
    role = element.child("role")
    return role.text.strip() if role else ""


def _reduction(element: Element) -> float:
    found = element.child("mechanicalReduction")
    if found is None:
        return 1.0
    written = Element(found.tag, {"text": found.text.strip()}, found.line, found.file, element.label)
    return written.number("text")


def read_transmissions(text: str | bytes, file: str | None, model: Model) -> Actuators:
    """The transmissions that can be read, simple ones first; without any in the file, one motor for each joint that
    has an effort limit. What joints get stays within `model.effort_limits`."""
    single = [name for name, joint in zip(model.joint_names, model.joints, strict=True) if joint.nv == 1]
    elements = parse(text, file).all("transmission")
    read = [found for found in (transmission(e, set(single)) for e in elements) if not isinstance(found, str)]
    if not elements:
        limits = np.asarray(model.effort_limits)
        limited = [name for name in single if np.isfinite(limits[model.v_slice(name)][0])]
        read = [Transmission((name,), (name,), np.eye(1)) for name in limited]
    taken: list[str] = []
    for name in (name for found in read for name in found.actuators):
        taken.append(unused(name, taken))
    names = iter(taken)
    named = [found._replace(actuators=tuple(next(names) for _ in found.actuators)) for found in read]
    simple = [found for found in named if len(found.joints) == 1]
    motors = on_joints(
        model,
        [found.joints[0] for found in simple],
        Direct(),
        gear=np.array([found.matrix[0, 0] for found in simple]),
        names=[found.actuators[0] for found in simple],
    )
    pairs = [
        coupled(model, found.joints, found.matrix, Direct(), names=found.actuators)
        for found in named
        if len(found.joints) > 1
    ]
    return together(motors, *pairs).with_effort_limits(model.effort_limits)
