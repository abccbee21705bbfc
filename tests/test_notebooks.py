"""Each notebook is a script and the same cells with what they show; CI runs them (`docs/make_notebooks.py --check`)."""

from __future__ import annotations

from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NAMES = sorted({file.stem for kind in ("py", "ipynb") for file in FOLDER.glob(f"*.{kind}")})


def cells(file: Path, fmt: str) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in jupytext.read(file, fmt=fmt).cells]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_cells_of_its_script(name):
    script, notebook = FOLDER / f"{name}.py", FOLDER / f"{name}.ipynb"
    assert cells(notebook, "ipynb") == cells(script, "py:percent"), f"run docs/make_notebooks.py {name}"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_was_run_from_beginning_to_end_and_shows_little(name):
    notebook = FOLDER / f"{name}.ipynb"
    code = [cell for cell in jupytext.read(notebook).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    shown = [output for cell in code for output in cell.outputs]
    assert [output for output in shown if output.output_type == "error" or output.get("name") == "stderr"] == []
    assert notebook.stat().st_size < 400_000, "make its figures smaller"
