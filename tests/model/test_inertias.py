"""Inertias whose first moment is not that of a centre of mass: results of least squares, and what becomes of them."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import dynax as dx


def close(a, b, tolerance=1e-11):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1.0))


@lru_cache
def arm() -> dx.Model:
    return dx.load(resources.files("dynax") / "models/arm7.urdf")


MASSES = (1.0, 1e-12, 1e-17, 0.0)


def test_masses_that_least_squares_leave_at_rounding(rng):
    """Everything is linear in the parameters, whatever mass stands beside the first moments."""
    model = arm()
    light = jnp.array([dx.inertial_parameters(model).at[::2, 0].set(mass) for mass in MASSES])
    points = jnp.stack([light, light.at[:, :, 0].add(1.0), light.at[:, :, 0].add(-1.0)])
    q, v, a = jnp.asarray(rng.normal(size=(3, 7)))

    @jax.jit
    @jax.vmap
    @jax.vmap
    def found(parameters):
        other = dx.with_inertial_parameters(model, parameters)
        return dx.inverse_dynamics(other, q, v, a), dx.mass_matrix(other, q), dx.inertial_parameters(other)

    tau, inertia, again = found(points)
    np.testing.assert_array_equal(again, points)
    close(0.5 * (inertia[1] + inertia[2]), inertia[0])
    close(0.5 * (tau[1] + tau[2]), tau[0])
    weightless = dx.inverse_dynamics(dx.with_inertial_parameters(model, 0.0 * light[0]), q, v, a)
    close(tau[0] - weightless, light.reshape(4, -1) @ dx.inverse_dynamics_regressor(model, q, v, a).T)


def test_one_light_link():
    parameters = dx.inertial_parameters(arm()).at[0, 0].set(1e-12)
    light = dx.with_inertial_parameters(arm(), parameters)
    np.testing.assert_allclose(dx.mass_matrix(light, jnp.zeros(7))[0, 0], 0.11433366589, rtol=1e-9)


def test_gradients_in_parameters_of_light_links(rng):
    model, h = arm(), 1e-6
    light = jnp.array([dx.inertial_parameters(model).at[0, 0].set(mass) for mass in MASSES])
    q, v, tau, weight = jnp.asarray(rng.normal(size=(4, 7)))

    @jax.jit
    @jax.vmap
    @jax.vmap
    @jax.value_and_grad
    def cost(parameters):
        return weight @ dx.forward_dynamics(dx.with_inertial_parameters(model, parameters), q, v, tau)

    along = jnp.asarray(rng.normal(size=light.shape[1:])) * jnp.abs(light).max((0, 1))
    values, slopes = cost(jnp.stack([light, light + h * along, light - h * along]))
    close(jnp.sum(slopes[0] * along, (1, 2)), (values[1] - values[2]) / (2 * h), 1e-6)


def test_operators_of_bodies_described_elsewhere(rng):
    model = trees.tree("arm")
    q = trees.states(model, count=1).q[0]
    one, other = (dx.spatial_operators(m, q) for m in (model, trees.elsewhere(model, rng)))
    close(other.M.blocks, one.M.blocks)


def test_edits_keep_first_moments(rng):
    """Welds add bodies up about common points, roots and attachments carry them along."""
    model = trees.build((*trees.ARM[:5], (-1, dx.Free()), (5, dx.Revolute((0.0, 1.0, 1.0)))))
    hand = trees.build(((-1, dx.Free()), (0, dx.Revolute((0.0, 1.0, 1.0)))), seed=4)
    edits = (
        dx.to_builder,
        lambda m: dx.fix_joints(m, {"b1_joint": 0.3, "b3_joint": -1.0, "b6_joint": 0.7}),
        lambda m: dx.change_root(m, "b6"),
        lambda m: dx.attach(m, trees.elsewhere(hand, rng) if m is not model else hand, body="b4", prefix="hand_"),
    )
    for edit in edits:
        one, other = (edit(m) for m in (model, trees.elsewhere(model, rng)))
        one, other = (m.build() if isinstance(m, dx.ModelBuilder) else m for m in (one, other))
        assert one.report == other.report
        assert np.any(other.first_moment)
        close(dx.inertial_parameters(other), dx.inertial_parameters(one))


def test_what_no_body_can_be_is_reported():
    """Judged about the true centre of mass, where there is one."""

    def report(inertia):
        return [f.message for f in dx.ModelBuilder().body("a", joint=dx.Free(), inertia=inertia).build().report]

    ball = dx.SpatialInertia.sphere(0.1, mass=2.0, com=(1, 0, 0))
    x, y, z = 2.0, 0.0, 0.0
    assert report(dx.SpatialInertia(2.0, (0, 0, 0), ball.matrix[:3, :3], (x, y, z))) == []
    (text,) = report(dx.SpatialInertia(2.0, (0, 0, 0), (0.1, 2.3, 2.05), (x, y, z)))
    assert "violate the triangle" in text
    text, *_ = report(dx.SpatialInertia(2.0, (0, 0, 0), (0.1, 1.9, 1.9), (x, y, z)))
    assert "not all positive" in text
    for mass in (0.0, 1e-17):
        text, *_ = report(dx.SpatialInertia(mass, (0, 0, 0), (1, 1, 1), (x, y, z)))
        assert "more than the mass can account for" in text


def test_first_moments_far_away_are_refused_and_nothing_is_singular_through_them():
    body = dx.ModelBuilder().body("a", joint=dx.Revolute(), armature=1.0).build()
    edited = dx.to_builder(body.replace(first_moment=jnp.full((1, 3), jnp.inf)))
    with pytest.raises(dx.ModelError, match="`first_moment` is not finite"):
        edited.build()
    far = dx.SpatialInertia(0.0, (1e300, 0, 0), (1, 1, 1), (1e300, 0, 0))
    with pytest.raises(dx.ModelError, match=r"body 'a': .* more than float64 holds"):
        dx.ModelBuilder().body("a", joint=dx.Revolute(), inertia=far).build()
    # A point on the axis of its hinge, described from a point off it.
    point = dx.SpatialInertia(1.0, (1, 0, 0), (0, 1, 1), (-1, 0, 0))
    (finding,) = dx.ModelBuilder().body("a", joint=dx.Revolute(), inertia=point).build().report
    assert "singular" in finding.message
