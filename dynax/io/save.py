"""Models in files of our own: JSON that a person can read and `diff`, and that gives back every bit.

The file holds what is static about a model (names, parents, joint types) and its leaves with their floating type.
Numbers are written with as many digits as it takes to read the same number again. The format has a version; a file from
a newer one is refused.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np

import dynax.joints
from dynax.errors import ModelError
from dynax.flexible import FlexibleBody
from dynax.flexible.body import Level, leaf_shapes
from dynax.io._polynomial import Polynomial
from dynax.io._saved_bodies import check_integrals, check_places, integral_shapes, integrals_of, with_weight
from dynax.joints import AbstractJoint, Distance, JointClosure
from dynax.model import Model
from dynax.model.checked import model_of
from dynax.model.closures import closing
from dynax.model.flexible import FlexibleModel, flexible_model
from dynax.model.numbers import POSES, check_numbers, narrowed, number_shapes
from dynax.model.structure import Finding, Loop, Structure
from dynax.topology import Topology

FORMAT, VERSION = "dynax model", 5

_JOINTS: dict[str, type[AbstractJoint]] = {
    name: value
    for name, value in vars(dynax.joints).items()
    if isinstance(value, type) and issubclass(value, AbstractJoint) and value is not AbstractJoint
}
_SPECIAL = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}


def save(model: Model | FlexibleModel, path: str | os.PathLike) -> None:
    """Write a model to a file; `dx.load` reads it back, equal in structure and in every bit of its leaves.

    **Arguments:**

    - `model`: any model whose joints and loops are of dynax's own types. A `Driven` or `UserJoint`, a condition or a
      cam holds a function, which a file cannot: `ModelError`; a polynomial from an MJCF it can. Leaves, those of bodies
      that bend too, may have batch axes in front.
    - `path`: where to; a suffix such as `.json` is the caller's choice. A file that exists is replaced.

    Raises `ModelError` for what `dx.load` would refuse, such as masses that are negative or NaN.
    """
    bending: dict[str, FlexibleBody] = {}
    if isinstance(model, FlexibleModel):
        bending = {member.name: body for member, body in zip(model.members, model.bodies, strict=True)}
        model = model.skeleton
    if not isinstance(model, Model):
        raise ModelError(
            f"is a {type(model).__name__}, and files hold trees with their loops",
            element="what is to be saved",
            hint="of an embedded model save `.tree`, and embed it again after loading",
        )
    s, leaves = model.structure, {name: np.asarray(leaf) for name, leaf in _leaves(model).items()}
    integrals = {name: integrals_of(body) for name, body in bending.items()}
    _check_leaves(leaves, number_shapes(s), integrals)
    check_numbers(s, {name: leaf.astype(np.float64) for name, leaf in leaves.items()}, leaves)
    for condition in s.conditions:
        raise ModelError("is a function, which a file cannot hold", element=f"condition {condition.name!r}")
    document = {
        "format": FORMAT,
        "version": VERSION,
        "name": s.name,
        "bodies": [
            {"name": body, "parent": parent, "joint_name": name, "joint": _written_joint(joint, name)}
            for body, parent, name, joint in zip(
                s.body_names, s.topology.parents, s.joint_names, s.topology.joints, strict=True
            )
        ],
        "frames": [{"name": n, "body": b} for n, b in zip(s.frame_names, s.frame_bodies, strict=True)],
        "loops": [_written_loop(loop) for loop in s.loops],
        "couplings": [_written_gear(*gear) for gear in zip(s.couplings, s.coupling_functions, strict=True)],
        "flexible": [
            {"name": name, "nodes": list(body.node_names), "level": body.level} for name, body in bending.items()
        ],
        "report": [finding._asdict() for finding in s.report],
        "leaves": {name: _written_array(leaf) for name, leaf in leaves.items()},
        "integrals": {
            f"{body}.{name}": _written_array(leaf) for body, own in integrals.items() for name, leaf in own.items()
        },
    }
    try:
        Path(path).write_text(_layout(document), encoding="utf-8")
    except ValueError as error:  # a path no file can have
        raise ModelError(f"cannot be written: {error}", file=repr(os.fspath(path))) from None


def read_saved(text: str | bytes, *, file: str | None) -> Model | FlexibleModel:
    """The model in a file that `dx.save` wrote.

    **Arguments:**

    - `text`: what the file holds.
    - `file`: where it came from, for the errors.

    Raises `ModelError` when the text is not such a file, or its parts do not fit together. Where JAX's x64 mode is off,
    float64 leaves become float32.
    """
    try:
        return _read(json.loads(text, parse_constant=_refuse_constant))
    except ModelError as error:
        raise ModelError(error.reason, element=error.element, file=file, hint=error.hint) from None
    except json.JSONDecodeError as error:
        raise ModelError(f"is not JSON: {error.msg}", file=file, line=error.lineno) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelError(f"is not a saved model: {reason}", file=file, hint="save it again with dx.save") from None


def _read(document: Any) -> Model | FlexibleModel:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelError(f'is not a saved model: it has no "format": "{FORMAT}"')
    for older, newer in ((1, _from_version_1), (2, _from_version_2), (3, _from_version_3), (4, _from_version_4)):
        if document["version"] == older:
            document = newer(document)
    if document["version"] != VERSION:
        raise ModelError(
            f"has version {document['version']} of the format; this dynax reads version {VERSION} and those before it",
            hint="update dynax, or save the model again",
        )
    bodies, frames = document["bodies"], document["frames"]
    joints = [_read_joint(body["joint"], body["joint_name"]) for body in bodies]
    structure = Structure(
        name=_text(document["name"]),
        topology=Topology([_whole(body["parent"]) for body in bodies], joints),
        body_names=_names(bodies, "name"),
        joint_names=_names(bodies, "joint_name"),
        frame_names=_names(frames, "name"),
        frame_bodies=tuple(_body(frame, len(bodies)) for frame in frames),
        loops=tuple(_read_loop(loop, len(bodies)) for loop in document["loops"]),
        couplings=tuple((_text(c["joint"]), *map(_text, c["sources"])) for c in document["couplings"]),
        coupling_functions=tuple(_read_function(c) for c in document["couplings"]),
        report=tuple(_read_finding(finding) for finding in document["report"]),
    )
    numbers, dtypes = _leaves_of_file(document["leaves"], number_shapes(structure))
    if not document["flexible"]:
        _check_leaves(numbers, number_shapes(structure), {})
        return model_of(structure, numbers, dtypes)
    bodies, integrals = _read_bodies(document["flexible"], document["integrals"])
    _check_leaves(numbers, number_shapes(structure), integrals)
    check_places(structure, bodies)
    skeleton = model_of(structure, with_weight(structure, numbers, bodies), dtypes)
    return flexible_model(skeleton, bodies).replace(armature=narrowed(numbers["armature"], dtypes["armature"]))


def _read_bodies(rows: list[dict[str, Any]], written: dict[str, Any]) -> tuple[dict[str, FlexibleBody], dict]:
    bodies, integrals = {}, {}
    for row in rows:
        name, level, nodes = _text(row["name"]), row["level"], tuple(map(_text, row["nodes"]))
        if level not in get_args(Level):
            raise ModelError(f"has the level {level!r}", element=f"flexible body {name!r}")
        own = {leaf: written.pop(f"{name}.{leaf}") for leaf in leaf_shapes(0, 0)}
        shapes = leaf_shapes(_whole(own["modal_mass"]["shape"][-1]), len(nodes))
        integrals[name], dtypes = _leaves_of_file(own, shapes)
        leaves = {leaf: jnp.asarray(narrowed(array, dtypes[leaf])) for leaf, array in integrals[name].items()}
        bodies[name] = FlexibleBody(**leaves, node_names=nodes, level=level)
    if written:
        raise ModelError("is unknown", element=f"leaf {next(iter(written))!r}")
    return bodies, integrals


def _from_version_1(document: dict[str, Any]) -> dict[str, Any]:
    """Version 1 knew no loops, and gears of one source only."""
    gears = [{"joint": gear["joint"], "sources": [gear["source"]]} for gear in document["couplings"]]
    shapes = {"loop_parameters": [0]}
    for name in ("loop_predecessors", "loop_successors"):
        shapes[f"{name}.rotation"], shapes[f"{name}.translation"] = [0, 3, 3], [0, 3]
    dtype = document["leaves"]["gravity"]["dtype"]
    nothing = {name: {"dtype": dtype, "shape": shape, "values": []} for name, shape in shapes.items()}
    leaves = {**document["leaves"], **nothing}
    return {**document, "version": 2, "loops": [], "couplings": gears, "leaves": leaves}


def _from_version_2(document: dict[str, Any]) -> dict[str, Any]:
    """Version 2 knew centres of mass alone."""
    count, dtype = len(document["bodies"]), document["leaves"]["com"]["dtype"]
    nothing = {"dtype": dtype, "shape": [count, 3], "values": [0.0] * (3 * count)}
    return {**document, "version": 3, "leaves": {**document["leaves"], "first_moment": nothing}}


def _from_version_3(document: dict[str, Any]) -> dict[str, Any]:
    """Version 3 knew rigid bodies alone."""
    return {**document, "version": 4, "flexible": [], "integrals": {}}


def _from_version_4(document: dict[str, Any]) -> dict[str, Any]:
    """Version 4 held the frames of bodies that bend by the reverse of a free joint."""
    frames = {row["name"] for row in document["flexible"]}
    bodies = [{**body, "joint": {"type": "Free"}} if body["name"] in frames else body for body in document["bodies"]]
    return {**document, "version": 5, "bodies": bodies}


def _leaves_of_file(
    written: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The numbers in float64, and their types in the file."""
    unknown = sorted(set(written) - set(shapes))
    if unknown:
        raise ModelError("is unknown", element=f"leaf {unknown[0]!r}")
    numbers = {name: _read_array(written[name], shape, f"leaf {name!r}") for name, shape in shapes.items()}
    return numbers, {name: jnp.dtype(written[name]["dtype"]) for name in shapes}


