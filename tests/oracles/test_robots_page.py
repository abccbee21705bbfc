"""The page about the example robots says what the reader does, for the version of the wheel it was written with."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest
from oracles.robots import example_robots

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "make_robots.py"


@pytest.mark.skipif(not example_robots(), reason="example-robot-data is not installed")
def test_page_about_robots_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_robots", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    make_robots = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_robots)
    written = make_robots.PAGE.read_text(encoding="utf-8")
    version = importlib.metadata.version(make_robots.WHEEL)
    if f"`{make_robots.WHEEL}` {version}," not in written:
        pytest.skip(f"the page is about another version of the wheel than {version}")
    assert make_robots.page() == written
