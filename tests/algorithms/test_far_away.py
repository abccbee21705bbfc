"""A robot a kilometre from the world's origin: what does not depend on the place keeps its digits in float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx

AWAY = 1000.0


def arm(place: float, links: int = 18) -> dx.Model:
    """A chain that stands at `place`; more freedoms than are multiplied elementwise."""
    rng = np.random.default_rng(3)
    builder = dx.ModelBuilder()
    for k in range(links):
        offset = (place, 0.0, 0.0) if k == 0 else tuple(0.1 * rng.normal(size=3))
        inertia = dx.SpatialInertia(1.0, 0.05 * rng.normal(size=3), 0.01 * np.eye(3))
        builder.body(
            f"link{k}",
            parent=f"link{k - 1}" if k else "world",
            joint=dx.Revolute(rng.normal(size=3)),
            placement=dx.Transform.from_translation(offset),
            inertia=inertia,
            armature=0.1,
        )
    return builder.build()


@pytest.mark.parametrize("what", ["mass matrix", "derivatives of inverse dynamics", "derivatives of forward dynamics"])
def test_does_not_depend_on_the_place(what, rng):
    q, v, tau = (jnp.asarray(x, jnp.float32) for x in rng.normal(size=(3, 18)))
    function = {
        "mass matrix": lambda m: dx.mass_matrix(m, q),
        "derivatives of inverse dynamics": lambda m: dx.inverse_dynamics_derivatives(m, q, v, tau),
        "derivatives of forward dynamics": lambda m: dx.forward_dynamics_derivatives(m, q, v, tau),
    }[what]
    near, far = (jax.tree.map(lambda a: a.astype(jnp.float32), arm(place)) for place in (0.0, AWAY))
    here, there = jax.jit(function)(near), jax.jit(function)(far)
    for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        # At the world's origin instead of the robot's a product would lose six of its seven digits.
        assert np.abs(a - b).max() < 0.01 * np.abs(a).max()
