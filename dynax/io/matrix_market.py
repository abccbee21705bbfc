"""Matrix Market files, as finite-element programs write them: real or whole numbers, by coordinates or in full.

Boisvert, Pozo and Remington, "The Matrix Market exchange formats" (NIST, 1996). The time is linear in the text.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dynax.errors import ModelError

LARGEST = 2**27
"""Entries of the largest matrix, which is made in full: 1 GB."""


def read_matrix_market(path: str | os.PathLike) -> np.ndarray:
    """A matrix from a Matrix Market file (`.mtx`), in full, shape `(rows, columns)`, float64.

    Taken are `coordinate` and `array`, `real` and `integer`, `general` and `symmetric`; exponents may be Fortran's, as
    in `1.0D+3`. Raises `dx.ModelError` with file, line and reason for anything else, and for text that does not keep
    what its head says.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ModelError(f"cannot be read: {reason}", file=repr(os.fspath(path)).strip("'")) from None
    return parse_matrix_market(data, file=str(path))


def parse_matrix_market(data: bytes, *, file: str | None = None) -> np.ndarray:
    """The same from what a file holds."""
    head, _, rest = data.partition(b"\n")
    layout, symmetric = _layout(head, file)
    line = 2
    while rest.lstrip(b" \t\r").startswith((b"%", b"\n")):
        _, _, rest = rest.partition(b"\n")
        line += 1
    sizes, _, body = rest.partition(b"\n")
    shape = _sizes(sizes, 3 if layout == "coordinate" else 2, file, line)
    rows, columns = shape[:2]
    if rows * columns > LARGEST:
        raise ModelError(
            f"is a matrix of {rows} by {columns}, too large to be made in full",
            file=file,
            line=line,
            hint="reduce the structure in the finite-element program first, as Craig and Bampton do",
        )
    if symmetric and rows != columns:
        raise ModelError(f"is symmetric, of {rows} rows and {columns} columns", file=file, line=line)
    numbers = _numbers(body, file, line + 1)
    if layout == "array":
        return _filled(numbers, rows, columns, symmetric, file)
    _expect(len(numbers), 3 * shape[2], f"{shape[2]} entries of row, column and value", file)
    return _scattered(numbers.reshape(-1, 3), rows, columns, symmetric, file)


def write_matrix_market(path: str | os.PathLike, matrix: ArrayLike) -> None:
    """Write a matrix by the coordinates of what is not zero, with every digit; the lower half if it is symmetric."""
    a = np.asarray(matrix, dtype=np.float64)
    symmetric = a.shape[0] == a.shape[1] and bool(np.all(a == a.T))
    rows, columns = np.nonzero(np.tril(a) if symmetric else a)
    lines = [f"%%MatrixMarket matrix coordinate real {'symmetric' if symmetric else 'general'}"]
    lines += [f"{a.shape[0]} {a.shape[1]} {len(rows)}"]
    entries = zip(rows.tolist(), columns.tolist(), a[rows, columns].tolist(), strict=True)
    lines += [f"{i + 1} {j + 1} {value!r}" for i, j, value in entries]
    Path(path).write_text("\n".join(lines) + "\n", encoding="ascii")


def _layout(head: bytes, file: str | None) -> tuple[str, bool]:
    words = head[:200].decode("ascii", errors="replace").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ModelError(
            "is not a Matrix Market file", file=file, line=1, hint="it begins with '%%MatrixMarket matrix ...'"
        )
    layout, field, symmetry = words[2:]
    for word, known in (
        (layout, ("coordinate", "array")),
        (field, ("real", "integer")),
        (symmetry, ("general", "symmetric")),
    ):
        if word not in known:
            raise ModelError(f"is of the kind {word!r}", file=file, line=1, hint=f"only {' and '.join(known)} are read")
    return layout, symmetry == "symmetric"


def _sizes(text: bytes, count: int, file: str | None, line: int) -> list[int]:
    words = text[:200].split()
    if len(words) != count or not all(word.isdigit() and len(word) < 16 for word in words):
        shown = text[:40].decode("ascii", errors="replace").strip()
        raise ModelError(f"has {shown!r} where {count} sizes must be", file=file, line=line)
    return [int(word) for word in words]


def _numbers(body: bytes, file: str | None, line: int) -> np.ndarray:
    words = body.replace(b"D", b"e").replace(b"d", b"e").split()
    try:
        return np.array(words, dtype=np.float64) if words else np.zeros(0)
    except ValueError:
        pass
    for number, text in enumerate(body.splitlines(), line):
        for word in text.replace(b"D", b"e").replace(b"d", b"e").split():
            try:
                float(word)
            except ValueError:
                shown = word[:40].decode("ascii", errors="replace")
                raise ModelError(f"{shown!r} is not a number", file=file, line=number) from None
    raise ModelError("holds what is not a number", file=file)


def _expect(found: int, wanted: int, what: str, file: str | None) -> None:
    if found != wanted:
        raise ModelError(
            f"has {found} numbers, and its head announces {what}", file=file, hint="it may have been cut off"
        )


def _filled(numbers: np.ndarray, rows: int, columns: int, symmetric: bool, file: str | None) -> np.ndarray:
    """Column by column; of a symmetric matrix the lower half."""
    if not symmetric:
        _expect(len(numbers), rows * columns, f"{rows} by {columns}", file)
        return numbers.reshape(columns, rows).T.copy()
    _expect(len(numbers), rows * (rows + 1) // 2, f"half of {rows} by {rows}", file)
    a = np.zeros((rows, rows))
    column, row = np.triu_indices(rows)
    a[row, column] = a[column, row] = numbers
    return a


def _scattered(entries: np.ndarray, rows: int, columns: int, symmetric: bool, file: str | None) -> np.ndarray:
    place = entries[:, :2]
    wrong = (place < 1) | (place > (rows, columns)) | (place % 1 != 0)
    if np.any(wrong):
        k = int(np.argmax(wrong.any(axis=1)))
        i, j = place[k]
        raise ModelError(f"has entry {k + 1} in row {i:g}, column {j:g} of {rows} by {columns}", file=file)
    i, j = place.astype(np.int64).T - 1
    if symmetric:
        i, j = np.maximum(i, j), np.minimum(i, j)
    flat = i * columns + j
    order = np.argsort(flat, kind="stable")
    twice = np.flatnonzero(np.diff(flat[order]) == 0)
    if len(twice):
        k = order[twice[0]]
        raise ModelError(
            f"has two entries for row {i[k] + 1}, column {j[k] + 1}",
            file=file,
            hint="of a symmetric matrix write one half" if symmetric else "add them up before writing",
        )
    a = np.zeros((rows, columns))
    a[i, j] = entries[:, 2]
    if symmetric:
        a[j, i] = entries[:, 2]
    return a
