"""What the numbers of a model must be, wherever they come from: a builder, an edit, a saved model, a user's `replace`.

A number has a name (its leaf and the body, joint or frame it belongs to), a shape and a rule. It is given in float64
and kept in a floating type that may be narrower: what does not fit there is an error, what vanishes is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dynax.errors import ModelError
from dynax.model.structure import Finding, Structure

POSES = ("placements", "hinges", "frames", "loop_predecessors", "loop_successors")
"""Leaves that are poses; their numbers go by `<name>.rotation` and `<name>.translation`."""

LIMITS = ("position_limits", "velocity_limits", "effort_limits")
_PER_FREEDOM = ("armature", "damping", "friction_loss", "stiffness", "velocity_limits", "effort_limits")
_NOT_NEGATIVE = ("mass", "armature", "damping", "friction_loss", "stiffness")
# Where zero is something else than very little.
_MAY_NOT_VANISH = (*_NOT_NEGATIVE, "inertia", "joint_parameters", "loop_parameters", "coupling_ratio")


def number_shapes(structure: Structure) -> dict[str, tuple[int, ...]]:
    """The shape of each leaf of a model that is not batched, poses as two."""
    t = structure.topology
    n, frames, loops = t.num_bodies, len(structure.frame_names), len(structure.loops)
    shapes: dict[str, tuple[int, ...]] = {
        "gravity": (3,),
        "time": (),
        "friction_velocity": (),
        "joint_parameters": (int(t.parameter_start[-1]),),
        "mass": (n,),
        "com": (n, 3),
        "first_moment": (n, 3),
        "inertia": (n, 6),
        "spring_reference": (t.nq,),
        "position_limits": (t.nq, 2),
        "loop_parameters": (sum(len(loop.closure.parameters) for loop in structure.loops),),
        "coupling_ratio": (sum(_ratio_counts(structure)),),
        "coupling_offset": (len(structure.couplings),),
    }
    shapes |= dict.fromkeys(_PER_FREEDOM, (t.nv,))
    for name, count in zip(POSES, (n, n, frames, loops, loops), strict=True):
        shapes[f"{name}.rotation"], shapes[f"{name}.translation"] = (count, 3, 3), (count, 3)
    return shapes


def narrowed(number: np.ndarray, dtype: Any) -> np.ndarray:
    """A float64 array in the type that JAX makes of another; what is too large becomes infinite without a warning."""
    with np.errstate(over="ignore"):
        return number.astype(jnp.asarray(np.zeros((), dtype)).dtype)


def without_subnormal(given: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The numbers in float64, zero where the type that is kept holds zero or what compiled programs take for it."""
    return np.where(np.abs(kept.astype(np.float64)) < float(jnp.finfo(kept.dtype).tiny), 0.0, given)


def check_numbers(
    structure: Structure, given: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]
) -> list[Finding]:
    """What is odd about a model's numbers; `ModelError` for what no model can have.

    **Arguments:** `given`: float64, by the names of `number_shapes`, batch axes in front allowed; `kept`: the same in
    the floating types of the leaves.
    """
    findings = []
    for name, shape in number_shapes(structure).items():
        numbers = _Numbers(name, _labels(structure, name), given[name], kept[name], len(shape))
        _refuse_impossible(numbers)
        findings += _out_of_range(numbers)
    _refuse_far_masses(structure, kept)
    return findings


@dataclass(frozen=True)
class _Numbers:
    """The numbers of one leaf: `given` in float64, `kept` in the leaf's type, `ndim` axes behind those of a batch."""

    name: str
    labels: Sequence[str]
    """What each row belongs to, as the user named it."""
    given: np.ndarray
    kept: np.ndarray
    ndim: int

    def where(self, condition: np.ndarray) -> Iterator[tuple[str, float]]:
        """The owner and the number of each element that meets a condition."""
        for place in np.argwhere(condition):
            row = place[self.given.ndim - self.ndim] if self.ndim else 0
            yield self.labels[row], float(self.given[tuple(place)])

    def refuse(self, condition: np.ndarray, reason: str, hint: str) -> None:
        """`ModelError` for the first element that meets a condition; `reason` may show its `{value}`."""
        for element, value in self.where(condition):
            raise ModelError(f"`{self.name}` {reason.format(value=value)}", element=element, hint=hint)


def _refuse_impossible(numbers: _Numbers) -> None:
    name, given = numbers.name, numbers.given
    if name in LIMITS:
        numbers.refuse(np.isnan(given), "is not a number", "use an infinite limit where there is none")
    else:
        numbers.refuse(~np.isfinite(given), "is not finite: {value}", "it must be a finite number")
    if name in _NOT_NEGATIVE:
        numbers.refuse(given < 0.0, "is negative: {value:g}", "it must be zero or positive")
    elif name == "friction_velocity":
        numbers.refuse(numbers.kept <= 0.0, "is {value:g}", "it must be positive; the default is 0.01")
    elif name == "position_limits":
        numbers.refuse(given[..., :1] > given[..., 1:], "are the wrong way round", "the lower one comes first")
    elif name.endswith(".rotation"):
        numbers.refuse(
            _no_rotation(numbers.kept), "is not a rotation matrix", "its rows are unit vectors at right angles"
        )


