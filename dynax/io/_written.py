"""What the writers of XML share."""

from __future__ import annotations

import os
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.model import Model
from dynax.model.structure import Finding

GRAVITY = (0.0, 0.0, -9.81)
"""The usual one [m/s^2]."""


@dataclass(frozen=True)
class Written:
    """A robot as text."""

    text: str
    left_out: tuple[Finding, ...]
    """What the format cannot say, or says otherwise."""


@dataclass
class Notes:
    """What is left out, by element."""

    found: list[Finding] = field(default_factory=list)

    def add(self, element: str, message: str) -> None:
        self.found.append(Finding(element, message))


def tree_only(model: object, what: str) -> Model:
    if not isinstance(model, Model):
        hint = "of an embedded model write `.tree`" if hasattr(model, "tree") else "give a Model"
        raise ModelError(f"is a {type(model).__name__}, and {what} holds trees of rigid bodies", hint=hint)
    if np.ndim(model.mass) != 1:
        raise ModelError(f"has batch axes, and {what} holds one robot", element=f"model {model.name!r}")
    for name in ("mass", "com", "inertia"):
        if not np.all(np.isfinite(np.asarray(getattr(model, name)))):
            raise ModelError(f"its {name} is not finite", element=f"model {model.name!r}")
    return model


def numbers(values: ArrayLike) -> str:
    """With all their digits, as the shortest text that gives them back."""
    every = np.atleast_1d(np.asarray(values))
    return " ".join(np.format_float_positional(x, trim="-") if abs(x) < 1e16 else repr(float(x)) for x in every)


def roll_pitch_yaw(rotation: np.ndarray) -> np.ndarray:
    """Of `Rz(yaw) Ry(pitch) Rx(roll)`; where the pitch is a quarter of a turn, roll is zero."""
    flat = np.hypot(rotation[0, 0], rotation[1, 0])
    pitch = np.arctan2(-rotation[2, 0], flat)
    if flat <= 1e-9:
        return np.array([0.0, pitch, np.arctan2(-rotation[0, 1], rotation[1, 1])])
    return np.array([np.arctan2(rotation[2, 1], rotation[2, 2]), pitch, np.arctan2(rotation[1, 0], rotation[0, 0])])


def note_constraints(model: Model, notes: Notes) -> None:
    for name in model.loop_names:
        notes.add(f"loop {name!r}", "left out: it is open in the file")
    for condition in model.structure.conditions:
        notes.add(f"condition {condition.name!r}", "left out: a function of your own")


def note_gravity(model: Model, notes: Notes, kind: str) -> None:
    """For files that say nothing of gravity: readers take the usual one."""
    if not np.allclose(model.gravity, GRAVITY, atol=1e-6):
        notes.add("gravity", f"left out: {numbers(model.gravity)} m/s^2, and {kind} says nothing of it")


def linear_gears(model: Model, notes: Notes) -> dict[str, tuple[str, float, float]]:
    """By joint what it follows, with ratio and offset; the gears that have not one source and a ratio are noted."""
    found, first = {}, 0
    gears = zip(model.couplings, model.structure.coupling_functions, strict=True)
    for k, ((follower, *sources), function) in enumerate(gears):
        if function is None and len(sources) == 1:
            found[follower] = sources[0], float(model.coupling_ratio[first]), float(model.coupling_offset[k])
        else:
            notes.add(f"gear of {follower!r}", "left out: a file has those with one source and a ratio")
        first += len(sources) if function is None else 1
    return found


def center(model: Model, body: int) -> np.ndarray:
    """Of mass, in body axes."""
    mass = float(model.mass[body])
    moment = np.asarray(model.first_moment[body], float) / (mass or 1.0)
    return np.asarray(model.com[body], float) + moment


def central_inertia(model: Model, body: int) -> np.ndarray:
    """About the centre of mass, `xx yy zz xy yz xz`: that about the point of reference less the mass moved there."""
    x, y, z = np.asarray(model.first_moment[body], float)
    mass = float(model.mass[body]) or 1.0
    moved = np.array([y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -y * z, -x * z]) / mass
    return np.asarray(model.inertia[body], float) - moved


def finish(root: xml.Element, notes: Notes, file: str | os.PathLike | None) -> Written:
    xml.indent(root)
    text = xml.tostring(root, encoding="unicode") + "\n"
    if file is not None:
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ModelError(f"cannot be written: {error.strerror}", file=str(file)) from None
    return Written(text, tuple(notes.found))
