"""Loading a model from a file or from XML text."""

from __future__ import annotations

import os
import re
from typing import cast

from dynax.errors import ModelError
from dynax.io.mjcf import read_mjcf
from dynax.io.save import read_saved
from dynax.io.source import read_source
from dynax.io.urdf import read_urdf
from dynax.model import Model
from dynax.model.builder import ModelBuilder

# What stands before the first element, by its first and last characters; the longest first.
_PASSED = ((b"<!--", b"-->"), (b"<?", b"?>"), (b"<!", b">"))
_TAG = re.compile(rb"<!|<\?|<[ \t\r\n]*([A-Za-z_][\w.-]*)")


def load(source: str | os.PathLike, *, root: str = "fixed", isolate: bool = False) -> Model:
    """Load a URDF, an MJCF or what `dx.save` wrote, told apart by its content.

    **Arguments:**

    - `source`: a path, or the XML text itself.
    - `root`: for a URDF, whether its root link is `"fixed"` to the world or `"free"`. Other files say so themselves,
      and refuse `"free"`.
    - `isolate`: for an MJCF of a stranger, to run MuJoCo's compiler in a process of its own, for at most a minute:
      there are files that crash it, or keep it busy. It takes some seconds more; the other readers need no such care.

    No mesh, no ROS and no network is needed; MJCF needs the `mujoco` package (`pip install "dynax[mjcf]"`). What cannot
    be read raises `dx.ModelError` with file, line, element, reason and remedy; what was odd but could be loaded is
    listed in `model.report`.
    """
    if root not in ("fixed", "free"):
        raise ValueError(f"`root` must be 'fixed' or 'free', got {root!r}")
    text, file = read_source(source)
    if text.lstrip()[:1] in ("{", b"{"):
        _refuse_root(root, "a saved model", "save the model that was loaded with root='free'", file)
        return cast(Model, read_saved(text, file=file))
    if is_mjcf(text):
        _refuse_root(root, "an MJCF", "give its root body a <freejoint/>", file)
        return _built(read_mjcf(text, file=file, isolate=isolate), file)
    return _built(read_urdf(text, file=file, root=root), file)


def is_mjcf(text: str | bytes) -> bool:
    return _root_element(text) in (b"mujoco", b"mujocoinclude")


def _refuse_root(root: str, kind: str, hint: str, file: str | None) -> None:
    if root == "free":
        raise ModelError(f"root='free' is for URDFs; {kind} says itself how its root is held", file=file, hint=hint)


def _built(builder: ModelBuilder, file: str | None) -> Model:
    try:
        return builder.build()
    except ModelError as error:
        raise ModelError(error.reason, element=error.element, file=file, line=error.line, hint=error.hint) from None


def _root_element(text: str | bytes) -> bytes:
    """The name of the first element, past the declaration and comments; empty when there is none."""
    data, place = text.encode(errors="surrogatepass") if isinstance(text, str) else text, 0
    while (match := _TAG.search(data, place)) and match.group(1) is None:
        closing = next(end for start, end in _PASSED if data.startswith(start, match.start()))
        place = data.find(closing, match.start()) + len(closing)
        if place < len(closing):
            return b""
    return match.group(1) if match else b""
