"""Making one model from another: fix joints, attach, change the root, remove a subtree. All work on plain numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.joints import AbstractJoint, Free, Reversed, Weld
from dynax.model.builder import WORLD, BodyRecord, FrameRecord, ModelBuilder
from dynax.model.closures import GearRecord, LoopRecord
from dynax.model.gears import gears_with
from dynax.model.model import Model
from dynax.spatial import SpatialInertia, Transform


def to_builder(model: Model) -> ModelBuilder:
    """A builder that would build the model again: the way to edit what the functions below do not cover."""
    topology, leaf = model.topology, lambda a: np.asarray(a, dtype=np.float64)
    builder = ModelBuilder(gravity=tuple(leaf(model.gravity)), name=model.name)

    def name_of(body: int) -> str:
        return WORLD if body < 0 else model.body_names[body]

    placements, hinges = model.placements, model.hinges
    mass, com, left, six = (leaf(a) for a in (model.mass, model.com, model.first_moment, model.inertia))
    for k, name in enumerate(model.body_names):
        v = slice(topology.v_start[k], topology.v_start[k + 1])
        q = slice(topology.q_start[k], topology.q_start[k + 1])
        p = slice(topology.parameter_start[k], topology.parameter_start[k + 1])
        xx, yy, zz, xy, yz, xz = six[k]
        builder.bodies[name] = BodyRecord(
            name=name,
            parent=name_of(model.parents[k]),
            joint=topology.joints[k],
            joint_name=model.joint_names[k],
            placement=Transform(leaf(placements.rotation)[k], leaf(placements.translation)[k]),
            hinge=Transform(leaf(hinges.rotation)[k], leaf(hinges.translation)[k]),
            parameters=tuple(leaf(model.joint_parameters)[p].tolist()),
            inertia=SpatialInertia(mass[k], com[k], np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), left[k]),
            armature=leaf(model.armature)[v],
            damping=leaf(model.damping)[v],
            friction_loss=leaf(model.friction_loss)[v],
            stiffness=leaf(model.stiffness)[v],
            spring_reference=leaf(model.spring_reference)[q],
            position_limits=leaf(model.position_limits)[q],
            velocity_limits=leaf(model.velocity_limits)[v],
            effort_limits=leaf(model.effort_limits)[v],
        )
    for k, name in enumerate(model.frame_names):
        pose = Transform(leaf(model.frames.rotation)[k], leaf(model.frames.translation)[k])
        builder.frames[name] = FrameRecord(name, name_of(model.structure.frame_bodies[k]), pose)
    start = 0
    for k, loop in enumerate(model.structure.loops):
        own = slice(start, start := start + len(loop.closure.parameters))
        below, above = (
            Transform(leaf(poses.rotation)[k], leaf(poses.translation)[k])
            for poses in (model.loop_predecessors, model.loop_successors)
        )
        parameters = tuple(leaf(model.loop_parameters)[own].tolist())
        builder.loops[loop.name] = LoopRecord(
            loop.name, name_of(loop.predecessor), name_of(loop.successor), loop.closure, below, above, parameters
        )
    start = 0
    for k, ((joint, *sources), function) in enumerate(
        zip(model.couplings, model.structure.coupling_functions, strict=True)
    ):
        own = slice(start, start := start + (len(sources) if function is None else 1))
        ratios, offset = tuple(leaf(model.coupling_ratio)[own].tolist()), float(model.coupling_offset[k])
        builder.gears[joint] = GearRecord(joint, tuple(sources), ratios, offset, function)
    builder.conditions.update((condition.name, condition) for condition in model.structure.conditions)
    builder.findings.extend(model.report)
    return builder


def fix_joints(model: Model, joints: Mapping[str, ArrayLike] | Sequence[str]) -> Model:
    """The model with some joints welded; the bodies they carried stay as frames of their names.

    A gear keeps holding between the joints that are left: what follows a fixed joint is held too.

    **Arguments:**

    - `joints`: names, fixed at the neutral configuration, or a mapping from names to the coordinates to fix them at,
      numbers or shape `(nq of the joint,)`.
    """
    wanted = dict(joints) if isinstance(joints, Mapping) else dict.fromkeys(joints)
    builder, fixed = to_builder(model), {}
    for joint, q in wanted.items():
        k = model.joint_index(joint)
        record = builder.bodies[model.body_names[k]]
        values = record.joint.neutral() if q is None else np.atleast_1d(np.asarray(q, dtype=np.float64))
        if np.shape(values) != (record.joint.nq,):
            raise ModelError(f"needs {record.joint.nq} coordinates, got {np.shape(values)}", element=f"joint {joint!r}")
        pose = record.placement @ record.hinge @ joint_pose(record, values, float(model.time)) @ inverse(record.hinge)
        builder.bodies[record.name] = _welded(record, pose)
        fixed[joint] = float(values[0]) if len(values) == 1 else np.nan
    builder.gears = gears_with(builder.gears, fixed)
    _keep_closures(builder)
    return builder.build()


def remove_subtree(model: Model, body: str) -> Model:
    """The model without a body, everything it carries and the frames on them."""
    k = model.body_index(body)
    gone = {model.body_names[i] for i in np.flatnonzero(model.topology.support[:, k])}
    builder = to_builder(model)
    for name in gone:
        del builder.bodies[name]
    builder.frames = {name: frame for name, frame in builder.frames.items() if frame.body not in gone}
    _keep_closures(builder)
    return builder.build()


def attach(
    model: Model,
    other: Model,
    *,
    body: str = WORLD,
    placement: Transform | None = None,
    joint: AbstractJoint | None = None,
    prefix: str = "",
) -> Model:
    """The model with another one fixed to one of its bodies or frames.

    **Arguments:**

    - `other`: what to attach. If it floats (one root, on a free joint) its root is carried by `joint`; otherwise the
      body takes the place of its world.
    - `body`: a body or frame of `model`, or `"world"`.
    - `placement`: the pose of the attached root's frame (or world) in that body or frame.
    - `joint`: default `Weld()`. A gripper read with `root="free"` keeps the mass of its root link this way.
    - `prefix`: put before every name of `other`, to keep names apart.
    """
    builder, added = to_builder(model), to_builder(other)
    place = Transform.identity() if placement is None else placement
    if body != WORLD:
        index, pose = model.locate(body)
        if pose is not None:
            place = Transform(np.asarray(pose.rotation), np.asarray(pose.translation)) @ place
        body = WORLD if index < 0 else model.body_names[index]
    roots = [record for record in added.bodies.values() if record.parent == WORLD]
    floats = len(roots) == 1 and roots[0].joint == Free()
    carrier = Weld() if joint is None else joint
    if joint is not None and not floats:
        raise ModelError("`joint` needs an attached model whose one root floats", hint="load it with root='free'")
    for record in added.bodies.values():
        at_root = record.parent == WORLD
        fresh = replace(
            record,
            name=prefix + record.name,
            parent=body if at_root else prefix + record.parent,
            joint_name=prefix + record.joint_name,
            placement=place @ record.placement if at_root and not floats else record.placement,
        )
        builder._check_name(fresh.name, f"attached body {fresh.name!r}")
        if at_root and floats:
            builder.body(fresh.name, parent=body, joint=carrier, placement=place, joint_name=fresh.joint_name)
            fresh = replace(builder.bodies[fresh.name], inertia=record.inertia)
        builder.bodies[fresh.name] = fresh
    for frame in added.frames.values():
        on_world = frame.body == WORLD
        pose = place @ frame.placement if on_world else frame.placement
        builder.frame(prefix + frame.name, body=body if on_world else prefix + frame.body, placement=pose)
    for gear in added.gears.values():
        sources = tuple(prefix + source for source in gear.sources)
        builder.gear(prefix + gear.joint, sources, ratio=gear.ratios, offset=gear.offset, function=gear.function)
    for loop in added.loops.values():
        _check_free(prefix + loop.name, builder.loops, "loop")
        ends = {}
        for end in ("predecessor", "successor"):
            name, pose = getattr(loop, end), getattr(loop, f"{end}_placement")
            ends[end], ends[f"{end}_placement"] = (body, place @ pose) if name == WORLD else (prefix + name, pose)
        builder.loops[prefix + loop.name] = replace(loop, name=prefix + loop.name, **ends)
    for condition in added.conditions.values():
        raise ModelError(
            "is a function of the attached model alone",
            element=f"condition {condition.name!r}",
            hint="attach the model without it, and add it to a builder of the whole (dx.to_builder)",
        )
    builder.findings.extend(f for f in added.findings if f not in builder.findings)
    return builder.build()


def change_root(model: Model, body: str, *, joint: AbstractJoint | None = None) -> Model:
    """The same floating mechanism with another body as its root (RBDA section 4.1).

    The joints between the old and the new root change polarity (`Reversed`), their coordinates keep their meaning.

    **Arguments:**

    - `body`: the new root; its tree must float.
    - `joint`: what connects it to the world; default `Free()`.
    """
    topology, start = model.topology, model.body_index(body)
    path = [int(i) for i in np.flatnonzero(topology.support[start])][::-1]
    old = path[-1]
    if topology.joints[old] != Free():
        raise ModelError(
            f"its tree is held by {model.joint_names[old]!r}, so its root cannot be changed",
            element=f"body {body!r}",
            hint="load the model with root='free'",
        )
    builder = to_builder(model)
    records = dict(builder.bodies)
    fresh = ModelBuilder()
    fresh.body(body, joint=Free() if joint is None else joint, joint_name=records[model.body_names[old]].joint_name)
    records[body] = replace(fresh.bodies[body], inertia=records[body].inertia)
    for child, parent in itertools.pairwise(path):
        edge, moved = builder.bodies[model.body_names[child]], builder.bodies[model.body_names[parent]]
        turned = edge.joint.joint if isinstance(edge.joint, Reversed) else Reversed(edge.joint)
        records[moved.name] = replace(
            edge,
            name=moved.name,
            parent=edge.name,
            joint=turned,
            inertia=moved.inertia,
            placement=inverse(edge.placement),
            hinge=edge.placement @ edge.hinge,
        )
    builder.bodies = _parents_first(records)
    return builder.build()


def _parents_first(records: Mapping[str, BodyRecord]) -> dict[str, BodyRecord]:
    children: dict[str, list[str]] = {}
    for record in records.values():
        children.setdefault(record.parent, []).append(record.name)
    ordered: dict[str, BodyRecord] = {}
    stack = children.get(WORLD, [])[::-1]
    while stack:
        name = stack.pop()
        ordered[name] = records[name]
        stack.extend(children.get(name, [])[::-1])
    return ordered


def inverse(pose: Transform) -> Transform:
    """The inverse of a pose, in NumPy."""
    rotation = np.asarray(pose.rotation).T
    return Transform(rotation, -rotation @ np.asarray(pose.translation))


def joint_pose(record: BodyRecord, q: ArrayLike, time: float = 0.0) -> Transform:
    """The pose of a joint's successor frame in its predecessor frame, in NumPy."""
    coordinates = tuple(jnp.asarray(x, float) for x in np.asarray(q, dtype=np.float64))
    parameters = tuple(jnp.asarray(p, float) for p in record.parameters)
    rotation, translation = record.joint.pose(coordinates, parameters, jnp.asarray(time, float))
    return Transform(np.asarray(rotation.array), np.asarray(translation.array))


def _welded(record: BodyRecord, pose: Transform) -> BodyRecord:
    welded = ModelBuilder().body(record.name, joint_name=record.joint_name, placement=pose).bodies[record.name]
    return replace(welded, parent=record.parent, inertia=record.inertia)


def _keep_closures(builder: ModelBuilder) -> None:
    """Drop gears of joints and loops of bodies that are gone, and loops that two welds have made rigid."""
    left = {record.joint_name for record in builder.bodies.values() if not isinstance(record.joint, Weld)}
    builder.gears = {name: g for name, g in builder.gears.items() if left.issuperset((g.joint, *g.sources))}

    def carrier(name: str) -> str:
        while name != WORLD and isinstance(builder.bodies[name].joint, Weld):
            name = builder.bodies[name].parent
        return name

    known = {WORLD, *builder.bodies}
    builder.loops = {
        name: loop
        for name, loop in builder.loops.items()
        if {loop.predecessor, loop.successor} <= known and carrier(loop.predecessor) != carrier(loop.successor)
    }


def _check_free(name: str, taken: Mapping[str, object], what: str) -> None:
    if name in taken:
        raise ModelError(f"there are two {what}s of this name", element=f"{what} {name!r}", hint="choose a prefix")
