"""Functions of a model that a scene has too, and what asks for them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax import identify

DT = 0.005


@pytest.fixture(scope="module")
def puck() -> c.Scene:
    """It slides on the ground and turns about the vertical, on one foot."""
    builder = dx.ModelBuilder()
    builder.body("lift", joint=dx.Prismatic((0, 0, 1)), inertia=dx.SpatialInertia.sphere(0.1, density=10.0))
    builder.body(
        "puck", parent="lift", joint=dx.Planar((0, 0, 1)), inertia=dx.SpatialInertia.sphere(0.1, density=500.0)
    )
    return c.scene(builder.build(), [c.Collider("world", c.Plane()), c.Collider("puck", c.Sphere(0.1))])


def test_configurations_are_those_of_the_model(puck, rng):
    model, (u, v) = puck.model, rng.normal(size=(2, puck.nv))
    q = dx.random_configuration(puck, jax.random.key(0))
    np.testing.assert_allclose(q, dx.random_configuration(model, jax.random.key(0)), rtol=0)
    np.testing.assert_allclose(dx.neutral(puck), dx.neutral(model), rtol=0)
    for function, args in (
        (dx.integrate, (q, u)), (dx.difference, (q, dx.integrate(model, q, u))), (dx.normalize, (q,)),
        (dx.configuration_rate, (q, v)),
    ):  # fmt: skip
        np.testing.assert_allclose(function(puck, *args), function(model, *args), rtol=0)
        np.testing.assert_allclose(jax.jit(function)(puck, *args), function(model, *args), rtol=1e-15)
    batch = jnp.stack([u, v])
    np.testing.assert_allclose(
        jax.vmap(lambda u: dx.integrate(puck, q, u))(batch),
        jax.vmap(lambda u: dx.integrate(model, q, u))(batch),
        rtol=0,
    )
    with pytest.raises(TypeError, match=r"dx.forward_dynamics takes a Model, not Scene"):
        dx.forward_dynamics(puck, q, v, v)


@pytest.mark.slow
def test_friction_is_identified_from_how_far_it_slides(puck):
    """Segments that begin anywhere, of a motion that is pushed, slides and turns."""
    tau = jnp.zeros((40, puck.nv)).at[:, 1].set(8.0)
    q, v = dx.neutral(puck).at[0].set(0.1), jnp.array([0.0, 1.5, 0.0, 0.4])
    run = jax.jit(lambda s: dx.rollout(s, q, v, tau, DT))(puck.with_material(friction=0.3))
    data = identify.segments(run.q, run.v, tau, 20)
    found = identify.output_error(
        lambda p: puck.with_material(friction=p["friction"]), {"friction": jnp.array(0.45)}, data, DT, noise=1e-3
    )
    np.testing.assert_allclose(found.params["friction"], 0.3, rtol=1e-6)
