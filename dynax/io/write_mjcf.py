"""A model as an MJCF.

| here | in the file |
|---|---|
| `Revolute`, `Prismatic`, `Spherical`, `Free` on the world | `hinge`, `slide`, `ball`, `free`, where the joint is |
| other joints | `ModelError`: the tree would not be the same |
| frames | sites; those of the world too |
| masses, centres, inertias; gravity | `<inertial>` with `fullinertia`; `<option>` |
| armature, damping, dry friction, springs, limits of position and effort | of the joint |
| gears that are linear with one source | `<equality><joint>`, which MuJoCo keeps softly |
| loops, other gears, conditions; limits of velocity | left out, and said |
| bodies without mass | `ModelError`: MuJoCo refuses what moves and weighs nothing |
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as xml

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
    numbers,
    tree_only,
)
from dynax.joints import Free, Prismatic, Revolute, Spherical
from dynax.model import Model

KINDS = {Revolute: "hinge", Prismatic: "slide", Spherical: "ball", Free: "free"}


def write_mjcf(model: Model, file: str | os.PathLike | None = None) -> Written:
    """A model as the text of an MJCF, which `dx.load` and MuJoCo read to the same dynamics.

    **Arguments:** `model`: a tree; `file`: where to write it, none for the text alone. A file that exists is replaced.

    Raises `ModelError` for joints that MuJoCo does not have, and for bodies without mass. What else it cannot say is in
    `.left_out`.
    """
    model, notes = tree_only(model, "an MJCF"), Notes()
    root = xml.Element("mujoco", model=model.name or "robot")
    xml.SubElement(root, "compiler", angle="radian", autolimits="true")
    xml.SubElement(root, "option", gravity=numbers(model.gravity))
    world = xml.SubElement(root, "worldbody")
    elements: list[xml.Element] = []
    for k, parent in enumerate(model.parents):
        elements.append(_body(world if parent < 0 else elements[parent], model, k, notes))
    rotations, places = np.asarray(model.frames.rotation, float), np.asarray(model.frames.translation, float)
    for k, (frame, on) in enumerate(zip(model.frame_names, model.structure.frame_bodies, strict=True)):
        site = xml.SubElement(world if on < 0 else elements[on], "site", name=frame)
        site.attrib |= {"pos": numbers(places[k]), **_axes(rotations[k])}
    _gears(root, model, notes)
    note_constraints(model, notes)
    return finish(root, notes, file)


def _body(above: xml.Element, model: Model, k: int, notes: Notes) -> xml.Element:
    name = model.body_names[k]
    mass, inertia = float(model.mass[k]), central_inertia(model, k)
    if mass <= 0.0:
        raise ModelError(
            "moves and has no mass, which MuJoCo refuses", element=f"body {name!r}", hint="dx.fix_joints, or a mass"
        )
    body = xml.SubElement(above, "body", name=name, pos=numbers(model.placements.translation[k]))
    body.attrib |= _axes(np.asarray(model.placements.rotation[k], float))
    xml.SubElement(
        body,
        "inertial",
        pos=numbers(center(model, k)),
        mass=numbers(model.mass[k]),
        fullinertia=numbers(inertia[[0, 1, 2, 3, 5, 4]]),
    )
    _joint(body, model, k, notes)
    return body


def _joint(body: xml.Element, model: Model, k: int, notes: Notes) -> None:
    name, kind = model.joint_names[k], model.joints[k]
    told = KINDS.get(type(kind))
    if told is None:
        hint = "an SDF may have it, a saved model has"
        raise ModelError(f"MuJoCo has no joint of the kind {type(kind).__name__}", element=f"joint {name!r}", hint=hint)
    identity = np.allclose(model.placements.rotation[k], np.eye(3)) and not np.any(model.placements.translation[k])
    if told == "free" and (model.parents[k] >= 0 or not identity):
        raise ModelError("MuJoCo has free joints on the world alone, at its origin", element=f"joint {name!r}")
    q, v = model.q_slice(name), model.v_slice(name)
    joint = xml.SubElement(body, "joint", name=name, type=told)
    if told != "free":
        joint.attrib["pos"] = numbers(model.hinges.translation[k])
    if told in ("hinge", "slide"):
        joint.attrib["axis"] = numbers(np.asarray(model.hinges.rotation[k], float)[:, 2])
    for leaf, word in (("armature", "armature"), ("damping", "damping"), ("friction_loss", "frictionloss")):
        _common(joint, word, np.asarray(getattr(model, leaf)[v], float), notes, name)
    _common(joint, "stiffness", np.asarray(model.stiffness[v], float), notes, name)
    if told not in ("hinge", "slide"):
        return
    if np.any(model.stiffness[v]):
        joint.attrib["springref"] = numbers(model.spring_reference[q])
    low, high = np.asarray(model.position_limits[q], float)[0]
    if np.isfinite(low) or np.isfinite(high):
        joint.attrib["range"] = numbers([max(low, -1e30), min(high, 1e30)])
    effort = float(model.effort_limits[v][0])
    if np.isfinite(effort):
        joint.attrib["actuatorfrcrange"] = numbers([-effort, effort])
    if np.isfinite(float(model.velocity_limits[v][0])):
        notes.add(f"joint {name!r}", "its limit of velocity is left out: MuJoCo has none")


def _common(joint: xml.Element, word: str, values: np.ndarray, notes: Notes, name: str) -> None:
    """What MuJoCo has once for all freedoms of a joint."""
    if not np.any(values):
        return
    if np.any(values != values[0]):
        notes.add(f"joint {name!r}", f"its {word} is the mean: MuJoCo has one for all freedoms")
    joint.attrib[word] = numbers(np.mean(values))


def _gears(root: xml.Element, model: Model, notes: Notes) -> None:
    gears = linear_gears(model, notes)
    equality = xml.SubElement(root, "equality") if gears else root
    for follower, (source, ratio, offset) in gears.items():
        told = {"joint1": follower, "joint2": source, "polycoef": numbers([offset, ratio, 0.0, 0.0, 0.0])}
        xml.SubElement(equality, "joint", told)


def _axes(rotation: np.ndarray) -> dict[str, str]:
    """The first two axes: every digit of a rotation, and no branch."""
    return {"xyaxes": numbers(np.concatenate([rotation[:, 0], rotation[:, 1]]))}
