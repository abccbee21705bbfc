"""What makes a mechanism more than a tree, as data: loops, gears and conditions of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.joints import AbstractClosure, AbstractJoint, JointClosure
from dynax.model.structure import WORLD, Condition, Loop, close_names
from dynax.spatial import Transform


@dataclass(frozen=True)
class LoopRecord:
    """A loop as it was described: two frames and what holds them together."""

    name: str
    predecessor: str
    successor: str
    closure: AbstractClosure
    """Without axes and parameters, which follow."""
    predecessor_placement: Transform
    """The closure's canonical frame in the predecessor's."""
    successor_placement: Transform
    parameters: tuple[float, ...]


@dataclass(frozen=True)
class GearRecord:
    """`q[joint] = sum of ratios * q[sources] + offset`, or `ratio * function(*q[sources]) + offset`."""

    joint: str
    sources: tuple[str, ...]
    ratios: tuple[float, ...]
    offset: float = 0.0
    function: Callable | None = None


class Closures(NamedTuple):
    """What `build` makes of the records: static parts and leaves."""

    loops: tuple[Loop, ...]
    couplings: tuple[tuple[str, ...], ...]
    coupling_functions: tuple[Callable | None, ...]
    conditions: tuple[Condition, ...]
    predecessors: list[Transform]
    successors: list[Transform]
    parameters: list[tuple[float, ...]]
    ratios: list[tuple[float, ...]]
    offsets: list[float]


@dataclass
class ClosureBuilder:
    """The part of `ModelBuilder` that closes loops."""

    loops: dict[str, LoopRecord] = field(default_factory=dict, init=False, repr=False)
    gears: dict[str, GearRecord] = field(default_factory=dict, init=False, repr=False)
    conditions: dict[str, Condition] = field(default_factory=dict, init=False, repr=False)

    def loop(
        self,
        name: str,
        *,
        predecessor: str = WORLD,
        successor: str,
        joint: AbstractJoint | AbstractClosure,
        predecessor_placement: Transform | None = None,
        successor_placement: Transform | None = None,
    ):
        """Close a loop: a joint between two bodies that the tree already carries.

        **Arguments:**

        - `name`: unique among the loops.
        - `predecessor`, `successor`: a body, a frame or the world, which may be added later.
        - `joint`: any joint whose velocities reach every pose nearby (`Spherical()` pins two points, `Weld()` two
          frames), `Distance(length)`, or an `AbstractClosure` of one's own. Axes are in the successor's placement.
        - `predecessor_placement`, `successor_placement`: where it acts, in the two bodies or frames; the two
          placements coincide at the joint's identity. Default their origins.
        """
        label = f"loop {name!r}"
        if not isinstance(name, str) or not name:
            raise ModelError("a name must be a non-empty string", element=label)
        if name in self.loops:
            raise ModelError("there are two loops of this name", element=label, hint="rename one")
        closure = closing(joint, label)
        turn = Transform(closure.frame, np.zeros(3))
        self.loops[name] = LoopRecord(
            name,
            predecessor,
            successor,
            closure.canonical,
            checked_pose(predecessor_placement, label) @ turn,
            checked_pose(successor_placement, label) @ turn,
            tuple(float(p) for p in closure.parameters),
        )
        return self

    def gear(
        self,
        joint: str,
        sources: str | Sequence[str],
        *,
        ratio: ArrayLike = 1.0,
        offset: float = 0.0,
        function: Callable | None = None,
    ):
        """Tie the coordinate of a joint to those of others, all with one freedom.

            q[joint] = ratio * q[source] + offset               a gear, a mimic joint, a rack
            q[joint] = sum of ratio_k q[source_k] + offset      a differential
            q[joint] = ratio * function(*q[sources]) + offset   a cam: `function` is a JAX function of scalars
            q[joint] = offset                                   a joint that is held: no source

        **Arguments:** `joint`, `sources`: names of joints, which may be added later; `ratio`: a number, or one for each
        source. A joint follows one gear only.
        """
        label = f"gear of joint {joint!r}"
        names = (sources,) if isinstance(sources, str) else tuple(sources)
        if function is not None and not names:
            raise ModelError("has a function and no source", element=label)
        if joint in names:
            raise ModelError("the joint follows itself", element=label, hint="name other joints")
        if joint in self.gears:
            raise ModelError("the joint follows two gears", element=label, hint="remove one, or chain them")
        if function is not None and not callable(function):
            raise ModelError(f"`function` is {function!r}, not a function", element=label)
        wanted = len(names) if function is None else 1
        ratios = np.asarray(ratio, dtype=np.float64)
        if ratios.shape not in ((), (wanted,)) or not np.all(np.isfinite(ratios)) or not np.isfinite(offset):
            raise ModelError(f"`ratio` must be finite, one number or {wanted}, and `offset` finite", element=label)
        self.gears[joint] = GearRecord(
            joint, names, tuple(np.broadcast_to(ratios, (wanted,)).tolist()), float(offset), function
        )
        return self

    def condition(self, name: str, function: Callable, size: int = 1):
        """Add a condition of one's own on the configuration.

        **Arguments:**

        - `function`: a JAX function `function(model, q)`, smooth, of shape `(size,)` (a scalar for size one), that is
          to stay zero. It may read every leaf of the model, `model.time` too.
        - `size`: how many conditions it makes.
        """
        label = f"condition {name!r}"
        if name in self.conditions:
            raise ModelError("there are two conditions of this name", element=label, hint="rename one")
        if not callable(function):
            raise ModelError(f"`function` is {function!r}, not a function of (model, q)", element=label)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ModelError(f"`size` is {size!r}, expected a whole number from 1", element=label)
        self.conditions[name] = Condition(name, function, size)
        return self

    def _closures(
        self, home: dict[str, tuple[int, Transform]], joints: dict[str, AbstractJoint], fixed: Sequence[str]
    ) -> Closures:
        """The records against what there is: `home` of bodies and frames, moving joints, names of fixed ones."""
        made = Closures((), (), (), tuple(self.conditions.values()), [], [], [], [], [])
        loops = []
        for record in self.loops.values():
            label = f"loop {record.name!r}"
            for end in (record.predecessor, record.successor):
                if end not in home:
                    raise ModelError(close_names(end, tuple(home), "body or frame"), element=label)
            (below, pose_below), (above, pose_above) = home[record.predecessor], home[record.successor]
            if below == above:
                raise ModelError(
                    f"both ends, {record.predecessor!r} and {record.successor!r}, are on the same body", element=label
                )
            loops.append(Loop(record.name, below, above, record.closure))
            made.predecessors.append(pose_below @ record.predecessor_placement)
            made.successors.append(pose_above @ record.successor_placement)
            made.parameters.append(record.parameters)
        for record in self.gears.values():
            label = f"gear of joint {record.joint!r}"
            for name in (record.joint, *record.sources):
                if name not in joints:
                    hint = "a fixed joint has no coordinate" if name in fixed else None
                    raise ModelError(close_names(name, tuple(joints), "joint"), element=label, hint=hint)
                if joints[name].nq != 1 or joints[name].nv != 1:
                    raise ModelError(f"joint {name!r} has not one freedom but {joints[name].nv}", element=label)
            made.ratios.append(record.ratios)
            made.offsets.append(record.offset)
        gears = tuple(self.gears.values())
        return made._replace(
            loops=tuple(loops),
            couplings=tuple((g.joint, *g.sources) for g in gears),
            coupling_functions=tuple(g.function for g in gears),
        )


def closing(joint: AbstractJoint | AbstractClosure, label: str) -> AbstractClosure:
    """What closes a loop, or `ModelError` for what cannot."""
    if isinstance(joint, AbstractClosure):
        return joint
    if not isinstance(joint, AbstractJoint):
        raise ModelError(f"`joint` is {joint!r}, neither a joint nor an AbstractClosure", element=label)
    if not joint.holonomic:
        raise ModelError(
            f"{joint!r} rolls and cannot close a loop",
            element=label,
            hint="make it the joint of a body, and close the loop elsewhere",
        )
    if joint.nv == 6:
        raise ModelError(f"{joint!r} leaves all six freedoms, so it closes nothing", element=label)
    return JointClosure(joint)


def checked_pose(placement: Transform | None, label: str) -> Transform:
    """A pose in numbers, or the identity."""
    if placement is None:
        return Transform.identity()
    if not isinstance(placement, Transform):
        raise ModelError(
            f"`placement` is {placement!r}, not a Transform",
            element=label,
            hint="write dx.Transform.from_translation((x, y, z)), or dx.Transform(rotation, translation)",
        )
    rotation = np.asarray(placement.rotation, dtype=np.float64)
    translation = np.asarray(placement.translation, dtype=np.float64)
    if rotation.shape != (3, 3) or translation.shape != (3,):
        raise ModelError(f"`placement` has shapes {rotation.shape} and {translation.shape}", element=label)
    if not (np.all(np.isfinite(rotation)) and np.all(np.isfinite(translation))):
        raise ModelError("`placement` is not finite", element=label)
    if np.max(np.abs(rotation @ rotation.T - np.eye(3))) > 1e-5 or np.linalg.det(rotation) < 0.0:
        raise ModelError("the rotation of `placement` is not a rotation matrix", element=label)
    return Transform(rotation, translation)
