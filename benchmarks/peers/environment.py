"""Virtual environments for the peers whose requirements may clash with ours; made once, kept in the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = {
    "brax": ("brax", "mujoco", "pin"),
    "jaxsim": ("jaxsim", "pin"),
    "crocoddyl": ("crocoddyl==3.2.1", "pin==4.0.0"),
}
"""Pinocchio for the reference that all processes measure; with 4.1 Crocoddyl 3.2.1 is wrong and crashes."""


class NotInstalled(RuntimeError):
    """What pip said."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dynax-benchmarks"


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, made if need be."""
    folder = cache() / f"{peer}-python{sys.version_info.major}.{sys.version_info.minor}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if complete.exists():
        return python
    print(f"making an environment for {peer} in {folder}", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS[peer]])
    complete.touch()
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise NotInstalled(" ".join(last) or f"{command[0]} failed")
