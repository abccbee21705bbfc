"""The transmissions of a URDF, as ROS's `transmission_interface` defines them, as actuators that give a force.

| type | `length = matrix q` |
|---|---|
| `SimpleTransmission` | `a j q` |
| `DifferentialTransmission` | `[[a0 j0, a0 j1], [a1 j0, -a1 j1]] q` |
| `FourBarLinkageTransmission` | `[[a0 j0, 0], [a1, a1 j1]] q` |

with reductions `a` of the actuators and `j` of the joints. A reduction may stand in the actuator, in the joint or, in
old files, in the transmission itself. What an actuator is asked for (position, velocity, effort) is the controller's:
here all are asked for effort, and forces are those of equal power; ROS's own formula for the effort of a four-bar
linkage is not the transpose of its velocities'. Offsets move no force.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from dynax.io._urdf_control import Control, number
from dynax.io._xml import Element

_SIZES = {"SimpleTransmission": 1, "DifferentialTransmission": 2, "FourBarLinkageTransmission": 2}


class Transmission(NamedTuple):
    joints: tuple[str, ...]
    actuators: tuple[str, ...]
    matrix: np.ndarray


def read_transmissions(
    robot: Element, control: Control, joints: Collection[str]
) -> tuple[list[Transmission], list[tuple[Element, str]]]:
    """Those of `<ros2_control>`, those of the robot itself for other joints, and why others are left out."""
    read, left, taken = [], [], set()
    for elements in (control.transmissions, robot.all("transmission")):
        found = [(element, transmission(element, joints)) for element in elements]
        for element, one in found:
            if isinstance(one, str):
                left.append((element, f"is left out: {one}"))
            elif not taken.isdisjoint(one.joints):
                left.append((element, "is left out: <ros2_control> has a transmission of its joint"))
            else:
                read.append(one)
        taken |= {joint for one in read for joint in one.joints}
    return read, left


def transmission(element: Element, joints: Collection[str]) -> Transmission | str:
    """One `<transmission>`; or why it cannot be read. `joints`: those of one freedom."""
    kind = element.child("type") or element.child("plugin")
    name = (kind.text.strip() if kind else element.attributes.get("type", "")).rpartition("/")[2]
    size = _SIZES.get(name)
    if size is None:
        return f"its type {name!r} is another" if name else "it has no type"
    moving, motors = (sorted(element.all(tag), key=_role) for tag in ("joint", "actuator"))
    if len(moving) != size or len(motors) not in ((0, 1) if size == 1 else (2,)):
        return f"a {name} has {size} joints and as many actuators"
    moved = tuple(part.attribute("name") for part in moving)
    away = [joint for joint in moved if joint not in joints]
    if away:
        return f"no joint {away[0]!r} has one freedom"
    # The only actuator of a component may be left out.
    names = tuple(part.attribute("name") for part in motors) or moved
    j, a = (np.array([_reduction(part) for part in end]) for end in (moving, motors or [element]))
    if not np.all(j) or not np.all(a):
        raise element.error("a reduction of zero", hint="write the turns of the motor for one of the joint")
    if size == 1:
        return Transmission(moved, names, np.array([[a[0] * j[0] * (_reduction(element) if motors else 1.0)]]))
    if name == "FourBarLinkageTransmission":
        return Transmission(moved, names, a[:, None] * np.array([[j[0], 0.0], [1.0, j[1]]]))
    return Transmission(moved, names, a[:, None] * j * np.array([[1.0, 1.0], [1.0, -1.0]]))


def _role(element: Element) -> str:
    """`joint1`, `actuator2`: where there are roles, these are the order."""
    role = element.child("role")
    return role.text.strip() if role else element.attributes.get("role", "")


def _reduction(element: Element) -> float:
    found = element.child("mechanicalReduction") or element.child("mechanical_reduction")
    return 1.0 if found is None else number(found)
