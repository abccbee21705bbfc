"""A UR10 from its log: that of github.com/unisa-acg/inverse-dynamics-solver (BSD-3) where there is one, or simulated.

The measured log is a bag of ROS 2, and no part of this repository; `DYNAX_UR10_LOG` names it as a file that `read_log`
takes, 3,441 samples at 125 Hz.
"""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.robots import example_robots

import dynax as dx
from dynax import identify

TERMS = ("inertias", "damping", "friction_loss", "offset")
DT = 1.0 / 125.0


@pytest.fixture(scope="module")
def ur10() -> dx.Model:
    model = dx.load(str(example_robots()["ur_description/urdf/ur10_robot.urdf"]))
    return model.replace(friction_velocity=jnp.asarray(0.02))


def held_out(model: dx.Model, time, q, tau) -> tuple[int, float, float, float]:
    """How many parameters, the condition of their columns at length one, and what part of the forces in the last three
    tenths the others miss, and without friction: filtered at 8 Hz, every second sample, both ends left out."""
    q, tau = identify.butterworth(q, 8.0, DT), identify.butterworth(tau, 8.0, DT)
    v, a = 0.5 * (q[2:] - q[:-2]) / DT, (q[2:] - 2.0 * q[1:-1] + q[:-2]) / DT**2
    ends = int(0.02 * len(q)) + 20
    inner = slice(ends, len(v) - ends, 2)
    q, v, a, tau = q[1:-1][inner], v[inner], a[inner], tau[1:-1][inner]
    whole = jax.vmap(lambda *s: identify.regressor(model, *s, terms=TERMS))(q, v, a)
    names, missed, first = identify.parameter_names(model, TERMS), [], int(0.7 * len(q))
    for columns in (len(names), 10 * model.num_bodies):
        found = identify.identifiability_of(whole[..., :columns], names[:columns])
        y = whole[..., found.base]
        seen = identify.least_squares(identify.compress(y[:first], tau[:first])).values
        missed.append(float(jnp.linalg.norm(tau[first:] - y[first:] @ seen) / jnp.linalg.norm(tau[first:])))
        if columns == len(names):
            rows, rank = np.asarray(y[:first]).reshape(-1, found.rank), found.rank
            condition = float(np.linalg.cond(rows / np.linalg.norm(rows, axis=0)))
    return rank, condition, *missed


@pytest.mark.slow
def test_the_way_of_a_measured_log(ur10, tmp_path, rng):
    """A motion like the measured one, through a file whose joints stand in another order: what is missed is the noise,
    and without friction half of the forces."""
    time, speed = DT * np.arange(2000), 2 * np.pi * np.array([0.1, 0.2, 0.3, 0.4])
    size, phase = rng.normal(size=(4, 6)) * 0.6 / np.arange(1, 5)[:, None], rng.uniform(0.0, 6.0, (4, 6))
    waves = speed[:, None] * time[:, None, None] + phase
    q = (size * np.sin(waves)).sum(1)
    v, a = (size * speed[:, None] * np.cos(waves)).sum(1), -(size * speed[:, None] ** 2 * np.sin(waves)).sum(1)
    robot = ur10.replace(damping=jnp.full(6, 10.0), friction_loss=jnp.full(6, 20.0), friction_velocity=0.02)
    tau = np.asarray(jax.vmap(lambda *s: dx.inverse_dynamics(robot, *s))(q, v, a)) + 1.0
    tau = tau + 2.0 * rng.normal(size=tau.shape)
    names = list(ur10.joint_names)
    columns = {"time": time}
    for k in rng.permutation(6):
        columns |= {f"tau/{names[k]}": tau[:, k], f"q/{names[k]}": q[:, k], f"heat/{names[k]}": 30.0 + 0.0 * time}
    path, rows = tmp_path / "log.csv", np.stack(list(columns.values()), axis=1)
    np.savetxt(path, rows, fmt="%.12g", delimiter=",", header=",".join(columns), comments="")
    log = identify.read_log(path, ur10)
    for ours, theirs in zip(log, (time, q, tau), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    rank, condition, missed, without = held_out(ur10, *log)
    assert rank == 54
    assert condition < 200.0
    assert missed < 0.05
    assert without > 0.3


@pytest.mark.slow
@pytest.mark.skipif("DYNAX_UR10_LOG" not in os.environ, reason="DYNAX_UR10_LOG names no log of a UR10")
def test_the_measured_log(ur10):
    log = identify.read_log(os.environ["DYNAX_UR10_LOG"], ur10)
    rank, condition, missed, without = held_out(ur10, *log)
    assert rank == 54
    assert condition == pytest.approx(11.0, rel=0.1)
    assert missed == pytest.approx(0.073, abs=5e-4)
    assert without == pytest.approx(0.606, abs=5e-4)
