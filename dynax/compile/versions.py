"""Which versions of JAX can have a whole algorithm in one kernel, on a CPU or a GPU, and how that is found out.

The table lists versions where the tests of `one_kernel` and the speed were seen. A version that is not in it is tried
once, in a process of its own, since what XLA does not accept it does not always refuse but may end the process; the
answer is kept in a file beside JAX's compilation cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax
from jaxlib import version

KNOWN = {"cpu": frozenset({"0.10.2", "0.11.2", "0.12.0.1"}), "cuda": frozenset({"0.11.2"})}
"""Versions, of jax and of jaxlib alike, where all tests ran with such kernels; on a GPU (an H100) the trial, dynamics
and gradients of an arm and `benchmarks.gpu`."""
MAINS = {"cpu": "main", "cuda": "main_on_gpu"}
"""What the trial of each calls."""
PATIENCE = 120.0
"""Seconds that the trial of another version may take; it takes some ten."""


class Answer(NamedTuple):
    """Whether a version can have such kernels, and how that is known."""

    works: bool
    reason: str


def available() -> bool:
    """Whether programs for a CPU can have such kernels."""
    return answer().works


def answer(platform: str = "cpu") -> Answer:
    """What is known of the version of JAX that runs; of an unknown one, from its trial."""
    return _answer(jax.__version__, version.__version__, platform)


@lru_cache(maxsize=8)
def _answer(jax_version: str, jaxlib_version: str, platform: str = "cpu") -> Answer:
    if jax_version == jaxlib_version and jax_version in KNOWN[platform]:
        return Answer(True, f"JAX {jax_version} is known to have them")
    name = f"JAX {jax_version} with jaxlib {jaxlib_version}"
    folder = cache_folder()
    if folder is None:
        return Answer(False, f"{name} is not known, and there is no folder to keep the answer of a trial in")
    where = "one-kernel" if platform == "cpu" else f"one-kernel-{platform}"
    file = folder / f"{where}-jax-{jax_version}-jaxlib-{jaxlib_version}.json"
    kept = _kept(file)
    if kept is None:
        kept = trial(platform)
        _keep(file, kept)
    return Answer(kept.works, f"{name} was tried: {kept.reason} ({file})")


def cache_folder() -> Path | None:
    """Beside JAX's compilation cache if there is one, else where programs of this user keep such things."""
    base = jax.config.values.get("jax_compilation_cache_dir") or os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(base) if base else Path.home() / ".cache") / "dynax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no place, or no home
        return None
    return folder if os.access(folder, os.W_OK) else None


def trial(platform: str = "cpu", seconds: float = PATIENCE) -> Answer:
    """Run `trial_run` in a process of its own, which on a GPU asks for little of its memory."""
    own = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "JAX_PLATFORMS": platform, "PYTHONPATH": paths}
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    command = [sys.executable, "-c", f"from dynax.compile.trial_run import {MAINS[platform]} as main; main()"]
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Answer(False, f"the trial took longer than {seconds:g} s")
    except OSError as error:
        return Answer(False, f"the trial could not be started: {error}")
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["without a word"])[-1]
        return Answer(False, f"it ended with exit status {run.returncode}: {last}")
    return Answer(True, "it computes the same as in many kernels")


def _kept(file: Path) -> Answer | None:
    try:
        return Answer(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _keep(file: Path, found: Answer) -> None:
    """Whole or not at all: several processes may try at the same time."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as part:
            json.dump(found._asdict(), part)
        os.replace(part.name, file)
    except OSError:
        pass
