"""MuJoCo's sensors as ours: which can be read, and what they are here."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynax.actuate.imperfect import Saturated
from dynax.actuate.sensor import AbstractSensor
from dynax.actuate.sensors import (
    Accelerometer,
    ActuatorForce,
    ActuatorPosition,
    ActuatorVelocity,
    Clock,
    ForceTorque,
    FrameAcceleration,
    FrameAxis,
    FramePosition,
    FrameQuaternion,
    FrameVelocity,
    Gyro,
    JointPosition,
    JointVelocity,
    Part,
    Velocimeter,
)
from dynax.actuate.subtree import SubtreeAngularMomentum, SubtreeCenter, SubtreeVelocity
from dynax.actuate.touch import TouchForce
from dynax.io._mjcf_actuators import actuator_name, unsupported
from dynax.io._mjcf_compile import import_mujoco
from dynax.io._mjcf_pose import pose_of
from dynax.io._mujoco_names import body_names, frame_of_site, joint_names
from dynax.model.builder import WORLD
from dynax.spatial import SpatialInertia, Transform


def sensor_name(m: Any, k: int) -> str:
    return m.sensor(k).name or f"sensor_{k}"


def sensor_kind(m: Any, k: int) -> str:
    return str(import_mujoco().mjtSensor(int(m.sensor_type[k]))).rsplit("_", 1)[-1].lower()


_JOINT = {"jointpos": JointPosition, "jointvel": JointVelocity, "ballquat": JointPosition, "ballangvel": JointVelocity}
_ACTUATOR = {"actuatorpos": ActuatorPosition, "actuatorvel": ActuatorVelocity, "actuatorfrc": ActuatorForce}
_SUBTREE = {
    "subtreecom": SubtreeCenter,
    "subtreelinvel": SubtreeVelocity,
    "subtreeangmom": SubtreeAngularMomentum,
}
_SITE = {"gyro": Gyro, "accelerometer": Accelerometer, "velocimeter": Velocimeter}


def read_sensors(m: Any) -> dict[str, AbstractSensor]:
    """Those of a compiled model that can be read."""
    found = {sensor_name(m, k): read_sensor(m, k) for k in range(m.nsensor)}
    return {name: sensor for name, sensor in found.items() if sensor is not None}


def read_sensor(m: Any, k: int) -> AbstractSensor | None:
    """Sensor `k` of a compiled model; `None` if it cannot be read."""
    kind, obj = sensor_kind(m, k), int(m.sensor_objid[k])
    if hasattr(m, "sensor_delay") and (m.sensor_delay[k] or np.any(m.sensor_interval[k])):
        return None
    if kind in _ACTUATOR and unsupported(m, obj) is None:
        return _within(m, k, _ACTUATOR[kind]((actuator_name(m, obj),)))
    if kind in _JOINT:
        return _within(m, k, _JOINT[kind]((joint_names(m)[obj],)))
    if kind == "clock":
        return _within(m, k, Clock())
    if kind in _SUBTREE and m.body_jntnum[obj]:
        return _within(m, k, _SUBTREE[kind](body_names(m)[obj]))
    frame = _frame(m, int(m.sensor_objtype[k]), obj)
    if frame is None:
        return None
    if kind == "touch":
        zone = _zone(m, obj)
        return None if zone is None else _within(m, k, TouchForce(frame, **zone))
    if kind in _SITE:
        return _within(m, k, _SITE[kind](frame))
    if kind in ("force", "torque"):
        cut = _cut(m, int(m.site_bodyid[obj]), frame)
        return None if cut is None else _within(m, k, Part(cut, *((3, 6) if kind == "force" else (0, 3))))
    reference = WORLD if m.sensor_refid[k] < 0 else _frame(m, int(m.sensor_reftype[k]), int(m.sensor_refid[k]))
    if reference is None:
        return None
    parts: dict[str, AbstractSensor] = {
        "framepos": FramePosition(frame, reference),
        "framequat": FrameQuaternion(frame, reference),
        "framexaxis": FrameAxis(frame, 0, reference),
        "frameyaxis": FrameAxis(frame, 1, reference),
        "framezaxis": FrameAxis(frame, 2, reference),
        "framelinvel": Part(FrameVelocity(frame, reference), 3, 6),
        "frameangvel": Part(FrameVelocity(frame, reference), 0, 3),
        "framelinacc": Part(FrameAcceleration(frame, felt=True), 3, 6),
        "frameangacc": Part(FrameAcceleration(frame), 0, 3),
    }
    return _within(m, k, parts[kind]) if kind in parts else None


def _zone(m: Any, site: int) -> dict[str, np.ndarray] | None:
    """The volume of a site; MuJoCo also counts what lies beyond it along the normal."""
    kinds, size = import_mujoco().mjtGeom, np.array(m.site_size[site])
    kind = int(m.site_type[site])
    if kind == kinds.mjGEOM_SPHERE:
        return {"radii": np.full(3, size[0])}
    if kind == kinds.mjGEOM_ELLIPSOID:
        return {"radii": size}
    return {"half": size} if kind == kinds.mjGEOM_BOX else None


def _within(m: Any, k: int, sensor: AbstractSensor) -> AbstractSensor:
    cutoff = float(m.sensor_cutoff[k])
    return Saturated(sensor, -cutoff, cutoff) if cutoff > 0 else sensor


def _frame(m: Any, kind: int, obj: int) -> str | None:
    """The name a site or body has here. MuJoCo's `body` is the frame of the inertia, which is the body's own if it
    says nothing else."""
    e = import_mujoco().mjtObj
    if kind == e.mjOBJ_SITE:
        return frame_of_site(m, obj) if m.site(obj).name else None
    if kind == e.mjOBJ_BODY and (np.any(m.body_ipos[obj]) or not np.allclose(m.body_iquat[obj], [1, 0, 0, 0])):
        return None
    return body_names(m)[obj] if kind in (e.mjOBJ_BODY, e.mjOBJ_XBODY) else None


def _cut(m: Any, body: int, frame: str) -> ForceTorque | None:
    """Between a body and its parent: a joint, or within what moves as one."""
    root, names = int(m.body_weldid[body]), body_names(m)
    if not root:
        return None
    if root == body:
        return ForceTorque(frame)
    poses, beyond = {root: Transform.identity()}, [body]
    for b in range(root + 1, m.nbody):
        if m.body_weldid[b] == root:
            parent = int(m.body_parentid[b])
            poses[b] = poses[parent] @ pose_of(m.body_quat[b], m.body_pos[b])
            if parent in beyond:
                beyond.append(b)
    total = SpatialInertia.zero()
    for b in beyond:
        local = poses[b] @ pose_of(m.body_iquat[b], m.body_ipos[b])
        turn = np.asarray(local.rotation)
        tensor = turn @ np.diag(m.body_inertia[b]) @ turn.T
        total = total + SpatialInertia(float(m.body_mass[b]), np.asarray(local.translation), tensor)
    carries = [names[b] for b in range(1, m.nbody) if m.body_jntnum[b] and int(m.body_parentid[b]) in beyond]
    return ForceTorque(frame, np.asarray(total.parameters), tuple(carries))
