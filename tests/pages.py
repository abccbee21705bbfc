"""The pages of the documentation as programs: their blocks of Python, what these print, and which names they use."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import types
from pathlib import Path
from typing import Any, NamedTuple

import dynax as dx

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FAMILIES = ("actuate", "contact", "optimize", "identify", "operators", "simulate", "viz")
"""Submodules whose names are public beside those of `dynax` itself."""
# A block of Python; before it, why it is not run, the engine that it is run with, or why it is a program of its own;
# after it, what it prints.
BLOCK = re.compile(
    r"^(?:<!-- (not run|needs|alone): (.+?) -->\n)?```python[^\n]*\n(.*?)^```\n(?:\n```text\n(.*?)^```)?",
    re.MULTILINE | re.DOTALL,
)
FENCED = re.compile(r"^ *```+.*?^ *```+ *$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of Python of a page."""

    code: str
    shown: str
    """What it prints, empty if the page does not say."""
    excuse: str
    """Why it is not run; empty if it is."""
    needs: str
    """The package of another engine which is no dependency of the tests: CI runs the block where it is installed."""
    alone: str
    """Why it is a program of its own; empty if it is a part of its page's."""


def blocks(page: Path) -> list[Block]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [
        Block(code, shown, *(why if what == kind else "" for kind in ("not run", "needs", "alone")))
        for what, why, code, shown in found
    ]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def public() -> dict[str, Any]:
    """All public names with what they stand for: `load`, `contact.scene`, ... No object twice."""
    found: dict[str, Any] = {}
    for prefix, module in [("", dx), *((f"{name}.", getattr(dx, name)) for name in FAMILIES)]:
        for name in dir(module):
            what = getattr(module, name)
            known = any(what is other for other in found.values())
            if not name.startswith("_") and not known and not isinstance(what, types.ModuleType):
                found[prefix + name] = what
    return found


def used(code: str) -> list[Any]:
    """What of dynax a program speaks of: the objects behind `dx.load`, `contact.scene`, a name that it imports.

    `AttributeError` for a name that does not exist.
    """
    tree = ast.parse(code)
    names: dict[str, Any] = {"dx": dx}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname: importlib.import_module(a.name) for a in node.names if a.asname and a.name == "dynax"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dynax":
            module = importlib.import_module(node.module or "")
            names |= {a.asname or a.name: getattr(module, a.name) for a in node.names}
    found = list(names.values())

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            return names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = value(node.value)
            return getattr(owner, node.attr) if isinstance(owner, types.ModuleType | type) else None
        return None

    found += [value(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return [what for what in found if what is not None]


def returned(function: Any) -> set[str]:
    """The names of the types that a function says it returns."""
    try:
        annotation = inspect.signature(function).return_annotation
    except (TypeError, ValueError):
        return set()
    return set(re.findall(r"\w+", annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")))
