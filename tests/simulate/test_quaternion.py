"""Quaternions keep their length, and it is the normalisation in `integrate` that keeps it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulate.systems import advance, solid

import dynax as dx
from dynax.joints import spherical
from dynax.spatial import Quaternion


def off_unit_length(name: str) -> float:
    """By how much, after 1e5 steps of a ball that spins. Compiled code is kept by the model's name."""
    b = dx.ModelBuilder(name=name)
    b.body("ball", joint=dx.Spherical(), inertia=solid(1.0, [0, 0, 0], [0.02, 0.02, 0.02]))
    q, v = jnp.array([1.0, 0, 0, 0]), jnp.array([100.0, 200.0, -300.0])
    q, _ = advance(b.build(), q, v, 1e-3, 100_000, "semi_implicit")
    assert jnp.isfinite(q).all()
    return abs(float(np.linalg.norm(q)) - 1.0)


def unscaled(q: Quaternion, v) -> tuple:
    """`spherical.turn` without its last step."""
    q = q @ Quaternion.exp(v)
    return q.w, q.x, q.y, q.z


@pytest.mark.spec("RBDA-4.5-RENORM")
@pytest.mark.usefixtures("optimised")
def test_unit_length_over_1e5_steps(monkeypatch):
    assert off_unit_length("normalised") < 1e-15
    monkeypatch.setattr(spherical, "turn", unscaled)
    assert off_unit_length("unscaled") > 1e-14
    monkeypatch.undo()
    gradient = jax.grad(lambda q: spherical.Spherical().normalize(tuple(q))[1])(jnp.array([0.9, 0.3, 0.0, 0.1]))
    assert jnp.isfinite(gradient).all()
    # A length that is off is an error of the pose: E'E - 1 grows with it.
    e = Quaternion(*(1.01 * x for x in (0.6, 0.8, 0.0, 0.0))).matrix()
    assert abs((e.T @ e).yy - 1.0) > 1e-3
