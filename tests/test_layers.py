"""The house has an order: each part of dynax imports only parts that stand before it, and declared dependencies."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dynax"

# Parts that share a line stand side by side and do not know each other.
ORDER = (
    ("errors",),
    ("spatial",),
    ("joints",),
    ("topology",),
    ("sweep",),
    ("compile",),
    ("linear",),
    ("flexible",),
    ("model",),
    ("tree",),
    ("bodies",),
    ("algorithms",),
    ("derivatives",),
    ("routes",),
    ("operators",),
    ("constraints",),
    ("embedding",),
    ("contact",),
    ("actuate",),
    ("simulate",),
    ("optimize",),
    ("identify",),
    ("io",),
    ("viz",),
    ("demo",),
    ("cli",),
)
RANK = {part: rank for rank, parts in enumerate(ORDER) for part in parts}

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
#: Who uses dynax as a user does, by `import dynax`.
GUESTS = ("__init__.py", "__main__.py", "demo")
BELOW_FRONT_DOOR = [path for path in MODULES if path.parts[0] not in GUESTS]


def part_of(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def imports(module: Path) -> Iterator[tuple[str, bool, int]]:
    """Every module that `module` imports: its absolute dotted name, whether at import time, and the line."""

    def visit(node: ast.AST, deferred: bool) -> Iterator[tuple[str, bool, int]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, not deferred, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ["dynax", *module.parent.parts][: len(module.parent.parts) + 2 - node.level] if node.level else []
            name = ".".join([*base, node.module] if node.module else base)
            # `from dynax import x` may name a part or something the front door re-exports.
            names = [f"dynax.{alias.name}" for alias in node.names] if name == "dynax" else [name]
            for name in names:
                yield name, not deferred, node.lineno
        inside = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse((PACKAGE / module).read_text(encoding="utf-8")), deferred=False)


IMPORTED_AS = {"imageio-ffmpeg": "imageio_ffmpeg", "pillow": "PIL", "pin": "pinocchio", "pycollada": "collada"}


def dependencies(requirements: list[str]) -> set[str]:
    names = {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements}
    return {IMPORTED_AS.get(name, name) for name in names}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = dependencies(PROJECT["dependencies"])
OPTIONAL = set().union(*(dependencies(r) for extra, r in PROJECT["optional-dependencies"].items() if extra != "test"))


@pytest.mark.parametrize("module", BELOW_FRONT_DOOR, ids=str)
def test_imports_point_one_way(module):
    part = part_of(module)
    assert part in RANK, f"dynax/{part} has no place in the order of the house: give it one in ORDER"
    for name, _, line in imports(module):
        top, _, rest = name.partition(".")
        if top == "dynax":
            other = rest.split(".")[0]
            assert other in RANK, f"{module}:{line} imports {name} through the front door, not from where it stands"
            allowed = other == part or RANK[other] < RANK[part]
            assert allowed, f"{module}:{line}: {part} must not import {other}, which does not stand before it"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_third_parties_are_declared(module):
    for name, at_import, line in imports(module):
        top = name.split(".")[0]
        if top == "dynax" or top in sys.stdlib_module_names:
            continue
        assert not name.startswith("jax._src"), f"{module}:{line}: {name} is private"
        declared = REQUIRED if at_import else REQUIRED | OPTIONAL
        assert top in declared, f"{module}:{line}: {top} is not among {sorted(declared)}"


@pytest.mark.parametrize(
    "module", [m for m in MODULES if part_of(m) in ("sweep", "tree", "algorithms", "derivatives", "routes")], ids=str
)
def test_walks_and_algorithms_know_no_joint_type(module):
    """They may name the contract of joints, and nothing that fulfils it."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dynax.joints"):
            assert names <= {"AbstractJoint", "JointMotion"}, f"{module}:{node.lineno} imports {sorted(names)}"
        elif isinstance(node, ast.Import):
            assert not any(name.startswith("dynax.joints") for name in names), f"{module}:{node.lineno}"
