"""MJCF, MuJoCo's format, through MuJoCo's own compiler.

Defaults, compiler options, includes and inertia from geoms are therefore exactly MuJoCo's. What becomes of the rest:

| in the file | here |
|---|---|
| several joints on one body | a chain of massless bodies `"<body>:<joint>"`; the last carries the body's own name |
| no joint | welded: merged into its parent and kept as a frame |
| no name | `body_<number>`, `<body>_joint`, or `<body>_joint_<place>` on a body with several |
| `ref` | folded into the placement: `q` equals MuJoCo's `qpos` |
| `armature`, `damping`, `frictionloss`, `stiffness`, `springref`, `range` | leaves of the model |
| `actuatorfrcrange` | `effort_limits`, the larger end |
| armature and damping of actuators on joints | added to the joint's, times the square of the gear |
| sites with a name | frames |
| `<option gravity>`, and the flags gravity, spring, damper, frictionloss | obeyed |
| equality constraints `connect` and `weld` | loops, exact ones |
| equality constraints `joint` | gears; of a joint alone, a joint that is held |
| equality constraints of tendons and flexible bodies, and those switched off | reported |
| keyframes | `dx.keyframes` |
| actuators, gravity compensation; sensors | `dx.load_actuators`, `dx.load_sensors`; those left out are reported |
| contacts, tendons, fluids, mocap bodies, flexible bodies, plugins | reported |
| meshes, height fields, textures, cameras, lights | ignored; a mesh file is read only if an inertia needs it |
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from dynax.io._mjcf_apart import compile_apart
from dynax.io._mjcf_compile import compile_mjcf, import_mujoco
from dynax.io._mjcf_equality import add_equalities
from dynax.io._mjcf_pose import matrix_of, pose_of, transform
from dynax.io._mjcf_report import note_everything_unused
from dynax.io._mujoco_names import (
    BALL,
    FREE,
    HINGE,
    SLIDE,
    actuators_on_joints,
    body_names,
    joint_names,
    keyframe_names,
    unused,
)
from dynax.io.convert_mujoco import MujocoConverter
from dynax.io.source import read_source
from dynax.joints import AbstractJoint, Free, Prismatic, Revolute, Spherical
from dynax.model import Model
from dynax.model.builder import WORLD, ModelBuilder
from dynax.spatial import SpatialInertia, Transform


def read_mjcf(text: str | bytes, *, file: str | None, isolate: bool = False) -> ModelBuilder:
    """A `ModelBuilder` filled from an MJCF; its `.build()` makes the model.

    **Arguments:**

    - `text`: the MJCF itself, as text or as the bytes of the file.
    - `file`: where it came from: includes and assets are sought beside it. `None` for text without a file.
    - `isolate`: whether MuJoCo's compiler runs in a process of its own, with a limit of time.

    Bodies keep MuJoCo's order, so `q` is MuJoCo's `qpos`; `v` differs from `qvel` at free joints only, see
    `dx.MujocoConverter`. Raises `ModelError`, with MuJoCo's words for what its compiler objects to.
    """
    mj_model, name, warnings, _ = (compile_apart if isolate else compile_mjcf)(text, file)
    source = _Source(mj_model, body_names(mj_model), joint_names(mj_model))
    disabled = import_mujoco().mjtDisableBit
    gravity = np.zeros(3) if source.off(disabled.mjDSBL_GRAVITY) else mj_model.opt.gravity
    builder = ModelBuilder(gravity=tuple(float(g) for g in gravity), name=name or "model")
    for message in warnings:
        builder.note("MuJoCo's compiler", message)
    leaves = _joint_leaves(source)
    for b in range(1, mj_model.nbody):
        _add_body(builder, source, b, leaves)
    _add_sites(builder, source)
    off = source.off(disabled.mjDSBL_EQUALITY) or source.off(disabled.mjDSBL_CONSTRAINT)
    add_equalities(builder, mj_model, source.bodies, source.joints, off=off)
    note_everything_unused(builder, mj_model, source.bodies, source.joints)
    return builder


def keyframes(source: str | os.PathLike, model: Model) -> dict[str, tuple[jax.Array, jax.Array]]:
    """The keyframes of an MJCF as `(q, v)` of `model`, by name; nameless ones are called `key_<number>`.

    **Arguments:**

    - `source`: a path, or the MJCF text itself: that which `model` was loaded from.
    - `model`: of shape-compatible joints: each joint of the file must be in it by name, and the other way round.
    """
    mj_model = compile_mjcf(*read_source(source)).model
    convert = MujocoConverter(model, mj_model)
    frames = {}
    for k, name in enumerate(keyframe_names(mj_model)):
        state = convert.back(mj_model.key_qpos[k], mj_model.key_qvel[k])
        frames[name] = (state.q, state.v)
    return frames


def as_drawn(source: str | os.PathLike, model: Model) -> jax.Array:
    """The configuration an MJCF is drawn in, MuJoCo's `qpos0`: joints at their `ref`, free bodies where they stand."""
    mj_model = compile_mjcf(*read_source(source)).model
    return MujocoConverter(model, mj_model).back(mj_model.qpos0).q


@dataclass(frozen=True)
class _Source:
    """The compiled model, with the names its parts have here."""

    mj_model: Any
    bodies: list[str]
    joints: list[str]

    @cached_property
    def taken(self) -> frozenset[str]:
        return frozenset(self.bodies)

    def off(self, flag: Any) -> bool:
        return bool(self.mj_model.opt.disableflags & int(flag))


# Bodies and their joints.


