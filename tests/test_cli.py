"""The command line: what is wrong is said before the work, exit codes and JSON say what a program needs."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

import dynax as dx
from dynax.cli import main
from dynax.cli.main import parser
from dynax.demo.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
# Before 3.17 MuJoCo finds principal axes of inertia to five digits.
DIGITS = 1e-9 if tuple(map(int, mujoco.__version__.split(".")[:2])) >= (3, 17) else 1e-4
ARM = ROOT / "dynax" / "models" / "arm7.urdf"
COMMANDS = parser()._subparsers._group_actions[0].choices


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


@pytest.mark.filterwarnings("default")
def test_names_do_not_command_the_terminal_and_lost_meshes_are_named(capsys, tmp_path):
    """A control sequence in eight bits; and a picture without its mesh says so."""
    pytest.importorskip("trimesh")
    robot = tmp_path / "robot.urdf"
    robot.write_text("""<robot name="r"><link name="base"/>
      <link name="a&#x9b;31m"><visual><geometry><mesh filename="none.stl"/></geometry></visual></link>
      <joint name="j" type="continuous"><parent link="base"/><child link="a&#x9b;31m"/><axis xyz="0 0 1"/></joint>
    </robot>""")
    for command in (["check"], ["info"], ["view", "--render", str(tmp_path / "r.png")]):
        assert main([*command, str(robot)]) == 0
        told = capsys.readouterr()
        assert "\x9b" not in told.out + told.err
        assert (r"a\x9b31m" in told.out) == (command[0] != "view")
    assert "note: not all of 'r' is shown" in told.err
    assert "none.stl" in told.err


def printed(capsys, *arguments) -> dict:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_info_and_check_for_programs(capsys):
    found = printed(capsys, "info", ARM)
    model = dx.load(ARM)
    assert (found["nq"], found["nv"]) == (7, 7)
    assert found["mass"] == pytest.approx(float(model.mass.sum()))
    assert [joint["name"] for joint in found["joints"]] == list(model.joint_names)
    np.testing.assert_allclose(found["joints"][0]["position_limits"], model.position_limits[:1])
    free = printed(capsys, "info", ARM, "--root", "free")
    assert free["joints"][0]["effort_limits"] == [None] * 6  # infinite, for which JSON has no number
    assert free["joints"][0]["v"] == [0, 6]
    assert main(["info", str(ARM)]) == 0
    told = capsys.readouterr().out
    assert "-2.897 .. 2.897" in told
    assert "hand on link7" in told
    findings = printed(capsys, "check", ARM)["findings"]
    assert [finding["element"] for finding in findings] == ["geometry"]
    assert main(["check", str(ARM), "--strict"]) == 1


def test_convert_both_ways_and_names_what_is_lost(capsys, tmp_path):
    mjcf, back, saved = (tmp_path / name for name in ("arm.xml", "arm.urdf", "arm.json"))
    lost = printed(capsys, "convert", ARM, mjcf)["left_out"]
    assert {entry["message"].split(":")[0] for entry in lost} == {"its limit of velocity is left out"}
    assert printed(capsys, "convert", mjcf, back)["left_out"] == []
    assert printed(capsys, "convert", ARM, saved)["left_out"] == []
    model = dx.load(ARM)
    for file in (mjcf, back, saved):
        np.testing.assert_allclose(dx.load(file).inertia, model.inertia, rtol=DIGITS)
        np.testing.assert_allclose(dx.load(file).damping, model.damping)
    assert main(["convert", str(ARM), str(saved)]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert printed(capsys, "convert", ARM, tmp_path / "arm.sdf")["left_out"] == []
    assert main(["convert", str(ARM), str(tmp_path / "arm.obj")]) == 2
    assert "ending" in capsys.readouterr().err


def test_colours_are_for_terminals_that_want_them(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["info", "none.urdf"])
    assert "\033[31merror:" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    main(["info", "none.urdf"])
    assert capsys.readouterr().err.startswith("error: none.urdf")


def test_the_page_of_the_command_line_says_what_there_is():
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    lines = re.findall(r'^(?:eval "\$\()?dynax ([^)\n]+)', page, re.MULTILINE)
    assert {parser().parse_args(shlex.split(line)).command for line in lines} <= COMMANDS.keys()
    assert set(re.findall(r"^\| `dynax (\w+)", page, re.MULTILINE)) == COMMANDS.keys()
    known = {option for command in COMMANDS.values() for option in command._option_string_actions}
    assert set(re.findall(r"(?<=`)--\w+", page)) <= known


def test_completion_knows_every_command(capsys):
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for word in ("view", "check", "info", "bench", "demo", "convert", "--no-browser"):
        assert word in script


def test_view_writes_pictures_of_a_motion(capsys, tmp_path):
    image = pytest.importorskip("PIL.Image")
    assert main(["view", "--render", str(tmp_path / "arm.gif"), "--seconds", "0.2"]) == 0
    with image.open(tmp_path / "arm.gif") as film:
        assert film.n_frames == 6
    with pytest.raises(SystemExit):
        main(["view", "--seconds", "0"])


def test_a_swing_keeps_limits_and_comes_back():
    from dynax.viz.actors import home
    from dynax.viz.motions import swing

    model = dx.load(ARM)
    motion = swing(model, 2.0, home(model))
    assert np.all(motion.q >= model.position_limits[:, 0] - 1e-12)
    assert np.all(motion.q <= model.position_limits[:, 1] + 1e-12)
    assert np.all(np.ptp(np.asarray(motion.q), axis=0) > 0.5)
    np.testing.assert_allclose(motion.q[-1], motion.q[0], atol=1e-9)


@pytest.mark.slow
def test_bench_agrees_with_its_peers(capsys, tmp_path):
    """The same robot, states and answers: 1e-9, and the exit code says so."""
    pytest.importorskip("pinocchio")
    builder = dx.ModelBuilder(name="flyer")
    for name, joint, parent in (("base", dx.Free(), "world"), ("arm", dx.Revolute((0, 1, 0)), "base")):
        rod = dx.SpatialInertia(2.0, (0.1, 0.2, 0.3), (1.0, 1.1, 1.2))
        builder.body(name, joint=joint, parent=parent, inertia=rod, damping=0.3)
    dx.save(builder.build(), tmp_path / "flyer.json")
    for robot in (ARM, tmp_path / "flyer.json"):
        found = printed(capsys, "bench", robot, "--batch", 16, "--seconds", 0.02)
        assert found["absent"] == {}
        told = [row for row in found["rows"] if row["difference"] is not None]
        assert {row["engine"] for row in told} == {"pinocchio", "mujoco"}
        assert len(told) == 6
        assert max(row["difference"] for row in told) < 1e-9
        assert all(row["seconds"] > 0 for row in found["rows"])


@pytest.mark.parametrize("watched", [True, False])
def test_a_bar_counts_stages_and_leaves_no_trace(watched, capsys, monkeypatch):
    progress = Progress(4)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: watched)
    for text in ("one", "two", "three"):
        progress.stage(text)
    shown = capsys.readouterr().err
    progress.clear()
    if not watched:  # a log is no place for a bar
        assert shown + capsys.readouterr().err == ""
        return
    assert shown.split("\r\033[K")[-1] == f"[{'#' * 12}{'.' * 12}] 2/4 three"
    assert capsys.readouterr().err == "\r\033[K"


def test_what_the_demo_draws_is_not_committed():
    assert "dynax_demo.png" in (ROOT / ".gitignore").read_text().splitlines()
