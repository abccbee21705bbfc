"""What commands share: how a robot is named, exit codes, colours, JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, TextIO

import numpy as np

GOOD, FOUND, REFUSED = 0, 1, 2
"""Exit codes: all is well; something was found that should not be; what was asked for cannot be done."""

BOLD, RED, YELLOW, FAINT = "1", "31", "33", "2"


def add_robot(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The arguments that name a robot."""
    what = "a URDF, an MJCF or a saved model"
    if optional:
        command.add_argument("file", nargs="?", help=f"{what}; default: the seven-joint arm that comes with dynax")
    else:
        command.add_argument("file", help=what)
    command.add_argument("--root", choices=("fixed", "free"), default="fixed", help="how a URDF's root link is held")


def add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def robot_of(options: argparse.Namespace) -> Any:
    """The path that was given, or the text of the arm that comes with dynax."""
    from importlib import resources

    return options.file or resources.files("dynax").joinpath("models/arm7.urdf").read_text()


def paint(text: str, code: str, stream: TextIO) -> str:
    """In colour on a terminal, unless `NO_COLOR` is set (no-color.org)."""
    coloured = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\033[{code}m{text}\033[0m" if coloured else text


def plain(text: object) -> str:
    """Without what would command the terminal: names in files may hold any character."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in str(text))


def complain(error: object) -> int:
    print(f"{paint('error:', RED, sys.stderr)} {plain(error)}", file=sys.stderr)
    return REFUSED


def note(finding: object, *_: object) -> None:
    print(f"{paint('note:', YELLOW, sys.stderr)} {plain(finding)}", file=sys.stderr)


def print_json(found: dict[str, Any]) -> None:
    """Numbers that are not finite are `null`: JSON has no others."""
    print(json.dumps(_plain(found), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value


def table(rows: list[list[str]], heading: list[str]) -> str:
    """Columns as wide as they must be."""
    heading, *rows = [[plain(cell) for cell in row] for row in (heading, *rows)]
    widths = [max(len(row[k]) for row in (heading, *rows)) for k in range(len(heading))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (heading, *rows)]
    return "\n".join(line.rstrip() for line in lines)
