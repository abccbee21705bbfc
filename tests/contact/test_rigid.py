"""Rigid contact without friction: forces, accelerations, impulses."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

import dynax as dx
from dynax import contact as c
from dynax.contact import ComplementarityStatus, ContactState, ImpactStatus, complementary

G = 9.81


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def row_of_balls(count, restitution=1.0):
    """On a line, in touch, of a kilogram each."""
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    for k in range(count):
        builder.body(f"ball{k}", joint=dx.Prismatic((1, 0, 0)), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1)))
    model = builder.build()
    material = c.Material(restitution=restitution)
    scene = c.scene(model, [c.Collider(f"ball{k}", c.Sphere(0.1), material=material) for k in range(count)])
    return scene, 0.2 * jnp.arange(float(count))


def table():
    builder = dx.ModelBuilder()
    builder.body("table", joint=dx.Free(), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (0.1, 0.2, 0.3)))
    feet = c.Points([[x, y, 0.0] for x in (-0.5, 0.5) for y in (-0.3, 0.3)])
    scene = c.scene(builder.build(), [c.Collider("world", c.Plane()), c.Collider("table", feet)])
    return scene, jnp.array([0, 0, 0.0, 1, 0, 0, 0])


def random_problems(key, count, contacts, freedoms=6):
    """Of a body with many contacts, some of them pressed; all have solutions."""
    keys = jax.random.split(key, 5)
    n = jax.random.normal(keys[0], (count, freedoms, contacts))
    a = jax.random.normal(keys[1], (count, freedoms, freedoms))
    inverse = a @ jnp.swapaxes(a, 1, 2) + 0.1 * jnp.eye(freedoms)
    m = jnp.swapaxes(n, 1, 2) @ inverse @ n
    on = jax.random.uniform(keys[2], (count, contacts)) < 0.5
    x, z = (jax.random.uniform(k, (count, contacts)) for k in keys[3:])
    d = jnp.where(on, 0, z) - jnp.einsum("kij,kj->ki", m, jnp.where(on, x, 0))
    return m, d, inverse, n


@pytest.mark.spec("RBDA-11.2-MULTI", "RBDA-11.5-LCP", "RBDA-11.5-QP", "RBDA-11.5-GAUSS")
@pytest.mark.parametrize("contacts", [4, 10])
def test_three_formulations_are_one(contacts, key):
    """Complementarity, the quadratic programme and Gauss's principle have one acceleration, in any order."""
    m, d, inverse, n = random_problems(key, 60, contacts)
    found = jax.jit(jax.vmap(complementary))(m, d)
    assert np.all(found.status == ComplementarityStatus.SOLVED)
    scale = 1 + np.abs(d).max()
    assert np.min(found.x) > -1e-9 * scale
    assert np.min(found.z) > -1e-9 * scale
    close(found.z, jnp.einsum("kij,kj->ki", m, found.x) + d, 1e-9 * scale)
    close(found.x * found.z, 0.0, 1e-8 * scale)
    order = np.random.default_rng(0).permutation(contacts)
    turned = jax.jit(jax.vmap(complementary))(m[:, order][:, :, order], d[:, order])
    close(turned.z, found.z[:, order], 1e-7 * scale)
    for k in range(20):
        # The least 1/2 x M x + x d for x >= 0 is that of |R N x + w|^2 / 2 with R^T R = W, w = R^-T N^+T d.
        root = np.linalg.cholesky(inverse[k]).T
        offset = np.linalg.lstsq(np.asarray(root @ n[k]).T, np.asarray(d[k]), rcond=None)[0]
        if np.abs(np.asarray(root @ n[k]).T @ offset - d[k]).max() > 1e-9:
            continue  # more contacts than freedoms: `d` is not of this form
        x, _ = nnls(np.asarray(root @ n[k]), -offset)
        close(m[k] @ x + d[k], found.z[k], 1e-6 * scale)


@pytest.mark.spec("RBDA-11.5-LCP")
def test_derivatives_of_complementarity(key):
    """With those that press pressing on."""
    m, d, *_ = random_problems(key, 6, 5)
    step = 1e-6

    def z(m, d):
        return complementary(m, d).z

    rate = jax.jit(jax.vmap(lambda m, d: jax.jvp(z, (m, d), (m, jnp.ones_like(d)))[1]))(m, d)
    both = jax.jit(jax.vmap(z))
    differences = (both(m * (1 + step), d + step) - both(m * (1 - step), d - step)) / (2 * step)
    close(rate, differences, 1e-5)
    back = jax.jit(jax.vmap(jax.jacrev(z, argnums=1)))(m, d)
    forth = jax.jit(jax.vmap(jax.jacfwd(z, argnums=1)))(m, d)
    close(back, forth, 1e-9)


