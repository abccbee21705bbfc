"""The script behind docs/coverage.md finds marks where they stand and complains about what does not add up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "docs" / "make_coverage.py"
SPEC = importlib.util.spec_from_file_location("make_coverage", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
make_coverage = importlib.util.module_from_spec(SPEC)
sys.modules["make_coverage"] = make_coverage  # where its dataclasses look for their annotations
SPEC.loader.exec_module(make_coverage)

IDS = """
[later]
loops = "later: loops"

[[chapter]]
title = "Trees"
required = true
ids = [
  { id = "A", name = "First" },
  { id = "B", name = "Second" },
  { id = "C", name = "Third", later = "loops" },
]

[[chapter]]
title = "Loops"
later = "loops"
ids = [{ id = "D", name = "Fourth" }]
"""
TESTS = """
import pytest

CASES = [pytest.param(1, marks=pytest.mark.spec("A"))]

@pytest.mark.spec("A", "B")
def test_one(): ...

class TestTwo:
    @pytest.mark.slow
    @pytest.mark.spec("B")
    def test_inside(self): ...
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs" / "spec_ids.toml").write_text(IDS)
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    return tmp_path


def test_page_names_tests_and_excuses(project):
    assert make_coverage.main([], project) == 0
    page = (project / "docs" / "coverage.md").read_text()
    assert "| A | First | `test_it.py`, `test_it.py::test_one` |" in page
    assert "| B | Second | `test_it.py::test_one`, `test_it.py::TestTwo::test_inside` |" in page
    assert "| C | Third | *later: loops* |" in page
    assert "| D | Fourth | *later: loops* |" in page
    assert make_coverage.main(["--check"], project) == 0


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ('@pytest.mark.spec("X")\ndef test_new(): ...', "X is not in"),
        ('@pytest.mark.spec("C")\ndef test_new(): ...', "C (Third) is covered"),
        ('@pytest.mark.spec("D")\ndef test_new(): ...', "stale"),
        ('@pytest.mark.spec("A" + "B")\ndef test_new(): ...', "plain strings"),
        ("@pytest.mark.spec()\ndef test_new(): ...", "takes ids"),
    ],
)
def test_check_complains_about_marks(project, capsys, added, complaint):
    make_coverage.main([], project)
    (project / "tests" / "test_new.py").write_text(f"import pytest\n{added}\n")
    assert make_coverage.main(["--check"], project) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("mark", ["skip", "skip(reason='no')", "xfail(strict=True)"])
def test_skipped_tests_cover_nothing(project, capsys, mark):
    (project / "tests" / "test_it.py").write_text(TESTS.replace("@pytest.mark.slow", f"@pytest.mark.{mark}"))
    make_coverage.main([], project)
    assert "TestTwo" not in (project / "docs" / "coverage.md").read_text()


def test_check_complains_about_uncovered_ids(project, capsys):
    (project / "tests" / "test_it.py").write_text("")
    make_coverage.main([], project)
    assert make_coverage.main(["--check"], project) == 1
    assert "A (First) has no test" in capsys.readouterr().err


def test_ids_must_be_unique_and_excuses_known():
    with pytest.raises(make_coverage.CoverageError, match="twice"):
        make_coverage.read_chapters(IDS.replace('"B"', '"A"'))
    with pytest.raises(make_coverage.CoverageError, match="not in"):
        make_coverage.read_chapters(IDS.replace('later = "loops" },', 'later = "never" },'))
