"""Impacts with friction."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import dynax as dx
from dynax import contact as c
from dynax.contact import ImpactStatus
from dynax.contact.course import struck

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
    with pytest.raises(ValueError, match="`law` is 'energetic', expected one of 'coulomb', 'poisson', 'arrested'"):
        c.frictional_impact(BALL, LOW, v[0], [True], "energetic")
    with pytest.raises(ValueError, match=r"`touching` has shape \(\), expected \(1,\): of each candidate"):
        c.frictional_impact(BALL, LOW, v[0], True)
    with pytest.raises(ValueError, match=r"`law` is 'arrested', expected .* \(sequential\)"):
        c.frictional_impact(BALL, LOW, v[0], [True], "arrested", sequential=True)


def routh(m, friction, e, u, law):
    """The impulse along and across the surface of a planar impact, from corner to corner of Routh's diagram: of the
    mobility `m` (2, 2) and the velocity `u` before."""
    (slip, speed), p, along, work, compressed = u, 0.0, 0.0, 0.0, None
    begin = speed
    while True:
        sticks = -m[0, 1] / m[0, 0]
        ratio = -friction * np.sign(slip) if slip else np.clip(sticks, -friction, friction)
        slips, rises = m @ [ratio, 1.0]
        ends = []
        if slip and slips * slip < 0:
            ends.append((-slip / slips, "stop"))
        if compressed is None and rises > 0:
            ends.append((-speed / rises, "middle"))
        if compressed is not None:
            left = max(-(e**2) * compressed[1] - (work - compressed[1]), 0.0)
            square = speed**2 + 2 * rises * left
            end = {
                "coulomb": (-e * begin - speed) / rises if rises > 0 else np.inf,
                "poisson": (1 + e) * compressed[0] - p,
                "energetic": 2 * left / (speed + np.sqrt(square)) if square > 0 else np.inf,
            }[law]
            ends.append((end, "end"))
        h, what = min(ends)
        work += speed * h + 0.5 * rises * h * h
        p, along, speed = p + h, along + ratio * h, speed + rises * h
        slip = 0.0 if what == "stop" else slip + slips * h
        if what == "middle":
            compressed = p, work
        if what == "end":
            return along, p


@pytest.mark.spec("RBDA-11.7-FRICTION")
@pytest.mark.parametrize("law", ["coulomb", "poisson", "energetic"])
def test_course_of_a_planar_impact(law, rng):
    """Slip that stops, turns, or presses the body in on its way: Routh's diagram, whose corners are known exactly."""
    cases = []
    for _ in range(64):
        x, z = rng.normal(size=2)
        rows = np.array([[1, 0, -z], [0, 1, x]])
        m = rows @ np.diag([1.0, 1.0, 10.0]) @ rows.T
        cases.append((m, rng.uniform(0.05, 1.5), rng.uniform(), np.array([2 * rng.normal(), -1.0])))
    expected = np.array([routh(*case, law) for case in cases])
    mobility, u = np.zeros((64, 3, 3)), np.zeros((64, 3))
    mobility[:, 1, 1] = 1.0
    for k, (m, *_, before) in enumerate(cases):
        mobility[k, ::2, ::2], u[k, ::2] = m, before
    friction, e = np.array([case[1:3] for case in cases]).T
    course = jax.jit(jax.vmap(lambda *x: struck(*x, "newton" if law == "coulomb" else law)))
    found, done = course(mobility, friction, e, u)
    close(found[:, ::2], expected, 1e-10)
    assert np.all(done)


def test_slip_that_turns(rng):
    """In space it does so all the time: Keller's equations by SciPy, to first order in the length of a part."""
    rows = np.concatenate([np.eye(3), -np.cross(np.eye(3), [0.3, -0.2, 0.25])], axis=1)
    m = rows @ np.diag([1.0, 1.0, 1.0, 10.0, 5.0, 8.0]) @ rows.T
    u, friction, e = np.array([1.5, -0.7, -1.0]), 0.4, 0.6

    def rates(_, x):
        way = np.append(-friction * x[:2] / np.linalg.norm(x[:2]), 1.0)
        return np.concatenate([m @ way, way, x[2:3]])

    def still(_, x):
        return x[2]

    still.direction = 1
    middle = solve_ivp(rates, (0, 9), np.append(u, np.zeros(4)), events=still, rtol=1e-10, atol=1e-12)
    (x,) = middle.y_events[0]

    def worked(_, y):
        return y[6] - x[6] * (1 - e**2)

    end = solve_ivp(rates, (0, 9), x, events=worked, rtol=1e-10, atol=1e-12).y_events[0][0]
    found, done = jax.jit(lambda u: struck(jnp.asarray(m), jnp.asarray(friction), jnp.asarray(e), u, "energetic"))(u)
    assert done
    close(found, end[3:6], 5e-3 * np.linalg.norm(end[3:6]))
    assert abs(np.arctan2(u[1], u[0]) - np.arctan2(end[1], end[0])) > 0.1


