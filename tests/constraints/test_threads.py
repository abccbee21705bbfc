"""Programs of many solutions at once do not wait for each other for ever on a CPU of a few threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)

import dynax as dx
from constraints.mechanisms import four_bar
from dynax.constraints.dynamics import settled
from dynax.linear.cholesky import cholesky
from dynax.linear.pseudo_inverse import pseudo_inverse
from dynax.linear.solve import solve

rng = np.random.default_rng(0)
a = rng.normal(size=(8, 512, 8, 8))
a, b = jnp.asarray(a @ a.swapaxes(-1, -2) + 8 * np.eye(8)), jnp.asarray(rng.normal(size=(8, 512, 8, 1)))


@jax.jit
def factorised(a, b):  # none depends on another
    solved = [solve(a[k], b[k]) for k in range(8)]
    roots = [cholesky(a[k]) for k in range(4)]
    return solved, roots, [jax.vmap(pseudo_inverse)(a[k]) for k in range(2)]


mechanism = four_bar()
model = mechanism.model
q = jnp.tile(jnp.asarray(mechanism.q), (512, 1)) + jnp.asarray(1e-3 * rng.normal(size=(512, 3)))


@jax.jit
def moving(q):
    motion = [jax.vmap(lambda q: dx.constrained_dynamics(model, q, k * q, q))(q) for k in (1.0, 2.0)]
    return motion, jax.vmap(lambda q: settled(model, q, q))(q), jax.vmap(lambda q: dx.assemble(model, q))(q)


for _ in range(20):
    jax.block_until_ready((factorised(a, b), moving(q)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 8])
def test_batches_of_small_systems_end(threads):
    """`NPROC` is how many threads XLA's CPU client makes; eight `jnp.linalg.solve` in their place hang with two."""
    tests = Path(__file__).resolve().parents[1]
    path = os.pathsep.join([str(tests.parent), str(tests), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NPROC": str(threads), "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=570)
