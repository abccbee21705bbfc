"""One state without walks: the same accelerations by products of small arrays, and who gets them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import dynax as dx
from dynax.algorithms import _one_kernel
from dynax.routes.one_state import lone_forward_dynamics, serves

# Nothing driven in time, nothing that rolls in all directions; bodies keep their numbers.
HELD = [dx.Spherical() if isinstance(joint, dx.Driven | dx.RollingBall) else joint for _, joint in trees.MIXED]
MIXED = [(parent, joint) for (parent, _), joint in zip(trees.MIXED, HELD, strict=True)]
SCREWS = [*trees.SCREWS, *((5, dx.Revolute((0.0, 1.0, 0.3))),) * 3, *((8 + k, dx.Helical(pitch=0.1)) for k in range(8))]
HINGES = [(-1, dx.Revolute((0.0, 0.0, 1.0))), *((k // 2, dx.Revolute((0.2, 1.0, 0.0))) for k in range(18))]
FREE = [(-1, dx.Free())] * 2
TREES = {"every joint": MIXED, "screws": SCREWS, "hinges": HINGES, "nothing carried": FREE}


@pytest.mark.spec("RBDA-7.3-ABA", "RBDA-1.1-FDID")
@pytest.mark.parametrize("name", TREES)
def test_accelerations_are_those_of_the_walks(name):
    """In both precisions, as far as the mass matrix allows."""
    model = trees.build(TREES[name], seed=3)
    s = trees.states(model, 6)
    compiled = jax.jit(jax.vmap(lone_forward_dynamics, in_axes=(None, 0, 0, 0, 0)))
    expected = jax.vmap(partial(dx.forward_dynamics, model))(s.q, s.v, s.tau, s.external)
    scale = np.abs(expected).max(axis=1) * np.linalg.cond(jax.vmap(partial(dx.mass_matrix, model))(s.q))
    for dtype in (jnp.float64, jnp.float32):
        single, *state = jax.tree.map(partial(jnp.asarray, dtype=dtype), (model, s.q, s.v, s.tau, s.external))
        found = compiled(single, *state)
        assert found.dtype == dtype
        assert np.all(np.abs(found - expected).max(axis=1) < 50 * jnp.finfo(dtype).eps * scale)


@pytest.fixture(scope="module")
def robot():
    """Nineteen bodies, the first floating."""
    return trees.build(SCREWS, seed=3)


@pytest.fixture(scope="module")
def state(robot):
    s = trees.states(robot, 1)
    return tuple(x[0] for x in (s.q, s.v, s.tau, s.external))


def test_products_have_no_loop_and_a_batch_has(robot, state):
    """Which of the two runs is seen in the program."""
    by_products = partial(dx.forward_dynamics, execution="products")
    lone = jax.jit(by_products).lower(robot, *state).as_text()
    single = jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), (robot, *state))
    single = jax.jit(by_products).lower(*single).as_text()
    batch = jax.jit(jax.vmap(partial(by_products, robot))).lower(*(x[None] for x in state)).as_text()
    assert "stablehlo.while" not in lone
    assert "stablehlo.while" not in single
    assert "stablehlo.while" in batch


def test_derivatives_are_those_of_the_walks(robot, state):
    q, v, tau, external = state

    def along(execution):
        def power(mass, q, v, tau):
            a = dx.forward_dynamics(robot.replace(mass=mass), q, v, tau, external, execution=execution)
            return jnp.cos(jnp.arange(robot.nv)) @ a

        return jax.jit(jax.value_and_grad(power, argnums=(0, 1, 2, 3)))(robot.mass, q, v, tau)

    for x, y in zip(jax.tree.leaves(along("products")), jax.tree.leaves(along("levels")), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max())


def test_models_in_a_batch_take_the_walks(robot, state):
    masses = robot.mass * jnp.array([[1.0], [1.5]])
    by_products = partial(dx.forward_dynamics, execution="products")
    found = jax.vmap(lambda mass: by_products(robot.replace(mass=mass), *state))(masses)
    looped = [dx.forward_dynamics(robot.replace(mass=mass), *state) for mass in masses]
    np.testing.assert_allclose(found, looped, rtol=1e-10, atol=1e-10)


@pytest.mark.spec("RBDA-9.4-ABA")
def test_rest_zero_force_and_a_far_away_base(robot):
    """At rest without forces all fall alike, wherever the base is and in both precisions."""
    bare = robot.replace(**{name: 0.0 * getattr(robot, name) for name in ("stiffness", "damping", "friction_loss")})
    for dtype, tolerance in ((jnp.float64, 1e-12), (jnp.float32, 1e-5)):
        model = jax.tree.map(partial(jnp.asarray, dtype=dtype), bare)
        q, zero = dx.neutral(model), jnp.zeros(model.nv, dtype)
        fall = dx.forward_dynamics(model, q, zero, zero, execution="products")
        assert fall.dtype == dtype
        # The root falls with gravity in its own axes, the joints stay where they are.
        placed = model.placements.rotation[0].T @ model.gravity
        np.testing.assert_allclose(fall[3:6], placed, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(np.delete(fall, [3, 4, 5]), 0.0, atol=50 * tolerance)
        far = dx.forward_dynamics(model, q.at[:3].set(1e6), zero, zero, execution="products")
        np.testing.assert_array_equal(far, fall)


def test_a_massless_last_body_is_not_resisted(robot, state):
    last = robot.num_bodies - 1
    gone = robot.replace(
        mass=robot.mass.at[last].set(0.0),
        inertia=robot.inertia.at[last].set(0.0),
        armature=robot.armature.at[-1].set(0.0),
    )
    assert not np.isfinite(dx.forward_dynamics(gone, *state, execution="products")).all()


def test_small_robots_and_what_has_to_be_walked(monkeypatch):
    assert serves(trees.build(HINGES).topology, jnp.float64) != _one_kernel.available()
    monkeypatch.setattr(_one_kernel, "KNOWN", "none")
    assert serves(trees.build(HINGES).topology, jnp.float64)
    assert not serves(trees.tree("arm").topology, jnp.float64)
    assert not serves(trees.build(HINGES).topology, jnp.float32)
    driven = trees.build([*HINGES, (0, dx.Driven(dx.Revolute((0.0, 1.0, 0.0)), trees.swing))])
    assert not serves(driven.topology, jnp.float64)
    assert not serves(trees.build([*HINGES, (0, dx.RollingBall(0.5))]).topology, jnp.float64)
    s = trees.states(driven, 1)
    walked, asked = (
        dx.forward_dynamics(driven, s.q[0], s.v[0], s.tau[0], execution=execution)
        for execution in ("levels", "products")
    )
    np.testing.assert_array_equal(walked, asked)
