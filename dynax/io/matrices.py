"""Finite elements and flexible bodies in files: `.npz`, and folders of Matrix Market files.

Both hold the same arrays, under the names of `FiniteElements`: in a `.npz` of NumPy as its entries, in a folder as
`mass.mtx`, `stiffness.mtx` and so on, and the names of nodes in `node_names.txt`, a row and a name on each line.

| name | shape | |
|---|---|---|
| `mass`, `stiffness` | `(N, N)` | symmetric |
| `position` | `(n, 3)` | of the nodes [m] |
| `freedoms` | `(N, 2)` | optional: of each row, its node, from 0, and direction, 0 to 5 (shifts along x, y, z, turns) |
| `node_names`, `node_rows` | `(p,)` | optional: texts, and the nodes they name, from 0 |
| `shapes` | `(N, m)` | optional: mode shapes |

Without `freedoms`, rows go node by node, three or six each. Rows of node -1 are amplitudes, as in Craig-Bampton sets.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError
from dynax.flexible import FiniteElements, FlexibleBody, check_elements
from dynax.flexible.body import Level
from dynax.flexible.elements import Freedoms
from dynax.io.matrix_market import read_matrix_market, write_matrix_market

REQUIRED, OPTIONAL = ("mass", "stiffness", "position"), ("freedoms", "shapes")
FORMAT = "dynax flexible body 1"


def load_finite_elements(source: str | os.PathLike) -> FiniteElements:
    """A structure from a `.npz` file or a folder of Matrix Market files; `docs/structures.md` names the arrays.

    What came with a finite-element program is not trusted: the matrices must be symmetric, positive, weigh the same in
    all directions and be free of strain where the structure moves as a whole, or else `dx.ModelError` names the file,
    the matrix and the reason. `dx.check_elements` gives what was found.
    """
    arrays, file = _read(source)
    return _elements(arrays, file)


def load_flexible_body(
    source: str | os.PathLike,
    *,
    modes: int | None = None,
    held: Freedoms | None = None,
    boundary: Freedoms | None = None,
    nodes: Any = None,
    damping_ratio: ArrayLike = 0.0,
    level: Level | None = None,
) -> FlexibleBody:
    """A flexible body from a file of `save_flexible_body`, or of a structure, as `load_finite_elements` reads it.

    **Arguments:** all but `source` are for structures, and those of `FiniteElements.modes` and `FiniteElements.body`;
    without `modes`, the mode shapes that the file itself holds are taken.
    """
    arrays, file = _read(source)
    try:
        if "format" in arrays:
            if any(x is not None for x in (modes, held, boundary, nodes)) or np.any(damping_ratio):
                raise ModelError("holds a body with its modes", hint="only its `level` can be chosen")
            body = _body(arrays)
            return body.at_level(level) if level else body
        elements = _elements(arrays, file)
        if modes is None and elements.shapes is None:
            raise ModelError("has no mode shapes", element="`shapes`", hint="say how many modes: modes=10")
        chosen = (
            elements.modes_of(elements.shapes)
            if modes is None and elements.shapes is not None
            else elements.modes(modes or 0, held=held, boundary=boundary)
        )
        return elements.body(chosen, nodes=nodes, damping_ratio=damping_ratio, level=level)
    except ModelError as error:
        raise _in_file(error, file) from None


def save_finite_elements(elements: FiniteElements, path: str | os.PathLike) -> None:
    """Write a structure to a `.npz` file, or to a folder of Matrix Market files where the path has no suffix.

    What elements know beside their matrices, foreshortening and sets of nodes, is not written: save the body for that.
    """
    names, rows = list(elements.node_names), list(elements.node_names.values())
    arrays: dict[str, Any] = {n: getattr(elements, n) for n in (*REQUIRED, *OPTIONAL)}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    if Path(path).suffix == ".npz":
        arrays |= {"node_names": np.array(names, dtype=str), "node_rows": np.array(rows, dtype=int)}
        np.savez_compressed(path, **arrays)
        return
    Path(path).mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        write_matrix_market(Path(path) / f"{name}.mtx", array)
    text = "".join(f"{row} {name}\n" for name, row in elements.node_names.items())
    (Path(path) / "node_names.txt").write_text(text, encoding="utf-8")


def save_flexible_body(body: FlexibleBody, path: str | os.PathLike) -> None:
    """Write a body with its integrals to a `.npz` file; `load_flexible_body` reads it back, equal in every bit."""
    if Path(path).suffix != ".npz":
        raise ModelError("is not the name of a .npz file", file=str(path))
    arrays: dict[str, Any] = {f.name: np.asarray(getattr(body, f.name)) for f in fields(body)}
    arrays["format"] = np.array(FORMAT)
    np.savez_compressed(path, **arrays)


def holds_matrices(source: str | os.PathLike) -> bool:
    """Whether a path is of the kind that these functions read."""
    return Path(source).suffix in (".npz", ".mtx") or Path(source).is_dir()


def check_matrices(source: str | os.PathLike) -> str:
    """What `dynax check` says about such a file."""
    arrays, file = _read(source)
    if "format" not in arrays:
        return str(check_elements(_elements(arrays, file)))
    try:
        body = _body(arrays)
    except ModelError as error:
        raise _in_file(error, file) from None
    values = np.linalg.eigvals(np.linalg.solve(np.asarray(body.modal_mass), np.asarray(body.stiffness)))
    listed = ", ".join(f"{x:.6g}" for x in np.sqrt(np.sort(np.maximum(values.real, 0.0))) / (2.0 * np.pi))
    return f"{body}\nmass {float(body.mass):.6g}\nfrequencies of its modes [Hz]: {listed}"


def _in_file(error: ModelError, file: str) -> ModelError:
    return ModelError(error.reason, element=error.element, file=error.file or file, line=error.line, hint=error.hint)


def _read(source: str | os.PathLike) -> tuple[dict[str, Any], str]:
    path, file = Path(source), str(source)
    if path.is_dir():
        return _read_folder(path), file
    if path.suffix == ".mtx":
        hint = f"give the folder, with {', '.join(name + '.mtx' for name in REQUIRED)} in it"
        raise ModelError("is one matrix of several", file=file, hint=hint)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive), file
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}", file=file) from None
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError, NotImplementedError) as error:
        raise ModelError(
            f"is not a .npz file of arrays: {error}", file=file, hint="write it with numpy.savez"
        ) from None


def _read_folder(path: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for name in (*REQUIRED, *OPTIONAL):
        if (path / f"{name}.mtx").exists():
            arrays[name] = read_matrix_market(path / f"{name}.mtx")
    listed = path / "node_names.txt"
    if listed.exists():
        lines = [line.split(maxsplit=1) for line in listed.read_text(encoding="utf-8").splitlines() if line.strip()]
        for number, line in enumerate(lines, 1):
            if len(line) != 2 or not line[0].isdigit():
                raise ModelError("is not a row and a name", file=str(listed), line=number)
        arrays["node_rows"] = np.array([int(row) for row, _ in lines], dtype=int)
        arrays["node_names"] = np.array([name.strip() for _, name in lines])
    return arrays


def _elements(arrays: dict[str, Any], file: str) -> FiniteElements:
    try:
        known = (*REQUIRED, *OPTIONAL, "node_names", "node_rows")
        for name in arrays:
            if name not in known:
                raise ModelError("is not known", element=f"array {name!r}", hint=f"known are {', '.join(known)}")
        for name in REQUIRED:
            if name not in arrays:
                raise ModelError("is missing", element=f"`{name}`", hint=f"needed are {', '.join(REQUIRED)}")
        for name, array in arrays.items():
            if name != "node_names" and not (np.issubdtype(array.dtype, np.floating) or array.dtype.kind in "iu"):
                raise ModelError(f"is of type {array.dtype}, not of real numbers", element=f"`{name}`")
        names, rows = (np.ravel(arrays.pop(name, [])) for name in ("node_names", "node_rows"))
        if len(names) != len(rows) or len({*names}) != len(names):
            raise ModelError("must be as many, and all different", element="`node_names` and `node_rows`")
        nodes = {str(name): int(row) for name, row in zip(names, rows, strict=True)}
        elements = FiniteElements(**arrays, node_names=nodes)
        check_elements(elements)
        return elements
    except ModelError as error:
        raise _in_file(error, file) from None


def _body(arrays: dict[str, Any]) -> FlexibleBody:
    kind = str(arrays.pop("format"))
    if kind != FORMAT:
        raise ModelError(
            f"is of the format {kind!r}; this dynax reads {FORMAT!r}", hint="update dynax, or save it again"
        )
    level, names = str(arrays.pop("level", "")), arrays.pop("node_names", ())
    try:
        leaves: dict[str, Any] = {name: jnp.asarray(array) for name, array in arrays.items()}
        return FlexibleBody.from_integrals(**leaves, node_names=tuple(map(str, names)), level=level)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"is not a saved flexible body: {error}") from None
