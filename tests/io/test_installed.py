"""Robots of installed packages: found by name, loaded, and nothing downloaded."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import warnings
from pathlib import Path

import pytest

import dynax as dx

MODULE = """
from os import getenv as _getenv
from os import path as _path

from ._cache import clone_to_cache as _clone_to_cache

REPOSITORY_PATH: str = _clone_to_cache(
    "{repository}",
    commit=_getenv("ROBOT_DESCRIPTION_COMMIT", None),
)

PACKAGE_PATH: str = _path.join(REPOSITORY_PATH, "robots", "pole")

{kind}_PATH: str = _path.join(PACKAGE_PATH, "{file}")
"""
REPOSITORIES = """
REPOSITORIES = {
    "poles": Repository(url="https://example.invalid/poles.git", commit="0", cache_path="some-poles"),
    "others": Repository(url="https://example.invalid/others.git", commit="0", cache_path="others"),
}
"""
POLE = """<robot name="pole"><link name="foot"/><link name="rod"><inertial><mass value="2"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="pin" type="continuous"><parent link="foot"/><child link="rod"/><axis xyz="0 1 0"/></joint></robot>"""


def test_the_wheel_of_examples():
    found = dx.installed_robots()
    assert {"panda", "talos_reduced", "a1", "ur5_robot"} <= found.keys()
    assert dx.load(found["a1"], root="free").nv == 18


def test_descriptions_that_are_in_the_cache_and_no_others(tmp_path, monkeypatch):
    """The package is one made here, as the true one writes its modules; to import any of it is an error."""
    package, info = tmp_path / "robot_descriptions", tmp_path / "robot_descriptions-3.0.dist-info"
    files = {
        "__init__": "raise AssertionError('imported')",
        "_cache": "raise AssertionError('imported')",
        "_repositories": REPOSITORIES,
        "pole_description": MODULE.format(repository="poles", kind="URDF", file="pole.urdf"),
        "pole_mj_description": MODULE.format(repository="poles", kind="MJCF", file="missing.xml"),
        "other_description": MODULE.format(repository="others", kind="URDF", file="pole.urdf"),
        "strange_description": MODULE.format(repository="unheard of", kind="XACRO", file="pole.urdf.xacro"),
    }
    package.mkdir()
    info.mkdir()
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: robot_descriptions\nVersion: 3.0\n")
    (info / "RECORD").write_text("".join(f"robot_descriptions/{name}.py,,\n" for name in files))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path / "cache"))

    assert not any(name.endswith("_description") for name in dx.installed_robots())
    robots = tmp_path / "cache" / "some-poles" / "robots" / "pole"
    robots.mkdir(parents=True)
    (robots / "pole.urdf").write_text(POLE)
    found = {name: path for name, path in dx.installed_robots().items() if name.endswith("_description")}
    assert list(found) == ["pole_description"]
    assert dx.load(found["pole_description"]).mass.sum() == 2.0
    assert "robot_descriptions" not in sys.modules


@pytest.mark.skipif(
    importlib.util.find_spec("robot_descriptions") is None,
    reason="NO ROBOT_DESCRIPTIONS: ITS TRUE MODULES WERE NOT READ (pip install robot_descriptions)",
)
def test_every_true_module_is_read_as_its_import_would_say(tmp_path, monkeypatch):
    """A cache that is laid out as the package does it, its files empty: each module is imported with nothing to fetch,
    and what it says is where the robot is found."""
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path))
    with warnings.catch_warnings():  # some descriptions are deprecated
        warnings.simplefilter("ignore")
        cache = importlib.import_module("robot_descriptions._cache")
        where = {name: str(tmp_path / one.cache_path) for name, one in cache.REPOSITORIES.items()}
        monkeypatch.setattr(cache, "clone_to_cache", lambda name, commit=None: where[name])
        package = importlib.import_module("robot_descriptions")
        names = [found.name for found in pkgutil.iter_modules(package.__path__) if found.name.endswith("_description")]
        told = {}
        for name in names:
            try:
                module = importlib.import_module(f"robot_descriptions.{name}")
            except (ImportError, OSError):  # what has to be made by xacro, or reads the file that it names
                continue
            path = getattr(module, "URDF_PATH", None) or getattr(module, "MJCF_PATH", None)
            if path is not None and str(path).startswith(str(tmp_path)):
                told[name] = Path(path)
    assert len(told) > 100
    for path in told.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = {name: path for name, path in dx.installed_robots().items() if name in names}
    assert found == told
