"""Which versions of JAX have an algorithm in one kernel, and how that is found out of an unknown one."""

from __future__ import annotations

import json
import sys

import jax
import pytest

import dynax as dx
from dynax.compile import versions
from dynax.compile.versions import Answer


@pytest.fixture
def unknown(monkeypatch, tmp_path):
    """A process in which this version is not in the table; where answers are kept."""
    monkeypatch.setattr(versions, "KNOWN", {"cpu": frozenset(), "cuda": frozenset()})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(jax.config.values, "jax_compilation_cache_dir", None)
    versions._answer.cache_clear()
    yield tmp_path / "dynax"
    versions._answer.cache_clear()


def test_this_version_is_one_of_those_that_were_seen_to_work():
    """CI runs with the oldest and the newest of them: a new one has to be put into the table, with its tests."""
    assert versions.answer() == Answer(True, f"JAX {jax.__version__} is known to have them")


def test_an_unknown_version_is_tried_once(unknown, monkeypatch):
    first = versions.answer()
    assert first.works
    assert "was tried: it computes the same" in first.reason
    (file,) = unknown.iterdir()
    assert json.loads(file.read_text())["works"] is True
    monkeypatch.setattr(versions, "trial", lambda *_: pytest.fail("tried again"))
    versions._answer.cache_clear()
    assert versions.answer() == first


@pytest.mark.parametrize(
    ("ends", "reason"),
    [("import os; os.abort()", "exit status -6"), ("raise ValueError('no such mark')", "ValueError: no such mark")],
)
def test_a_version_that_cannot_runs_without_and_says_so(unknown, monkeypatch, ends, reason):
    """The trial of a version that ends the process, or refuses."""
    run = versions.subprocess.run
    monkeypatch.setattr(versions.subprocess, "run", lambda command, **how: run([sys.executable, "-c", ends], **how))
    assert not versions.available()
    report = dx.compile_report()
    assert not report.one_kernel
    assert reason in report.reason
    assert "in many kernels" in str(report)


def test_a_broken_or_missing_place_for_the_answer(unknown, monkeypatch):
    monkeypatch.setattr(versions, "trial", lambda *_: Answer(True, "fine"))
    unknown.mkdir()
    file = unknown / f"one-kernel-jax-{jax.__version__}-jaxlib-{versions.version.__version__}.json"
    file.write_text("{")
    assert versions.available()
    assert json.loads(file.read_text()) == {"works": True, "reason": "fine"}
    monkeypatch.setattr(versions, "cache_folder", lambda: None)
    versions._answer.cache_clear()
    assert not versions.available()
    assert "no folder" in versions.answer().reason