@pytest.mark.spec("RBDA-11.2-EX111", "T21")
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_disc_in_a_slot(dtype):
    """Two walls that face each other: no forces where they come together, any where they are parallel."""
    m = jnp.array([[1.0, -1.0], [-1.0, 1.0]], dtype)
    solve = jax.jit(complementary)
    assert solve(m, jnp.array([-0.25, -0.25], dtype)).status == ComplementarityStatus.INFEASIBLE
    assert solve(m, jnp.array([-0.5, 0.25], dtype)).status == ComplementarityStatus.INFEASIBLE
    for d in ([G, -G], [0.0, 0.0], [0.3, -0.1], [1.0, 1.0]):
        found = solve(m, jnp.array(d, dtype))
        assert found.status == ComplementarityStatus.SOLVED
        close(found.z, m @ found.x + jnp.array(d, dtype), 1e-5)
    close(solve(m, jnp.array([G, -G], dtype)).z, 0.0, 1e-4 if dtype == jnp.float32 else 1e-9)


@pytest.mark.spec("RBDA-11.2-MULTI", "T21")
def test_table_on_four_feet():
    """Forces that are not unique are shared evenly; pushed up by more than its weight it is let go."""
    scene, q = table()
    on = jnp.ones(4, bool)
    solve = jax.jit(lambda tau: c.contact_dynamics(scene, q, jnp.zeros(6), tau, on))
    rests = solve(jnp.zeros(6))
    close(rests.a, 0.0, 1e-10)
    close(rests.forces, G / 4, 1e-3)  # the middle of all that do, as far as the method goes towards it
    close(jnp.sum(rests.forces), G, 1e-9)
    leans = solve(jnp.array([0, 0.5 * G, 0, 0, 0, 0.0]))
    close(leans.a, 0.0, 1e-10)
    close(jnp.sum(leans.forces), G, 1e-9)
    tips = solve(jnp.array([0, 0.6 * G, 0, 0, 0, 0.0]))
    assert np.sum(tips.rates > 1e-6) == 2 == np.sum(tips.forces > 1e-6)
    lifted = solve(jnp.array([0, 0, 0, 0, 0, 2 * G]))
    close(lifted.forces, 0.0, 1e-9)
    close(lifted.a[5], G, 1e-10)


@pytest.mark.spec("RBDA-11.1-SINGLE", "RBDA-11.3-TDOT", "RBDA-11.4-STATES", "T07")
def test_bead_leaves_a_ball():
    """At two thirds of the height, since the normal turns: the force there is `m (g cos - v^2 / r)`."""
    builder = dx.ModelBuilder()
    builder.body("bead", joint=dx.Translation(), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1)))
    scene = c.scene(builder.build(), [c.Collider("world", c.Sphere(1.9)), c.Collider("bead", c.Sphere(0.1))])

    def at(angle):
        """Where a bead is, and how fast, that slid down from the top."""
        way = jnp.stack([jnp.cos(angle), 0.0 * angle, -jnp.sin(angle)])
        return 2.0 * jnp.stack([jnp.sin(angle), 0.0 * angle, jnp.cos(angle)]), jnp.sqrt(
            4 * G * (1 - jnp.cos(angle))
        ) * way

    @jax.jit
    @jax.vmap
    def pressed(angle):
        q, v = at(angle)
        return c.contact_dynamics(scene, q, v, jnp.zeros(3), jnp.ones(1, bool)), c.contact_states(scene, q, v)

    leaves = np.arccos(2 / 3)
    close(np.rad2deg(leaves), 48.1896851, 1e-7)
    angles = jnp.concatenate([jnp.linspace(0.1, leaves - 1e-6, 5), jnp.array([leaves + 1e-6, 1.0])])
    found, states = pressed(angles)
    force = G * np.cos(angles) - 2 * G * (1 - np.cos(angles))
    close(found.forces[:, 0], np.maximum(force, 0), 1e-7)
    assert np.all((found.rates[:, 0] > 1e-7) == (angles > leaves))
    assert np.all(states == ContactState.TOUCHING)
    # And so the motion down to there has the speed of the energy: a = g sin along the way.
    _, v = jax.vmap(at)(angles)
    along = jnp.sum(found.a * v, axis=1) / jnp.linalg.norm(v, axis=1)
    close(along, G * np.sin(angles), 1e-9)


@pytest.mark.spec("RBDA-11.4-STATES")
def test_states():
    scene, q = row_of_balls(2)
    at = jax.jit(lambda x, v: c.contact_states(scene, q.at[1].add(x), jnp.array([0.0, v]))[0])
    assert at(0.1, -1.0) == ContactState.APART
    assert at(0.0, -1.0) == ContactState.MEETING
    assert at(0.0, 1.0) == ContactState.PARTING
    assert at(0.0, 0.0) == ContactState.TOUCHING
    assert at(-1e-3, 0.0) == ContactState.TOUCHING


