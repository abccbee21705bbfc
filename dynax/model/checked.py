"""A model from its numbers, checked: the last step of every builder and of every file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from dynax.errors import ModelError
from dynax.model.gears import gear_cycles
from dynax.model.model import Model
from dynax.model.numbers import POSES, check_numbers, narrowed, number_shapes, without_subnormal
from dynax.model.structure import WORLD, Structure, close_names
from dynax.model.unresisted import unresisted
from dynax.spatial import Transform


def model_of(structure: Structure, numbers: Mapping[str, np.ndarray], dtypes: Mapping[str, Any]) -> Model:
    """The model whose leaves hold `numbers` in the floating types `dtypes`; what is odd about them joins its report.

    **Arguments:** `numbers`: float64, by the names of `number_shapes`, batch axes in front allowed; `dtypes`: by the
    same names; float64 is float32 where JAX's x64 mode is off.

    Raises `ModelError` for names and numbers no model can have.
    """
    check_structure(structure)
    kept = {name: narrowed(number, dtypes[name]) for name, number in numbers.items()}
    findings = check_numbers(structure, numbers, kept)
    if all(numbers[name].shape == shape for name, shape in number_shapes(structure).items()):
        findings += gear_cycles(structure, numbers)
        findings += unresisted(structure, {name: without_subnormal(numbers[name], kept[name]) for name in numbers})
    new = dict.fromkeys(finding for finding in findings if finding not in structure.report)
    if new:
        structure = dataclasses.replace(structure, report=(*structure.report, *new))
    leaves: dict[str, Any] = {name: jnp.asarray(number) for name, number in kept.items() if "." not in name}
    for name in POSES:
        rotation, translation = kept[f"{name}.rotation"], kept[f"{name}.translation"]
        leaves[name] = Transform(jnp.asarray(rotation), jnp.asarray(translation))
    return Model(**leaves, structure=structure)


def check_structure(structure: Structure) -> None:
    """`ModelError` for names that are empty, taken or unknown, loops without two ends and gears that cannot be."""
    _check_names((*structure.body_names, *structure.frame_names), "body or frame", "bodies or frames")
    _check_names(structure.joint_names, "joint", "joints")
    _check_names(structure.loop_names, "loop", "loops")
    for loop in structure.loops:
        if loop.predecessor == loop.successor:
            raise ModelError("both ends are on the same body", element=f"loop {loop.name!r}")
    followers: set[str] = set()
    for follower, *sources in structure.couplings:
        label = f"gear of joint {follower!r}"
        if follower in sources:
            raise ModelError("the joint follows itself", element=label, hint="name other joints")
        if follower in followers:
            raise ModelError("the joint follows two gears", element=label, hint="remove one, or chain them")
        followers.add(follower)
        for name in (follower, *sources):
            if name not in structure.joint_index:
                raise ModelError(close_names(name, structure.joint_names, "joint"), element=label)
            joint = structure.topology.joints[structure.joint_index[name]]
            if joint.nq != 1 or joint.nv != 1:
                raise ModelError(f"joint {name!r} has not one freedom but {joint.nv}", element=label)


def _check_names(names: Sequence[str], kind: str, kinds: str) -> None:
    seen: set[str] = set()
    for name in names:
        label = f"{kind} {name!r}"
        if not isinstance(name, str) or not name:
            raise ModelError("a name must be a non-empty string", element=label)
        if name == WORLD and kind == "body or frame":
            raise ModelError("this name stands for the inertial frame", element=label, hint="choose another name")
        if name in seen:
            raise ModelError(f"there are two {kinds} of this name", element=label, hint="rename one")
        seen.add(name)
