"""What stops a motion other than shapes: limits of joints, cones, ropes. Each is a gap that may not become negative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.core import Tracer

from dynax.contact.material import Material, check_material
from dynax.errors import ModelError
from dynax.model import Model
from dynax.operators.pytree import pytree_dataclass


@pytree_dataclass("points")
class Rope:
    """A rope that can be pulled and not pushed, through points of bodies, along which it slides without friction.

    **Arguments:**

    - `points`: bodies or frames of the model, or `"world"`, from one end to the other; two or more.
    - `length`: how long it is [m].
    - `offsets`: of the points in those frames, shape `(number of points, 3)` [m]; default their origins.
    - `material`: `restitution`, `stiffness` and `damping` of the rope.
    """

    points: tuple[str, ...]
    length: Any
    offsets: Any = None
    material: Material = Material()


@pytree_dataclass("joint")
class Cone:
    """How far a spherical joint may turn from its identity, whatever the axis; the `range` of MuJoCo's ball joints.

    **Arguments:**

    - `joint`: its name.
    - `angle`: up to pi [rad].
    - `material`: `restitution`, `stiffness` [N m/rad] and `damping`.
    """

    joint: str
    angle: Any
    material: Material = Material()


Stop = Rope | Cone
Limited = tuple[tuple[str, int], ...]
"""Joints and the number of the coordinate that has a limit."""


def limited_coordinates(model: Model) -> Limited:
    """The coordinates that have a limit, or may have one, where numbers are not known and the joint has one freedom."""
    slices = {name: model.q_slice(name) for name in model.joint_names}
    if isinstance(model.position_limits, Tracer):
        return tuple((name, 0) for name, place in slices.items() if place.stop - place.start == 1)
    limits = np.asarray(model.position_limits)
    ends = np.any(np.isfinite(limits), axis=(*range(limits.ndim - 2), -1))
    return tuple((name, int(k)) for name, place in slices.items() for k in np.flatnonzero(np.asarray(ends)[place]))


def single_freedoms(model: Any, limited: Limited) -> tuple[int, ...]:
    """Of limits of a tree the freedom that each moves with, where none moves with more than one; else nothing."""
    if not isinstance(model, Model):
        return ()
    places = [model.v_slice(name) for name, _ in limited]
    return tuple(own.start for own in places) if all(own.stop - own.start == 1 for own in places) else ()


def limiting_materials(model: Model, given: bool | Material | Mapping[str, Material]) -> dict[str, Material]:
    """Of the joints, what `limits` of a scene says of them."""
    if isinstance(given, bool):
        return {}
    found = dict(given) if isinstance(given, Mapping) else dict.fromkeys(model.joint_names, given)
    for name, material in found.items():
        if name not in model.joint_names:
            raise ModelError("no joint has this name", element=f"limits {name!r}")
        check_material(material, f"limits {name!r}")
    return found


def check_stop(model: Model, stop: Any) -> None:
    """`ModelError` for what is no stop of this model."""
    if isinstance(stop, Rope):
        element = f"rope {' - '.join(map(repr, stop.points))}"
        if len(stop.points) < 2:
            raise ModelError("a rope has two points or more", element=element)
        for name in stop.points:
            try:
                model.locate(name)
            except KeyError as error:
                raise ModelError(str(error.args[0]), element=element) from None
        _check_number(stop.length, "length", np.inf, element)
        if stop.offsets is not None and np.shape(stop.offsets) != (len(stop.points), 3):
            raise ModelError(
                f"its offsets have shape {np.shape(stop.offsets)}, expected {(len(stop.points), 3)}", element=element
            )
    elif isinstance(stop, Cone):
        element = f"cone of joint {stop.joint!r}"
        if stop.joint not in model.joint_names:
            raise ModelError("no joint has this name", element=element)
        sizes = [place.stop - place.start for place in (model.q_slice(stop.joint), model.v_slice(stop.joint))]
        if sizes != [4, 3]:
            raise ModelError("it is not spherical", element=element, hint="give its coordinates position_limits")
        _check_number(stop.angle, "angle", np.pi + 1e-9, element)
    else:
        raise ModelError(f"{stop!r} is no Rope and no Cone", element="stops")
    check_material(stop.material, element)


def _check_number(value: Any, what: str, most: float, element: str) -> None:
    if isinstance(value, Tracer):
        return
    if np.shape(value) or not (np.isfinite(value) and 0 < value <= most):
        allowed = "more than 0, and finite" if most > np.pi + 1 else "more than 0, up to pi"
        raise ModelError(f"its {what} is {value}, expected {allowed}", element=element)
