"""Building a model body by body, checking each as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.flexible import FlexibleBody
from dynax.joints import AbstractJoint, Free, Weld
from dynax.model.checked import model_of
from dynax.model.closures import WORLD, ClosureBuilder, checked_pose
from dynax.model.flexible import flexible_model
from dynax.model.model import Model
from dynax.model.structure import Finding, Structure, close_names
from dynax.spatial import SpatialInertia, Transform
from dynax.topology import Topology


@dataclass(frozen=True)
class BodyRecord:
    """One body as it was described: what a builder collects and an edit rewrites."""

    name: str
    parent: str
    joint: AbstractJoint
    """Without axes and parameters, which follow."""
    joint_name: str
    placement: Transform
    hinge: Transform
    parameters: tuple[float, ...]
    inertia: SpatialInertia
    armature: np.ndarray
    damping: np.ndarray
    friction_loss: np.ndarray
    stiffness: np.ndarray
    spring_reference: np.ndarray
    position_limits: np.ndarray
    velocity_limits: np.ndarray
    effort_limits: np.ndarray


@dataclass(frozen=True)
class FrameRecord:
    name: str
    body: str
    placement: Transform


@dataclass
class ModelBuilder(ClosureBuilder):
    """Collects bodies and frames, then `build` makes the immutable model.

    **Arguments:**

    - `gravity`: the acceleration of free fall in the world [m/s^2].
    - `name`: what to call the model.

    Every method returns the builder. Errors are `ModelError`s that name the element.
    """

    gravity: Sequence[float] = (0.0, 0.0, -9.81)
    name: str = "model"
    bodies: dict[str, BodyRecord] = field(default_factory=dict, init=False, repr=False)
    frames: dict[str, FrameRecord] = field(default_factory=dict, init=False, repr=False)
    findings: list[Finding] = field(default_factory=list, init=False, repr=False)
    flexible: dict[str, FlexibleBody] = field(default_factory=dict, init=False, repr=False)
    """Bodies with modes; `bodies` has one for the frame and each node of each."""
    _moving_joints: set[str] = field(default_factory=set, init=False, repr=False)

    def body(
        self,
        name: str,
        *,
        parent: str = WORLD,
        joint: AbstractJoint | None = None,
        placement: Transform | None = None,
        inertia: SpatialInertia | FlexibleBody | None = None,
        joint_name: str | None = None,
        anchor: ArrayLike = (0.0, 0.0, 0.0),
        armature: ArrayLike = 0.0,
        damping: ArrayLike = 0.0,
        friction_loss: ArrayLike = 0.0,
        stiffness: ArrayLike = 0.0,
        spring_reference: ArrayLike | None = None,
        position_limits: ArrayLike | None = None,
        velocity_limit: ArrayLike = np.inf,
        effort_limit: ArrayLike = np.inf,
    ) -> ModelBuilder:
        """Add a body and the joint that carries it.

        **Arguments:**

        - `name`: unique among bodies and frames; `"world"` is taken.
        - `parent`: `"world"` or a body added before; of a flexible one the node, `"panel/tip"`.
        - `joint`: how it is connected; default `Weld()`, which merges it into the parent and keeps a frame of its name.
        - `placement`: the pose of its frame in the parent's when the joint is at its identity.
        - `inertia`: in its own frame; default massless. With a `FlexibleBody` the body bends: what is said of its frame
          here is said of its first node, and `q` holds its modes after its joint's coordinates.
        - `joint_name`: default `"<name>_joint"`.
        - `anchor`: the point the joint acts at, in the body's frame [m].
        - `armature`, `damping`, `friction_loss`, `stiffness`: per freedom, a number or shape `(nv,)`, not negative.
        - `spring_reference`: the configuration of relaxed springs, shape `(nq,)`; default the joint's neutral one.
        - `position_limits`: `(lower, upper)`, numbers or shape `(nq,)` each; default none.
        - `velocity_limit`, `effort_limit`: per freedom; default none.
        """
        label = f"body {name!r}"
        joint = Weld() if joint is None else joint
        self._check_name(name, label)
        if isinstance(inertia, FlexibleBody):
            options = {
                "armature": armature, "damping": damping, "friction_loss": friction_loss, "stiffness": stiffness,
                "spring_reference": spring_reference, "position_limits": position_limits,
                "velocity_limit": velocity_limit, "effort_limit": effort_limit, "anchor": anchor,
                "joint_name": f"{name}_joint" if joint_name is None else joint_name,
            }  # fmt: skip
            return self._flexible_body(name, inertia, parent=parent, joint=joint, placement=placement, **options)
        if parent != WORLD and parent not in self.bodies:
            raise ModelError(close_names(parent, (WORLD, *self.bodies), "body"), element=label)
        if parent in self.flexible:
            nodes = ", ".join(repr(f"{parent}/{node}") for node in self.flexible[parent].node_names)
            reason = f"its parent {parent!r} bends: what it carries hangs on a node"
            raise ModelError(reason, element=label, hint=f"name one of {nodes}")
        if not isinstance(joint, AbstractJoint):
            raise ModelError(
                f"`joint` is {joint!r}, not a joint", element=label, hint="pass an instance such as Revolute((0, 0, 1))"
            )
        joint_name = f"{name}_joint" if joint_name is None else joint_name
        if joint.nv and joint_name in self._moving_joints:
            raise ModelError("there are two joints of this name", element=f"joint {joint_name!r}", hint="rename one")
        if joint.nv:
            self._moving_joints.add(joint_name)
        nq, nv, where = joint.nq, joint.nv, f"joint {joint_name!r}"
        reference = joint.neutral() if spring_reference is None else spring_reference
        self.bodies[name] = BodyRecord(
            name=name,
            parent=parent,
            joint=joint.canonical,
            joint_name=joint_name,
            placement=checked_pose(placement, label),
            hinge=Transform(joint.frame, _vector(anchor, 3, "`anchor`", label)),
            parameters=tuple(float(p) for p in joint.parameters),
            inertia=self._checked_inertia(inertia, label),
            armature=_not_negative(armature, nv, "`armature`", where),
            damping=_not_negative(damping, nv, "`damping`", where),
            friction_loss=_not_negative(friction_loss, nv, "`friction_loss`", where),
            stiffness=_not_negative(stiffness, nv, "`stiffness`", where),
            spring_reference=_vector(reference, nq, "`spring_reference`", where),
            position_limits=_limits(position_limits, nq, where),
            velocity_limits=_vector(velocity_limit, nv, "`velocity_limit`", where, finite=False),
            effort_limits=_vector(effort_limit, nv, "`effort_limit`", where, finite=False),
        )
        return self

    def _flexible_body(
        self, name: str, body: FlexibleBody, *, placement: Transform | None = None, **options: Any
    ) -> ModelBuilder:
        """The places of a body that bends, see `dynax.model.flexible`."""
        label, (held, *others) = f"flexible body {name!r}", body.node_names
        position = np.asarray(body.node_position, np.float64)
        if position.ndim != 2:
            hint = "build a model with one of them, then `replace(bodies=...)`"
            raise ModelError("its leaves have batch axes", element=label, hint=hint)
        com, inertia = _of_origin(body)
        rigid = self._checked_inertia(SpatialInertia(np.asarray(body.mass, np.float64), com, inertia), label)
        first, frame = f"{name}/{held}", Transform.from_translation(-position[0])
        self.body(first, placement=placement, **options)
        if not body.num_modes:
            self.body(name, parent=first, placement=frame, inertia=rigid)
            for node, place in zip(others, position[1:], strict=True):
                self.body(f"{name}/{node}", parent=name, placement=Transform.from_translation(place))
            return self
        # An armature for what checks the tree, which knows of no modes: `flexible_model` takes it out.
        self.body(name, parent=first, joint=Free(), joint_name=f"{name}/modes", inertia=rigid, armature=1.0)
        for node in others:
            self.body(f"{name}/{node}", parent=name, joint=Free(), joint_name=f"{name}/{node}", armature=1.0)
        self.flexible[name] = body
        return self

    def frame(self, name: str, *, body: str = WORLD, placement: Transform | None = None) -> ModelBuilder:
        """Add a named frame, fixed to `body` (or the world) at `placement`."""
        label = f"frame {name!r}"
        self._check_name(name, label)
        if body != WORLD and body not in self.bodies:
            raise ModelError(close_names(body, (WORLD, *self.bodies), "body"), element=label)
        self.frames[name] = FrameRecord(name, body, checked_pose(placement, label))
        return self

    def note(self, element: str, message: str, *, line: int | None = None) -> ModelBuilder:
        """Add an entry to the model's report."""
        self.findings.append(Finding(element, message, line))
        return self

    @np.errstate(over="ignore", invalid="ignore")  # numbers that are none are found at the end, by name
    def build(self) -> Model:
        """The model. Welded bodies are merged into what carries them and stay addressable as frames.

        With bodies that bend it is a `FlexibleModel`, which functions take in the place of a `Model`; to a checker of
        types it is one after `assert isinstance(model, dx.FlexibleModel)`.
        """
        moving = [record for record in self.bodies.values() if not isinstance(record.joint, Weld)]
        index = {record.name: k for k, record in enumerate(moving)}
        # Where every body's frame stands: on which moving body (-1: the world), and at which pose.
        home: dict[str, tuple[int, Transform]] = {WORLD: (-1, Transform.identity())}
        frames: list[tuple[str, int, Transform]] = []
        inertia = [record.inertia for record in moving]
        for record in self.bodies.values():
            if record.name in index:
                home[record.name] = (index[record.name], Transform.identity())
                continue
            carrier, pose = home[record.parent]
            pose = pose @ record.placement
            home[record.name] = (carrier, pose)
            frames.append((record.name, carrier, pose))
            if carrier >= 0:
                inertia[carrier] = inertia[carrier] + pose @ record.inertia
        for record in self.frames.values():
            carrier, pose = home[record.body]
            frames.append((record.name, carrier, pose @ record.placement))
        closures = self._closures(
            home | {name: (carrier, pose) for name, carrier, pose in frames},
            {r.joint_name: r.joint for r in moving},
            [r.joint_name for r in self.bodies.values() if r.name not in index],
        )
        topology = Topology([home[r.parent][0] for r in moving], [r.joint for r in moving])
        structure = Structure(
            name=self.name,
            topology=topology,
            body_names=tuple(r.name for r in moving),
            joint_names=tuple(r.joint_name for r in moving),
            frame_names=tuple(name for name, _, _ in frames),
            frame_bodies=tuple(carrier for _, carrier, _ in frames),
            loops=closures.loops,
            couplings=closures.couplings,
            coupling_functions=closures.coupling_functions,
            conditions=closures.conditions,
            report=tuple(self.findings),
        )
        numbers = {
            "gravity": _vector(self.gravity, 3, "`gravity`", "the builder"),
            "time": np.zeros(()),
            "friction_velocity": np.array(0.01),
            "joint_parameters": _joined([r.parameters for r in moving]),
            "mass": np.array([i.mass for i in inertia], dtype=np.float64),
            "com": np.reshape([i.com for i in inertia], (-1, 3)),
            "first_moment": np.reshape([i.first_moment for i in inertia], (-1, 3)),
            "inertia": np.reshape([_six(i.inertia) for i in inertia], (-1, 6)),
            "position_limits": np.concatenate([np.zeros((0, 2)), *(r.position_limits for r in moving)]),
            "loop_parameters": _joined(closures.parameters),
            "coupling_ratio": _joined(closures.ratios),
            "coupling_offset": np.array(closures.offsets, dtype=np.float64),
        }
        for name in (
            "armature", "damping", "friction_loss", "stiffness", "spring_reference", "velocity_limits", "effort_limits"
        ):  # fmt: skip
            numbers[name] = _joined([getattr(r, name) for r in moving])
        poses = {
            "placements": [home[r.parent][1] @ r.placement for r in moving],
            "hinges": [r.hinge for r in moving],
            "frames": [pose for _, _, pose in frames],
            "loop_predecessors": closures.predecessors,
            "loop_successors": closures.successors,
        }
        for name, stack in poses.items():
            numbers[f"{name}.rotation"] = np.reshape([np.asarray(p.rotation, np.float64) for p in stack], (-1, 3, 3))
            numbers[f"{name}.translation"] = np.reshape([np.asarray(p.translation, np.float64) for p in stack], (-1, 3))
        model = model_of(structure, numbers, dict.fromkeys(numbers, np.dtype(float)))
        return cast(Model, flexible_model(model, self.flexible)) if self.flexible else model

    def _check_name(self, name: str, label: str) -> None:
        if not isinstance(name, str) or not name:
            raise ModelError("a name must be a non-empty string", element=label)
        if name == WORLD:
            raise ModelError("this name stands for the inertial frame", element=label, hint="choose another name")
        if name in self.bodies or name in self.frames:
            raise ModelError("there are two bodies or frames of this name", element=label, hint="rename one")

    def _checked_inertia(self, inertia: SpatialInertia | None, label: str) -> SpatialInertia:
        if inertia is None:
            return SpatialInertia.zero()
        numbers = np.concatenate([[inertia.mass], inertia.com, inertia.first_moment, inertia.inertia.ravel()])
        if not np.all(np.isfinite(numbers)):
            raise ModelError("mass, centre of mass or inertia is not finite", element=label)
        if inertia.mass < 0.0:
            raise ModelError(f"mass {inertia.mass:g} kg is negative", element=label, hint="a mass is zero or positive")
        tensor = inertia.inertia
        if np.max(np.abs(tensor - tensor.T)) > 1e-9 * np.max(np.abs(tensor), initial=1e-300):
            raise ModelError(f"inertia {tensor.tolist()} is not symmetric", element=label)
        centered = inertia.centered
        if centered.first_moment.any():
            self.note(label, "the first moment is more than the mass can account for; loaded as it is")
            return inertia
        moments = np.linalg.eigvalsh(centered.inertia)
        # Rounding, relative to the tensor or to that of a point of this mass a micrometre off.
        slack = 1e-9 * np.abs(moments).max(initial=0.0) + 1e-12 * inertia.mass
        shown = ", ".join(f"{m:.4g}" for m in moments)
        if moments[0] < -slack:
            self.note(label, f"principal moments of inertia ({shown}) are not all positive; loaded as they are")
        elif moments[0] + moments[1] < moments[2] - slack:
            self.note(
                label,
                f"principal moments of inertia ({shown}) violate the triangle inequality; loaded as they are: "
                "check the units, the point they refer to and the signs of the products of inertia",
            )
        return inertia


