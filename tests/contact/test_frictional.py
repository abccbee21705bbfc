"""Impacts with friction."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.contact import ImpactStatus

RADIUS = 0.1


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def body(shape, inertia, com=(0, 0, 0), friction=0.3, restitution=0.5):
    own = dx.SpatialInertia(1.0, com, inertia)
    model = dx.ModelBuilder(gravity=(0, 0, 0)).body("body", joint=dx.Free(), inertia=own).build()
    material = c.Material(friction=friction, restitution=restitution)
    return c.scene(model, [c.Collider("world", c.Plane(), material=material), c.Collider("body", shape)])


BALL = body(c.Sphere(RADIUS), (0.4 * RADIUS**2,) * 3)
LOW = jnp.array([0, 0, RADIUS, 1.0, 0, 0, 0])


@pytest.mark.spec("RBDA-11.7-FRICTION")
def test_ball_that_is_arrested():
    """A ball without spin comes out rolling, with the topspin of theory; friction that does not give that is named."""
    v = jnp.zeros(6).at[3].set(0.7).at[5].set(-1.0)
    found = jax.jit(lambda v: c.frictional_impact(BALL, LOW, v, [True], "arrested"))(v)
    close(found.v[1], 5 * 0.7 / (7 * RADIUS), 1e-9)
    close(found.v[3], found.v[1] * RADIUS, 1e-9)
    close(found.v[5], 0.5, 1e-9)
    assert found.status == ImpactStatus.DONE  # 2/7 * 0.7 of friction, of 0.3 * 1.5
    fast = c.frictional_impact(BALL, LOW, 4 * v, [True], "arrested")
    assert fast.status == ImpactStatus.DONE
    flat = c.frictional_impact(BALL, LOW, v.at[3].set(2.0), [True], "arrested")
    assert flat.status == ImpactStatus.CONE_VIOLATED
    close(flat.v[3], flat.v[1] * RADIUS, 1e-9)


@pytest.mark.spec("RBDA-11.7-FRICTION")
def test_energy_of_an_arrested_impact(rng):
    """Of a body that is hit off its centre: the speed at the contact, and the change of energy by the closed form."""
    scene = body(c.Sphere(0.0), (0.1, 0.2, 0.15), com=(0.3, 0.1, 0.4))
    q = jnp.array([0, 0, 0, 1.0, 0, 0, 0])
    mass = np.asarray(dx.mass_matrix(scene.model, q))
    rows = np.asarray(c.contact_jacobian(scene, c.contacts(scene, q), q))[0]
    m = rows @ np.linalg.inv(mass) @ rows.T
    many = jax.jit(jax.vmap(lambda v: c.frictional_impact(scene, q, v, [True], "arrested")))
    v = rng.normal(size=(50, 6))
    v[:, 5] = -np.abs(v[:, 5])
    found = many(jnp.asarray(v))
    before, after = v @ rows.T, np.asarray(found.v) @ rows.T
    close(after, before * [0, 0, -0.5], 1e-9)

    def energy(m, v):
        return 0.5 * np.einsum("ki,ij,kj->k", v, m, v)

    close(found.energy, energy(np.linalg.inv(m), after) - energy(np.linalg.inv(m), before), 1e-9)
    close(found.energy, energy(mass, np.asarray(found.v)) - energy(mass, v), 1e-9)
    close(found.impulses[:, 0] @ rows, (np.asarray(found.v) - v) @ mass, 1e-9)


@pytest.mark.spec("RBDA-11.7-FRICTION")
def test_energy_that_is_gained():
    """An eccentric body that bounces well: a slip that helps makes it gain energy."""
    scene = body(c.Sphere(0.0), (0.01, 0.01, 0.01), com=(0.3, 0, 0.3), restitution=1.0, friction=50.0)
    q = jnp.array([0, 0, 0, 1.0, 0, 0, 0])
    rows = np.asarray(c.contact_jacobian(scene, c.contacts(scene, q), q))[0]
    m = rows @ np.linalg.inv(np.asarray(dx.mass_matrix(scene.model, q))) @ rows.T
    inverse = np.linalg.inv(m)
    before, after = np.array([0.5 * inverse[0, 2] / inverse[0, 0], 0, -1.0]), np.array([0, 0, 1.0])
    v = jnp.concatenate([jnp.zeros(3), before])
    gain = 0.5 * (after @ inverse @ after - before @ inverse @ before)
    found = c.frictional_impact(scene, q, v, [True], "arrested")
    close(found.energy, gain, 1e-9)
    assert gain > 0
    assert found.status == ImpactStatus.ENERGY_GAINED


def test_ball_by_coulombs_law():
    """It sticks where the cone is wide enough, and else slides with all the friction there is."""
    speeds = jnp.array([0.3, 1.5, 1.6, 4.0])
    v = jnp.zeros((4, 6)).at[:, 3].set(speeds).at[:, 5].set(-1.0)
    many = jax.vmap(lambda v: c.frictional_impact(BALL, LOW, v, [True]))
    found = jax.jit(many)(v)
    along = jnp.minimum(2 / 7 * speeds, 0.3 * 1.5)
    close(found.impulses[:, 0], jnp.stack([-along, 0 * along, jnp.full(4, 1.5)], axis=1), 1e-6)
    close(found.v[:, 5], 0.5, 1e-6)
    assert np.all(found.status == ImpactStatus.DONE)
    assert np.all(found.energy < 0)
    slope = jax.jit(jax.jacrev(lambda v: c.frictional_impact(BALL, LOW, v, [True]).v))(v[3])
    close(slope[3], [0, 0, 0, 1.0, 0, 0.3 * 1.5], 1e-5)
    none = c.frictional_impact(BALL, LOW, v[0], [False])
    close(none.v, v[0], 1e-12)
    with pytest.raises(ValueError, match="`law` is 'poisson', expected one of 'coulomb', 'arrested'"):
        c.frictional_impact(BALL, LOW, v[0], [True], "poisson")