TOP = body(c.Sphere(0.0), (0.05, 0.1, 0.08), com=(0.3, 0.1, 0.4))
ON_TIP = jnp.array([0, 0, 0, 1.0, 0, 0, 0])


def tips(rng):
    """Velocities with which the tip meets the ground, and coefficients of friction."""
    rows = np.asarray(c.contact_jacobian(TOP, c.contacts(TOP, ON_TIP), ON_TIP))[0]
    v = rng.normal(size=(40, 6))
    v[:, 5] -= (v @ rows.T)[:, 2] + 1.0
    return rows, v, rng.uniform(0.0, 1.5, size=40).round(1)


@partial(jax.jit, static_argnames="law")
@partial(jax.vmap, in_axes=(0, 0, 0, None))
def tipped(v, friction, e, law):
    material = c.Material(friction=friction, restitution=e)
    scene = c.scene(TOP.model, [c.Collider("world", c.Plane(), material=material), c.Collider("body", c.Sphere(0.0))])
    return c.frictional_impact(scene, ON_TIP, v, [True], law, sequential=True)


@pytest.mark.spec("RBDA-11.7-FRICTION")
def test_energetic_restitution_gains_none(rng):
    """Of bodies hit off their centres, whatever friction and restitution; Newton's gains some. Both agree where nothing
    rubs."""
    rows, v, friction = tips(rng)
    found = {law: tipped(v, friction, np.ones(40), law) for law in ("coulomb", "energetic")}
    close(np.maximum(found["energetic"].energy, 0.0), 0.0, 1e-9)
    assert np.all(found["energetic"].status == ImpactStatus.DONE)
    assert np.any(found["coulomb"].status == ImpactStatus.ENERGY_GAINED)
    smooth = [tipped(v, np.zeros(40), np.full(40, 0.7), law).v for law in found]
    close(smooth[0] @ rows[2], 0.7, 1e-9)
    close(smooth[1], smooth[0], 1e-9)


@pytest.mark.slow
def test_derivatives_of_energetic_restitution(rng):
    """Those of differences, but where a corner of the diagram lies between the two."""
    _, v, friction = tips(rng)
    e, h = np.full(40, 0.7), 1e-6

    def end(v):
        return jnp.sum(tipped(v, friction, e, "energetic").v, axis=0)

    slope = jax.jit(jax.jacrev(end))(jnp.asarray(v))[:, :, 3].T
    ahead, behind = (tipped(v + s * h * np.eye(6)[3], friction, e, "energetic").v for s in (1, -1))
    error = np.abs(slope - (ahead - behind) / (2 * h))
    assert np.median(error) < 1e-8
    assert np.quantile(error, 0.9) < 1e-5


@pytest.mark.slow
def test_a_ball_in_a_corner():
    """Poisson's impulses come back as they went, at once and one after another."""
    wall = dx.Transform(np.array([[0, 0, 1.0], [0, 1, 0], [-1, 0, 0]]), np.zeros(3))
    material = c.Material(friction=0.0, restitution=0.5)
    corner = c.scene(
        BALL.model,
        [
            c.Collider("world", c.Plane(), material=material),
            c.Collider("world", c.Plane(), wall, material),
            c.Collider("body", c.Sphere(RADIUS)),
        ],
        pairs=[("world/0", "body/2"), ("world/1", "body/2")],
    )
    low, v = LOW.at[0].set(RADIUS), jnp.zeros(6).at[3].set(-2.0).at[5].set(-1.0)
    for law, sequential in (("poisson", False), ("poisson", True), ("energetic", True)):
        found = c.frictional_impact(corner, low, v, [True, True], law, sequential=sequential)
        close(found.v[3:], [1.0, 0, 0.5], 1e-6)
        assert found.status == ImpactStatus.DONE


def test_three_in_a_row():
    """The last of them moves on alone where they hit one after another, and not where all hit at once."""
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    for k in range(3):
        builder.body(f"{k}", joint=dx.Prismatic((1, 0, 0)), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1)))
    elastic = c.Material(restitution=1.0)
    row = c.scene(builder.build(), [c.Collider(f"{k}", c.Sphere(0.1), material=elastic) for k in range(3)])
    hit = lambda law, sequential: c.frictional_impact(  # noqa: E731
        row, 0.2 * jnp.arange(3.0), jnp.array([1.0, 0, 0]), [True, False, True], law, sequential=sequential
    )
    close(hit("energetic", True).v, [0, 0, 1.0], 1e-9)
    close(hit("poisson", False).v, [-1 / 3, 2 / 3, 2 / 3], 1e-6)
