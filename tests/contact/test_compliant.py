"""Surfaces that yield."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import dynax as dx
from dynax import contact as c
from dynax.contact.compliant import near
from dynax.simulate import Compliant, TouchStatus

G = 9.81
K, D = 1e4, 40.0
RETURNS = 0.57174
"""What they leave of the speed of a kilogram."""


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def ball(joint, gravity=G):
    inertia = dx.SpatialInertia(1.0, (0, 0, 0), (0.004,) * 3)
    return dx.ModelBuilder(gravity=(0, 0, -gravity)).body("ball", joint=joint, inertia=inertia).build()


def on_ground(model, stiffness=K, damping=D, friction=0.2):
    material = c.Material(friction=friction, stiffness=stiffness, damping=damping)
    return c.scene(model, [c.Collider("world", c.Plane(), material=material), c.Collider("ball", c.Sphere(0.1))])


def made_of(scene, **numbers):
    """With other numbers for the first shape's surface."""
    first, *others = scene.materials
    return dataclasses.replace(scene, materials=(dataclasses.replace(first, **numbers), *others))


UP = ball(dx.Prismatic((0, 0, 1)))


@partial(jax.jit, static_argnames=("steps", "method", "every"))
def run(scene, q, v, dt, steps, method="semi_implicit", every=1, tau=0.0):
    tau = jnp.broadcast_to(jnp.asarray(tau, q.dtype), (steps, scene.nv))
    return dx.rollout(scene, q, v, tau, dt, stepper=Compliant(method), every=every)


@jax.jit
@partial(jax.vmap, in_axes=(None, 0))
def told(scene, motion):
    return c.compliant_forces(scene, *motion)


@pytest.mark.spec("T19", "RBDA-11.8-NORMAL")
@pytest.mark.parametrize(("method", "tolerance"), [("rk4", 1e-4), ("semi_implicit", 2e-3)])
def test_ball_lands_and_rests(method, tolerance):
    """It leaves with the part of its speed that theory says, and sinks in by its weight; the ground never pulls."""
    gravity = jnp.array([0.0, G])
    scenes = jax.vmap(lambda g: on_ground(UP).replace(gravity=jnp.stack([0 * g, 0 * g, -g])))(gravity)
    free = jax.vmap(partial(run, steps=3000, method=method), (0, None, 0, None))
    found = free(scenes, jnp.array([0.1]), jnp.array([[-1.0], [0.0]]), 2e-4)
    close(found.v[0, -1], RETURNS, tolerance)
    # What the damper took is what is missing.
    close(jnp.sum(found.touch.energy[0]), 0.5 * (found.v[0, -1, 0] ** 2 - 1), 1e-5)
    close(found.q[1, -1], 0.1 - G / K, 1e-7)
    close(found.patch.normal[1, -1], -G / K, 1e-7)
    assert found.touch.contacts[0, -1] == 0
    assert found.touch.contacts[1, -1] == 1
    assert np.all(found.touch.status == TouchStatus.SOLVED)
    close(jnp.max(found.touch.penetration[1]), -jnp.min(found.q[1] - 0.1), 1e-5)
    pushed = told(on_ground(UP), (found.q[0], found.v[0], jax.tree.map(lambda x: x[0], found.patch)))
    assert np.min(pushed.forces[..., 2]) >= 0.0
    # It parts before it is back where it began.
    apart = int(np.argmax((pushed.forces[1:, 0, 2] == 0) & (found.v[0, 1:, 0] > 0))) + 1
    assert found.q[0, apart, 0] < 0.1


