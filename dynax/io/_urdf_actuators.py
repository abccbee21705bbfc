"""What drives the joints of a URDF: its transmissions, its `<ros2_control>`, or a motor for each effort limit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynax.actuate.actuators import Actuators, coupled, on_joints, together
from dynax.actuate.law import AbstractActuator, Direct
from dynax.actuate.limits import CommandLimited
from dynax.io._mujoco_names import unused
from dynax.io._urdf_control import Commanded, read_control
from dynax.io._urdf_transmissions import Transmission, read_transmissions
from dynax.io._xml import parse
from dynax.model import Model


def read_drives(
    text: str | bytes, file: str | None, model: Model, laws: Mapping[str, AbstractActuator] | None
) -> Actuators:
    """Servos first, then single motors, then pairs. What joints get stays within the limits of the file."""
    robot, laws = parse(text, file), dict(laws or {})
    if away := [name for name in laws if name not in ("position", "velocity")]:
        raise ValueError(f"`laws` has {away[0]!r}: what files leave out is the law behind 'position' and 'velocity'")
    single = {name for name, joint in zip(model.joint_names, model.joints, strict=True) if joint.nv == 1}
    control = read_control(robot, single)
    served = {name: [each for each in control.joints if _served(each, laws) == name] for name in laws}
    servos = {each.joint for own in served.values() for each in own}
    read, _ = read_transmissions(robot, control, single)
    motors = [found for found in read if servos.isdisjoint(found.joints)]
    driven = servos.union(*(found.joints for found in motors))
    motors += [_alone(each.joint) for each in control.joints if each.joint not in driven]
    if not (control.joints or control.transmissions or robot.all("transmission")):
        limits = np.asarray(model.effort_limits)
        motors = [_alone(name) for name in model.joint_names if name in single and _limited(model, limits, name)]
    return together(
        *(_servo(model, laws[name], name, own) for name, own in served.items() if own),
        *_motors(model, motors, [each for own in served.values() for each in own]),
    ).with_effort_limits(_effort_limits(model, control.joints))


def _served(joint: Commanded, laws: Mapping[str, AbstractActuator]) -> str | None:
    """The first of the laws behind an interface that the joint has."""
    return next((name for name in laws if name in joint.limits), None)


def _alone(joint: str) -> Transmission:
    return Transmission((joint,), (joint,), np.eye(1))


def _limited(model: Model, limits: np.ndarray, joint: str) -> bool:
    return bool(np.isfinite(limits[model.v_slice(joint)][0]))


def _servo(model: Model, law: AbstractActuator, interface: str, joints: list[Commanded]) -> Actuators:
    low, high = np.array([each.limits[interface] for each in joints]).T
    return on_joints(model, [each.joint for each in joints], CommandLimited(law, low, high))


def _motors(model: Model, found: list[Transmission], servos: list[Commanded]) -> list[Actuators]:
    taken = [each.joint for each in servos]
    for name in (name for one in found for name in one.actuators):
        taken.append(unused(name, taken))
    names = iter(taken[len(servos) :])
    named = [one._replace(actuators=tuple(next(names) for _ in one.actuators)) for one in found]
    simple = [one for one in named if len(one.joints) == 1]
    joints, actuators = [one.joints[0] for one in simple], [one.actuators[0] for one in simple]
    gear = np.array([one.matrix[0, 0] for one in simple])
    pairs = [
        coupled(model, one.joints, one.matrix, Direct(), names=one.actuators) for one in named if len(one.joints) > 1
    ]
    return [*([on_joints(model, joints, Direct(), gear=gear, names=actuators)] if simple else []), *pairs]


def _effort_limits(model: Model, joints: tuple[Commanded, ...]) -> np.ndarray:
    """Those of the joints, and of their effort interfaces where these are narrower."""
    most = np.asarray(model.effort_limits)
    limits = np.stack([-most, most], axis=1)
    for each in joints:
        low, high = each.limits.get("effort", (-np.inf, np.inf))
        row = model.v_slice(each.joint)
        limits[row] = np.clip(limits[row], low, high)
    return limits