# Leaves.


def _leaves(model: Model) -> dict[str, Any]:
    """The leaves by name, poses as two."""
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(Model):
        value = getattr(model, field.name)
        if field.name in POSES:
            leaves[f"{field.name}.rotation"], leaves[f"{field.name}.translation"] = value.rotation, value.translation
        elif field.name != "structure":
            leaves[field.name] = value
    return leaves


def _batch(shape: tuple[int, ...], own: tuple[int, ...], label: str) -> tuple[int, ...]:
    """The axes before a leaf's own."""
    if shape[len(shape) - len(own) :] != own:
        raise ModelError(f"has shape {shape}, expected {own}, or batch axes before it", element=label)
    return shape[: len(shape) - len(own)]


def _check_leaves(
    leaves: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], integrals: dict[str, dict[str, np.ndarray]]
) -> None:
    """Leaves, those of bodies that bend too, have their own shape, and the batched ones the same axes before it."""
    given = {name: leaf.shape for name, leaf in leaves.items()}
    for body, own in integrals.items():
        given |= {f"{body}.{name}": leaf.shape for name, leaf in own.items()}
        shapes = shapes | {f"{body}.{name}": shape for name, shape in integral_shapes(own).items()}
    batches: dict[tuple[int, ...], str] = {}
    for name, shape in given.items():
        if batch := _batch(shape, shapes[name], f"leaf {name!r}"):
            batches.setdefault(batch, name)
    if len(batches) > 1:
        (one, first), (two, second) = list(batches.items())[:2]
        raise ModelError(f"has the batch axes {two}, and leaf {first!r} has {one}", element=f"leaf {second!r}")
    for body, own in integrals.items():
        check_integrals(body, own)


