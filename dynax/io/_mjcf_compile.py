"""MJCF text to a compiled MuJoCo model, without the assets that only show and collide.

MuJoCo's compiler does the reading: includes, defaults, angles, attached models, inertia from geoms. Before it runs,
meshes, height fields and textures are taken out where no inertia depends on them, so that their files need not exist.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynax.errors import ModelError

_LINE = re.compile(r"\bline (\d+)|Line number=(\d+)")
_NAMED = re.compile(r"Element(?: name)? '([^']+)'")
_FILE = re.compile(r"Error opening file '([^']+)'")
LAST_SHOWN = 2
"""The last group of geoms that MuJoCo's viewer shows; those that only collide are by custom in the third."""


class Compiled(NamedTuple):
    """What MuJoCo makes of an MJCF."""

    model: Any
    """A `mujoco.MjModel`."""
    name: str
    warnings: tuple[str, ...]
    """What its compiler had to say, each once."""
    missing: tuple[str, ...] = ()
    """Of what is to collide or be seen, the geoms whose mesh could not be opened, as a user names them."""


def import_mujoco() -> Any:
    """The `mujoco` package; a `ModelError` that says how to install it where it is missing."""
    try:
        import mujoco
    except ImportError:
        raise ModelError(
            "reading MJCF needs the mujoco package, which is not installed", hint='pip install "dynax[mjcf]"'
        ) from None
    return mujoco


def compile_mjcf(text: str | bytes, file: str | None, *, collide: bool = False, show: bool = False) -> Compiled:
    """The compiled model of an MJCF.

    **Arguments:**

    - `text`: the MJCF itself.
    - `file`: where it came from: includes and assets are sought beside it. `None` for text without a file.
    - `collide`: whether to keep the meshes and height fields of what collides, if their files exist.
    - `show`: the same of what is seen.

    Whatever MuJoCo objects to becomes a `ModelError` with its words, and its line where it names one.
    """
    mujoco = import_mujoco()
    absent: set[str] = set()
    while True:
        assets = _Assets()
        with _heard(mujoco) as messages:
            try:
                if file is not None and Path(file).is_file():
                    spec = mujoco.MjSpec.from_file(file)
                else:
                    spec = mujoco.MjSpec.from_string(text if isinstance(text, str) else text.decode("utf-8"))
                _scale_axes(spec, file)
                assets = _drop_assets(mujoco, spec, collide, show, absent)
                spec.compiler.LRopt.mode = mujoco.mjtLRMode.mjLRMODE_NONE  # simulates every muscle, which we do not use
                compiled = spec.compile()
            except ModelError:
                raise
            except Exception as error:  # a foreign compiler: whatever it raises is about the file
                message = str(error) or type(error).__name__
                lost = assets.lost(message) - absent
                if not lost:
                    raise _translated(message, file, assets.needed) from None
                absent |= lost
                continue
        break
    return Compiled(
        compiled,
        spec.modelname,
        tuple(dict.fromkeys(" ".join(m.split()) for m in messages)),
        tuple(assets.missing),
    )


@dataclass
class _Assets:
    """The files that a compilation needs."""

    needed: dict[str, str] = field(default_factory=dict)
    """The bodies whose inertia depends on a mesh, by its name."""
    wanted: dict[str, str] = field(default_factory=dict)
    """The files of the meshes and height fields kept since they collide or are seen, by their names."""
    missing: list[str] = field(default_factory=list)
    """Geoms that would collide or be seen, but for a file."""

    def lost(self, message: str) -> set[str]:
        """Those that could do without the file whose absence MuJoCo tells."""
        told = _FILE.search(message)
        name = Path(told.group(1)).name if told else ""
        return {asset for asset, file in self.wanted.items() if told and Path(file).name == name}


@contextmanager
def _heard(mujoco: Any) -> Iterator[list[str]]:
    """What MuJoCo has to say, which it would otherwise print and write to a log where the user stands."""
    messages: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(messages.append)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield messages
        messages.extend(str(w.message) for w in caught)
    finally:
        mujoco.set_mju_user_warning(before)


