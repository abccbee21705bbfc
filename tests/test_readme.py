"""What the README and pages of the documentation show is run, as their reader would, and prints what they show."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHOWN_IN = ("README.md", "docs/closed_loops.md", "docs/identify.md", "docs/operators.md")
CONTINUED = ("docs/actuators.md",)
"""Pages whose blocks go on from one another: they are one program."""
PAGES = [(ROOT / name).read_text(encoding="utf-8") for name in (*SHOWN_IN, *CONTINUED)]
# A block of Python, and the block of text that directly follows it, if any: what it prints.
SHOWN = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", flags=re.MULTILINE | re.DOTALL)
EXAMPLES = [example for page in PAGES[: len(SHOWN_IN)] for example in SHOWN.findall(page)]
EXAMPLES += [tuple(map("\n".join, zip(*SHOWN.findall(page), strict=True))) for page in PAGES[len(SHOWN_IN) :]]


def words(text: str) -> list[str]:
    """Words and numbers, brackets and commas by themselves, so that spacing does not matter."""
    return re.findall(r"[^\s\[\](),]+|[\[\](),]", text)


def same(printed: str, shown: str) -> bool:
    """Equal words, or equal numbers to what the README shows of them: one part in ten thousand."""
    try:
        return math.isclose(float(printed), float(shown), rel_tol=1e-4, abs_tol=1e-4)
    except ValueError:
        return printed == shown


def test_pages_have_examples():
    assert all(any(shown for _, shown in SHOWN.findall(page)) for page in PAGES)


@pytest.mark.parametrize(("code", "shown"), EXAMPLES, ids=[f"example {k + 1}" for k in range(len(EXAMPLES))])
def test_example_prints_what_is_shown(code, shown, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # as in the other tests; numbers are the same
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    if shown:
        printed, expected = words(run.stdout), words(shown)
        assert len(printed) == len(expected), run.stdout
        assert all(map(same, printed, expected)), run.stdout


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [t for t in targets if "://" not in t and not (ROOT / t).exists()] == []
