"""Run the notebooks, and write what they show.

python docs/make_notebooks.py NAME ...    runs notebooks/NAME.py and writes notebooks/NAME.ipynb; without names, all
python docs/make_notebooks.py --check     runs every notebooks/NAME.ipynb as it is and fails if a cell does
python docs/make_notebooks.py --check --part K/N    only every N-th of them, from the K-th

A notebook is a script, `notebooks/NAME.py`, whose cells begin with `# %%` and whose text with `# %% [markdown]` (the
percent format of jupytext), and the same cells with their outputs, `notebooks/NAME.ipynb`. Edit the script.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
LONGEST = 600
"""Of a cell [s]."""


def from_script(script: Path) -> nbformat.NotebookNode:
    """The notebook of a script, without outputs; equal scripts give equal files."""
    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for k, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{k}", {}
    return notebook


def execute(notebook: nbformat.NotebookNode) -> float:
    """Fills in the outputs; the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    where = {"metadata": {"path": FOLDER}}
    NotebookClient(notebook, kernel_name="python3", timeout=LONGEST, record_timing=False, resources=where).execute()
    notebook.metadata.pop("language_info", None)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--part", default="0/1", metavar="K/N")
    options = parser.parse_args()
    part, count = map(int, options.part.split("/"))
    names = options.names or sorted(script.stem for script in FOLDER.glob("*.py"))
    failed = False
    for name in names[part::count]:
        script, file = FOLDER / f"{name}.py", FOLDER / f"{name}.ipynb"
        notebook = nbformat.read(file, as_version=4) if options.check else from_script(script)
        try:
            seconds = execute(notebook)
        except CellExecutionError as error:
            failed = True
            print(f"{file.name}: {error}", file=sys.stderr)
            continue
        if not options.check:
            nbformat.write(notebook, file)
        print(f"{file.name}: {seconds:.0f} CPU s, {file.stat().st_size / 1024:.0f} kB", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
