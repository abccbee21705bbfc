"""Shapes on bodies that bend."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.systems import at, floating, nodal_data
from flexible.test_embedding import coupler, four_bar, start

import dynax as dx
from dynax import contact as c
from dynax.contact.stops import stops_at
from dynax.simulate import Compliant, SceneStatus, Touching, run_scene

close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
E, RADIUS = 70e9, 0.01
SECTION = dx.BeamSection.tube(RADIUS, 0.002, E=E, density=2700.0)


def rates(scene, q, v):
    """The Jacobian, velocities, and how gaps change, of contacts and stops."""
    touch, h = c.contacts(scene, q), 1e-6
    ahead, behind = (dx.integrate(scene.model, q, s * h * v) for s in (1, -1))
    by_gap = (c.contacts(scene, ahead).gap - c.contacts(scene, behind).gap) / (2 * h)
    of_stops = stops_at(scene, q, None)
    by_stop = (stops_at(scene, ahead, None).gap - stops_at(scene, behind, None).gap) / (2 * h)
    velocity = c.contact_velocities(scene, touch, q, v)
    along = jnp.sum(touch.normal * velocity, axis=1)
    return (c.contact_jacobian(scene, touch, q) @ v, velocity), (along, by_gap), (of_stops.jacobian @ v, by_stop)


def test_nodes_move_with_the_modes(rng):
    model = floating(nodal_data(rng, 3), nodal_data(rng, 2))
    shapes = {
        "bus": c.Box([0.1, 0.2, 0.3]),
        "bus/side": c.Sphere(0.05),
        "boom/tip": c.Capsule(0.02, 0.1),
        "wheel": c.Sphere(0.1),
    }
    scene = c.scene(model, [c.Collider("world", c.Plane())] + [c.Collider(k, x) for k, x in shapes.items()])
    q = dx.integrate(model, dx.neutral(model), 0.2 * rng.normal(size=model.nv))
    for one, other in jax.jit(partial(rates, scene))(q, jnp.asarray(rng.normal(size=model.nv))):
        close(one, other, atol=1e-7)


def test_shapes_on_one_body_that_bends_do_not_touch(rng):
    """Nor do they touch what it is carried by, or carries, on whichever node."""
    model = floating(nodal_data(rng, 3), nodal_data(rng, 2))
    names = ["bus", "bus/tip", "bus/side", "wheel", "boom", "boom/tip", "end"]
    scene = c.scene(model, [c.Collider(name, c.Sphere(0.1), name=name) for name in names])
    found = {tuple(scene.names[k] for k in pair) for pair in scene.pairs}
    assert found == {("wheel", "boom"), ("wheel", "boom/tip"), ("wheel", "end")}


def test_a_loop_that_bends_embedded(rng):
    tree = four_bar(coupler(2))
    q = start(tree, tree.v_slice("coupler/modes"), rng)
    model = dx.embed(tree, q)
    scene = c.scene(model, [c.Collider("world", c.Plane()), c.Collider("coupler/tip", c.Sphere(0.05))])
    for one, other in rates(scene, q, jnp.asarray(rng.normal(size=model.nv))):
        close(one, other, atol=1e-6)
    end = dx.rollout(scene, q, jnp.zeros(model.nv), jnp.zeros((3, model.nv)), 1e-4)
    assert np.all(np.isfinite(end.q))


def weight_and_stiffness():
    """Of the beam by its length of a metre [N, N m^2]."""
    inner = RADIUS - 0.002
    return 2700.0 * np.pi * (RADIUS**2 - inner**2) * 9.81, E * np.pi / 4 * (RADIUS**4 - inner**4)


@pytest.mark.slow
def test_a_propped_cantilever():
    """The ground bears `3 E I / l^3` of the way from it to where the tip would hang, `w l^4 / 8 E I` below the straight
    line (Euler and Bernoulli)."""
    weight, stiffness = weight_and_stiffness()
    way = 0.5 * weight / (8 * stiffness)
    beam = dx.flexible_beam(SECTION, 1.0, modes=6, damping_ratio=0.3)
    model = dx.ModelBuilder().body("beam", placement=at(0, 0, way + RADIUS), inertia=beam).build()
    scene = c.scene(model, [c.Collider("world", c.Plane()), c.Collider("beam/tip", c.Sphere(RADIUS))])
    none, dt = jnp.zeros(6), jnp.asarray(5e-5)
    run = jax.jit(lambda q, v: dx.rollout(scene, q, v, jnp.zeros((20000, 6)), dt))(none, none)
    assert np.all(run.touch.status == 0)
    found = Touching().touched(scene, run.q[-1], run.v[-1], none, dt)
    close(found.impulses[0, 2] / dt, 3 * stiffness * way, rtol=0.01)
    close(c.contacts(scene, run.q[-1]).gap, 0.0, atol=1e-8)


def boom_and_ball():
    """A hub with a boom floats, and a ball comes to hit the boom's tip; the state just before it does."""
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    builder.body("hub", joint=dx.Free(), inertia=dx.SpatialInertia(0.5, (0.02, 0, 0), (0.01, 0.012, 0.013)))
    builder.body("boom", parent="hub", inertia=dx.flexible_beam(SECTION, 1.0, modes=2, damping_ratio=0.02))
    builder.body("ball", joint=dx.Free(), inertia=dx.SpatialInertia.sphere(0.05, mass=0.3))
    model = builder.build()
    rough = c.Material(friction=0.4, restitution=0.3)
    tip, ball = c.Collider("boom/tip", c.Sphere(0.03), material=rough), c.Collider("ball", c.Sphere(0.05))
    q = dx.neutral(model).at[jnp.array([9, 10, 11])].set(jnp.array([1.02, 0.01, 0.0769]))
    v = jnp.zeros(model.nv).at[jnp.array([0, 1, 2, 11, 12, 13])].set(jnp.array([0.5, 0.3, -0.4, 0.1, 0.2, -3.0]))
    return c.scene(model, [tip, ball]), q, v.at[6:8].set(jnp.array([0.3, -0.2]))


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_a_hit_of_a_tip(dtype):
    """It bends the boom and sets the hub going, loses energy and no momentum; its slopes are its differences."""
    scene, *state = boom_and_ball()
    q, v = (x.astype(dtype) for x in state)
    model, dt = scene.model, jnp.asarray(2e-4, dtype)
    step = jax.jit(lambda v: Touching().touched(scene, q, v, jnp.zeros_like(v), dt))
    end, alone = step(v), dx.step(model, q, v, jnp.zeros_like(v), dt)
    assert end.report.status == 0
    assert end.report.contacts == 1
    hub_and_modes = np.abs(end.v - alone[1])[jnp.array([1, 5, 6, 7])]
    assert np.all(hub_and_modes > 1e-3)
    change = dx.momentum(model, end.q, end.v) - dx.momentum(model, *alone)
    close(change, 0.0, atol=2e-4)
    assert end.report.energy < 0
    if dtype == jnp.float64:
        h = 1e-7 * np.eye(model.nv)
        many = jax.jit(jax.vmap(lambda v: step(v).v))
        slope = jax.jit(jax.jacfwd(lambda v: step(v).v))(v)
        close(slope, ((many(v + h) - many(v - h)) / 2e-7).T, atol=1e-6)
        close(jax.jit(jax.jacrev(lambda v: step(v).v))(v), slope)


