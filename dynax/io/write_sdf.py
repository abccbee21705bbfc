"""A model as an SDF, which Gazebo, Drake and JaxSim read.

| here | in the file |
|---|---|
| `Revolute` with limits, without; `Prismatic`, `Helical` | `revolute`, `continuous`; `prismatic`, `screw` |
| `Spherical`, `Universal` | `ball`, `universal` |
| `Free` on the world | no joint |
| what else hangs on the world | on a link `ground` of 1 kg that is fixed to it: JaxSim wants one fixed joint there |
| other joints | `ModelError`: the tree would not be the same |
| a joint away from its body's origin | its `<pose>` |
| frames | `<frame>` |
| gears that are linear with one source | `<mimic>` |
| damping, dry friction, springs; limits of position, velocity, effort | `<dynamics>`, `<limit>`, of one freedom |
| armature; gravity, which belongs to a world; loops, other gears, conditions | left out, and said |

http://sdformat.org/spec, version 1.11. Poses of links are those of the model's neutral configuration, in the model.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as xml
from typing import Any

import numpy as np

from dynax.errors import ModelError
from dynax.io._mujoco_names import unused
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
from dynax.joints import Free, Helical, Prismatic, Revolute, Spherical, Universal
from dynax.model import Model

KINDS = {
    Revolute: "revolute", Prismatic: "prismatic", Helical: "screw", Universal: "universal", Spherical: "ball",
}  # fmt: skip
SINGLE = (Revolute, Prismatic, Helical)


def write_sdf(model: Model, file: str | os.PathLike | None = None) -> Written:
    """A model as the text of an SDF, for Gazebo, Drake and JaxSim; dynax does not read it back.

    **Arguments:** `model`: a tree; `file`: where to write it, none for the text alone. A file that exists is replaced.

    Raises `ModelError` for joints that SDF has no name for. What else it cannot say is in `.left_out`.
    """
    model, notes = tree_only(model, "an SDF"), Notes()
    root = xml.Element("sdf", version="1.11")
    robot = xml.SubElement(root, "model", name=model.name or "robot")
    gears = linear_gears(model, notes)
    rotations, places = _poses(model)
    ground = _ground(robot, model)
    for k, name in enumerate(model.body_names):
        link = xml.SubElement(robot, "link", name=name)
        _pose(link, places[k], rotations[k])
        _inertial(link, center(model, k), float(model.mass[k]), central_inertia(model, k))
    for k, parent in enumerate(model.parents):
        _joint(robot, model, k, model.body_names[parent] if parent >= 0 else ground, gears, notes)
    for k, (name, on) in enumerate(zip(model.frame_names, model.structure.frame_bodies, strict=True)):
        frame = xml.SubElement(robot, "frame", name=name)
        if on >= 0:
            frame.attrib["attached_to"] = model.body_names[on]
        _pose(frame, np.asarray(model.frames.translation[k], float), np.asarray(model.frames.rotation[k], float))
    note_constraints(model, notes)
    note_gravity(model, notes, "a model")
    return finish(root, notes, file)


def _ground(robot: xml.Element, model: Model) -> str:
    """What roots are held by, by name; `"world"` where none is held."""
    held = any(p < 0 and not isinstance(joint, Free) for p, joint in zip(model.parents, model.joints, strict=True))
    if not held:
        return "world"
    name = unused("ground", model.body_names, model.frame_names)
    _inertial(xml.SubElement(robot, "link", name=name), np.zeros(3), 1.0, np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]))
    joint = xml.SubElement(robot, "joint", name=unused(f"{name}_joint", model.joint_names), type="fixed")
    xml.SubElement(joint, "parent").text = "world"
    xml.SubElement(joint, "child").text = name
    return name


def _poses(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Of all bodies in the world, with every joint at its identity."""
    rotations = np.array(model.placements.rotation, float)
    places = np.array(model.placements.translation, float)
    for k, parent in enumerate(model.parents):
        if parent >= 0:
            places[k] = places[parent] + rotations[parent] @ places[k]
            rotations[k] = rotations[parent] @ rotations[k]
    return rotations, places


def _pose(element: xml.Element, place: np.ndarray, rotation: np.ndarray) -> None:
    xml.SubElement(element, "pose").text = f"{numbers(place)} {numbers(roll_pitch_yaw(rotation))}"


