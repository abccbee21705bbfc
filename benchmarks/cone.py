"""Physically consistent fits beside the semidefinite optimum: `python -m benchmarks.cone`.

Logs of a Panda, 91 numbers: with friction that no model has and without, with noise of three sizes. Clarabel solves the
same compressed problem, `min |R x - z|^2` over positive pseudo-inertias and drives. Needs `clarabel`, `scipy` and
`example-robot-data`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import identify

TERMS = ("inertias", "armature", "damping", "friction_loss")


def optimum(R: np.ndarray, z: np.ndarray, bodies: int) -> tuple[np.ndarray, float]:
    """Clarabel's values and its seconds."""
    import clarabel
    from scipy import sparse

    units, drives = np.asarray(identify.pseudo_inertia(np.eye(10))), R.shape[1] - 10 * bodies
    rows, columns = np.tril_indices(4)  # the upper triangle by columns, off the diagonal times the root of two
    triangle = np.where(rows == columns, 1.0, np.sqrt(2.0))[:, None] * units[:, columns, rows].T
    cone = -sparse.block_diag([triangle] * bodies + [np.eye(drives)], format="csc")
    kinds = [clarabel.PSDTriangleConeT(4)] * bodies + [clarabel.NonnegativeConeT(drives)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    squares = sparse.csc_matrix(np.triu(R.T @ R))
    found = clarabel.DefaultSolver(squares, -R.T @ z, cone, np.zeros(cone.shape[0]), kinds, settings).solve()
    return np.asarray(found.x), found.solve_time


def cpu(function: Callable, *args) -> tuple:
    begun = time.process_time()
    return jax.block_until_ready(function(*args)), time.process_time() - begun


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    model = dx.load(dx.installed_robots()["panda"])
    model = dx.fix_joints(model, dict.fromkeys(model.joint_names[7:], 0.0))
    own = {"armature": 0.1, "damping": 0.3, "friction_loss": 0.5}
    model = model.replace(**{name: jnp.full(7, x) for name, x in own.items()}, friction_velocity=jnp.asarray(0.1))
    rng, clock = np.random.default_rng(1), np.linspace(0.0, 10.0, 1000)[:, None, None]
    speed, (size, phase) = 2 * np.pi * 0.2 * np.arange(1, 6)[:, None], rng.normal(size=(2, 5, 7)) * [[[0.4]], [[3.0]]]
    waves = speed * clock + phase
    q, v, a = ((size * x).sum(1) for x in (np.sin(waves), speed * np.cos(waves), -(speed**2) * np.sin(waves)))
    y = jax.jit(jax.vmap(lambda *state: identify.regressor(model, *state, terms=TERMS)))(q, v, a)
    stribeck = 0.8 * np.tanh(v / 0.2) * np.exp(-((v / 0.3) ** 2))
    fit = jax.jit(lambda data: identify.consistent_fit(model, data, terms=TERMS))
    for friction in (1.0, 0.0):
        for noise in (0.5, 0.1, 0.02):
            tau = y @ identify.parameter_vector(model, TERMS) + friction * stribeck + noise * rng.normal(size=v.shape)
            data = identify.compress(y, tau)
            values, theirs = optimum(np.asarray(data.regressor), np.asarray(data.target), 7)
            fit(data)
            found, ours = cpu(fit, data)
            part = float(found.squares / data.squares(values)) - 1.0
            times = f"{1e3 * ours:.0f} ms of CPU time, Clarabel {1e3 * theirs:.0f} ms"
            print(f"noise {noise:g} N m: {part:+.1e} off the optimum, converged {bool(found.converged)}; {times}")


if __name__ == "__main__":
    main()
