"""Two processes on one machine, each with its half of a batch: the halves are what one process computes alone."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

import dynax as dx

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "batches.md").read_text(encoding="utf-8")
(SCRIPT,) = (code for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "argv" in code)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_both(folder) -> list[tuple[int, str]]:
    """Exit status and complaints of the two processes; neither outlives the test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    address = f"127.0.0.1:{free_port()}"
    processes = []
    try:
        for rank in range(2):
            command = [sys.executable, "-W", "error", "-c", SCRIPT, str(rank), address]
            with open(folder / f"{rank}.txt", "w") as complaints:
                processes.append(
                    subprocess.Popen(command, cwd=folder, env=environment, stdout=complaints, stderr=complaints)
                )
        deadline = time.monotonic() + 120.0
        for process in processes:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(process.returncode, (folder / f"{rank}.txt").read_text()) for rank, process in enumerate(processes)]


def test_two_processes_compute_a_half_each(tmp_path):
    """The script of the page, under another port."""
    shutil.copy(ROOT / "dynax" / "models" / "arm7.urdf", tmp_path / "robot.urdf")
    for rank, (status, complaints) in enumerate(run_both(tmp_path)):
        assert status == 0, f"process {rank}: {complaints}"
    model = dx.load(tmp_path / "robot.urdf")
    accelerations = jax.jit(jax.vmap(dx.forward_dynamics, in_axes=(None, 0, 0, 0)))
    for rank in range(2):
        q, v, tau = np.random.default_rng(rank).normal(size=(3, 100, model.nv)).astype(np.float32)
        expected, found = accelerations(model, q, v, tau), np.load(tmp_path / f"half{rank}.npy")
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
