"""Actuators and sensors from the file that a model was loaded from."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dynax.actuate.actuators import Actuators
from dynax.actuate.law import AbstractActuator
from dynax.actuate.sensor import AbstractSensor
from dynax.io._mjcf_actuators import read_actuators
from dynax.io._mjcf_compile import compile_mjcf
from dynax.io._mjcf_sensors import read_sensors
from dynax.io._urdf_actuators import read_drives
from dynax.io._urdf_control import read_joint_sensors
from dynax.io.load import is_mjcf
from dynax.io.source import read_source
from dynax.model import Model


def load_actuators(
    source: str | os.PathLike,
    model: Model,
    *,
    keyframe: str | None = None,
    laws: Mapping[str, AbstractActuator] | None = None,
) -> Actuators:
    """The actuators of an MJCF or a URDF, for `dx.rollout(..., actuators=)`; commands stand in the order of the file.

    Of an MJCF motors, position and velocity servos, integrated velocity, dampers, cylinders, muscles and `general` ones
    on hinges and slides, fixed tendons and sites, with gravity compensation and the limits of what joints get.

    Of a URDF the transmissions, also those in `<ros2_control>`, as motors with a gear: simple ones, differentials and
    four-bar linkages; a motor for each other joint with a command interface; of a file that has neither, a motor for
    each joint with an effort limit. What joints get stays within `model.effort_limits` and those of effort interfaces.

    `model.report` names those that are left out, and why.

    **Arguments:**

    - `source`: a path, or the XML text itself: that which `model` was loaded from.
    - `keyframe`: of an MJCF, one whose activations are the state at the beginning; default none: it is zero.
    - `laws`: of a URDF, the law behind the command interfaces `"position"` and `"velocity"`, whose gains no file holds:
      `{"position": actuate.PositionServo(200.0, 10.0)}`. Joints that have one are served by it, the first first, with
      commands of the joint within the limits of the interface; all others are asked for effort.
    """
    text, file = read_source(source)
    if is_mjcf(text):
        if laws:
            raise ValueError(f"`laws` is {dict(laws)}, but an MJCF says itself what its actuators are")
        return read_actuators(compile_mjcf(text, file).model, model, keyframe)
    if keyframe is not None:
        raise ValueError(f"`keyframe` is {keyframe!r}, but a URDF has none")
    return read_drives(text, file, model, laws)


def load_sensors(source: str | os.PathLike) -> dict[str, AbstractSensor]:
    """The sensors of an MJCF or a URDF by name, for `dx.rollout(..., sensors=)`.

    Of an MJCF those that have none are called `sensor_<number>`; cutoffs are kept; noise is not added, as MuJoCo adds
    none. Of a URDF what its `<ros2_control>` measures: `elbow/position` and `elbow/velocity` of joints, and force,
    torque and inertial sensors that name their link as the parameter `frame_id`.

    `source`: a path, or the XML text itself. The `report` of the model names what is left out.
    """
    text, file = read_source(source)
    return read_sensors(compile_mjcf(text, file).model) if is_mjcf(text) else read_joint_sensors(text, file)
