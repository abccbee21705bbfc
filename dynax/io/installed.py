"""Robots that installed packages bring along, by name. Nothing is downloaded, and no package is imported."""

from __future__ import annotations

import ast
import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def installed_robots() -> dict[str, Path]:
    """The URDFs and MJCFs of installed packages by name, for `dx.load(dx.installed_robots()["talos_reduced"])`.

    From `example-robot-data`, by the names of its files, and from `robot_descriptions`, by those of its modules
    (`"panda_description"`, `"panda_mj_description"`), where the description is in that package's cache: importing the
    module once puts it there. Nothing is downloaded. Both come with `pip install "dynax[robots]"`; without them the
    dictionary is empty.
    """
    return dict(sorted([*_example_robot_data(), *_robot_descriptions()]))


def _files(package: str) -> list[importlib.metadata.PackagePath]:
    try:
        return importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _example_robot_data() -> Iterator[tuple[str, Path]]:
    for file in _files("example-robot-data"):
        if file.suffix == ".urdf":
            yield file.stem, Path(str(file.locate()))


def _robot_descriptions() -> Iterator[tuple[str, Path]]:
    """By reading its modules: importing one downloads what it describes."""
    modules = {file.stem: Path(str(file.locate())) for file in _files("robot_descriptions") if file.suffix == ".py"}
    if "_repositories" not in modules:
        return
    cached = _cache_paths(modules["_repositories"])
    for name, module in modules.items():
        if name.endswith("_description") and not name.startswith("_"):
            found = _described(module, cached)
            if found is not None and found.exists():
                yield name, found


def _cache_paths(repositories: Path) -> dict[str, str]:
    """Where the cache keeps each repository."""
    root = os.path.expanduser(os.environ.get("ROBOT_DESCRIPTIONS_CACHE") or "~/.cache/robot_descriptions")
    paths = {}
    for node in ast.walk(ast.parse(repositories.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Call):
                    fields = {k.arg: k.value for k in value.keywords}
                    where = fields.get("cache_path")
                    if isinstance(where, ast.Constant):
                        paths[str(key.value)] = os.path.join(root, str(where.value))
    return paths


def _described(module: Path, cached: dict[str, str]) -> Path | None:
    """The file that a module names: its assignments are constants, joined paths, and the clone of a repository."""
    values: dict[str, Any] = {}

    def value(node: ast.AST | None) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return values.get(node.id)
        if isinstance(node, ast.Call):
            parts = [value(part) for part in node.args]
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "join" and parts and all(isinstance(part, str) for part in parts):
                return os.path.join(*parts)
            if called.endswith("clone_to_cache") and parts:
                return cached.get(parts[0])
        return None

    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            for target in [node.target] if isinstance(node, ast.AnnAssign) else node.targets:
                if isinstance(target, ast.Name):
                    values[target.id] = value(node.value)
    path = values.get("URDF_PATH") or values.get("MJCF_PATH")
    return Path(path) if path else None
