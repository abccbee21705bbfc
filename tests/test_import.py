"""Importing dynax leaves the process as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dynax as dx

# Dependencies are imported first: what they do to the process is not ours. The platform does not exist, so that any use
# of a backend fails; the last lines prove that it would.
SCRIPT = """
import logging, os, random, sys, warnings
import equinox, jax, numpy

def state():
    known = {"root": logging.root, **logging.root.manager.loggerDict}
    loggers = {name: logger for name, logger in known.items() if isinstance(logger, logging.Logger)}
    return {
        "jax": dict(jax.config.values),
        "numpy errors": numpy.geterr(),
        "numpy printing": numpy.get_printoptions(),
        "numpy random": str(numpy.random.get_state()),
        "random": random.getstate(),
        "warnings": list(warnings.filters),
        "logging": {name: (l.level, l.disabled, l.propagate, list(l.handlers)) for name, l in loggers.items()},
        "environment": dict(os.environ),
    }

warnings.simplefilter("error")
before, modules = state(), set(sys.modules)
import dynax
loaded = {name for name in set(sys.modules) - modules if name.startswith("dynax.")}
assert not loaded, f"importing dynax imported {loaded} before they were asked for"
for name in dir(dynax):
    getattr(dynax, name)
assert "dynax.optimize.shooting" in sys.modules
after = state()
after["logging"] = {name: after["logging"][name] for name in before["logging"]}
for name in before:
    assert after[name] == before[name], f"importing dynax changed {name}: {before[name]} -> {after[name]}"
optional = {"diffrax", "matplotlib", "mujoco", "pinocchio", "trimesh", "viser", "PIL"}
heavy = optional & (set(sys.modules) - modules)
assert not heavy, f"importing dynax imported {heavy}"

try:
    jax.devices()
except RuntimeError:
    pass
else:
    raise AssertionError("the platform of this test must not exist")
"""


def test_import_changes_nothing_and_starts_no_backend():
    environment = {**os.environ, "JAX_PLATFORMS": "no_such_platform"}
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
    assert run.stderr == ""


FRESH = """
import dynax as dx
tube = dx.BeamSection.tube(0.02, 0.002, E=70e9, density=2700.0)
mast = dx.flexible_beam(tube, 1.0, modes=2, held={"base": "123456"}, elements=2)
model = dx.ModelBuilder().body("mast", joint=dx.Revolute((0, 1, 0)), inertia=mast).build()
print(dx.neutral(model).shape)
"""


def test_a_kind_of_model_has_its_meanings_whatever_was_asked_for_before():
    run = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=False)
    assert run.stdout == "(3,)\n", run.stderr


COSTS = """
import time
begin = time.process_time()
import jax
middle = time.process_time()
import dynax
print((time.process_time() - begin) / (middle - begin))
"""


def test_it_takes_hardly_longer_than_jax():
    """CPU time over that of JAX alone, median of three processes; names take their time where they are asked for."""
    runs = [subprocess.run([sys.executable, "-c", COSTS], check=True, capture_output=True, text=True) for _ in range(3)]
    assert sorted(float(run.stdout) for run in runs)[1] < 1.3


def test_a_name_that_does_not_exist_is_an_error():
    with pytest.raises(AttributeError, match="forward_dynamic'"):
        _ = dx.forward_dynamic  # type: ignore[attr-defined]
    assert {"load", "contact", "__version__"} <= set(dir(dx))


def test_the_version_is_one():
    root = Path(__file__).resolve().parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = (root / "CITATION.cff").read_text(encoding="utf-8")
    assert dx.__version__ == project["version"]
    assert f"\nversion: {dx.__version__}\n" in cited
    assert (Path(dx.__file__).parent / "py.typed").exists()
