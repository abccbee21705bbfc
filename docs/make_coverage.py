"""Write `docs/coverage.md`: which capability of `docs/spec_ids.toml` is covered by which test.

    python docs/make_coverage.py            writes the page
    python docs/make_coverage.py --check    fails if the page is stale or the marks and ids do not add up

The marks `@pytest.mark.spec("ID", ...)` are read from the source of the tests, without importing it, so this takes a
moment and needs nothing but Python. A test that is skipped or expected to fail covers nothing.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HEADER = """\
# Coverage

What is covered of the capabilities and properties dynax is to have, and by which test: written by `make_coverage.py`
from the marks of the tests and from `spec_ids.toml`, where the ids and their sources are explained. Do not edit.
"""


@dataclass(frozen=True)
class Spec:
    """One id: what it stands for, whether it must be covered or excused now, and its excuse, if any."""

    id: str
    name: str
    required: bool
    excuse: str | None
    own_excuse: bool  # given for this id rather than for its whole chapter


@dataclass(frozen=True)
class Chapter:
    title: str
    specs: tuple[Spec, ...]


@dataclass(frozen=True)
class Mark:
    """One id named by one mark: where, and on which test (or whole class or module) it stands."""

    id: str
    path: str
    line: int
    test: str


class CoverageError(Exception):
    """A file of ids or a mark that cannot be read as meant."""


def read_chapters(text: str) -> list[Chapter]:
    """The chapters of a file of ids, with the text of every excuse filled in."""
    data = tomllib.loads(text)
    later = data.get("later", {})

    def excuse(entry: dict[str, str]) -> str | None:
        if "later" in entry and entry["later"] not in later:
            raise CoverageError(f"{entry.get('id', entry.get('title'))}: later = {entry['later']!r} is not in [later]")
        return entry.get("reason") or later.get(entry.get("later"))

    chapters = []
    seen: set[str] = set()
    for chapter in data["chapter"]:
        specs = []
        for entry in chapter["ids"]:
            if entry["id"] in seen:
                raise CoverageError(f"{entry['id']} is listed twice")
            seen.add(entry["id"])
            own = excuse(entry)
            required = chapter.get("required", False)
            specs.append(Spec(entry["id"], entry["name"], required, own or excuse(chapter), own is not None))
        chapters.append(Chapter(chapter["title"], tuple(specs)))
    return chapters


def _pytest_mark(node: ast.expr) -> str | None:
    """`"name"` of `pytest.mark.name`, called or not."""
    if isinstance(node, ast.Call):
        node = node.func
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="pytest"), attr="mark"), attr=name):
            return name
    return None


def read_marks(source: str, path: str) -> Iterator[Mark]:
    """The spec marks of one test module: decorators, `pytestmark`, and `marks=` of parameters."""

    def visit(node: ast.AST, test: str) -> Iterator[Mark]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if any(_pytest_mark(decorator) in ("skip", "xfail") for decorator in node.decorator_list):
                return
            test = f"{test}::{node.name}" if test else node.name
        if isinstance(node, ast.Call) and _pytest_mark(node) == "spec":
            if node.keywords or not node.args:
                raise CoverageError(f"{path}:{node.lineno}: a spec mark takes ids and nothing else")
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise CoverageError(f"{path}:{node.lineno}: write the ids of a spec mark as plain strings")
                yield Mark(argument.value, path, node.lineno, test)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, test)

    return visit(ast.parse(source, path), "")


def problems(chapters: list[Chapter], marks: list[Mark]) -> list[str]:
    """What does not add up between ids and marks, one sentence each."""
    specs = {spec.id: spec for chapter in chapters for spec in chapter.specs}
    covered = {mark.id for mark in marks}
    found = [f"{m.path}:{m.line}: {m.id} is not in docs/spec_ids.toml" for m in marks if m.id not in specs]
    for spec in specs.values():
        if spec.required and spec.id not in covered and spec.excuse is None:
            found.append(f"{spec.id} ({spec.name}) has no test: mark one, or give `later` or `reason`")
        if spec.own_excuse and spec.id in covered:
            found.append(f"{spec.id} ({spec.name}) is covered: take its `later` or `reason` away")
    return found


def page(chapters: list[Chapter], marks: list[Mark]) -> str:
    """The text of the coverage page."""
    tests: dict[str, dict[str, None]] = {}  # id -> its tests, in order and once each
    for mark in marks:
        tests.setdefault(mark.id, {})[f"`{Path(mark.path).name}{'::' if mark.test else ''}{mark.test}`"] = None

    summary = ["| chapter | ids | covered |", "|---|---|---|"]
    tables = []
    for chapter in chapters:
        covered = sum(spec.id in tests for spec in chapter.specs)
        summary.append(f"| {chapter.title} | {len(chapter.specs)} | {covered} |")
        tables += [f"## {chapter.title}", "", "| id | what | covered by |", "|---|---|---|"]
        for spec in chapter.specs:
            status = ", ".join(tests[spec.id]) if spec.id in tests else f"*{spec.excuse or 'not yet'}*"
            tables.append(f"| {spec.id} | {spec.name} | {status} |")
        tables.append("")
    ids = [spec.id for chapter in chapters for spec in chapter.specs]
    summary.append(f"| all | {len(ids)} | {sum(id in tests for id in ids)} |")
    return "\n".join([HEADER, *summary, "", *tables]).rstrip() + "\n"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Write docs/coverage.md from the marks of the tests.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if anything does not add up")
    options = parser.parse_args(arguments)

    target = root / "docs" / "coverage.md"
    try:
        chapters = read_chapters((root / "docs" / "spec_ids.toml").read_text(encoding="utf-8"))
        files = sorted((root / "tests").rglob("*.py"))
        marks = [m for f in files for m in read_marks(f.read_text(encoding="utf-8"), f.relative_to(root).as_posix())]
    except CoverageError as error:
        print(error, file=sys.stderr)
        return 1

    found = problems(chapters, marks)
    text = page(chapters, marks)
    if not options.check:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        found.append("docs/coverage.md is stale: run `python docs/make_coverage.py` and commit it")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
