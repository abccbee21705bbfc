"""What a reader must know beside the numbers: versions, machine, date."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.measure import Session

PACKAGES = ("dynax", "jax", "jaxlib", "numpy", "pin", "mujoco", "mujoco-mjx", "example-robot-data")


def header(session: Session, core: int, quick: bool) -> dict[str, Any]:
    return {
        "what": "header",
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cpu": cpu_model(),
        "core": f"{core} of {os.cpu_count()}",
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "peers": {name: remote.versions for name, remote in session.remotes.items()},
        "missing": session.missing,
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "load": round(os.getloadavg()[0], 2),
        "quick": quick,
    }


def cpu_model() -> str:
    """Its name, and the widest vectors it has: hypervisors like to leave out the rest of the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    flags = facts.get("flags", "").split()
    vectors = next((f for f in ("avx512f", "avx2", "avx") if f in flags), "")
    family = f"family {facts.get('cpu family', '?')} model {facts.get('model', '?')}"
    return ", ".join(filter(None, [facts.get("model name", platform.machine()), family, vectors]))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