@pytest.mark.spec("RBDA-11.8-NOSTATE")
def test_surface_goes_back_by_itself():
    """A ball that is lifted off and comes back before the dent is gone meets what is left of it, by the formula."""
    k, d, dt, steps = 1e3, 200.0, 1e-4, 4000
    lift = np.where((np.arange(steps) > 2000) & (np.arange(steps) <= 2100), 60.0, 0.0)
    found = run(on_ground(UP, k, d), jnp.array([0.1]), jnp.array([-1.0]), dt, steps, "rk4", tau=lift[:, None])
    p, v, left, parts = 0.0, -1.0, None, []
    for i in range(10 * steps):
        t, h = i * dt / 10, dt / 10
        if left is None:
            force = -k * p - d * v
            if force < 0:
                left, force = (t, p), 0.0
        else:
            force = 0.0
            if p <= left[1] * np.exp(-k * (t - left[0]) / d):
                parts.append((left[0], t, p))
                left, force = None, max(0.0, -k * p - d * v)
        v += h * (force - G + lift[i // 10])
        p += h * v
        if (i + 1) % 10000 == 0:
            close(found.q[(i + 1) // 10, 0] - 0.1, p, 3e-5)
    (_, came, dent) = parts[0]
    assert dent < -2e-3
    row = round(came / dt)
    close(found.patch.normal[row], dent, 2e-4)


@pytest.mark.spec("RBDA-11.8-EXT")
def test_two_surfaces():
    """One behind the other, and both in motion: as two patches of which each has its state, and what one body loses
    the other has."""
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    for name, mass in (("a", 1.0), ("b", 2.0)):
        builder.body(name, joint=dx.Free(), inertia=dx.SpatialInertia(mass, (0, 0, 0), (0.004,) * 3))
    hard, soft = c.Material(stiffness=3e4, damping=120.0), c.Material(stiffness=1e4, damping=40.0)
    colliders = [c.Collider(k, c.Sphere(0.1), material=m) for k, m in (("a", hard), ("b", soft))]
    scene = c.scene(builder.build(), colliders)
    dt, steps = 1e-4, 300
    q = jnp.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0.2, 1, 0, 0, 0.0])
    found = run(scene, q, jnp.zeros(12).at[11].set(-1.0), dt, steps)
    # Relative to each other they move as one body of the reduced mass.
    gap, v, one, other, h = 0.0, -1.0, 0.0, 0.0, dt / 20
    for _ in range(20 * steps):
        # Both patches bear one force, and together they fill the gap: z1' + z2' = v.
        force = max(0.0, -(v + (3e4 / 120) * one + (1e4 / 40) * other) / (1 / 120 + 1 / 40))
        one, other = one - h * (3e4 * one + force) / 120, other - h * (1e4 * other + force) / 40
        v += h * force * 1.5
        gap += h * v
    close(found.v[-1, 11] - found.v[-1, 5], v, 2e-3)
    close(found.q[-1, 9] - found.q[-1, 2] - 0.2, gap, 2e-5)
    close(found.v[:, 5] + 2 * found.v[:, 11], -2.0, 1e-12)


@pytest.mark.spec("T08", "RBDA-11.8-COULOMB", "RBDA-11.8-EXT")
def test_sphere_slips_then_rolls():
    """As the rigid one, with all its forces in the cone; it falls as the ball that can only fall."""
    scene = on_ground(ball(dx.Free()), 1e6, 400.0)
    dt, steps = 1e-4, 3000
    q = jnp.array([0, 0, 0.1 - G / 1e6, 1, 0, 0, 0])
    found = run(scene, q, jnp.zeros(6).at[3].set(1.0), dt, steps)
    # It begins where it sinks in by its weight, and stays there.
    close(found.q[:, 2], q[2], 1e-10)
    speed = jax.vmap(lambda q, v: dx.Rotation.from_quaternion(q[3:]).matrix @ v[3:])(found.q, found.v)[:, 0]
    close(speed[-1], 5 / 7, 1e-3)
    rolls = 2 / (7 * 0.2 * G)
    close(np.argmax(np.abs(speed - 0.1 * found.v[:, 1]) < 1e-3) * dt, rolls, 1e-3)
    close(np.interp(rolls, found.time, found.q[:, 0]), 12 / (49 * 0.2 * G), 1e-3)
    forces = told(scene, (found.q, found.v, found.patch)).forces[:, 0]
    assert np.all(np.hypot(forces[:, 0], forces[:, 1]) <= 0.2 * forces[:, 2] * (1 + 1e-12))
    drop = run(scene, q.at[2].set(0.11), jnp.zeros(6), dt, steps)
    alone = run(on_ground(UP, 1e6, 400.0), jnp.array([0.11]), jnp.zeros(1), dt, steps)
    close(drop.q[:, 2], alone.q[:, 0], 1e-12)


@pytest.mark.spec("T09", "RBDA-11.8-COULOMB")
def test_block_on_a_slope():
    """Below the angle of friction it stays, once it has settled; above it slides as fast as it ought to."""
    inertia = dx.SpatialInertia(1.0, (0, 0, 0), (0.1,) * 3)
    model = dx.ModelBuilder().body("block", joint=dx.Free(), inertia=inertia).build()
    feet = c.Points([[x, y, -0.1] for x in (-0.2, 0.2) for y in (-0.2, 0.2)])
    material = c.Material(friction=0.5, stiffness=1e4, damping=50.0)
    scenes, states = [], []
    for angle in np.deg2rad([26.0, 27.0]):
        rotation = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
        plane = c.Collider("world", c.Plane(), dx.Transform(rotation, np.zeros(3)), material)
        scenes.append(c.scene(model, [plane, c.Collider("block", feet)]))
        states.append(jnp.concatenate([0.1 * rotation[:, 2], dx.Rotation(rotation).quaternion()]))
    scene = jax.tree.map(lambda *x: jnp.stack(x), *scenes)
    found = jax.vmap(partial(run, steps=20_000, every=2000), (0, 0, None, None))(
        scene, jnp.stack(states), jnp.zeros(6), 5e-4
    )
    close(found.q[0, 5:] - found.q[0, -1], 0.0, 1e-6)
    close(found.v[0, -1], 0.0, 1e-9)
    angle = np.deg2rad(27.0)
    close(np.diff(found.v[1, 1:, 3]), G * (np.sin(angle) - 0.5 * np.cos(angle)), 1e-4)
    assert np.all(found.touch.energy[1, 1:] < 0)


@pytest.mark.usefixtures("optimised")
@pytest.mark.spec("T20")
def test_it_becomes_rigid():
    """A ball that bounces, and one that slips until it rolls: the difference falls with the root of the mass by the
    stiffness."""
    stiffness = jnp.array([1e4, 1e6, 1e8])
    angle = np.linspace(0.0, 0.5, 100_001)
    angle = angle[np.argmin(np.abs(np.exp(-np.tan(angle) * (np.pi - 2 * angle)) - 0.8))]
    damping = 2 * np.sin(angle) * jnp.sqrt(stiffness)

    def ends(model, q, v, dt, steps):
        def one(k, d, dt):
            found = run(made_of(on_ground(model), stiffness=k, damping=d), q, v, dt, steps, "rk4", every=steps)
            return found.q[-1], found.v[-1]

        return jax.jit(jax.vmap(one))(stiffness, damping, dt)

    fall = np.sqrt(2 * G)  # from a height of 1 m
    dt = 0.01 / jnp.sqrt(stiffness)
    q, v = (x[:, 0] for x in ends(UP, jnp.array([0.1]), jnp.array([-fall]), dt, 400))
    left = 1.0 - fall / G - 400 * dt
    error = np.abs(
        q - 0.1 + v * left - 0.5 * G * left**2 - (0.8 * fall * (1 - fall / G) - 0.5 * G * (1 - fall / G) ** 2)
    )
    np.testing.assert_allclose(error[:-1] / error[1:], 10.0, rtol=0.15)
    q, _ = ends(ball(dx.Free()), jnp.array([0, 0, 0.1, 1, 0, 0, 0]), jnp.eye(6)[3], jnp.full(3, 1e-5), 25_000)
    error = np.abs(q[:, 0] - (12 / (49 * 0.2 * G) + (0.25 - 2 / (7 * 0.2 * G)) * 5 / 7))
    assert np.all(error[:-1] / error[1:] > 8.0), error


@pytest.mark.spec("T24")
def test_derivatives_know_when_shapes_meet():
    """Of where a ball is after it has bounced, by where it began: less than 0, by what it keeps of its speed, however
    the steps lie; not the sign of fixed steps with impulses."""

    scene = on_ground(UP).replace(gravity=jnp.zeros(3))

    def end(z):
        return run(scene, z, jnp.array([-1.0]), 1e-4, 1000).q[-1]

    heights = 0.13 + 1e-4 * jnp.linspace(0.0, 1.0, 8)[:, None]
    forward, backward = (jax.jit(jax.vmap(of(end)))(heights) for of in (jax.jacfwd, jax.jacrev))
    close(forward, backward, 1e-9)
    close(backward, -RETURNS, 0.03)


@pytest.mark.spec("T24")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_special_points(dtype):
    """A ball far away, just touching, sunk in at rest, sliding, about the centre of another: derivatives are finite,
    forwards and backwards the same; batches are single steps; types are kept."""
    scene = on_ground(ball(dx.Free()))
    there = dx.Transform.from_translation((5.0, 0, 0.1))
    scene = c.scene(
        scene.model,
        [c.Collider("world", c.Plane()), c.Collider("ball", c.Sphere(0.1)), c.Collider("world", c.Sphere(0.1), there)],
    )
    places = [(0, 0, 1.0), (0, 0, 0.1), (0, 0, 0.099), (4.85, 0, 0.0995), (5.0, 0, 0.1)]
    q = jnp.concatenate([jnp.array(places), jnp.tile(jnp.array([1.0, 0, 0, 0]), (5, 1))], axis=1)
    scene, q, v = jax.tree.map(lambda x: jnp.asarray(x, dtype), (scene, q, jnp.zeros((5, 6)).at[3, 3].set(0.5)))
    flat = jax.tree.map(jnp.zeros_like, c.Patch.fitting(scene, q[0]))

    def forces(q, v, patch):
        """Those of both kinds of steps."""
        return near(scene, q, v).after(patch, jnp.asarray(1e-4, q.dtype)), c.compliant_forces(scene, q, v, patch)

    with jax.numpy_dtype_promotion("strict"):
        every = jax.jit(jax.vmap(forces, (0, 0, None)))(q, v, flat)
        for method in ("rk4", "semi_implicit"):
            moved = jax.eval_shape(partial(run, steps=2, method=method), scene, q[0], v[0], 1e-4)
            assert {x.dtype.name for x in jax.tree.leaves(moved)} == {dtype, "int32"}
    assert {x.dtype.name for x in jax.tree.leaves(every)} == {dtype}
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(every))
    assert all(np.all(x.forces[0] == 0.0) for x in every)
    if dtype == "float32":
        return
    for a, b in zip(jax.tree.leaves(jax.jit(forces)(q[3], v[3], flat)), jax.tree.leaves(every), strict=True):
        close(a, b[3], 1e-9)
    slopes = [
        jax.jit(jax.vmap(jacobian(forces, argnums=(0, 1, 2)), (0, 0, None)))(q, v, flat)
        for jacobian in (jax.jacfwd, jax.jacrev)
    ]
    for a, b in zip(*map(jax.tree.leaves, slopes), strict=True):
        assert np.all(np.isfinite(a))
        close(a, b, 1e-8 * (1 + np.max(np.abs(b), initial=0.0)))
    # What is far away is not rubbed whatever its slip, nor what just touches while it presses nothing.
    for x in jax.tree.leaves([found.forces for found in slopes[0]]):
        close(x[:2], 0.0, 1e-9)


def test_what_it_refuses():
    scene = on_ground(UP)
    with pytest.raises(ValueError, match="`method` is 'heun'"):
        Compliant("heun")
    with pytest.raises(ValueError, match="goes on from the state of surfaces"):
        dx.step(scene, jnp.array([0.1]), jnp.zeros(1), jnp.zeros(1), 0.01, stepper=Compliant())


def hunt_and_crossley(dissipation):
    """The part of the speed that comes back, whatever stiffness, exponent and mass: `c e + log(1 - c e)` is
    `log(1 + c) - c` for a speed of 1."""
    away = lambda e: dissipation * (1 + e) + np.log1p(-dissipation * e) - np.log1p(dissipation)  # noqa: E731
    return brentq(away, 1e-9, min(1.0, 1 / dissipation) - 1e-12, xtol=1e-14)


@pytest.mark.spec("RBDA-11.8-EXT")
@pytest.mark.parametrize(
    ("method", "tolerance"), [("rk4", 2e-5), pytest.param("semi_implicit", 1e-4, marks=pytest.mark.slow)]
)
def test_damper_that_grows_with_the_dent(method, tolerance):
    """It keeps the part of the speed that theory says, never pulls, and its force does not jump: the derivatives of
    `rk4` too know when shapes meet."""
    scene = made_of(on_ground(UP).replace(gravity=jnp.zeros(3)), dissipation=0.7, exponent=1.0)

    def end(z, exponent, stiffness):
        own = made_of(scene, exponent=exponent, stiffness=stiffness)
        found = run(own, z[None], jnp.array([-1.0]), 2e-4, 250, method)
        return found.q[-1, 0], (found.v[-1, 0], jnp.sum(found.touch.energy))

    expected = hunt_and_crossley(0.7)
    heights = 0.101 + 2e-4 * jnp.linspace(0.0, 1.0, 8)
    one = lambda z, n, k: jax.jvp(lambda z: end(z, n, k), (z,), (1.0,))  # noqa: E731
    many = jax.vmap(jax.vmap(one, (0, None, None)), (None, 0, 0))
    (_, (speed, energy)), (slope, _) = jax.jit(many)(heights, jnp.array([1.0, 1.5]), jnp.array([1e4, 1e6]))
    close(speed, expected, tolerance)
    close(energy, 0.5 * (expected**2 - 1.0), 2 * tolerance)
    close(slope, -expected, 0.15)
    close(np.mean(slope, axis=1), -expected, 0.03)


@pytest.mark.spec("RBDA-11.8-EXT")
def test_two_like_surfaces_are_one():
    """Each of two like ones takes half of the dent: as one of half the stiffness and half the dissipation."""
    one = c.Material(stiffness=4e4, dissipation=0.8, exponent=1.5)
    lumped = c.Material(stiffness=4e4 / 2**1.5, dissipation=0.4, exponent=1.5)
    rigid = c.Material()
    scenes = [
        c.scene(UP, [c.Collider("world", c.Plane(), material=a), c.Collider("ball", c.Sphere(0.1), material=b)])
        for a, b in ((one, one), (lumped, rigid))
    ]
    found = [c.compliant_forces(s, jnp.array([0.09]), jnp.array([-0.5]), c.Patch.fitting(s, [0.09])) for s in scenes]
    close(found[0].forces, found[1].forces, 1e-10)
    close(found[0].forces[0, 2], 4e4 / 2**1.5 * 0.01**1.5 * (1 + 0.4 * 0.5), 1e-9)
    away = c.compliant_forces(scenes[0], jnp.array([0.09]), jnp.array([3.0]), c.Patch.fitting(scenes[0], [0.09]))
    close(away.forces, 0.0, 0.0)
    with pytest.raises(dx.ModelError, match=r"its exponent is 0\.5, expected 1 or more"):
        c.scene(UP, [c.Collider("ball", c.Sphere(0.1), material=c.Material(exponent=0.5))])
