"""The pose of one frame and its derivatives in closed form, against the recursion over all bodies and differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import dynax as dx


def rows(pose):
    return jnp.concatenate([pose.rotation.reshape(9), pose.translation])


def by_recursion(model, q, *names):
    poses, found = dx.forward_kinematics(model, q), []
    for body, offset in map(model.locate, names):
        own = dx.Transform(poses.rotation[body], poses.translation[body])
        found.append(rows(own if offset is None else own @ offset))
    return jnp.concatenate(found)


def by_chain(model, q, *names):
    return jnp.concatenate([rows(dx.frame_pose(model, q, name)) for name in names])


@pytest.mark.spec("RBDA-4.1.4-JAC")
@pytest.mark.parametrize("name", [pytest.param("mixed", marks=pytest.mark.slow), "screws"])
def test_derivatives_are_those_of_the_recursion(name):
    model, s = trees.tree(name), trees.states(trees.tree(name), 3)
    parents = set(model.topology.parents)
    ends = [body for b, body in enumerate(model.body_names) if b not in parents]  # all joints are on the ways there
    names = [*ends[-2:], "tool"] if name == "screws" else ends

    def all_of(one):
        def along(q, v, weight):  # by `v`: of a quaternion the convention says what a change of its length does
            def at(x):
                return one(model, dx.integrate(model, q, x), *names)

            value, rate = jax.jvp(at, (jnp.zeros_like(v),), (v,))
            return value, rate, jax.grad(lambda x: at(x) @ weight)(jnp.zeros_like(v))

        return jax.jit(jax.vmap(along))

    weight = np.random.default_rng(0).normal(size=(3, 12 * len(names)))
    for found, wanted in zip(all_of(by_chain)(s.q, s.v, weight), all_of(by_recursion)(s.q, s.v, weight), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


def test_second_derivatives_leaves_and_types():
    model = trees.tree("arm")
    q, dq, weight = trees.states(model, 1).q[0], np.linspace(-1.0, 1.0, model.nq), np.linspace(-1.0, 2.0, 12)

    def all_of(one):
        def moved(shift, q):
            placed = model.placements
            placed = dx.Transform(placed.rotation, placed.translation + shift)
            return one(model.replace(placements=placed), q, "tool") @ weight

        shift = jnp.full(3, 0.1)
        return [
            jax.hessian(moved, 1)(shift, q),
            jax.jacfwd(jax.grad(moved))(shift, q),
            jax.jvp(moved, (shift, q), (shift, dq))[1],
            jax.grad(lambda t: jax.jvp(lambda x: moved(shift, x), (q * t,), (dq,))[1])(1.0),
        ]

    for found, wanted in zip(
        *(jax.jit(lambda one=one: all_of(one))() for one in (by_chain, by_recursion)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * max(1.0, np.abs(wanted).max()))
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), model)
    assert jax.jacfwd(lambda q: by_chain(single, q, "tool"))(q.astype(np.float32)).dtype == jnp.float32


def test_a_quaternion_that_grows_moves_nothing():
    model = trees.tree("screws")
    for q in (trees.states(model, 1).q[0], dx.neutral(model)):
        along = jax.jacfwd(lambda v, q=q: dx.integrate(model, q, v))(jnp.zeros(model.nv))
        growing = np.linalg.svd(along)[0][:, -1]
        found = jax.jit(jax.jacfwd(lambda q: by_chain(model, q, "tool")))(q)
        np.testing.assert_allclose(found @ growing, 0.0, atol=1e-14)
