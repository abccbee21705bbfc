"""Derivatives along tangents, and of where steps land, against those of `integrate` and `difference` themselves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms

import dynax as dx
from dynax import optimize as o
from dynax.model.configuration import difference_rows, integrate_rows
from dynax.optimize.landing import landing_curvature
from dynax.optimize.tangents import curvature, jacobian, slope

FREE = (dx.Free(), dx.Revolute((0.0, 1.0, 0.0)))
EVERY = (
    *FREE, dx.Spherical(), dx.Planar(), dx.Reversed(dx.Free()), dx.RollingBall(0.4), dx.SphereInCylinder(),
    dx.Universal(),
)  # fmt: skip
"""Every way of turning; hinges add."""


def chain(joints) -> dx.Model:
    builder = dx.ModelBuilder()
    inertia = dx.SpatialInertia(1.3, (0.05, -0.02, 0.1), np.diag([0.2, 0.3, 0.25]))
    for k, joint in enumerate(joints):
        builder.body(f"body{k}", parent=f"body{k - 1}" if k else "world", joint=joint, inertia=inertia)
    return builder.build()


def configurations(model, rng):
    """At the identity, at half a turn, and anywhere."""
    half = np.zeros(model.nv)
    half[model.topology.v_start[:-1]] = np.pi
    still = dx.neutral(model)
    anywhere = [dx.random_configuration(model, jax.random.key(k)) for k in range(2)]
    return jnp.stack([still, dx.integrate(model, still, jnp.asarray(half)), *anywhere])


def as_integrate_does(plant, x, rng, dtype=jnp.float64, tolerance=1e-12):
    n, nu = plant.ndx, plant.nu
    A, B = (jnp.asarray(rng.normal(size=(3, k)), dtype) for k in (plant.nx, nu))
    u = jnp.asarray(rng.normal(size=(len(x), nu)), dtype)
    x = x.astype(dtype)

    def function(x, u):
        return jnp.sin(A @ x + B @ u)

    def both(x, u):
        moved = lambda z: function(plant.integrate(x, z[:n]), u + z[n:])  # noqa: E731
        number = lambda x, u: jnp.sum(function(x, u))  # noqa: E731
        whole = lambda z: jnp.sum(moved(z))  # noqa: E731
        rise, _ = slope(plant, lambda x, u: (number(x, u), ()), x, u)
        found = *curvature(plant, number, x, u), rise, *jacobian(plant, function, x, u)
        still = jnp.zeros(n + nu, dtype)
        first = jax.grad(whole)(still)
        return found, (whole(still), first, jax.hessian(whole)(still), first, moved(still), jax.jacfwd(moved)(still))

    for found, expected in zip(*jax.jit(jax.vmap(both))(x, u), strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(jnp.float64, 1e-12), pytest.param(jnp.float32, 1e-5, marks=pytest.mark.slow)]
)
def test_states_of_every_joint(rng, dtype, tolerance):
    model = chain(EVERY)
    q = configurations(model, rng)
    x = jnp.concatenate([q, jnp.asarray(rng.normal(size=(len(q), model.nv)))], axis=1)
    cast = jax.tree.map(lambda x: x.astype(dtype) if x.dtype == jnp.float64 else x, model)
    as_integrate_does(o.plant(cast), x, rng, dtype, tolerance)


@pytest.mark.slow
def test_states_of_closed_loops_and_of_intervals(rng):
    """Legs with loops on a free trunk, embedded; and the state with the control that a collocation chooses."""
    legs = mechanisms.legged_robot(1)
    q = dx.assemble(legs.model, legs.q).q
    model = dx.embed(legs.model, q)
    plant = o.plant(model)
    x = jnp.concatenate([jnp.stack([q] * 2), jnp.asarray(rng.normal(size=(2, model.nv)))], axis=1)
    as_integrate_does(plant, x, rng, tolerance=1e-10)
    start = jnp.zeros(plant.nx).at[3].set(1.0)
    knots = o.collocation(plant, start, jnp.ones(2), method="trapezoid").plant
    as_integrate_does(knots, jnp.concatenate([x, jnp.ones((2, knots.nx - plant.nx))], axis=1), rng, tolerance=1e-10)


def test_a_manifold_of_ones_own(rng):
    """Whose curves are no exponentials: they bend, and that counts."""
    bent = lambda x, d: x + d + 0.5 * jnp.array([0.3, -0.2]) * jnp.sum(d * d)  # noqa: E731
    plant = o.plant(lambda x, u, p: x, states=2, controls=1, tangents=2, integrate=bent, difference=lambda a, b: b - a)
    as_integrate_does(plant, jnp.asarray(rng.normal(size=(3, 2))), rng)


@pytest.mark.parametrize("joints", [FREE, pytest.param(EVERY, marks=pytest.mark.slow)], ids=["free", "every"])
def test_where_steps_land(joints, rng):
    """Near a configuration and away from it, at rest and after steps of no small turn."""
    model = chain(joints)
    nv, q = model.nv, configurations(model, rng)
    w = jnp.asarray(rng.normal(size=(*q.shape[:1], nv))).at[0].set(0.0)
    costate, gap = jnp.asarray(rng.normal(size=(2, len(q), nv)))
    push = jnp.asarray(rng.normal(size=(nv, 2 * nv)))

    def both(q, w, gap, costate):
        after = dx.integrate(model, dx.integrate(model, q, w), gap)

        def paired(z):
            moved = integrate_rows(model, integrate_rows(model, q, z[:nv]), w + push @ z)
            return costate @ difference_rows(model, after, moved)

        return landing_curvature(model, q, w, after, costate, push), jax.hessian(paired)(jnp.zeros(2 * nv))

    both = jax.jit(jax.vmap(both))
    for size in (0.0, 0.3):
        found, expected = both(q, w, size * gap, costate)
        assert np.max(np.abs(expected)) > 1.0
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.max(np.abs(expected)))
