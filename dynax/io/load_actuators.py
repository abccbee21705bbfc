"""Actuators from the file that a model was loaded from."""

from __future__ import annotations

import os

from dynax.actuate.actuators import Actuators
from dynax.io._mjcf_actuators import read_actuators
from dynax.io._mjcf_compile import compile_mjcf
from dynax.io._urdf_transmissions import read_transmissions
from dynax.io.load import is_mjcf
from dynax.io.source import read_source
from dynax.model import Model


def load_actuators(source: str | os.PathLike, model: Model, *, keyframe: str | None = None) -> Actuators:
    """The actuators of an MJCF or a URDF, for `dx.rollout(..., actuators=)`; commands stand in the order of the file.

    Of an MJCF motors, position and velocity servos, integrated velocity, dampers, cylinders, muscles and `general` ones
    on hinges and slides, fixed tendons and sites, with gravity compensation and the limits of what joints get.

    Of a URDF the transmissions, as motors with a gear, simple ones and differentials; of a file that has none a motor
    for each joint with an effort limit. What joints get stays within `model.effort_limits`.

    `model.report` names those that are left out, and why.

    **Arguments:**

    - `source`: a path, or the XML text itself: that which `model` was loaded from.
    - `keyframe`: of an MJCF, one whose activations are the state at the beginning; default none: it is zero.
    """
    text, file = read_source(source)
    if is_mjcf(text):
        return read_actuators(compile_mjcf(text, file).model, model, keyframe)
    if keyframe is not None:
        raise ValueError(f"`keyframe` is {keyframe!r}, but a URDF has none")
    return read_transmissions(text, file, model)
