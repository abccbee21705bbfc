"""Scenes from event to event with friction: what sticks, what slides, and what changes that."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.contact.rubbing import Held, begun, rubbing_dynamics
from dynax.simulate import run_scene
from dynax.simulate.sets import SceneStatus

G, RADIUS = 9.81, 0.1
NONE = dx.SpatialInertia(0.0, (0, 0, 0), (0, 0, 0))
pytestmark = pytest.mark.slow


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def events(run):
    """Times of all but the beginning."""
    return np.asarray(run.time)[np.flatnonzero(np.asarray(run.which) >= 0)][1:]


def side_by_side(friction, gravity, restitution):
    """A ball of 1 kg that moves and turns in a plane, and a point of 1 kg that only moves."""
    builder = dx.ModelBuilder()
    for name in ("ball", "block"):
        builder.body(f"{name} x", joint=dx.Prismatic((1, 0, 0)), inertia=NONE)
        turns = name == "ball"
        own = dx.SpatialInertia(1.0, (0, 0, 0), (0.4 * RADIUS**2,) * 3)
        up = dx.Prismatic((0, 0, 1))
        builder.body(f"{name} z", parent=f"{name} x", joint=up, inertia=NONE if turns else own)
    builder.body("ball", parent="ball z", joint=dx.Revolute((0, 1, 0)), inertia=own)
    return c.scene(
        builder.build().replace(gravity=gravity),
        [
            c.Collider(
                "world", c.Plane(), material=c.Material(friction=friction, restitution=restitution), name="floor"
            ),
            c.Collider("ball", c.Sphere(RADIUS), name="ball"),
            c.Collider("block z", c.Sphere(0.0), name="block"),
        ],
        pairs=[("floor", "ball"), ("floor", "block")],
        limits=False,
    )


def motion(speed, friction, gravity, ramp, height, restitution, duration, dt, budget=24):
    """Both begin with a speed; on the block alone a force grows by `ramp` [N/s]."""
    scene = side_by_side(friction, gravity, restitution)
    at = {k: scene.model.body_index(k) for k in ("ball x", "ball z", "ball", "block x", "block z")}
    q = jnp.zeros(5).at[at["ball z"]].set(RADIUS + height).at[at["block z"]].set(0.0)
    v = jnp.zeros(5).at[at["ball x"]].set(speed).at[at["block x"]].set(speed)
    push = lambda time, q, v: jnp.zeros(5).at[at["block x"]].set(ramp * time)  # noqa: E731
    run = run_scene(scene, q, v, push, duration, dt, budget, friction=True)
    order = np.array(list(at.values()))
    return run, run.q[:, order], run.v[:, order]


compiled = jax.jit(motion)


def moved(speed, friction, gravity, ramp=0.0, height=0.0, restitution=0.0, duration=0.5, dt=0.1):
    """One program for all."""
    return compiled(speed, friction, gravity, ramp, height, restitution, duration, dt)


FLAT = jnp.array([0.0, 0.0, -G])


def slope(degrees):
    return G * jnp.array([np.sin(np.radians(degrees)), 0.0, -np.cos(np.radians(degrees))])


@pytest.mark.spec("T08", "RBDA-11.7-FRICTION")
def test_slip_that_comes_to_its_end():
    """A ball rolls, a block lies: when, where, and how fast."""
    run, q, v = moved(1.0, 0.2, FLAT, duration=0.7)
    assert run.status == SceneStatus.FINISHED
    close(events(run), [2 / (7 * 0.2 * G), 1 / (0.2 * G)], 1e-12)
    first = int(np.flatnonzero(np.asarray(run.which) >= 0)[1])
    close(q[first, 0], 0.124820570, 1e-9)
    close(v[-1, 0], 5 / 7, 1e-12)
    close(v[-1, 2] * RADIUS, 5 / 7, 1e-12)
    close([q[-1, 3], v[-1, 3]], [1 / (2 * 0.2 * G), 0.0], 1e-12)
    assert np.all(run.stuck[-1])


@pytest.mark.spec("T09")
def test_block_on_a_slope():
    """It lies below the angle of friction and slides above; shoved up it stops, and stays or comes back."""
    run, q, _ = moved(0.0, 0.5, slope(26.0), duration=10.0, dt=1.0)
    assert run.status == SceneStatus.FINISHED
    close(q[-1, 3], 0.0, 1e-12)
    run, q, v = moved(0.0, 0.5, slope(27.0), duration=10.0, dt=1.0)
    close(v[-1, 3], 10 * 0.083260, 1e-4)
    close(v[-1, 3], 10 * G * (np.sin(np.radians(27)) - 0.5 * np.cos(np.radians(27))), 1e-9)
    assert not run.stuck[-1, 1]
    for degrees, back in ((20.0, False), (40.0, True)):
        run, q, v = moved(-1.0, 0.5, slope(degrees), duration=1.0)
        sine, cosine = np.sin(np.radians(degrees)), np.cos(np.radians(degrees))
        stops = 1 / (G * (sine + 0.5 * cosine))
        assert np.min(np.abs(events(run) - stops)) < 1e-12
        down = G * (sine - 0.5 * cosine) * (1 - stops) if back else 0.0
        close(v[-1, 3], down, 1e-12)
        close(q[-1, 3], -0.5 * stops + 0.5 * down * (1 - stops), 1e-12)


def test_push_that_grows():
    """The block sticks until friction is used up, and then goes with what is left over."""
    run, q, _ = moved(0.0, 0.4, FLAT, ramp=10.0, duration=0.8)
    begins = 0.4 * G / 10
    assert run.status == SceneStatus.FINISHED
    close(events(run), [begins], 1e-8)
    close(q[-1, 3], 10 * (0.8 - begins) ** 3 / 6, 1e-9)


def test_ball_that_bounces_and_turns():
    """Friction of the impact by its normal impulse while it slides; in the end it rolls."""
    e, mu, fall = 0.5, 0.1, np.sqrt(2 * 0.2 / G)
    run, _, v = moved(2.0, mu, FLAT, height=0.2, restitution=e, duration=0.5)
    hits = np.flatnonzero(np.asarray(run.which) == 0)
    close(run.time[hits[0]], fall, 1e-12)
    lost = mu * (1 + e) * G * fall
    close(v[hits[0], :3], [2 - lost, e * G * fall, 2.5 * lost / RADIUS], 1e-7)
    # Of the block nothing but sliding; of the ball on its way what the impact left.
    close(v[-1, 3], 2.0 - mu * G * 0.5, 1e-9)


MIX = jnp.array([1.0, 0.3])


def in_closed_form(x):
    """Where the ball and the block are after 0.7 s."""
    speed, mu, g = x
    rolls, stops = 2 * speed / (7 * mu * g), speed / (mu * g)
    ball = speed * rolls - 0.5 * mu * g * rolls**2 + 5 / 7 * speed * (0.7 - rolls)
    return jnp.stack([ball, speed * stops - 0.5 * mu * g * stops**2])


def last(x):
    speed, mu, g = x
    _, q, _ = motion(speed, mu, jnp.stack([0 * g, 0 * g, -g]), 0.0, 0.0, 0.0, 0.7, 0.4, budget=8)
    return MIX @ q[-1, jnp.array([0, 3])]


def mixed(x):
    return MIX @ in_closed_form(x)


@pytest.mark.spec("T08", "T24")
def test_derivatives_know_when_slip_ends():
    """First and second ones, by speed, friction and gravity. Forwards, since backwards they take minutes to compile."""
    x, ways = jnp.array([1.0, 0.2, G]), jnp.eye(3)

    @jax.jit
    def along(way, other):
        return jax.jvp(lambda x: jax.jvp(last, (x,), (way,)), (x,), (other,))

    (values, slopes), (_, curves) = jax.tree.map(
        lambda *rows: jnp.stack(rows), *[along(way, other) for way in ways for other in ways]
    )
    close(values, mixed(x), 1e-12)
    close(slopes.reshape(3, 3), jnp.tile(jax.grad(mixed)(x)[:, None], 3), 1e-12)
    close(curves.reshape(3, 3), jax.hessian(mixed)(x), 1e-12)


def two_feet(friction, gravity, feet, inertia):
    """A body of 1 kg that moves and turns in a plane, on two points."""
    builder = dx.ModelBuilder()
    builder.body("x", joint=dx.Prismatic((1, 0, 0)), inertia=NONE)
    builder.body("z", parent="x", joint=dx.Prismatic((0, 0, 1)), inertia=NONE)
    own = dx.SpatialInertia(1.0, (0, 0, 0), (1.0, 1.0, 1.0))
    builder.body("body", parent="z", joint=dx.Revolute((0, 1, 0)), inertia=own)
    model = builder.build()
    model = model.replace(gravity=gravity, inertia=inertia * model.inertia)
    material = c.Material(friction=friction)
    return c.scene(
        model,
        [c.Collider("world", c.Plane(), material=material), c.Collider("body", c.Points(feet))],
        limits=False,
    )


@jax.jit
def stood(q, v, friction, gravity, feet, inertia, duration, dt):
    return run_scene(two_feet(friction, gravity, feet, inertia), q, v, jnp.zeros(3), duration, dt, 24, friction=True)


FEET = jnp.array([[-0.2, 0.0, -0.3], [0.2, 0.0, -0.3]])


@pytest.mark.spec("T09", "RBDA-11.5-SETS")
def test_two_feet_that_share_what_friction_takes():
    """On a slope the lower foot bears more. What the upper one cannot hold the lower one does, and they slide together
    where the sum is used up; stopped, the body lies."""
    q, still = jnp.array([0.0, 0.3, 0.0]), jnp.zeros(3)
    run = stood(q, still, 0.5, slope(26.0), FEET, 0.05, 2.0, 0.25)
    assert run.status == SceneStatus.FINISHED
    close(run.q[-1], q, 1e-10)
    assert np.any(run.stuck[-1])
    run = stood(q, still, 0.5, slope(27.0), FEET, 0.05, 2.0, 0.25)
    assert run.status == SceneStatus.FINISHED
    close(run.v[-1], [2 * G * (np.sin(np.radians(27)) - 0.5 * np.cos(np.radians(27))), 0, 0], 1e-8)
    run = stood(q, jnp.array([1.0, 0.0, 0.0]), 0.4, FLAT, FEET, 0.05, 1.0, 0.1)
    assert run.status == SceneStatus.FINISHED
    close(run.q[-1], [1 / (2 * 0.4 * G), 0.3, 0.0], 1e-10)
    close(run.v[-1], 0.0, 1e-10)


def test_block_that_tips_as_it_is_stopped():
    """Friction on high feet turns it over: it leaves the ground with the foot behind, and slides on the other one."""
    friction, high, inertia = 0.9, 0.3, 0.05
    run = stood(jnp.array([0.0, high, 0.0]), jnp.array([1.0, 0.0, 0.0]), friction, FLAT, FEET, inertia, 0.02, 0.005)
    assert run.status == SceneStatus.FINISHED
    assert list(np.asarray(run.current[-1])) == [False, True]
    # Of the foot ahead: z'' + l angle'' = 0 for small angles, I angle'' = f (mu h - l), z'' = f - g.
    l = 0.2
    force = G / (1 + l * (l - friction * high) / inertia)
    close(run.v[-1, 0], 1 - friction * force * 0.02, 1e-3)


@pytest.mark.spec("T15")
def test_rod_that_friction_presses_in():
    """Painleve's: a uniform rod that leans back as its foot slides ahead. Where friction is strong enough no force
    keeps the foot out, and that is told; with less it slides."""
    length = 1.0
    inertia = length**2 / 12
    angle = np.radians(60.0)  # from the ground; critical is (1 + 3 c^2) / (3 c s)
    cosine, sine = np.cos(angle), np.sin(angle)
    critical = (1 + 3 * cosine**2) / (3 * cosine * sine)
    feet = 0.5 * length * jnp.array([[cosine, 0.0, -sine], [-cosine, 0.0, 3 * sine]])
    q = jnp.array([0.0, 0.5 * length * sine, 0.0])
    found = {
        friction: stood(q, jnp.array([1.0, 0.0, 0.0]), friction, FLAT, feet, inertia, 0.005, 0.0005)
        for friction in (0.9 * critical, 1.1 * critical)
    }
    below, above = found.values()
    assert below.status == SceneStatus.FINISHED
    assert np.all(below.active[-1] == np.array([True, False]))
    assert above.status == SceneStatus.JAMMED
    assert np.all(np.isfinite(above.q))


@pytest.mark.spec("T15")
def test_critical_friction_of_a_rod():
    """Of the rod at 63.4349 degrees it is 4/3: the force that keeps the foot out is that of a smooth foot, divided by
    `1 - mu / critical`, and at the critical value no force does."""
    length, cosine, sine = 1.0, np.sqrt(0.2), np.sqrt(0.8)
    feet = 0.5 * length * jnp.array([[cosine, 0.0, -sine], [-cosine, 0.0, 3 * sine]])
    q, v = jnp.array([0.0, 0.5 * length * sine, 0.0]), jnp.array([1.0, 0.0, 0.0])
    first = jnp.array([True, False])

    @jax.jit
    def rubbed(friction):
        scene = two_feet(friction, FLAT, feet, length**2 / 12)
        held = begun(scene, q, v, Held.none(2, q.dtype)._replace(current=first, active=first))
        return rubbing_dynamics(scene, q, v, jnp.zeros(3), held)

    near, far = rubbed(1.0), rubbed(1.3)
    close(1.3 - far.hold[0] * 0.3 / (far.hold[0] - near.hold[0]), 4 / 3, 1e-9)
    close(rubbed(4 / 3).hold[0], 0.0, 1e-9)
    close(far.forces[0], G / (1 + 3 * cosine**2) / (1 - 1.3 * 3 / 4), 1e-9 * G)


def in_space(friction, gravity):
    """A ball of 1 kg that is free, and a point of 1 kg that only moves."""
    own = dx.SpatialInertia(1.0, (0, 0, 0), (0.4 * RADIUS**2,) * 3)
    builder = dx.ModelBuilder().body("ball", joint=dx.Free(), inertia=own)
    builder.body("x", joint=dx.Prismatic((1, 0, 0)), inertia=NONE)
    builder.body("y", parent="x", joint=dx.Prismatic((0, 1, 0)), inertia=NONE)
    builder.body("point", parent="y", joint=dx.Prismatic((0, 0, 1)), inertia=own)
    return c.scene(
        builder.build().replace(gravity=gravity),
        [
            c.Collider("world", c.Plane(), material=c.Material(friction=friction), name="floor"),
            c.Collider("ball", c.Sphere(RADIUS), name="ball"),
            c.Collider("point", c.Sphere(0.0), name="point"),
        ],
        pairs=[("floor", "ball"), ("floor", "point")],
        limits=False,
    )


@jax.jit
def slid(spin, velocity, point, friction, gravity):
    q = jnp.array([0, 0, RADIUS, 1.0, 0, 0, 0, 0, 0, 0])
    v = jnp.concatenate([spin, velocity, point])
    run = run_scene(in_space(friction, gravity), q, v, jnp.zeros(9), 0.3, 0.003, 110, friction=True)
    turned = jax.vmap(lambda q: dx.forward_kinematics(in_space(friction, gravity).model, q).rotation[0])(run.q)
    return run, turned @ run.v[:, 3:6, None]


@pytest.mark.spec("T08", "T22")
def test_slip_in_space():
    """A ball with any spin rolls in the end as theory says. A point on a slope of the angle of friction, pushed across
    it, keeps the sum of its speed and of the part of it down the slope; let go on a steeper one it goes straight down.
    """
    spin, velocity = jnp.array([2.0, -3.0, 4.0]), jnp.array([1.0, 0.5, 0.0])
    run, turned = slid(spin, velocity, jnp.array([1.0, 0, 0]), 0.3, FLAT)
    slip = velocity + jnp.cross(spin, jnp.array([0, 0, -RADIUS]))
    assert run.status == SceneStatus.FINISHED
    close(turned[-1, :, 0], velocity - 2 / 7 * slip, 1e-6)
    assert np.min(np.abs(events(run) - 2 * jnp.linalg.norm(slip) / (7 * 0.3 * G))) < 1e-6
    assert run.stuck[-1, 0]

    still = jnp.zeros(3)
    run, _ = slid(still, still, jnp.array([0.0, 1.0, 0.0]), np.tan(np.radians(20.0)), slope(20.0))
    speed = jnp.linalg.norm(run.v[:, 6:8], axis=1) + run.v[:, 6]
    assert run.status == SceneStatus.FINISHED
    close(speed, 1.0, 1e-6)
    assert np.abs(run.v[-1, 7]) < 0.7  # it has turned by far

    down = jnp.array([0.6, 0.8, 0.0]) * slope(30.0)[0] + jnp.array([0, 0, 1.0]) * slope(30.0)[2]
    run, _ = slid(still, still, still, 0.2, down)
    a = G * (np.sin(np.radians(30)) - 0.2 * np.cos(np.radians(30)))
    close(run.v[-1, 6:8], 0.3 * a * np.array([0.6, 0.8]), 1e-8)
