"""What a compiled MuJoCo model holds that dynax does not use: an entry in the report for each kind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dynax.io._mjcf_actuators import actuator_name, count, mixed_compensation, unsupported
from dynax.io._mjcf_sensors import read_sensor, sensor_kind
from dynax.io._mujoco_names import BALL, FREE, actuators_on_joints, says, with_rotors
from dynax.model.builder import ModelBuilder


def note_everything_unused(builder: ModelBuilder, m: Any, bodies: list[str], joints: list[str]) -> None:
    """Fill the report. **Arguments:** the compiled model `m`, and the names its bodies and joints have here."""
    _joints(builder, m, joints)
    _once(builder, m, bodies)
    _apart(builder, m, bodies)


def _joints(builder: ModelBuilder, m: Any, joints: list[str]) -> None:
    motors = {freedoms.start for _, freedoms, _ in actuators_on_joints(m)}
    heavy = {freedoms.start for a, freedoms, _ in actuators_on_joints(m) if m.actuator_armature[a]}
    curved = {freedoms.start for a, freedoms, _ in actuators_on_joints(m) if says(m, "actuator_dampingpoly", a)}
    for j, name in enumerate(joints):
        label, kind, dof = f"joint {name!r}", int(m.jnt_type[j]), int(m.jnt_dofadr[j])
        low, high = m.jnt_actfrcrange[j]
        if m.jnt_limited[j] and kind == BALL:
            builder.note(label, "the range of a ball joint, a cone, is no part of the model, dx.load_scene reads it")
        if m.jnt_actfrclimited[j] and low != -high:
            builder.note(label, f"actuatorfrcrange {low:g} to {high:g} is not symmetric; the larger end is its limit")
        if m.jnt_actgravcomp[j] and m.jnt_actfrclimited[j] and np.any(m.body_gravcomp):
            builder.note(label, "actuatorgravcomp: gravity compensation is not within actuatorfrcrange here")
        if kind == FREE and (m.dof_armature[dof] or dof in heavy):
            builder.note(label, "armature of a free joint is that of its body axes here, in MuJoCo of world axes")
        if kind == FREE and m.dof_frictionloss[dof]:
            builder.note(label, "dry friction of a free joint acts along body axes here, MuJoCo's along world axes")
        if kind == FREE and m.jnt_stiffness[j]:
            builder.note(label, "the spring of a free joint pulls along a screw here, MuJoCo's along a straight line")
        if dof in motors:
            builder.note(label, "armature and damping include those of its actuators, times the square of the gear")
        if says(m, "jnt_stiffnesspoly", j) or says(m, "dof_dampingpoly", dof) or dof in curved:
            builder.note(label, "stiffness or damping has higher powers; only the linear terms are used")
        if says(m, "jnt_springyield", j):
            builder.note(label, "its spring yields in the file; here it does not")


def _once(builder: ModelBuilder, m: Any, bodies: list[str]) -> None:
    """One entry for each kind of thing that is not used."""
    mocap = [bodies[b] for b in np.flatnonzero(m.body_mocapid >= 0)]
    medium = m.opt.density or m.opt.viscosity or np.any(m.opt.wind)
    kinds = (
        ("tendon", f"{m.ntendon} tendons, with their springs, damping and armature" if m.ntendon else ""),
        ("flex", f"{m.nflex} flexible bodies; their points are bodies like any other" if m.nflex else ""),
        ("plugin", f"{m.nplugin} plugin instances" if m.nplugin else ""),
        ("option", "the density, viscosity or wind of a medium" if medium else ""),
        ("mocap", f"the motion of {_listed(mocap)}, held where the file puts it" if mocap else ""),
    )
    for element, what in kinds:
        if what:
            builder.note(element, f"not used by dynax: {what}")


def _apart(builder: ModelBuilder, m: Any, bodies: list[str]) -> None:
    """Shapes, actuators and sensors, which are no part of the model, and those of them that nothing reads."""
    colliding = int(np.count_nonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0)))
    compensated = [bodies[b] for b in np.flatnonzero(m.body_gravcomp)]
    kinds = (
        ("contact", "dx.load_scene", f"{colliding} geoms that can collide" if colliding else ""),
        ("actuator", "dx.load_actuators", f"{m.nu} controls" if m.nu else ""),
        ("gravcomp", "dx.load_actuators", f"gravity compensation of {_listed(compensated)}" if compensated else ""),
        ("sensor", "dx.load_sensors", f"{m.nsensor} sensors" if m.nsensor else ""),
    )
    for element, reader, what in kinds:
        if what:
            builder.note(element, f"no part of the model, {reader} reads them: {what}")
    for k in range(count(m)):
        if reason := unsupported(m, k):
            builder.note(f"actuator {actuator_name(m, k)!r}", f"is left out: {reason}")
    on_joints = {a for a, *_ in actuators_on_joints(m)}
    for k in with_rotors(m):
        if k not in on_joints:
            builder.note(f"actuator {actuator_name(m, k)!r}", "its armature and damping, along a tendon, are not used")
    if mixed := mixed_compensation(m):
        builder.note(
            "gravcomp", f"what is welded to {_listed(mixed)} gets the mean of its parts, at one centre of mass"
        )
    left = Counter(sensor_kind(m, k) for k in range(m.nsensor) if read_sensor(m, k) is None)
    for kind, times in left.items():
        builder.note(f"sensor {kind!r}", f"is left out, here or on what it is ({times} times)")


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:4])) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