def _of_origin(body: FlexibleBody) -> tuple[np.ndarray, np.ndarray]:
    """The centre of mass and the inertia about it of a body that does not bend."""
    mass, moment, inertia = (np.asarray(x, np.float64) for x in (body.mass, body.first_moment, body.inertia))
    com = moment / mass if mass > 0.0 else np.zeros(3)
    return com, inertia - mass * (com @ com * np.eye(3) - np.outer(com, com))


def _six(tensor: np.ndarray) -> np.ndarray:
    return tensor[[0, 1, 2, 0, 1, 0], [0, 1, 2, 1, 2, 2]]


def _joined(parts: Sequence[ArrayLike]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(np.asarray(p, dtype=np.float64) for p in parts)])


def _vector(value: ArrayLike, size: int, what: str, label: str, *, finite: bool = True) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:  # a name, or rows of different lengths
        raise ModelError(f"{what} must be a number or {size} numbers, got {value!r}", element=label) from error
    if array.shape not in ((), (size,)):
        raise ModelError(f"{what} must be a number or have shape ({size},), got shape {array.shape}", element=label)
    if np.any(np.isnan(array)) or (finite and not np.all(np.isfinite(array))):
        raise ModelError(f"{what} is not finite: {array.tolist()}", element=label)
    return np.broadcast_to(array, (size,)).copy()


def _not_negative(value: ArrayLike, size: int, what: str, label: str) -> np.ndarray:
    array = _vector(value, size, what, label)
    if np.any(array < 0.0):
        raise ModelError(f"{what} is negative: {array.tolist()}", element=label, hint="it must be zero or positive")
    return array


def _limits(limits: ArrayLike | None, nq: int, label: str) -> np.ndarray:
    lower, upper = (-np.inf, np.inf) if limits is None else limits  # type: ignore[misc]
    lower = _vector(lower, nq, "the lower position limit", label, finite=False)
    upper = _vector(upper, nq, "the upper position limit", label, finite=False)
    if np.any(lower > upper):
        raise ModelError(f"position limits {lower.tolist()} to {upper.tolist()} are the wrong way round", element=label)
    return np.stack([lower, upper], axis=1)