def _inertial(link: xml.Element, place: np.ndarray, mass: float, moments: np.ndarray) -> None:
    inertial = xml.SubElement(link, "inertial")
    _pose(inertial, place, np.eye(3))
    xml.SubElement(inertial, "mass").text = numbers(mass)
    inertia = xml.SubElement(inertial, "inertia")
    for name, value in zip(("ixx", "iyy", "izz", "ixy", "iyz", "ixz"), moments, strict=True):
        xml.SubElement(inertia, name).text = numbers(value)


def _joint(robot: xml.Element, model: Model, k: int, parent: str, gears: dict, notes: Notes) -> None:
    name, kind = model.joint_names[k], model.joints[k]
    v = model.v_slice(name)
    if np.any(np.asarray(model.armature[v])):
        notes.add(f"joint {name!r}", "its armature is left out: SDF has none")
    if isinstance(kind, Free):
        if model.parents[k] >= 0:
            raise ModelError("SDF has no free joints but on the world", element=f"joint {name!r}")
        return
    told = KINDS.get(type(kind))
    if told is None:
        hint = "a saved model has it"
        raise ModelError(f"SDF has no joint of the kind {type(kind).__name__}", element=f"joint {name!r}", hint=hint)
    limits = np.asarray(model.position_limits[model.q_slice(name)], float)
    if told == "revolute" and not np.any(np.isfinite(limits)):
        told = "continuous"
    joint = xml.SubElement(robot, "joint", name=name, type=told)
    rotation = np.asarray(model.hinges.rotation[k], float)
    turned = rotation if told == "ball" else np.eye(3)
    _pose(joint, np.asarray(model.hinges.translation[k], float), turned)
    xml.SubElement(joint, "parent").text = parent
    xml.SubElement(joint, "child").text = model.body_names[k]
    if isinstance(kind, Helical):
        xml.SubElement(joint, "screw_thread_pitch").text = numbers(2.0 * np.pi * _pitch(model, k))
    if isinstance(kind, SINGLE):
        _axis(joint, model, k, rotation[:, 2], limits[0], gears, notes)
        return
    if isinstance(kind, Universal):
        for tag, axis in (("axis", rotation[:, 2]), ("axis2", rotation[:, 1])):
            xml.SubElement(xml.SubElement(joint, tag), "xyz").text = numbers(axis)
    if any(np.any(np.asarray(getattr(model, leaf)[v])) for leaf in ("damping", "friction_loss", "stiffness")):
        notes.add(f"joint {name!r}", "its damping, friction and springs are left out")
    if np.any(np.isfinite(limits)):
        notes.add(f"joint {name!r}", "its limits are left out")


def _pitch(model: Model, k: int) -> np.ndarray:
    """Metres for a radian; SDF says metres for a turn."""
    return np.asarray(model.joint_parameters[int(model.topology.parameter_start[k])], float)


def _axis(joint: xml.Element, model: Model, k: int, axis: np.ndarray, limits: Any, gears: dict, notes: Notes) -> None:
    name = model.joint_names[k]
    v, q = model.v_slice(name), model.q_slice(name)
    element = xml.SubElement(joint, "axis")
    xml.SubElement(element, "xyz").text = numbers(axis)
    limit = xml.SubElement(element, "limit")
    bounds = {
        "lower": limits[0],
        "upper": limits[1],
        "effort": model.effort_limits[v][0],
        "velocity": model.velocity_limits[v][0],
    }
    for word, value in bounds.items():
        if np.isfinite(value):
            xml.SubElement(limit, word).text = numbers(value)
    given = {
        "damping": model.damping[v][0],
        "friction": model.friction_loss[v][0],
        "spring_stiffness": model.stiffness[v][0],
        "spring_reference": model.spring_reference[q][0] if float(model.stiffness[v][0]) else 0.0,
    }
    dynamics = None
    for word, value in given.items():
        if float(value):
            dynamics = xml.SubElement(element, "dynamics") if dynamics is None else dynamics
            xml.SubElement(dynamics, word).text = numbers(value)
    if name in gears:
        source, ratio, offset = gears[name]
        mimic = xml.SubElement(element, "mimic", joint=source)
        for word, value in (("multiplier", ratio), ("offset", offset), ("reference", 0.0)):
            xml.SubElement(mimic, word).text = numbers(value)
