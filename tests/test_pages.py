"""What the README and pages of the documentation show is run, as their reader would, and prints what they show.

Each page is one program, in a folder that has a `robot.urdf` and a `panel.npz`; a block that says so is one by itself.
Those that take long stand in `slow_tests.txt`.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_origin

import pytest
from pages import PAGES, ROOT, Block, blocks, name_of, public, returned, used

import dynax as dx

WITH_BLOCKS = [page for page in PAGES if not all(block.excuse or block.needs for block in blocks(page))]
ALONE = [(page, block) for page in PAGES for block in blocks(page) if block.alone]
BESIDE = [page for page in PAGES if any(block.needs for block in blocks(page))]
BETWEEN = "-- end of block --"


def words(text: str) -> list[str]:
    """Words and numbers, brackets and commas by themselves, so that spacing does not matter."""
    return re.findall(r"[^\s\[\](),]+|[\[\](),]", text)


def same(printed: str, shown: str) -> bool:
    """Equal words, or equal numbers to what the page shows of them: one part in ten thousand."""
    try:
        return math.isclose(float(printed), float(shown), rel_tol=1e-4, abs_tol=1e-4)
    except ValueError:
        return printed == shown


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_page_prints_what_it_shows(page, tmp_path):
    prints(page, [block for block in blocks(page) if not (block.excuse or block.needs or block.alone)], tmp_path)


@pytest.mark.parametrize(("page", "block"), ALONE, ids=lambda part: name_of(part) if isinstance(part, Path) else "")
def test_block_is_a_program_of_its_own(page, block, tmp_path):
    prints(page, [block], tmp_path)


@pytest.mark.parametrize("page", BESIDE, ids=name_of)
def test_page_prints_what_it_shows_beside_its_engine(page, tmp_path):
    for engine in {block.needs for block in blocks(page) if block.needs}:
        if importlib.util.find_spec(engine) is None:
            pytest.skip(f"NO {engine.upper()}: WHAT {name_of(page)} DOES WITH IT WAS NOT RUN")
    prints(page, [block for block in blocks(page) if not (block.excuse or block.alone)], tmp_path)


def prints(page: Path, run: list[Block], folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # as in the other tests; numbers are the same
    shutil.copy(ROOT / "dynax" / "models" / "arm7.urdf", folder / "robot.urdf")
    if any('"panel.npz"' in block.code for block in run):
        elements = dx.panel_elements(dx.PanelSection.plate(0.005, E=70e9, density=2700.0), 1.0, 0.5)
        dx.save_finite_elements(elements, folder / "panel.npz")
    (folder / "page.py").write_text(f"\nprint({BETWEEN!r})\n".join(block.code for block in run), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outputs = done.stdout.split(BETWEEN)
    assert len(outputs) == max(1, len(run))
    for block, output in zip(run, outputs, strict=False):
        if block.shown:
            printed, expected = words(output), words(block.shown)
            assert len(printed) == len(expected), f"{name_of(page)}: {output}"
            assert all(map(same, printed, expected)), f"{name_of(page)}: {output}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_python_that_speaks_of_what_exists(page):
    """Of those too that take long to run, or are not run; and no Python hides where no test looks for it."""
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^ *```(?:python|py)\b", text, re.MULTILINE)) == len(blocks(page))
    used("\n".join(block.code for block in blocks(page)))
    for paragraph in re.findall(
        r"(?:^|\n\n)((?: {4}.*\n+)+)", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
    ):
        assert not re.search(r"^ +(?:from|import) \w|\bdx\.\w+\(|= o\.\w+\(", paragraph, re.MULTILINE), paragraph


def test_no_page_shows_what_is_not_a_number():
    """Nor that something does not hold, nor a place that was to be filled."""
    wrong = r"\b(?:nan|inf|False)\b|^\?$"
    assert not [name_of(p) for p in PAGES for b in blocks(p) if re.search(wrong, b.shown, re.MULTILINE | re.IGNORECASE)]


def test_every_public_name_has_an_example():
    """In a page or an example that is run: it is used there, or what is used there returns it."""
    programs = ["\n".join(block.code for block in blocks(page) if not block.excuse) for page in PAGES]
    programs += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.py"))]
    shown = [what for program in programs for what in used(program)]
    results = set().union(*(returned(what) for what in shown if callable(what)))
    missing = [
        name
        for name, what in public().items()
        if not any(what is other for other in shown) and name.rpartition(".")[2] not in results
    ]
    assert not missing


def test_every_public_name_has_its_place_in_the_reference():
    """And one alone."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "reference")
    placed = re.findall(r"^::: dynax\.(\S+)$", text, re.MULTILINE)
    assert sorted(placed) == sorted(public())


def test_every_public_name_says_what_it_is():
    """In words of its own: neither those of its base class nor those that a dataclass makes."""

    def own(what) -> str:
        return (vars(what).get("__doc__") if isinstance(what, type) else what.__doc__) or ""

    named = {name: what for name, what in public().items() if get_origin(what) is None}  # no aliases of types
    silent = [name for name, what in named.items() if not own(what) or own(what).startswith(f"{what.__name__}(")]
    assert not silent


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_within_the_project_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []


def test_every_example_is_in_the_gallery():
    examples = {example.name for example in (ROOT / "examples").glob("*.py")}
    shown = re.findall(r'--8<-- "examples/(\S+)"', (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(examples)


def test_every_page_is_in_the_navigation():
    """`mkdocs build --strict` asks for it as well; here it costs nothing."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = {name_of(page).removeprefix("docs/") for page in PAGES if page.parent != ROOT}
    assert pages <= set(re.findall(r"[\w/]+\.md", navigation))
