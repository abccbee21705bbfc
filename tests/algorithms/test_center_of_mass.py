"""The centre of mass and its derivatives in closed form, against poses of all bodies and their recursion."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import dynax as dx


def holonomic() -> dx.Model:
    """Every joint that does not roll."""
    joints = [(parent, joint if joint.holonomic else dx.Spherical()) for parent, joint in trees.MIXED]
    return trees.build(joints, seed=0)


def by_poses(model, q):
    poses = dx.forward_kinematics(model, q)
    places = poses.translation + jnp.einsum("bij,bj->bi", poses.rotation, model.com)
    return model.mass @ places / model.mass.sum()


@pytest.mark.spec("RBDA-4.1.4-JAC")
@pytest.mark.parametrize("name", [*(pytest.param(n, marks=pytest.mark.slow) for n in ("mixed", "rolling")), "screws"])
def test_derivatives_are_those_of_the_poses(name):
    model = holonomic() if name == "mixed" else trees.tree({"rolling": "mixed"}.get(name, name))
    assert all(joint.holonomic for joint in model.joints) == (name != "rolling")
    s = trees.states(model, 3)

    def all_of(one):
        def along(q, v, weight):  # by `v`: of a quaternion the convention says what a change of its length does
            def at(x):
                return one(model, dx.integrate(model, q, x))

            value, rate = jax.jvp(at, (jnp.zeros_like(v),), (v,))
            return value, rate, jax.grad(lambda x: at(x) @ weight)(jnp.zeros_like(v))

        return jax.jit(jax.vmap(along))

    weight = np.random.default_rng(0).normal(size=(3, 3))
    found = all_of(dx.center_of_mass)(s.q, s.v, weight)
    for one, wanted in zip(found, all_of(by_poses)(s.q, s.v, weight), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())
    momentum = jax.jit(jax.vmap(lambda q, v: dx.centroidal_momentum(model, q, v)))(s.q, s.v)
    if name == "screws":  # nothing is driven in time
        np.testing.assert_allclose(found[1] * np.sum(model.mass), momentum[:, 3:], rtol=1e-11)


@pytest.mark.slow
def test_second_derivatives_leaves_and_types():
    model = trees.tree("arm")
    q, dq = trees.states(model, 1).q[0], np.linspace(-1.0, 1.0, model.nq)

    def all_of(one):
        def moved(grown, q):
            return one(model.replace(mass=model.mass * grown), q) @ jnp.array([1.0, -0.5, 2.0])

        grown = jnp.linspace(0.5, 1.5, model.num_bodies)
        return [
            jax.hessian(moved, 1)(grown, q),
            jax.jacfwd(jax.grad(moved))(grown, q),
            jax.jvp(moved, (grown, q), (grown**2, dq))[1],
            jax.grad(lambda t: jax.jvp(lambda x: moved(grown, x), (q * t,), (dq,))[1])(1.0),
        ]

    both = (jax.jit(lambda one=one: all_of(one))() for one in (dx.center_of_mass, by_poses))
    for found, wanted in zip(*both, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * max(1.0, np.abs(wanted).max()))
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), model)
    slope = jax.jit(jax.jacfwd(lambda q: dx.center_of_mass(single, q)))(q.astype(np.float32))
    assert slope.dtype == jnp.float32
    np.testing.assert_allclose(slope, jax.jacfwd(lambda q: by_poses(model, q))(q), atol=1e-5)


def test_a_quaternion_that_grows_moves_nothing():
    model = trees.tree("screws")
    q = trees.states(model, 1).q[0]
    growing = np.linalg.svd(jax.jacfwd(lambda v: dx.integrate(model, q, v))(jnp.zeros(model.nv)))[0][:, -1]
    found = jax.jit(jax.jacfwd(lambda q: dx.center_of_mass(model, q)))(q)
    np.testing.assert_allclose(found @ growing, 0.0, atol=1e-14)


@pytest.mark.parametrize("joint", [dx.Free(), dx.Spherical(), dx.Weld()], ids=["floats", "turns", "stands"])
def test_one_body(joint):
    """A root alone, a joint alone, and nothing that moves."""
    builder = dx.ModelBuilder()
    builder.body("body", joint=joint, inertia=dx.SpatialInertia(2.0, (0.1, 0.0, 0.3), (0.1, 0.2, 0.25)))
    model = builder.build()
    q, still = dx.neutral(model), jnp.zeros(model.nv)
    slopes = [
        jax.jit(way(lambda x, one=one: one(model, dx.integrate(model, q, x))))(still)
        for way, one in ((jax.jacfwd, dx.center_of_mass), (jax.jacrev, dx.center_of_mass), (jax.jacfwd, by_poses))
    ]
    assert slopes[0].shape == (3, model.nv)
    np.testing.assert_allclose(slopes[0], slopes[2], atol=1e-15)
    np.testing.assert_allclose(slopes[1], slopes[2], atol=1e-15)