def _add_body(builder: ModelBuilder, source: _Source, b: int, leaves: list[dict[str, Any]]) -> None:
    """A body with its joints: one body of ours for each joint, all of whose frames coincide at `qpos0`.

    MuJoCo moves the body's frame by its joints in turn, each acting in the frame the earlier ones left, and by nothing
    at `qpos0`. So each link of the chain is the body's frame part of the way, and only the first has an offset.
    """
    m, name = source.mj_model, source.bodies[b]
    parent = source.bodies[m.body_parentid[b]] if m.body_parentid[b] else WORLD
    placement = pose_of(m.body_quat[b], m.body_pos[b])
    first, count = int(m.body_jntadr[b]), int(m.body_jntnum[b])
    inertia = _inertia(m, b)
    if not count:
        builder.body(name, parent=parent, placement=placement, inertia=inertia)
        return
    for j in range(first, first + count):
        last = j == first + count - 1
        link = name if last else unused(f"{name}:{source.joints[j]}", builder.bodies, source.taken)
        builder.body(
            link,
            parent=parent,
            joint=_joint(m, j),
            joint_name=source.joints[j],
            placement=_before_reference(m, j, placement),
            inertia=inertia if last else None,
            **leaves[j],
        )
        parent, placement = link, Transform.identity()


def _joint(m: Any, j: int) -> AbstractJoint:
    kind = int(m.jnt_type[j])
    if kind == FREE:
        return Free()
    if kind == BALL:
        return Spherical()
    x, y, z = (float(a) for a in m.jnt_axis[j])
    return Prismatic((x, y, z)) if kind == SLIDE else Revolute((x, y, z))


def _before_reference(m: Any, j: int, placement: Transform) -> Transform:
    """The placement at `qpos = 0`: what MuJoCo calls the model's pose is that at `qpos = qpos0`.

    A free joint's `qpos` is the pose in the world itself. Ball joints have the identity as their reference.
    """
    kind, axis = int(m.jnt_type[j]), m.jnt_axis[j]
    if kind == FREE:
        return Transform.identity()
    back = -float(m.qpos0[m.jnt_qposadr[j]])
    if kind == BALL or back == 0.0:
        return placement
    if kind == SLIDE:
        return placement @ transform(np.eye(3), back * axis)
    mujoco, quaternion = import_mujoco(), np.zeros(4)
    mujoco.mju_axisAngle2Quat(quaternion, axis, back)
    turn, anchor = matrix_of(quaternion), m.jnt_pos[j]
    return placement @ transform(turn, anchor - turn @ anchor)


def _inertia(m: Any, b: int) -> SpatialInertia:
    """Mass, centre and tensor in the body's axes: MuJoCo keeps the principal moments and their axes."""
    axes = matrix_of(m.body_iquat[b])
    tensor = axes @ np.diag(m.body_inertia[b]) @ axes.T
    return SpatialInertia(float(m.body_mass[b]), np.array(m.body_ipos[b]), 0.5 * (tensor + tensor.T))


def _joint_leaves(source: _Source) -> list[dict[str, Any]]:
    """For each joint what the builder takes besides its kind: anchor, passive parameters, limits."""
    m, mujoco = source.mj_model, import_mujoco()
    flags = mujoco.mjtDisableBit
    armature, damping = m.dof_armature.copy(), m.dof_damping.copy()
    for a, freedoms, gear in actuators_on_joints(m):
        # MuJoCo 4 lets a motor bring its rotor's inertia and friction, seen through the gear.
        armature[freedoms] += gear**2 * m.actuator_armature[a]
        damping[freedoms] += gear**2 * m.actuator_damping[a]
    springs = not source.off(flags.mjDSBL_SPRING)
    dampers = not source.off(flags.mjDSBL_DAMPER)
    friction = not (source.off(flags.mjDSBL_FRICTIONLOSS) or source.off(flags.mjDSBL_CONSTRAINT))
    leaves = []
    for j in range(m.njnt):
        kind, q, v = int(m.jnt_type[j]), int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
        size_q, size_v = {FREE: (7, 6), BALL: (4, 3)}.get(kind, (1, 1))
        dofs = np.arange(v, v + size_v)
        if kind == FREE:
            dofs = np.roll(dofs, 3)  # MuJoCo's linear ones come first, ours last
        leaf: dict[str, Any] = {
            "anchor": np.zeros(3) if kind in (FREE, SLIDE) else np.array(m.jnt_pos[j]),
            "armature": armature[dofs],
            "damping": damping[dofs] * dampers,
            "friction_loss": m.dof_frictionloss[dofs] * friction,
            "stiffness": float(m.jnt_stiffness[j]) * springs,
            "spring_reference": np.array(m.qpos_spring[q : q + size_q]),
        }
        if m.jnt_limited[j] and kind in (SLIDE, HINGE):
            leaf["position_limits"] = tuple(m.jnt_range[j])
        if m.jnt_actfrclimited[j]:
            leaf["effort_limit"] = np.max(np.abs(m.jnt_actfrcrange[j]))
        leaves.append(leaf)
    return leaves


# Frames.


def _add_sites(builder: ModelBuilder, source: _Source) -> None:
    m = source.mj_model
    for s in range(m.nsite):
        name = m.site(s).name
        if not name:
            continue
        frame = unused(name, (WORLD,), builder.bodies, builder.frames)
        if frame != name:
            builder.note(f"site {name!r}", f"shares its name with a body; the frame is called {frame!r}")
        b = int(m.site_bodyid[s])
        body = source.bodies[b] if b else WORLD
        builder.frame(frame, body=body, placement=pose_of(m.site_quat[s], m.site_pos[s]))
