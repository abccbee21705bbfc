"""Second derivatives of inverse dynamics in closed form, against derivatives of the first ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import SCREWS, build

import dynax as dx
from dynax.derivatives.curvature import curvature

LEAVES = ("stiffness", "damping", "armature", "friction_loss")


def case(rng, count: int, states: int) -> tuple[dx.Model, tuple]:
    """Screws of all kinds on free bodies, `count` such trees, whose joints have all that joints can have; states."""
    shift = lambda p, k: p if p < 0 else p + k * len(SCREWS)  # noqa: E731
    model = build([(shift(p, k), joint) for k in range(count) for p, joint in SCREWS])
    model = model.replace(**{name: jnp.asarray(rng.uniform(0.1, 1.0, size=model.nv)) for name in LEAVES})
    q = jax.vmap(lambda key: dx.random_configuration(model, key))(jax.random.split(jax.random.key(1), states))
    return model, (q, *(jnp.asarray(rng.normal(size=(states, model.nv))) for _ in range(3)))


def by_directions(model, q, v, a, weights):
    """The rate of `J' weights` along each freedom, rows in axes that move."""

    def slopes(dq, dv):
        J = dx.inverse_dynamics_derivatives(model, dx.integrate(model, q, dq), v + dv, a)
        return tuple(weights @ part for part in J)

    still = jnp.zeros_like(v)
    (q_q, v_q, a_q), (_, v_v, _) = (jax.jacfwd(slopes, k)(still, still) for k in (0, 1))
    return q_q, v_q, v_v, a_q


def near(found, expected, part):
    for x, y in zip(found, expected, strict=True):
        assert np.max(np.abs(x - y)) <= part * np.max(np.abs(y))


def test_equal_to_differences_of_the_first_ones(rng):
    model, (q, v, a, weights) = case(rng, 1, 1)
    h, units = 1e-5, np.eye(2 * model.nv)

    @jax.jit
    @jax.vmap
    def slopes(d):
        J = dx.inverse_dynamics_derivatives(model, dx.integrate(model, q[0], d[: model.nv]), v[0] + d[model.nv :], a[0])
        return tuple(weights[0] @ part for part in J)

    along = [(x - y).T / (2 * h) for x, y in zip(slopes(h * units), slopes(-h * units), strict=True)]
    q_q, v_q, a_q, v_v = *(x[:, : model.nv] for x in along), along[1][:, model.nv :]
    near(jax.jit(curvature)(model, q[0], v[0], a[0], weights[0]), (q_q, v_q, v_v, a_q), 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_equal_to_derivatives_of_the_first_ones(count, rng):
    """Of few freedoms, 13, and of many, 26."""
    model, states = case(rng, count, 4)
    expected = jax.jit(jax.vmap(by_directions, in_axes=(None, 0, 0, 0, 0)))(model, *states)
    near(jax.jit(jax.vmap(curvature, in_axes=(None, 0, 0, 0, 0)))(model, *states), expected, 1e-13)


@pytest.mark.slow
def test_special_points(rng):
    """At rest at the identity, in float32, without weights, and without masses."""
    model, (q, v, a, weights) = case(rng, 1, 1)
    found = jax.jit(curvature)
    exact = found(model, q[0], v[0], a[0], weights[0])
    rest = dx.neutral(model), 0 * v[0], 0 * a[0], weights[0]
    near(found(model, *rest), jax.jit(by_directions)(model, *rest), 1e-13)
    single = found(model, *(x[0].astype(jnp.float32) for x in (q, v, a, weights)))
    assert all(x.dtype == jnp.float32 for x in single)
    near(single, exact, 1e-5)
    for x in found(model, q[0], v[0], a[0], 0 * weights[0]):
        np.testing.assert_array_equal(x, 0)
    massless = model.replace(
        **{name: 0 * getattr(model, name) for name in (*LEAVES, "mass", "first_moment", "inertia")}
    )
    for x in found(massless, q[0], v[0], a[0], weights[0]):
        np.testing.assert_allclose(x, 0, atol=1e-12)
