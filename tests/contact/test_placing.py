"""How a tree moves with its configuration, against differences; and rows of contacts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.contact.motion import contacts_at, frames_and_rows
from dynax.contact.placing import placed, tree_placed
from dynax.model.configuration import integrate

RNG = np.random.default_rng(0)


def tree(*joints):
    """A chain of these joints, and a body that is free beside it."""
    builder = dx.ModelBuilder()
    inertia = dx.SpatialInertia.box((0.3, 0.4, 0.5), mass=1.5, com=(0.1, -0.2, 0.3))
    builder.body("loose", joint=dx.Free(), inertia=inertia)
    for k, joint in enumerate(joints):
        place = dx.Transform.from_translation((0.2, -0.1, 0.3))
        parent = f"body{k - 1}" if k else "world"
        builder.body(f"body{k}", parent=parent, joint=joint, placement=place, inertia=inertia)
    model = builder.build()
    q = integrate(model, dx.neutral(model), jnp.asarray(RNG.normal(size=model.nv)))
    return model, q


TREES = {
    "screws": (dx.Revolute((0, 1, 1)), dx.Prismatic((1, 0, 0)), dx.Revolute((1, 0, 0))),
    "constant": (dx.Free(), dx.Spherical(), dx.Planar(), dx.Revolute((0, 0, 1)), dx.Translation()),
    "turning": (dx.Spherical(), dx.Gimbal("zyx"), dx.Revolute((0, 1, 0))),
}
"""Columns that are constant, and those of a gimbal, which are not."""


def differences(function, model, q, h=1e-5):
    steps = h * jnp.eye(model.nv)
    ends = [jax.vmap(lambda d, s=s: function(integrate(model, q, s * d)))(steps) for s in (1, -1)]
    return jax.tree.map(lambda a, b: jnp.moveaxis((a - b) / (2 * h), 0, -1), *ends)


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x == "constant" else pytest.mark.slow) for x in TREES])
def test_places(name):
    model, q = tree(*TREES[name])

    def along(d):
        return tree_placed(model, integrate(model, q, d))

    there, back = (f(along)(jnp.zeros(model.nv)) for f in (jax.jacfwd, jax.jacrev))
    wanted = differences(lambda q: tree_placed(model, q), model, q)
    for one, other, true in zip(there, back, wanted, strict=True):
        np.testing.assert_allclose(one, true, atol=3e-9)
        np.testing.assert_allclose(other, true, atol=3e-9)


@pytest.mark.slow
def test_places_of_a_batch_and_second_derivatives():
    model, q = tree(*TREES["constant"])
    weights = jax.tree.map(lambda x: jnp.asarray(RNG.normal(size=x.shape)), tree_placed(model, q))

    def power(d):
        at = tree_placed(model, integrate(model, q, d))
        return sum(jnp.sum(w * x) for w, x in zip(weights, at, strict=True))

    every = jnp.asarray(RNG.normal(size=(3, model.nv)))
    one_by_one = jnp.stack([jax.grad(power)(d) for d in every])
    np.testing.assert_allclose(jax.vmap(jax.grad(power))(every), one_by_one, atol=1e-12)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(jax.vmap(power)(x)))(every), one_by_one, atol=1e-12)
    h, zero = 1e-5, jnp.zeros(model.nv)
    slopes = [jax.vmap(lambda d, s=s: jax.grad(power)(s * d))(h * jnp.eye(model.nv)) for s in (1, -1)]
    np.testing.assert_allclose(jax.hessian(power)(zero), (slopes[0] - slopes[1]) / (2 * h), atol=1e-7)


@pytest.mark.slow
def test_places_by_numbers_of_the_model():
    model, q = tree(*TREES["constant"])

    def height(mass):
        return jnp.sum(tree_placed(model.replace(mass=mass), q).moments ** 2)

    h = 1e-6 * jnp.eye(len(model.mass))
    wanted = jax.vmap(lambda d: (height(model.mass + d) - height(model.mass - d)) / 2e-6)(h)
    np.testing.assert_allclose(jax.grad(height)(model.mass), wanted, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_rows():
    model, q = tree(*TREES["constant"])
    balls = [c.Collider(name, c.Sphere(0.1)) for name in ("loose", "body2", "body4")]
    scene = c.scene(model, [c.Collider("world", c.Plane()), *balls], limits=False)

    def rows(q):
        at = placed(scene, q)
        return frames_and_rows(scene, contacts_at(scene, at), q, at)[1]

    true = differences(rows, model, q)
    for way in (jax.jacfwd, jax.jacrev):
        found = way(lambda d: rows(integrate(model, q, d)))(jnp.zeros(model.nv))
        np.testing.assert_allclose(found, true, atol=1e-8)