def _written_array(leaf: Any) -> dict[str, Any]:
    array = np.asarray(leaf)
    # The shortest decimals that give a float64 give every narrower float too.
    values = [v if np.isfinite(v) else str(v) for v in array.astype(np.float64).ravel().tolist()]
    return {"dtype": array.dtype.name, "shape": list(array.shape), "values": values}


def _read_array(written: dict[str, Any], shape: tuple[int, ...], label: str) -> np.ndarray:
    """In float64, which holds every number of the narrower types."""
    dtype, given = jnp.dtype(written["dtype"]), tuple(_whole(size) for size in written["shape"])
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ModelError(f"has the type {dtype.name}, which is not a floating one", element=label)
    _batch(given, shape, label)
    numbers = [_SPECIAL[v] if isinstance(v, str) else v for v in written["values"]]
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in numbers):
        raise ModelError("holds something that is not a number", element=label)
    if len(numbers) != np.prod(given, dtype=int):
        raise ModelError(f"has {len(numbers)} values for shape {given}", element=label)
    return np.array(numbers, np.float64).reshape(given)


# Loops and gears.


def _written_loop(loop: Loop) -> dict[str, Any]:
    closure = loop.closure
    label = f"the joint of loop {loop.name}"
    if isinstance(closure, JointClosure):
        written = {"joint": _written_joint(closure.joint, label)}
    elif isinstance(closure, Distance):
        written = {"distance": True}
    else:
        raise ModelError(f"is closed by {closure!r}, which is not one of dynax's own", element=f"loop {loop.name!r}")
    return {"name": loop.name, "predecessor": loop.predecessor, "successor": loop.successor, **written}


