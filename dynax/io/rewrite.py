"""A robot's file with the numbers of a model: what was identified goes back to where the robot came from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.errors import ModelError
from dynax.io._xml_edit import Edited, Piece
from dynax.io.load import is_mjcf, is_saved, load
from dynax.io.source import read_source
from dynax.model import Model
from dynax.model.inertias import inertial_parameters

URDF = {"damping": "damping", "friction_loss": "friction"}
MJCF = {"damping": "damping", "friction_loss": "frictionloss", "armature": "armature", "stiffness": "stiffness"}
"""Leaves of joints and their attributes."""
BODIES = ("mass", "com", "first_moment", "inertia")


def rewrite(source: str | os.PathLike, model: Model) -> str:
    """The text of a URDF or MJCF with the model's inertias, damping, friction, armature and stiffness.

    Only what differs from the file is written, all else stays as it is, comments included. The inertia of a body with
    others welded to it is written as a whole to the one that moves, and taken from those. What has been written is read
    again and compared, so that a file never says anything else than the model.

    **Arguments:** `source`: a path or text, as for `dx.load`; an MJCF must stand alone, without files but those of
    meshes that have no weight. `model`: loaded from it, with other numbers, such as
    `identify.with_parameter_vector(model, fit.values, terms)`.

    Raises `ModelError` for what the file cannot say, such as the armature of a URDF, a body that cannot exist, or other
    leaves of the model that are not those of the file.
    """
    text, file = read_source(source)
    try:
        data = text.encode() if isinstance(text, str) else text.decode("utf-8").encode()
    except UnicodeError:
        raise ModelError("is not in UTF-8", file=file, hint="convert it first") from None
    if is_saved(data):
        raise ModelError("is a saved model, which holds its own numbers", file=file, hint="use dx.save")
    mjcf = is_mjcf(data)
    root = "free" if not mjcf and "root_joint" in model.joint_names else "fixed"
    before = load(data.decode(), root=root)
    if (model.body_names, model.joint_names) != (before.body_names, before.joint_names):
        raise ModelError(
            "has other bodies or joints than the model", file=file, hint="give the file it was loaded from"
        )
    edited = Edited(data)
    (_write_mjcf if mjcf else _write_urdf)(edited, before, model, file)
    result = edited.result()
    _compare(load(result, root=root), model, MJCF if mjcf else URDF, file)
    return result


def _write_urdf(edited: Edited, before: Model, model: Model, file: str | None) -> None:
    bodies = {link.attributes["name"]: link for link in edited.root.all("link")}
    for name, inertia in _inertials(bodies, before, model, file):
        if inertia is None:
            edited.put(bodies[name], "inertial", None)
            continue
        mass, com, (xx, yy, zz, xy, yz, xz) = inertia
        entries = zip(("ixx", "iyy", "izz", "ixy", "iyz", "ixz"), (xx, yy, zz, xy, yz, xz), strict=True)
        tensor = " ".join(f'{key}="{_word(value)}"' for key, value in entries)
        edited.put(bodies[name], "inertial", f'<inertial><origin xyz="{_words(com)}"/><mass value="{_word(mass)}"/>'
                   f"<inertia {tensor}/></inertial>")  # fmt: skip
    joints = {joint.attributes["name"]: joint for joint in edited.root.all("joint")}
    for name, values in _changed(joints, before, model, URDF, file):
        own = joints[name].all("dynamics")
        if own:
            edited.set(own[0], values)
        else:
            said = " ".join(f'{key}="{value}"' for key, value in values.items())
            edited.put(joints[name], "dynamics", f"<dynamics {said}/>")


def _write_mjcf(edited: Edited, before: Model, model: Model, file: str | None) -> None:
    bodies, joints = {}, {}
    for body in _below(edited.root.all("worldbody"), "body"):
        # Nameless ones are called by their numbers, and cannot be told apart by a name in the file.
        if "name" in body.attributes:
            bodies[body.attributes["name"]] = body
        joints |= {j.attributes["name"]: j for j in body.all("joint") if "name" in j.attributes}
    for name, inertia in _inertials(bodies, before, model, file):
        mass, com, (xx, yy, zz, xy, yz, xz) = inertia or (0.0, np.zeros(3), np.zeros(6))
        tensor = f'fullinertia="{_words((xx, yy, zz, xy, xz, yz))}"' if inertia else 'diaginertia="0 0 0"'
        edited.put(bodies[name], "inertial", f'<inertial pos="{_words(com)}" mass="{_word(mass)}" {tensor}/>')
    for name, values in _changed(joints, before, model, MJCF, file):
        edited.set(joints[name], values)


def _below(pieces: list[Piece], tag: str) -> Iterator[Piece]:
    """All elements of a tag inside of others, at any depth."""
    stack = list(pieces)
    while stack:
        for child in stack.pop().children:
            stack.append(child)
            if child.tag == tag:
                yield child


def _inertials(bodies: dict[str, Piece], before: Model, model: Model, file: str | None) -> Iterator[tuple[str, Any]]:
    """What links are to have, by name: mass, centre and tensor about it, or `None` where another carries it all."""
    old, new = (np.asarray(inertial_parameters(m), float) for m in (before, model))
    changed = {k for k in range(len(new)) if not np.allclose(old[k], new[k], rtol=1e-9, atol=0.0)}
    for k in sorted(changed):
        name = model.body_names[k]
        if name not in bodies:
            raise ModelError("has another inertia, but no name in the file", element=f"body {name!r}", file=file)
        mass, moment, tensor = new[k, 0], new[k, 1:4], new[k, 4:]
        if not mass > 0.0:
            reason = f"has mass {mass:g}, with which a file can say no inertia"
            raise ModelError(reason, element=f"body {name!r}", file=file, hint="fit bodies by identify.consistent_fit")
        com = moment / mass
        x, y, z = com
        about = np.array([y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -y * z, -x * z])
        yield name, (mass, com, tensor - mass * about)
    for name in bodies:
        if name in model.frame_names and model.locate(name)[0] in changed and name not in model.body_names:
            yield name, None


def _changed(
    joints: dict[str, Piece], before: Model, model: Model, attributes: dict[str, str], file: str | None
) -> Iterator[tuple[str, dict[str, str]]]:
    """The attributes of joints that differ, by name."""
    for name in model.joint_names:
        own, values = model.v_slice(name), {}
        for leaf, attribute in attributes.items():
            old, new = (np.asarray(getattr(m, leaf), float)[own] for m in (before, model))
            if len(new) and not np.allclose(old, new, rtol=1e-9, atol=0.0):
                values[attribute] = _word(new[0])
        if values and name not in joints:
            raise ModelError(f"has another {next(iter(values))}, but no name in the file", element=f"joint {name!r}",
                             file=file)  # fmt: skip
        if values:
            yield name, values


def _compare(read: Model, model: Model, attributes: dict[str, str], file: str | None) -> None:
    """`ModelError` for what the text does not say as the model does."""
    eps = float(jnp.finfo(read.mass.dtype).eps) ** 0.5

    def differ(a: Any, b: Any) -> bool:
        a, b = np.asarray(a, float), np.asarray(b, float)
        return a.shape != b.shape or not np.allclose(a, b, rtol=eps, atol=eps * max(np.abs(b).max(initial=0.0), 1e-9))

    for name, a, b in zip(model.body_names, inertial_parameters(read), inertial_parameters(model), strict=True):
        if differ(a, b):
            raise ModelError("has an inertia that the file cannot say", element=f"body {name!r}", file=file)
    (theirs, _), (ours, _) = map(jax.tree_util.tree_flatten_with_path, (read, model))
    for (path, b), (_, a) in zip(ours, theirs, strict=True):
        leaf = path[0].name
        if leaf not in BODIES and differ(_finite(a), _finite(b)):
            hint = None if leaf in attributes else f"give the model that of the file: model.replace({leaf}=...)"
            raise ModelError(f"{leaf} of the model cannot be said by the file", file=file, hint=hint)


def _finite(x: Any) -> np.ndarray:
    """Limits may be infinite, and equal nevertheless."""
    return np.nan_to_num(np.asarray(x, float))


def _word(x: Any) -> str:
    return repr(float(x))


def _words(xs: Any) -> str:
    return " ".join(map(_word, xs))
