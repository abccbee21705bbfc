"""The command line: what is wrong is said before the work, and bars of progress tell the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

import dynax as dx
from dynax.cli import main
from dynax.demo.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
ARM = ROOT / "dynax" / "models" / "arm7.urdf"


@pytest.fixture
def no_work(monkeypatch) -> list[dx.Model]:
    """The demonstration ends once its robot is loaded; the models it would have worked on."""
    models = []

    def stop(model):
        models.append(model)
        raise dx.ModelError("nothing is to be done")

    monkeypatch.setattr("dynax.demo.main.prepare", stop)
    return models


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing/x.png", "folder does not exist (make the folder"),
        ("x.robot", "no such kind of picture"),
        (".", "cannot be written"),
    ],
)
def test_a_page_that_cannot_be_written_is_known_before_the_work(name, words, tmp_path, capsys, no_work):
    assert main(["demo", str(ARM), "--output", str(tmp_path / name)]) == 2
    assert words in capsys.readouterr().err
    assert no_work == []


def test_the_demo_holds_the_root_as_asked(tmp_path, no_work):
    output = ["--output", str(tmp_path / "x.png")]
    for options in ([], ["--root", "fixed"], ["--root", "free"]):
        assert main(["demo", str(ARM), *options, *output]) == 2
    assert main(["demo", "--root", "free", *output]) == 2
    assert [model.nq for model in no_work] == [7, 7, 14, 14]


def test_check_says_what_is_wrong(capsys, tmp_path):
    assert main(["check", str(tmp_path / "none.urdf")]) == 2
    assert "none.urdf: cannot be read" in capsys.readouterr().err
    assert main(["check", str(ARM), "--root", "free"]) == 0
    assert "root_joint" in capsys.readouterr().out


def test_a_bar_counts_steps_and_ends_full(capsys):
    progress = Progress(400)
    assert capsys.readouterr().err == ""  # nothing is shown while programs are compiled
    progress.start()
    for k in range(3):
        progress.tick(f"now {k}")
    progress.stop()
    last = capsys.readouterr().err.rstrip().splitlines()[-1]
    assert "100%" in last
    assert "3/3" in last
    assert "now 2" in last


def test_what_the_demo_draws_is_not_committed():
    assert "dynax_demo.png" in (ROOT / ".gitignore").read_text().splitlines()
