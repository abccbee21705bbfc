"""A model as a URDF.

| here | in the file |
|---|---|
| `Revolute` with limits, without | `revolute`, `continuous` |
| `Prismatic`, `Planar`, `Free` | `prismatic`, `planar`, `floating` |
| frames | links without inertia at fixed joints |
| gears with one source | `<mimic>` |
| damping, dry friction; limits of position, velocity, effort | `<dynamics>`, `<limit>` |
| a joint away from its body's origin | the link's frame is at the joint, as URDF wants it; said in `left_out` |
| other joints | `ModelError`: the tree would not be the same |
| loops, other gears, conditions; armature, springs; another gravity than the usual | left out, and said |
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as xml
from typing import Any

import numpy as np

from dynax.errors import ModelError
from dynax.io._written import (
    Notes,
    Written,
    center,
    central_inertia,
    finish,
    linear_gears,
    note_constraints,
    note_gravity,
    numbers,
    roll_pitch_yaw,
    tree_only,
)
from dynax.joints import Free, Planar, Prismatic, Revolute
from dynax.model import Model

UNLIMITED = 1e30
"""For a range that has one end: URDF has none or both."""


def write_urdf(model: Model, file: str | os.PathLike | None = None) -> Written:
    """A model as the text of a URDF, which `dx.load` reads back to the same dynamics.

    **Arguments:** `model`: a tree; `file`: where to write it, none for the text alone. A file that exists is replaced.

    Raises `ModelError` for joints that URDF has no name for. What else it cannot say is in `.left_out`.
    """
    model, notes = tree_only(model, "a URDF"), Notes()
    root = xml.Element("robot", name=model.name or "robot")
    world = "world" if len(model.body_names) != 1 or "world" not in model.body_names else "ground"
    xml.SubElement(root, "link", name=world)
    shift = np.array(model.hinges.translation, float)  # from the body's origin to its joint
    gears = linear_gears(model, notes)
    for k, (body, kind) in enumerate(zip(model.body_names, model.joints, strict=True)):
        if isinstance(kind, Free):
            shift[k] = 0.0
        if np.any(shift[k]):
            notes.add(f"link {body!r}", f"its frame is at its joint, {numbers(shift[k])} m from the origin it has here")
        _link(root, model, k, shift[k])
        parent = model.parents[k]
        before = shift[parent] if parent >= 0 else np.zeros(3)
        _joint(root, model, k, kind, model.body_names[parent] if parent >= 0 else world, before, shift[k], gears, notes)
    for frame, on, rotation, place in zip(
        model.frame_names, model.structure.frame_bodies, *_frames(model), strict=True
    ):
        xml.SubElement(root, "link", name=frame)
        joint = xml.SubElement(root, "joint", name=f"{frame}_fixed", type="fixed")
        _origin(joint, rotation, place - (shift[on] if on >= 0 else 0.0))
        xml.SubElement(joint, "parent", link=model.body_names[on] if on >= 0 else world)
        xml.SubElement(joint, "child", link=frame)
    note_constraints(model, notes)
    _note_numbers(model, notes)
    return finish(root, notes, file)


def _frames(model: Model) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(model.frames.rotation, float), np.asarray(model.frames.translation, float)


def _link(root: xml.Element, model: Model, k: int, shift: np.ndarray) -> None:
    link = xml.SubElement(root, "link", name=model.body_names[k])
    inertia, mass = central_inertia(model, k), float(model.mass[k])
    if mass == 0.0 and not np.any(inertia):
        return
    element = xml.SubElement(link, "inertial")
    xml.SubElement(element, "origin", xyz=numbers(center(model, k) - shift))
    xml.SubElement(element, "mass", value=numbers(model.mass[k]))
    names = ("ixx", "iyy", "izz", "ixy", "iyz", "ixz")
    xml.SubElement(element, "inertia", {name: numbers(x) for name, x in zip(names, inertia, strict=True)})


def _joint(
    root: xml.Element,
    model: Model,
    k: int,
    kind: Any,
    parent: str,
    before: np.ndarray,
    shift: np.ndarray,
    gears: dict[str, tuple[str, float, float]],
    notes: Notes,
) -> None:
    name = model.joint_names[k]
    v, q = model.v_slice(name), model.q_slice(name)
    limits = np.asarray(model.position_limits[q], float)
    types = ((Revolute, "revolute"), (Prismatic, "prismatic"), (Planar, "planar"), (Free, "floating"))
    told = next((word for joint, word in types if type(kind) is joint), None)
    if told is None:
        hint = "an MJCF or an SDF may have it, a saved model has"
        raise ModelError(f"URDF has no joint of the kind {type(kind).__name__}", element=f"joint {name!r}", hint=hint)
    single = told in ("revolute", "prismatic")
    if told == "revolute" and not np.any(np.isfinite(limits)):
        told = "continuous"
    joint = xml.SubElement(root, "joint", name=name, type=told)
    rotation = np.asarray(model.placements.rotation[k], float)
    _origin(joint, rotation, np.asarray(model.placements.translation[k], float) + rotation @ shift - before)
    xml.SubElement(joint, "parent", link=parent)
    xml.SubElement(joint, "child", link=model.body_names[k])
    if told != "floating":
        xml.SubElement(joint, "axis", xyz=numbers(np.asarray(model.hinges.rotation[k], float)[:, 2]))
    if not single:
        if np.any(np.asarray(model.damping[v])) or np.any(np.asarray(model.friction_loss[v])):
            notes.add(f"joint {name!r}", "its damping and friction are left out: URDF has them for one freedom")
        return
    _limit(joint, told, limits[0], float(model.effort_limits[v][0]), float(model.velocity_limits[v][0]))
    damping, friction = model.damping[v][0], model.friction_loss[v][0]
    if float(damping) or float(friction):
        xml.SubElement(joint, "dynamics", damping=numbers(damping), friction=numbers(friction))
    if name in gears:
        source, ratio, offset = gears[name]
        xml.SubElement(joint, "mimic", joint=source, multiplier=numbers(ratio), offset=numbers(offset))


def _limit(joint: xml.Element, told: str, limits: np.ndarray, effort: float, velocity: float) -> None:
    found = {}
    if told != "continuous":
        low, high = np.clip(limits, -UNLIMITED, UNLIMITED)
        found = {"lower": numbers(low), "upper": numbers(high)}
    elif not (np.isfinite(effort) or np.isfinite(velocity)):
        return
    found |= {"effort": numbers(min(effort, UNLIMITED)), "velocity": numbers(min(velocity, UNLIMITED))}
    xml.SubElement(joint, "limit", found)


def _note_numbers(model: Model, notes: Notes) -> None:
    note_gravity(model, notes, "a URDF")
    for leaf, what in (("armature", "armature"), ("stiffness", "spring")):
        values = np.asarray(getattr(model, leaf))
        names = [n for n in model.joint_names if np.any(values[model.v_slice(n)])]
        if names:
            notes.add(f"joints {', '.join(map(repr, names[:8]))}", f"their {what} is left out: URDF has none")


def _origin(element: xml.Element, rotation: np.ndarray, place: np.ndarray) -> None:
    xml.SubElement(element, "origin", xyz=numbers(place), rpy=numbers(roll_pitch_yaw(rotation)))
