"""Scenes from event to event: which contacts hold, and what ends them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.simulate import run_scene
from dynax.simulate.sets import SceneStatus

G = 9.81


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def in_plane(inertia):
    """A body that moves in the plane of x and z, and turns about y: of its own mass alone."""
    none = dx.SpatialInertia(0.0, (0, 0, 0), (0, 0, 0))
    builder = dx.ModelBuilder()
    builder.body("x", joint=dx.Prismatic((1, 0, 0)), inertia=none)
    builder.body("z", parent="x", joint=dx.Prismatic((0, 0, 1)), inertia=none)
    builder.body("body", parent="z", joint=dx.Revolute((0, 1, 0)), inertia=dx.SpatialInertia(1.0, (0, 0, 0), inertia))
    return builder.build()


def falling(restitution):
    builder = dx.ModelBuilder()
    builder.body("ball", joint=dx.Prismatic((0, 0, 1)), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1)))
    floor = c.Collider("world", c.Plane(), material=c.Material(restitution=restitution))
    return c.scene(builder.build(), [floor, c.Collider("ball", c.Sphere(0.0))])


@partial(jax.jit, static_argnames=("dt", "budget"))
def dropped(z, e, duration, dt, budget):
    return run_scene(falling(e), z[None], jnp.zeros(1), jnp.zeros(1), duration, dt, budget)


@pytest.mark.spec("T01", "RBDA-11.5-PROC")
def test_ball_comes_to_rest():
    """It bounces on time, and what would be without end is cut: from there on it lies."""
    run = dropped(1.0, 0.8, 5.0, dt=0.5, budget=60)
    first = np.sqrt(2 / G)
    bounces = run.time[run.which == 0]
    close(bounces[:6], first * (1 + 2 * np.cumsum(np.append(0, 0.8 ** np.arange(1, 6)))), 1e-11)
    assert run.status == SceneStatus.FINISHED
    close(run.time[-1], 5.0, 1e-12)
    assert run.cut == 1
    assert run.solved == np.sum(run.which >= 0)
    assert run.current[-1, 0]
    assert run.active[-1, 0]
    close(run.q[-1], 0.0, 1e-12)
    assert dropped(1.0, 0.8, 5.0, dt=0.01, budget=60).status == SceneStatus.BUDGET


def in_closed_form(x):
    """Where a ball is that was dropped from `z`, after six bounces."""
    z, e, duration, g = x
    first, hit = jnp.sqrt(2 * z / g), jnp.sqrt(2 * g * z)
    left = duration - first * (1 + 2 * jnp.sum(e ** jnp.arange(1, 6)))
    return hit * e**6 * left - 0.5 * g * left**2


@pytest.mark.slow
@pytest.mark.spec("T01", "T24")
def test_derivatives_of_a_bouncing_ball():
    """Of a scene as of the closed form: by height, restitution, time and gravity, first ones backwards and forwards,
    and second ones."""

    def last(x):
        z, e, duration, g = x
        scene = falling(e)
        scene = scene.replace(gravity=jnp.stack([0 * g, 0 * g, -g]))
        return run_scene(scene, z[None], jnp.zeros(1), jnp.zeros(1), duration, 0.5, 16).q[-1, 0]

    x = jnp.array([1.0, 0.8, 3.0, G])
    close(in_closed_form(x), 0.068707460966, 1e-11)
    curve, slope = jax.jit(jax.jacfwd(lambda x: (jax.grad(last)(x),) * 2, has_aux=True))(x)
    close(slope, jax.grad(in_closed_form)(x), 1e-9)
    close(slope[:3], [0.091738661043, 1.163887720985, -0.015354133385], 1e-9)
    close(curve, jax.hessian(in_closed_form)(x), 1e-7)
    close(curve[0, 0], -22.060984399961, 1e-7)
    value, forward = jax.jit(lambda x: jax.jvp(last, (x,), (jnp.array([1.0, 0.1, 0.0, 0.2]),)))(x)
    close(value, in_closed_form(x), 1e-10)
    close(forward, slope @ jnp.array([1.0, 0.1, 0.0, 0.2]), 1e-9)


@pytest.mark.slow
def test_what_begins_on_the_ground_stays_there():
    """Whatever of a normal velocity it is given, it loses at once, or by bounces that take no time."""
    zero = jnp.zeros(1)

    def end(v):
        run = run_scene(falling(0.8), zero, v, zero, 0.02, 0.01, 4)
        return run.q[-1], run.v[-1]

    found, slope = jax.jit(lambda v: jax.jvp(end, (v,), (jnp.ones(1),)))(zero)
    close(found, 0.0, 1e-12)
    close(slope, 0.0, 1e-9)


FEET = c.Points([[x, 0.0, 0.0] for x in (-0.5, -0.2, 0.2, 0.5)])


@pytest.mark.slow
@pytest.mark.spec("RBDA-11.5-SETS")
def test_bench_that_is_tipped_over():
    """Of four feet in a line two are active, whose forces are known, and another two as the load moves; none is asked
    for but at events. It tips where the moment is that of its weight about the last foot."""
    scene = c.scene(in_plane((0.1, 0.1, 0.1)), [c.Collider("world", c.Plane()), c.Collider("body", FEET)])
    rate = 0.5 * G / 0.7

    @jax.jit
    def run(q, v):
        push = lambda time, q, v: jnp.stack([0 * time, 0 * time, rate * time])  # noqa: E731
        return run_scene(scene, q, v, push, 0.8, 0.04, 30)

    found = run(jnp.array([0.0, 0.0, 0.0]), jnp.array([0.3, 0.0, 0.0]))
    assert found.status == SceneStatus.FINISHED
    events = np.asarray(found.which) >= 0
    assert found.solved == np.sum(events)
    tipped = int(np.argmax(np.asarray(found.q[:, 2]) > 1e-6))
    last = int(np.flatnonzero(events[:tipped])[-1])
    close(found.time[last], 0.7, 1e-6)
    assert np.all(np.sum(found.active[:last], axis=1) == 2)  # the rank of all four
    assert np.all(found.current[:last])
    assert list(np.asarray(found.active[last])) == [False, False, False, True]
    assert np.sum(events) < 9
    close(found.q[:, 0], 0.3 * found.time, 1e-9)
    # It turns about the last foot: what is left over of the moment, over the inertia about there.
    t = found.time[-1]
    close(found.q[-1, 2], rate * (t - 0.7) ** 3 / 6 / (0.1 + 0.25), 2e-5)


@pytest.mark.slow
@pytest.mark.spec("RBDA-11.6-EVENTS")
def test_block_that_slides_off_a_table():
    """A foot is lost where the table ends, though it was pressed; the other one alone holds the block from then on."""
    scene = c.scene(
        in_plane((0.1, 0.1, 0.1)),
        [
            c.Collider("world", c.Box([0.5, 0.5, 0.5])),
            c.Collider("body", c.Points([[-0.2, 0, 0], [0.2, 0, 0]])),
        ],
    )
    found = jax.jit(lambda q, v: run_scene(scene, q, v, jnp.zeros(3), 0.35, 0.04, 20))(
        jnp.array([0.0, 0.5, 0.0]), jnp.array([1.0, 0.0, 0.0])
    )
    assert found.status == SceneStatus.FINISHED
    events = np.flatnonzero(np.asarray(found.which) >= 0)
    close(found.time[events], [0.0, 0.3], 2e-6)
    assert list(np.asarray(found.active[events[1] - 1])) == [True, True]
    assert list(np.asarray(found.active[-1])) == [True, False]
    # About the foot that stays: the weight at an arm of 0.2, of the inertia 0.1 + 0.04.
    close(found.q[-1, 2], 0.5 * (0.2 * G / 0.14) * 0.05**2, 1e-3)
    close(c.contacts(scene, found.q[-1]).gap[0], 0.0, 1e-6)


@pytest.mark.slow
@pytest.mark.spec("T07", "RBDA-11.5-PROC")
def test_ladder_leaves_the_wall():
    """At two thirds of the height where it stood, at rest, on a floor and at a wall that do not rub."""
    wall = dx.Transform(np.array([[0, 0, 1.0], [0, 1, 0], [-1, 0, 0]]), np.zeros(3))
    ends = [c.Collider("body", c.Points([[0, 0, z]]), name=name) for z, name in ((0.5, "top"), (-0.5, "foot"))]
    scene = c.scene(
        in_plane((1 / 12, 1 / 12, 1 / 12)),
        [c.Collider("world", c.Plane(), name="floor"), c.Collider("world", c.Plane(), wall, name="wall"), *ends],
        pairs=[("floor", "foot"), ("wall", "top")],
    )
    angle = 0.5  # from the wall; the ladder turns about y by -angle
    q = jnp.array([0.5 * np.sin(angle), 0.5 * np.cos(angle), -angle])
    found = jax.jit(lambda q: run_scene(scene, q, jnp.zeros(3), jnp.zeros(3), 0.6, 0.0025, 260))(q)
    at_wall = [pair[1] for pair in scene.candidates].index(2)
    assert found.which[0] == 4
    left = int(np.flatnonzero(np.asarray(found.which)[1:] >= 0)[0]) + 1
    assert found.which[left] == 2 + at_wall
    top = found.q[left, 1] + 0.5 * np.cos(found.q[left, 2])
    close(top, 2 / 3 * np.cos(angle), 1e-6)
    assert not found.current[left, at_wall]
    assert found.current[left, 1 - at_wall]


@pytest.mark.spec("RBDA-11.6-MINSET")
def test_points_that_are_needed(rng):
    """Of a pentagon on a plane its corners, of what lies inside nothing; of all that touch these few do the same."""
    angles = 2 * np.pi * np.arange(5) / 5
    corners = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    weights = rng.dirichlet(np.ones(5), size=6)
    points = np.concatenate([weights[:3] @ corners, corners, weights[3:] @ corners])
    normals = np.concatenate([np.cross(points, [0, 0, 1.0]), np.tile([0, 0, 1.0], (11, 1))], axis=1)
    found = c.minimal_set(normals)
    assert list(found) == [3, 4, 5, 6, 7]
    assert list(c.minimal_set(np.concatenate([normals[3:8], normals[3:4]]))) == [1, 2, 3, 4, 5]
    inverse = np.diag(1 / np.array([0.1, 0.2, 0.3, 1, 1, 1]))
    for load in ([0.3, 0, 0, 0, 0, -G], [9.0, 2.0, 0, 0, 0, -G], [0, -3.0, 0, 0, 0, -G]):
        a = []
        for rows in (normals, normals[found]):
            free = inverse @ np.array(load)
            solved = c.complementary(jnp.asarray(rows @ inverse @ rows.T), jnp.asarray(rows @ free))
            a.append(free + inverse @ rows.T @ solved.x)
        close(a[0], a[1], 1e-7)
    with pytest.raises(ValueError, match="`normals` has shape"):
        c.minimal_set(np.zeros(3))


@pytest.mark.spec("RBDA-11.6-MINSET")
def test_disc_by_more_and_more_points():
    """The moment at which a disc of radius 1 tips, along a direction between two points, comes to its weight's: the
    distance of the edge of a polygon of n corners is cos(pi / n)."""
    inverse = jnp.asarray(np.diag(1 / np.array([0.25, 0.25, 0.5, 1, 1, 1])))

    def tips(n, moment):
        angles = 2 * np.pi * np.arange(n) / n
        rows = jnp.asarray(np.stack([np.sin(angles), -np.cos(angles), *np.zeros((3, n)), np.ones(n)], axis=1))
        # The axis of the moment is along the edge between the first two corners.
        free = inverse @ jnp.array([-jnp.sin(np.pi / n) * moment, jnp.cos(np.pi / n) * moment, 0, 0, 0, -G])
        a = free + inverse @ rows.T @ c.complementary(rows @ inverse @ rows.T, rows @ free).x
        return jnp.linalg.norm(a)

    for n in (4, 8, 16):
        least = G * np.cos(np.pi / n)
        still, turns = jax.jit(jax.vmap(partial(tips, n)))(jnp.array([least - 1e-3, least + 1e-3]))
        assert still < 1e-6 < 1e-3 < turns
        close(least, G, 0.5 * (np.pi / n) ** 2 * G)
