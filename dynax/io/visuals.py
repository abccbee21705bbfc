"""What a robot looks like, from its file."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dynax.errors import ModelError
from dynax.io._mjcf_visuals import read_mjcf_visuals
from dynax.io._urdf_visuals import read_urdf_visuals
from dynax.io._visual import Visuals
from dynax.io.load import is_mjcf, is_saved
from dynax.io.source import read_source


def load_visuals(source: str | os.PathLike, *, packages: Mapping[str, str | os.PathLike] | None = None) -> Visuals:
    """What is to be seen of a URDF or an MJCF; a saved model has none of it. What is left out stands in its `report`.

    **Arguments:** `source`, `packages`: as `dx.load_scene` takes them. Meshes need `pip install "dynax[mesh]"`.
    """
    text, file = read_source(source)
    if is_saved(text):
        raise ModelError("a saved model does not say what it looks like", file=file, hint="give the URDF or the MJCF")
    return read_mjcf_visuals(text, file) if is_mjcf(text) else read_urdf_visuals(text, file, packages or {})
