"""Logs in files, their columns known by the names of joints: no order of joints is taken for granted.

    CSV     a first line of names: time, q/shoulder, ..., tau/shoulder, ...; entries of a joint that has several are
            q/wrist[0], q/wrist[1], ...
    NPZ     arrays of those names, shape (T,) each; or `time`, `q` (T, nq), `tau` (T, nv) with `joint_names`.

Other columns are left alone. What is empty is not a number, for `resample`.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from dynax.model import Model
from dynax.model.structure import close_names


def read_log(path: str | os.PathLike, model: Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`time` `(T,)`, `q` `(T, nq)` and `tau` `(T, nv)` of a CSV or NPZ file, in the model's order, for `prepare`.

    Columns are `time` [s], `q/JOINT` [rad, m] and `tau/JOINT` [N m, N] for every joint of the model, with `[k]` behind
    the name for each entry of a joint that has several. An NPZ may hold `time`, `q`, `tau` and `joint_names` instead,
    joints in the order that it names.

    Raises `ValueError` that names the file and the column which is missing, of another length, or no number.
    """
    file = Path(path)
    columns = _npz(file, model) if file.suffix == ".npz" else _csv(file)
    time = _column(file, columns, "time")
    parts = []
    for what, slices in (("q", model.q_slice), ("tau", model.v_slice)):
        names = [name for joint in model.joint_names for name in _entries(what, joint, slices(joint))]
        found = [_column(file, columns, name) for name in names]
        for name, column in zip(names, found, strict=True):
            if column.shape != time.shape:
                raise ValueError(f"{file}: {name!r} has shape {column.shape}, and `time` {time.shape}")
        parts.append(np.stack(found, axis=1))
    return time, parts[0], parts[1]


def _entries(what: str, joint: str, own: slice) -> list[str]:
    count = own.stop - own.start
    return [f"{what}/{joint}" + (f"[{k}]" if count > 1 else "") for k in range(count)]


def _column(file: Path, columns: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in columns:
        raise ValueError(f"{file}: {close_names(name, tuple(columns), 'column')}")
    return columns[name]


def _csv(file: Path) -> dict[str, np.ndarray]:
    with file.open(newline="", encoding="utf-8-sig") as lines:  # spreadsheets begin with a mark of their encoding
        rows = csv.reader(lines)
        names = [name.strip() for name in next(rows, [])]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{file}: column {twice!r} stands there twice")
        values = []
        for row in filter(None, rows):  # but for empty lines
            if len(row) != len(names):
                raise ValueError(f"{file}: line {rows.line_num} has {len(row)} entries for {len(names)} columns")
            values.append((rows.line_num, row))
    wanted = [k for k, name in enumerate(names) if name == "time" or name.startswith(("q/", "tau/"))]
    return {names[k]: np.array([_number(file, names[k], row[k], line) for line, row in values]) for k in wanted}


def _number(file: Path, name: str, text: str, line: int) -> float:
    try:
        return float(text) if text.strip() else float("nan")  # as loggers write what they have not got
    except ValueError:
        raise ValueError(f"{file}: column {name!r} is {text!r} in line {line}, not a number") from None


def _npz(file: Path, model: Model) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    if "joint_names" not in columns:
        return columns
    found = {"time": _column(file, columns, "time")}
    for what, slices in (("q", model.q_slice), ("tau", model.v_slice)):
        whole, names = _column(file, columns, what), []
        for joint in map(str, columns["joint_names"]):
            if joint not in model.joint_names:
                raise ValueError(f"{file}: `joint_names`: {close_names(joint, model.joint_names, 'joint')}")
            names += _entries(what, joint, slices(joint))
        if whole.ndim != 2 or whole.shape[1] != len(names):
            raise ValueError(f"{file}: `{what}` has shape {whole.shape}, expected (T, {len(names)}) for `joint_names`")
        found |= dict(zip(names, whole.T, strict=True))
    return found