@pytest.mark.parametrize("stepper", ["semi_implicit", "rk4"])
def test_of_surfaces_that_yield(stepper):
    """The same hit of compliant contact, over the time it takes."""
    scene, q, v = boom_and_ball()
    soft = c.Material(stiffness=2e4, damping=2.0, friction=0.4)
    model, shapes = scene.model, zip(("boom/tip", "ball"), (0.03, 0.05), strict=True)
    scene = c.scene(model, [c.Collider(name, c.Sphere(r), material=soft) for name, r in shapes])
    run = jax.jit(lambda q, v: dx.rollout(scene, q, v, jnp.zeros((300, model.nv)), 1e-4, stepper=Compliant(stepper)))(
        q, v
    )
    start, end = (dx.momentum(model, run.q[k], run.v[k]) for k in (0, -1))
    close(end[3:], start[3:], atol=1e-3)
    assert run.v[-1, 13] > -2.5


@pytest.mark.slow
def test_from_event_to_event():
    scene, q, v = boom_and_ball()
    none = jnp.zeros(scene.nv)
    run = jax.jit(lambda q, v: run_scene(scene, q, v, none, 0.01, 1e-3, budget=40))(q, v)
    assert run.status == SceneStatus.FINISHED
    start, end = (dx.momentum(scene.model, run.q[k], run.v[k]) for k in (0, -1))
    close(end, start, atol=1e-5)
    assert abs(run.v[-1, 13] - v[13]) > 0.3