def _out_of_range(numbers: _Numbers) -> Iterator[Finding]:
    """What the type that is kept cannot hold. Numbers below the least normal one count as zero in compiled programs."""
    name, given, kept = numbers.name, numbers.given, np.asarray(numbers.kept, np.float64)
    kind, size = numbers.kept.dtype.name, jnp.finfo(numbers.kept.dtype)
    too_large, beyond = np.isfinite(given) & ~np.isfinite(kept), f"more than {kind} holds"
    if name in LIMITS:
        for element, value in numbers.where(too_large):
            yield Finding(element, f"`{name}` is {value:g}, {beyond}: taken as no limit")
    else:
        numbers.refuse(too_large, f"is {{value:g}}, {beyond}", _remedy(kind))
    if name not in _MAY_NOT_VANISH:
        return
    small = np.abs(kept) < float(size.tiny)
    vanished = (given != 0.0) & small
    if name == "inertia":  # products of inertia, and small moments beside a large one, may
        vanished &= np.all(small, axis=-1, keepdims=True)
    for element in dict.fromkeys(element for element, _ in numbers.where(vanished)):
        yield Finding(
            element, f"`{name}` is less than {kind} holds, {float(size.tiny):.2g}, so it is zero: {_remedy(kind)}"
        )


def _remedy(kind: str) -> str:
    wider = "" if kind == "float64" else ', or use jax.config.update("jax_enable_x64", True)'
    return f"check the units{wider}"


def _no_rotation(kept: np.ndarray) -> np.ndarray:
    """Which matrices are no rotations, shape `(..., 1, 1)`.

    Five digits a placement are enough, and several welded ones may stand behind each of these.
    """
    tolerance, matrix = max(1e-3, 8.0 * float(jnp.finfo(kept.dtype).eps)), kept.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # entries may be as large as they like
        errors = np.abs(matrix @ matrix.swapaxes(-1, -2) - np.eye(3)).max((-2, -1))
        return ~((errors <= tolerance) & (np.linalg.det(matrix) > 0.0))[..., None, None]


def _refuse_far_masses(structure: Structure, kept: Mapping[str, np.ndarray]) -> None:
    """The inertia of each body about the joints next to it must be a number: it goes with distance squared."""
    parents, dtype = np.asarray(structure.topology.parents, dtype=int), kept["mass"].dtype
    names = ("mass", "com", "first_moment", "hinges.translation", "placements.rotation", "placements.translation")
    mass, com, left, hinge, turn, shift = (kept[name].astype(np.float64) for name in names)
    with np.errstate(over="ignore"):
        inward = shift + (turn @ hinge[..., None])[..., 0] - hinge[..., parents, :]
        inward = np.where(parents >= 0, _length(inward), 0.0)  # nothing is handed on to the ground
        distance = _length(com - hinge) + inward
        about_joint = narrowed((mass * distance + 2.0 * _length(left)) * distance, dtype)
    for place in np.argwhere(~np.isfinite(about_joint)):
        raise ModelError(
            f"its mass is {np.broadcast_to(distance, about_joint.shape)[tuple(place)]:g} m from the joints next to it: "
            f"its inertia about them is more than {dtype.name} holds",
            element=f"body {structure.body_names[place[-1]]!r}",
            hint=_remedy(dtype.name),
        )


def _length(vectors: np.ndarray) -> np.ndarray:
    """Norms of vectors on the last axis, of any size."""
    return np.hypot(np.hypot(vectors[..., 0], vectors[..., 1]), vectors[..., 2])


def _labels(structure: Structure, name: str) -> Sequence[str]:
    """What each row of a leaf belongs to, as the user named it."""
    topology = structure.topology
    bodies = [f"body {body!r}" for body in structure.body_names]
    joints = [f"joint {joint!r}" for joint in structure.joint_names]
    leaf = name.partition(".")[0]
    if leaf in ("mass", "com", "first_moment", "inertia", "placements", "hinges"):
        return bodies
    if leaf in _PER_FREEDOM:
        return _repeated(joints, np.diff(topology.v_start))
    if leaf in ("spring_reference", "position_limits"):
        return _repeated(joints, np.diff(topology.q_start))
    if leaf == "joint_parameters":
        return _repeated(joints, np.diff(topology.parameter_start))
    if leaf == "frames":
        return [f"frame {frame!r}" for frame in structure.frame_names]
    loops = [f"loop {loop.name!r}" for loop in structure.loops]
    if leaf == "loop_parameters":
        return _repeated(loops, [len(loop.closure.parameters) for loop in structure.loops])
    if leaf in POSES:
        return loops
    gears = [f"gear of joint {follower!r}" for follower, *_ in structure.couplings]
    if leaf == "coupling_ratio":
        return _repeated(gears, _ratio_counts(structure))
    return gears if leaf == "coupling_offset" else [f"model {structure.name!r}"] * 3


def _repeated(labels: Sequence[str], counts: Iterable[int]) -> list[str]:
    return [label for label, count in zip(labels, counts, strict=True) for _ in range(count)]


def _ratio_counts(structure: Structure) -> list[int]:
    """How many ratios each gear has: one for each source, one where it follows a function."""
    return [
        len(joints) - 1 if function is None else 1
        for joints, function in zip(structure.couplings, structure.coupling_functions, strict=True)
    ]