def _read_loop(written: dict[str, Any], count: int) -> Loop:
    name = _text(written["name"])
    ends = _whole(written["predecessor"]), _whole(written["successor"])
    if not all(-1 <= end < count for end in ends):
        raise ModelError(f"joins bodies {ends}, of {count}", element=f"loop {name!r}")
    if "joint" in written:
        return Loop(name, *ends, closing(_read_joint(written["joint"], name), f"loop {name!r}"))
    return Loop(name, *ends, Distance())


def _written_gear(joints: tuple[str, ...], function: Any) -> dict[str, Any]:
    written = {"joint": joints[0], "sources": list(joints[1:])}
    if isinstance(function, Polynomial):
        return {**written, "polynomial": list(function.coefficients), "center": function.center}
    if function is not None:
        raise ModelError("follows a function, which a file cannot hold", element=f"joint {joints[0]!r}")
    return written


def _read_function(written: dict[str, Any]) -> Polynomial | None:
    if "polynomial" not in written:
        return None
    numbers = [*written["polynomial"], written["center"]]
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in numbers) or len(written["sources"]) != 1:
        raise ModelError("follows something else than a polynomial of one joint", element=f"joint {written['joint']!r}")
    return Polynomial(tuple(float(x) for x in numbers[:-1]), float(numbers[-1]))


# Joints: the name of the class and those of its fields that are not at their default.


def _written_joint(joint: AbstractJoint, name: str) -> dict[str, Any]:
    kind = type(joint).__name__
    if _JOINTS.get(kind) is not type(joint):
        raise ModelError(f"is a {kind}, which is not one of dynax's types of joint", element=f"joint {name!r}")
    written: dict[str, Any] = {"type": kind}
    for field in dataclasses.fields(joint):  # type: ignore[arg-type]  # every joint of ours is a dataclass
        value = getattr(joint, field.name)
        if callable(value):
            raise ModelError(
                f"is {joint!r} and holds a function, which a file cannot",
                element=f"joint {name!r}",
                hint="save the model with another joint in its place, and put it back after loading",
            )
        if value != field.default:  # most joints of a model are in their canonical form, without axes or radii
            written[field.name] = _written_joint(value, name) if isinstance(value, AbstractJoint) else value
    return written


def _read_joint(written: dict[str, Any], name: str) -> AbstractJoint:
    if written["type"] not in _JOINTS:
        raise ModelError(f"there is no type of joint {written['type']!r}", element=f"joint {name!r}")
    fields: dict[str, Any] = {}
    for field, value in written.items():
        if field == "type":
            continue
        fields[field] = _read_joint(value, name) if isinstance(value, dict) else value
        if isinstance(value, list):
            fields[field] = tuple(value)
    try:
        joint = _JOINTS[written["type"]](**fields)
    except (TypeError, ValueError) as error:
        raise ModelError(str(error), element=f"joint {name!r}") from None
    if joint != joint.canonical:
        raise ModelError(
            "names an axis, a pitch or a radius",
            element=f"joint {name!r}",
            hint="they stand in the leaves hinges, joint_parameters and loop_parameters",
        )
    return joint


# JSON, strictly.


def _layout(document: dict[str, Any]) -> str:
    """One line for each body, frame, finding and leaf: readable, and with useful differences between versions."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            rows = ",\n".join("    " + _json(row) for row in value)
            parts.append(f'  "{key}": [\n{rows}\n  ]')
        elif isinstance(value, dict):
            rows = ",\n".join(f"    {_json(name)}: {_json(row)}" for name, row in value.items())
            parts.append(f'  "{key}": {{\n{rows}\n  }}')
        else:
            parts.append(f'  "{key}": {_json(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f'{name} is not JSON; write it as a text, such as "inf"')


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _body(frame: dict[str, Any], count: int) -> int:
    index = _whole(frame["body"])
    if not -1 <= index < count:
        raise ModelError(f"is fixed to body {index}, of {count}", element=f"frame {frame['name']!r}")
    return index


def _names(rows: list[dict[str, Any]], key: str) -> tuple[str, ...]:
    return tuple(_text(row[key]) for row in rows)


def _read_finding(written: dict[str, Any]) -> Finding:
    finding = Finding(**written)
    return Finding(
        _text(finding.element), _text(finding.message), None if finding.line is None else _whole(finding.line)
    )
