"""The `<ros2_control>` of a URDF: which joints are commanded, within which limits, and what is measured.

| in the file | here |
|---|---|
| `<command_interface>` position, velocity, effort, with its `min` and `max` | `Commanded.limits` |
| `<limits enable="false"/>` of a joint or an interface | no limits |
| `<state_interface>` position, velocity of a joint | `JointPosition`, `JointVelocity`, called `joint/position` |
| `<sensor>` with the parameter `frame_id` and `force.*` or `torque.*` | `ForceTorque`, called as the sensor |
| with `angular_velocity.*`, `linear_acceleration.*` | `Gyro`, `Accelerometer`, called `sensor/angular_velocity` |
| with `orientation.*` | `FrameQuaternion` |
| `<transmission>` | `_urdf_transmissions` |
| `<hardware>`, other parameters | the controller's own, unread |

Whatever else can be commanded or measured is left out, and said so. See control.ros.org, "Hardware Components" and
"Joint Kinematics for ros2_control".
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from dynax.actuate.sensor import AbstractSensor
from dynax.actuate.sensors import Accelerometer, ForceTorque, FrameQuaternion, Gyro, JointPosition, JointVelocity
from dynax.io._xml import Element, parse

ONE_FREEDOM = ("revolute", "continuous", "prismatic")
COMMANDS = ("position", "velocity", "effort")
_STATES = {"position": JointPosition, "velocity": JointVelocity}
_UNLIMITED = -math.inf, math.inf


class Commanded(NamedTuple):
    """A joint with command interfaces."""

    joint: str
    limits: dict[str, tuple[float, float]]
    """Of each interface."""


class Control(NamedTuple):
    joints: tuple[Commanded, ...]
    transmissions: tuple[Element, ...]
    sensors: dict[str, AbstractSensor]
    left: tuple[tuple[Element, str], ...]
    """What cannot be read, and why."""


def read_control(robot: Element, joints: Collection[str]) -> Control:
    """All `<ros2_control>` of a robot. `joints`: those of one freedom."""
    limits: dict[str, dict[str, tuple[float, float]]] = {}
    sensors: dict[str, AbstractSensor] = {}
    transmissions: list[Element] = []
    left: list[tuple[Element, str]] = []
    links = {link.attributes.get("name", "") for link in robot.all("link")}
    for part in (part for block in robot.all("ros2_control") for part in block.children):
        if part.tag == "joint":
            name = part.attribute("name")
            if name not in joints:
                left.append((part, f"is left out of <ros2_control>: no joint {name!r} has one freedom"))
                continue
            if own := _commands(part, left):
                limits.setdefault(name, {}).update(own)
            sensors |= _states(part, name, left)
        elif part.tag == "sensor":
            sensors |= _frame_sensors(part, links, left)
        elif part.tag == "transmission":
            transmissions.append(part)
        elif part.tag != "hardware":
            left.append((part, f"is left out: <{part.tag}> of <ros2_control> is no joint, sensor or transmission"))
    return Control(tuple(Commanded(*each) for each in limits.items()), tuple(transmissions), sensors, tuple(left))


def read_joint_sensors(text: str | bytes, file: str | None) -> dict[str, AbstractSensor]:
    """The sensors of a URDF."""
    robot = parse(text, file)
    kinds = {joint.attributes.get("name", ""): joint.attributes.get("type") for joint in robot.all("joint")}
    return read_control(robot, {name for name, kind in kinds.items() if kind in ONE_FREEDOM}).sensors


def _commands(joint: Element, left: list[tuple[Element, str]]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for interface in joint.all("command_interface"):
        name = interface.attribute("name")
        if name in COMMANDS:
            found[name] = _limits(interface) if _enabled(joint) and _enabled(interface) else _UNLIMITED
        else:
            left.append((joint, f"its command interface {name!r} is left out"))
    if found and "effort" not in found:
        what = " or ".join(found)
        left.append((joint, f"takes commands of {what}, and no gains are in the file: it is asked for effort, or "
                            "served by `dx.load_actuators(..., laws=)`"))  # fmt: skip
    return found


def _enabled(element: Element) -> bool:
    own = element.child("limits")
    return own is None or own.attributes.get("enable", "true").strip().lower() != "false"


def _limits(interface: Element) -> tuple[float, float]:
    params = _params(interface)
    low, high = (
        number(params[key]) if key in params else way for key, way in zip(("min", "max"), _UNLIMITED, strict=True)
    )
    if low > high:
        raise interface.error(f"its min, {low:g}, is above its max, {high:g}", hint="swap them")
    return low, high


def _params(element: Element) -> dict[str, Element]:
    return {param.attribute("name"): param for param in element.all("param")}


def number(element: Element) -> float:
    """The number that stands between an element's tags; without an end, where it says so."""
    text = element.text.strip()
    if (word := text.lower().lstrip("+-.")) in ("inf", "infinity") and text:
        return -math.inf if text.startswith("-") else float(word)
    return Element(element.tag, {"text": text}, element.line, element.file, element.label).number("text")


def _states(joint: Element, name: str, left: list[tuple[Element, str]]) -> dict[str, AbstractSensor]:
    kinds = [interface.attribute("name") for interface in joint.all("state_interface")]
    for kind in kinds:
        if kind not in _STATES:
            left.append((joint, f"its state interface {kind!r} is left out"))
    return {f"{name}/{kind}": _STATES[kind]((name,)) for kind in kinds if kind in _STATES}


def _frame_sensors(sensor: Element, links: set[str], left: list[tuple[Element, str]]) -> dict[str, AbstractSensor]:
    name, params = sensor.attribute("name"), _params(sensor)
    frame = params["frame_id"].text.strip() if "frame_id" in params else ""
    if frame not in links:
        why = f"there is no link {frame!r}" if frame else "its parameter 'frame_id' is missing"
        left.append((sensor, f"is left out: {why}"))
        return {}
    found: dict[str, AbstractSensor] = {}
    for kind in dict.fromkeys(part.attribute("name").partition(".")[0] for part in sensor.all("state_interface")):
        if kind in ("force", "torque"):
            found[name] = ForceTorque(frame)
        elif kind == "angular_velocity":
            found[f"{name}/{kind}"] = Gyro(frame)
        elif kind == "linear_acceleration":
            found[f"{name}/{kind}"] = Accelerometer(frame)
        elif kind == "orientation":
            found[f"{name}/{kind}"] = FrameQuaternion(frame)
        else:
            left.append((sensor, f"its state interface {kind!r} is left out"))
    return found