@pytest.mark.spec("T11", "RBDA-11.7-IMPULSE", "RBDA-11.7-SYSTEM")
def test_three_balls():
    """At once the first is thrown back by a third; one after another the last alone moves. Both keep the energy."""
    scene, q = row_of_balls(3)
    v = jnp.array([1.0, 0.0, 0.0])
    touching = jnp.array([True, False, True])  # pairs (0, 1), (0, 2), (1, 2)
    assert scene.candidates == ((0, 1), (0, 2), (1, 2))
    for law, after in (("newton", (-1 / 3, 2 / 3, 2 / 3)), ("sequential", (0.0, 0.0, 1.0))):
        struck = jax.jit(lambda v, law=law: c.impact(scene, q, v, touching, law))(v)
        close(struck.v, after, 1e-10)
        close(struck.energy, 0.0, 1e-10)
        close(jnp.sum(struck.v), 1.0, 1e-12)
        assert struck.status == ImpactStatus.DONE
    # What is thrown back hard presses the rest together again, in Poisson's law.
    soft, _ = row_of_balls(3, restitution=0.5)
    for law in ("newton", "poisson", "sequential"):
        struck = jax.jit(lambda v, law=law: c.impact(soft, q, v, touching, law))(v)
        assert struck.energy < 0
        assert np.all(np.diff(struck.v) > -1e-9)
        close(jnp.sum(struck.v), 1.0, 1e-12)
        close(struck.energy, 0.5 * (np.sum(struck.v**2) - 1.0), 1e-12)
    with pytest.raises(ValueError, match="`law` is 'hard', expected one of 'newton'"):
        c.impact(scene, q, v, touching, "hard")
    for function in (partial(c.contact_dynamics, scene, q, v, v), partial(c.impact, scene, q, v)):
        with pytest.raises(ValueError, match=r"`touching` has shape \(2,\), expected \(3,\): of each candidate, and"):
            function(touching[:2])
    none = jax.vmap(lambda q: c.impact(scene, q, v, c.contact_states(scene, q, v) == ContactState.MEETING))(q[None][:0])
    assert none.v.shape == (0, 3)


@pytest.mark.spec("RBDA-11.7-TWOBODY", "T24")
@pytest.mark.parametrize("e", [0.0, 0.3, 1.0])
def test_two_bodies(e, key):
    """Off the middle: the impulse of the closed form (11.64), whose derivatives are its differences."""
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    for name, mass in (("a", 1.0), ("b", 2.5)):
        builder.body(name, joint=dx.Free(), inertia=dx.SpatialInertia(mass, (0.02, 0.03, -0.04), (0.1, 0.2, 0.3)))
    model = builder.build()
    material = c.Material(restitution=e)
    scene = c.scene(model, [c.Collider(k, c.Sphere(0.2), material=material) for k in "ab"])
    keys = jax.random.split(key, 4)

    def closing(k):
        q = dx.random_configuration(model, k)
        way = jnp.array([0.36, 0.48, 0.64]) * 0.4 / np.sqrt(0.36**2 + 0.48**2 + 0.64**2)
        q = q.at[7:10].set(q[:3] + way)
        v = jax.random.normal(k, (12,))
        normal = _normals(scene, q)[0]
        return q, v - normal * (normal @ v + 1.0) / (normal @ normal)

    def end(q, v):
        return c.impact(scene, q, v, jnp.ones(1, bool))

    q, v = jax.vmap(closing)(keys)
    struck = jax.jit(jax.vmap(end))(q, v)
    normals = jax.vmap(lambda q: _normals(scene, q)[0])(q)
    mass = jax.jit(jax.vmap(lambda q: dx.mass_matrix(model, q)))(q)
    expected = (1 + e) / np.einsum("ki,kij,kj->k", normals, np.linalg.inv(mass), normals)
    close(struck.impulses[:, 0], expected, 1e-10)
    close(jnp.einsum("ki,ki->k", normals, struck.v), e, 1e-10)
    change = 0.5 * (np.einsum("ki,kij,kj->k", struck.v, mass, struck.v) - np.einsum("ki,kij,kj->k", v, mass, v))
    close(struck.energy, change, 1e-10)
    close(dx.momentum(model, q[0], struck.v[0]), dx.momentum(model, q[0], v[0]), 1e-10)
    forth, back = (jax.jit(jax.vmap(j(lambda q, v: end(q, v).v))) for j in (jax.jacfwd, jax.jacrev))
    close(forth(q, v), back(q, v), 1e-9)
    h = 1e-6
    many = jax.jit(jax.vmap(lambda q, v: end(q, v).v))
    differences = np.stack([(many(q + h * x, v) - many(q - h * x, v)) / (2 * h) for x in np.eye(14)], axis=-1)
    close(forth(q, v), differences, 1e-6)


def _normals(scene, q):
    touch = c.contacts(scene, q)
    return jnp.einsum("ki,kij->kj", touch.normal, c.contact_jacobian(scene, touch, q))


def test_nothing_touches():
    scene, q = row_of_balls(3)
    none = jnp.zeros(3, bool)
    v, tau = jnp.array([1.0, 2.0, -1.0]), jnp.array([0.5, 0.0, 1.0])
    pressed = jax.jit(lambda: c.contact_dynamics(scene, q, v, tau, none))()
    close(pressed.a, tau, 1e-14)
    close(jax.jit(lambda: c.impact(scene, q, v, none))().v, v, 1e-14)
