"""Scripts that run in a process of their own, since the number of devices is fixed when JAX starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# How they begin: with a pendulum of two rods.
BEGIN = """
import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import dynax as dx

jax.config.update("jax_enable_x64", True)
builder, hinge = dx.ModelBuilder(), dx.Revolute((0.0, 1.0, 0.0))
rod = dx.SpatialInertia(1.0, (0.1, 0.0, 0.2), (0.1, 0.2, 0.15))
builder.body("upper", joint=hinge, inertia=rod)
builder.body("lower", parent="upper", joint=hinge, placement=dx.Transform(np.eye(3), (0.0, 0.0, 0.5)), inertia=rod)
model = builder.build()
"""


def printed(devices: int, script: str, *args: str, folder: Path, timeout: float) -> str:
    """What the script prints on so many devices of the CPU."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    # The optimiser is off, as in the other tests: it has no say in what devices tell each other.
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    count = f"--xla_force_host_platform_device_count={devices}"
    environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {count}"
    command = [sys.executable, "-W", "error", "-c", BEGIN + script, *args]
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