def _scale_axes(spec: Any, file: str | None) -> None:
    """MuJoCo divides axes by their length, whose square is not a number for axes of 1e200."""
    for joint in spec.joints:
        largest = np.max(np.abs(joint.axis))
        if not np.isfinite(largest):
            line = _LINE.search(joint.info or "")
            raise ModelError(
                f"its axis {np.asarray(joint.axis).tolist()} is not finite",
                element=f"joint '{joint.name}'",
                file=file,
                line=int(line.group(1)) if line else None,
                hint='give a direction such as axis="0 0 1"',
            )
        if largest > 1e100:
            joint.axis = joint.axis / largest


def _drop_assets(mujoco: Any, spec: Any, collide: bool, show: bool, absent: set[str]) -> _Assets:
    """Take out all assets but the meshes that give a body its inertia, and, where asked, those that collide or are
    seen."""
    found = _Assets()
    files = {asset.name: asset.file for asset in (*spec.meshes, *spec.hfields)}
    lost: set[str] = set()
    paired = {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2)}
    for body in spec.bodies:
        for k, geom in enumerate(body.geoms):
            is_field = geom.type == mujoco.mjtGeom.mjGEOM_HFIELD
            asset = geom.meshname or (geom.hfieldname if is_field else "")
            touches = collide and (geom.contype or geom.conaffinity or (geom.name and geom.name in paired))
            wanted = touches or (show and geom.group <= LAST_SHOWN)
            if geom.meshname and _weighs(mujoco, body, geom):
                found.needed.setdefault(geom.meshname, body.name)
            elif asset and wanted and asset not in absent:
                found.wanted[asset] = files[asset]
            elif geom.meshname or is_field:
                if wanted:
                    found.missing.append(f"{geom.name or f'{body.name}/{k}'!r}: its file {files[asset]!r} is not found")
                    geom.contype = geom.conaffinity = 0
                    lost.add(geom.name)
                # It keeps its name, which sensors and contact pairs may use, and becomes a point without mass.
                geom.meshname = geom.hfieldname = ""
                geom.type = mujoco.mjtGeom.mjGEOM_SPHERE
                geom.size = [1e-3, 0.0, 0.0]
                geom.fromto = [np.nan] * 6
                geom.mass = 0.0
    for pair in [pair for pair in spec.pairs if lost & {pair.geomname1, pair.geomname2}]:
        spec.delete(pair)
    for material in spec.materials:
        material.textures = [""] * len(material.textures)
    kept = {*found.needed, *found.wanted}
    unused = (a for a in (*spec.hfields, *spec.meshes) if a.name not in kept)
    for asset in (*spec.skins, *spec.textures, *unused):
        spec.delete(asset)
    return found


def _weighs(mujoco: Any, body: Any, geom: Any) -> bool:
    """Whether the inertia of something that moves depends on this geom."""
    rule, choice = body.compiler.inertiafromgeom, mujoco.mjtInertiaFromGeom
    if rule == choice.mjINERTIAFROMGEOM_FALSE or (rule == choice.mjINERTIAFROMGEOM_AUTO and body.explicitinertial):
        return False
    low, high = body.compiler.inertiagrouprange
    massless = geom.density == 0.0 if np.isnan(geom.mass) else geom.mass == 0.0
    if massless or not low <= geom.group <= high:
        return False
    while body is not None and body.name != "world":
        if body.joints:
            return True
        body = body.parent
    return False


def _translated(message: str, file: str | None, needed: dict[str, str]) -> ModelError:
    """MuJoCo's error in our form: its sentence, its element and its line in their places."""
    text = " ".join(message.split())
    match = _LINE.search(text)
    line = int(match.group(1) or match.group(2)) or None if match else None  # 0 where it knows none
    named = _NAMED.search(text)
    element = f"element '{named.group(1)}'" if named else None
    reason = re.sub(r"^(XML )?Error: ", "", re.sub(r" ?Element (name )?'.*$", "", text))
    missing = _FILE.search(text)
    if missing and needed:
        stem = Path(missing.group(1)).name
        bodies = [body for mesh, body in needed.items() if mesh in (stem, Path(stem).stem)] or list(needed.values())
        return ModelError(
            f"its inertia follows from the mesh '{missing.group(1)}', which cannot be opened",
            element=f"body '{bodies[0]}'",
            file=file,
            line=line,
            hint="put the mesh where the file says, or give the body an <inertial>",
        )
    hint = "an include is sought beside the file: load by path, not by text" if missing and file is None else None
    return ModelError(f"MuJoCo: {reason}", element=element, file=file, line=line, hint=hint)
