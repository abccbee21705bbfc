"""A model is a pytree to the libraries around JAX: Equinox's filters and surgery, Optax's steps, files of leaves."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dynax as dx


@pytest.fixture(scope="module")
def model() -> dx.Model:
    rod = dx.SpatialInertia(1.2, (0.0, 0.1, -0.5), (0.1, 0.12, 0.03))
    builder = dx.ModelBuilder().body("trunk", joint=dx.Free(), inertia=rod)
    place = dx.Transform.from_translation((0.1, 0.0, -0.4))
    builder.body("leg", parent="trunk", joint=dx.Revolute((0, 1, 0)), placement=place, inertia=rod, stiffness=3.0)
    return builder.build()


def energy(model: dx.Model) -> jax.Array:
    return dx.potential_energy(model, dx.neutral(model).at[7].set(0.3))


def test_filter_grad_is_a_model_of_derivatives(model):
    """Weight is linear in masses: `-m g . x` with the centre where the body's frame and `com` put it."""
    slope = eqx.filter_grad(energy)(model)
    assert isinstance(slope, dx.Model)
    turned = -0.4 - 0.5 * np.cos(0.3)
    np.testing.assert_allclose(slope.mass, [9.81 * -0.5, 9.81 * turned], rtol=1e-12)
    np.testing.assert_allclose(slope.stiffness[6], 0.5 * 0.3**2, rtol=1e-12)
    moment = 1.2 * np.array([0.1 - 0.5 * np.sin(0.3), 0.2, -0.5 + turned])
    np.testing.assert_allclose(slope.gravity, -moment, rtol=1e-12)


def test_tree_at_partition_and_combine(model):
    heavier = eqx.tree_at(lambda m: m.mass, model, 2.0 * model.mass)
    np.testing.assert_array_equal(heavier.mass, 2.0 * model.mass)
    np.testing.assert_array_equal(heavier.com, model.com)

    chosen = eqx.tree_at(lambda m: (m.mass, m.com), jax.tree.map(lambda _: False, model), (True, True))
    trained, fixed = eqx.partition(model, chosen)
    assert len(jax.tree.leaves(trained)) == 2
    slope = eqx.filter_grad(lambda part: energy(eqx.combine(part, fixed)))(trained)
    np.testing.assert_array_equal(slope.mass, eqx.filter_grad(energy)(model).mass)
    assert slope.gravity is None
    assert eqx.tree_equal(eqx.combine(trained, fixed), model)


def test_optax_steps_over_a_part_of_a_model(model):
    """A step of plain descent is the slope times the rate, and what is not trained stays, bit for bit."""
    chosen = eqx.tree_at(lambda m: m.mass, jax.tree.map(lambda _: False, model), True)
    trained, fixed = eqx.partition(model, chosen)
    optimiser = optax.sgd(0.01)
    slope = eqx.filter_grad(lambda part: energy(eqx.combine(part, fixed)))(trained)
    change, _ = optimiser.update(slope, optimiser.init(trained))
    moved = eqx.combine(eqx.apply_updates(trained, change), fixed)
    np.testing.assert_allclose(moved.mass, model.mass - 0.01 * slope.mass, rtol=1e-14)
    assert eqx.tree_equal(eqx.tree_at(lambda m: m.mass, moved, model.mass), model)


def test_leaves_go_to_a_file_and_back(model, tmp_path):
    random = jax.tree.map(lambda x: x + jnp.pi, model)
    eqx.tree_serialise_leaves(tmp_path / "robot.eqx", random)
    assert eqx.tree_equal(eqx.tree_deserialise_leaves(tmp_path / "robot.eqx", model), random)
