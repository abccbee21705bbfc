"""Limits of joints with several freedoms, cones and ropes, in all kinds of contact."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.contact.stops import stops_at
from dynax.simulate import Compliant, Touching, TouchStatus

G = 9.81
YIELDS = c.Material(stiffness=1e4, damping=60.0)


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def inertia(mass=1.0, com=(0.0, 0, 0)):
    return dx.SpatialInertia(mass, com, (0.02, 0.02, 0.02))


def load(*names, gravity=(0, 0, -G)):
    builder = dx.ModelBuilder(gravity=gravity)
    for k, name in enumerate(names):
        builder.body(name, joint=dx.Prismatic((0, 0, 1)), inertia=inertia(k + 1.0))
    return builder.build()


@partial(jax.jit, static_argnames=("stepper", "steps"))
def run(scene, q, v, dt, steps, stepper=None):
    forces = jnp.zeros((steps, scene.nv))
    return dx.rollout(scene, q, v, forces, dt, stepper="semi_implicit" if stepper is None else stepper)


@jax.jit
def touched(scene, q, v, tau=0.0):
    return Touching().touched(scene, q, v, jnp.broadcast_to(jnp.asarray(tau), (scene.nv,)), jnp.asarray(0.005))


@pytest.mark.parametrize(
    ("limits", "stepper"), [(True, None), pytest.param(YIELDS, Compliant(), marks=pytest.mark.slow)]
)
def test_planar_joint_in_a_corner(limits, stepper):
    """A disc that spins, whose velocity is along its own axes and whose limits are along those of the plane."""
    inf = np.inf
    builder = dx.ModelBuilder(gravity=(3.0, -4.0, 0))
    builder.body("disc", joint=dx.Planar(), inertia=inertia(2.0), position_limits=((-inf, -inf, -0.2), (inf, 0.3, inf)))
    scene = c.scene(builder.build(), [], limits=limits)
    assert scene.limited == (("disc_joint", 1), ("disc_joint", 2))
    found = run(scene, jnp.array([0.4, 0.0, 0.0]), jnp.array([5.0, 0.3, -0.2]), 1e-3, 2500, stepper)
    rest = 0.0 if stepper is None else 1e-4  # m g / K
    close(found.q[-1, 1:], [0.3 + 6 * rest, -0.2 - 8 * rest], 1e-6)
    close(found.v[:, 0], 5.0, 1e-9)  # nothing turns it
    close(found.v[-1, 1:], 0.0, 1e-5)
    stops = touched(c.scene(builder.build(), []), jnp.array([0.9, 0.3, -0.2]), jnp.zeros(3)).stops
    close(stops / 0.005, [-6.0, 8.0], 1e-4)


def test_universal_joint():
    """The second angle has a limit, and the first does not feel it but through the body."""
    builder = dx.ModelBuilder()
    lowest = (-np.inf, -0.4)
    builder.body("rod", joint=dx.Universal(), inertia=inertia(1.0, (0.5, 0, 0)), position_limits=(lowest, np.inf))
    scene = c.scene(builder.build(), [])
    assert scene.limited == (("rod_joint", 1),)
    q = jnp.array([0.3, -0.4])
    found = touched(scene, q, jnp.zeros(2))
    free = dx.forward_dynamics(scene.model, q, jnp.zeros(2), jnp.zeros(2))
    inverse = dx.inverse_mass_matrix(scene.model, q)
    if free[1] < 0:
        close(found.stops / 0.005, -free[1] / inverse[1, 1], 1e-2)
        close(found.v[0] / 0.005, free[0] - free[1] * inverse[0, 1] / inverse[1, 1], 2e-2)
    else:
        close(found.stops, 0.0, 1e-9)
    mirrored = scene.replace(gravity=-scene.model.gravity)
    other = touched(mirrored, q, jnp.zeros(2))
    assert (found.stops[0] > 1e-6) != (other.stops[0] > 1e-6)


BALL_JOINT = """<mujoco><option timestep="0.001"/><worldbody><body name="arm">
    <joint name="ball" type="ball" range="0 40" limited="true" damping="0.5" solreflimit="0.005 1"/>
    <geom type="capsule" fromto="0 0 0 0 0 1" size="0.05"/></body></worldbody></mujoco>"""


def test_cone_of_a_ball_joint():
    """As MuJoCo's: the arm falls from upright and lies on the cone, whichever way it went."""
    mujoco = pytest.importorskip("mujoco")
    scene = dx.load_scene(BALL_JOINT)
    (cone,) = scene.stops
    close(cone.angle, np.deg2rad(40), 1e-12)
    m = mujoco.MjModel.from_xml_string(BALL_JOINT)
    data = mujoco.MjData(m)
    for turn in ((0.3, 0.0, 0.0), (-0.2, 0.25, 0.0)):
        start = dx.integrate(scene.model, dx.neutral(scene.model), jnp.array(turn))
        rigid = run(scene, start, jnp.zeros(3), 0.005, 1000)
        vector = dx.difference(scene.model, dx.neutral(scene.model), rigid.q[-1])
        close(jnp.linalg.norm(vector), cone.angle, 1e-6)
        close(vector / cone.angle, np.array(turn) / np.linalg.norm(turn), 1e-6)
        mujoco.mj_resetData(m, data)
        data.qpos[:] = start
        mujoco.mj_step(m, data, 10_000)
        close(rigid.q[-1], data.qpos, 1e-3)  # whose stop gives
        moment = float(scene.model.mass[0]) * G * 0.5 * np.sin(np.deg2rad(40))
        close(touched(scene, rigid.q[-1], jnp.zeros(3)).stops / 0.005, -moment, 1e-2)
    soft = run(scene, start, jnp.zeros(3), 0.002, 3000, Compliant())
    vector = dx.difference(scene.model, dx.neutral(scene.model), soft.q[-1])
    sag = jnp.linalg.norm(vector) - cone.angle
    close(sag * cone.material.stiffness, float(scene.model.mass[0]) * G * 0.5 * jnp.sin(jnp.linalg.norm(vector)), 1e-2)


def test_double_cover():
    """A quaternion and its negative are one rotation, with one gap, and one rate."""
    model = dx.ModelBuilder().body("arm", joint=dx.Spherical(), inertia=inertia()).build()
    scene = c.scene(model, [], stops=[c.Cone("arm_joint", 0.5)])
    q = dx.integrate(model, dx.neutral(model), jnp.array([0.3, 0.2, -0.346]))
    tau = jnp.array([1.0, 0.7, -1.2])
    one, other = touched(scene, q, jnp.zeros(3), tau), touched(scene, -q, jnp.zeros(3), tau)
    assert one.stops[0] < -1e-4
    close(one.v, other.v, 1e-12)
    gap = lambda d: stops_at(scene, dx.integrate(model, q, d), None).gap[0]  # noqa: E731
    close(jax.grad(gap)(jnp.zeros(3)), stops_at(scene, q, None).jacobian[0], 1e-12)


def test_weight_on_a_rope():
    """It falls until the rope is taut, and hangs; what bears it is the weight. A blow of the rope is an impact."""
    model = load("load")
    rope = c.Rope(("world", "load"), 0.5)
    scene = c.scene(model, [], stops=[rope])
    assert scene.limited == ()
    found = run(scene, jnp.array([-0.4]), jnp.zeros(1), 0.005, 200)
    fall = found.time[:20]
    close(found.q[:20, 0], -0.4 - 0.5 * G * fall**2, 0.5 * G * 0.005 * fall[-1] + 1e-9)
    close(found.q[-1], -0.5, 1e-6)
    close(touched(scene, found.q[-1], jnp.zeros(1)).stops / 0.005, -G, 1e-4)
    assert np.all(found.touch.energy < 1e-9)
    # The same as a rigid contact without friction, as an impact, and as a spring.
    hung, taut = jnp.array([-0.5]), jnp.ones(1, bool)
    close(c.contact_dynamics(scene, hung, [0.0], [0.0], taut).forces, G, 1e-9)
    bounces = c.scene(model, [], stops=[c.Rope(("world", "load"), 0.5, material=c.Material(restitution=0.5))])
    close(c.impact(bounces, hung, [-2.0], taut).v, 1.0, 1e-12)
    assert c.contact_states(scene, hung, [-2.0])[0] == c.ContactState.MEETING
    close(run(bounces, hung, jnp.array([-2.0]), 0.001, 3).v[1], 1.0 - 0.0 * G, 2e-2)
    soft = c.scene(model, [], stops=[c.Rope(("world", "load"), 0.5, material=YIELDS)])
    swung = run(soft, jnp.array([-0.5]), jnp.zeros(1), 5e-4, 2000, Compliant())
    close(swung.q[-1], -0.5 - G / 1e4, 1e-6)
    close(
        c.compliant_forces(soft, swung.q[-1], swung.v[-1], jax.tree.map(lambda x: x[-1], swung.patch)).stops, -G, 1e-3
    )


def test_rope_over_an_eyelet():
    """Atwood's machine: masses of 1 and 2 kg, and where the rope is slack both fall freely."""
    builder = dx.ModelBuilder()
    for k, name in enumerate("ab"):
        place = dx.Transform.from_translation((k - 0.5, 0, 0))
        builder.body(name, joint=dx.Prismatic((0, 0, 1)), placement=place, inertia=inertia(k + 1.0))
    offsets = jnp.array([[0, 0, 0], [-0.5, 0, 1.0], [0.5, 0, 1.0], [0, 0, 0]])
    scene = c.scene(builder.build(), [], stops=[c.Rope(("a", "world", "world", "b"), 3.0, offsets=offsets)])
    taut = c.contact_dynamics(scene, jnp.zeros(2), jnp.zeros(2), jnp.zeros(2), jnp.ones(1, bool))
    close(taut.a, [G / 3, -G / 3], 1e-9)
    close(taut.forces, 4 / 3 * G, 1e-9)
    close(run(scene, jnp.zeros(2), jnp.zeros(2), 0.005, 50).v[-1], [G / 12, -G / 12], 1e-5)
    close(touched(scene, jnp.array([0.1, 0.1]), jnp.zeros(2)).v, -0.005 * G, 1e-12)


@pytest.mark.spec("T24")
def test_derivatives():
    """By the length of a rope, the angle of a cone, states: forwards as backwards, by differences, in batches."""
    model = dx.ModelBuilder().body("arm", joint=dx.Spherical(), inertia=inertia(1.0, (0, 0, 0.5))).build()
    rope = c.Rope(("world", "arm"), 0.3, offsets=[[0.3, 0, 0.4], [0, 0, 0.5]], material=YIELDS)
    scene = c.scene(model, [], stops=[rope, c.Cone("arm_joint", 0.4, YIELDS)])

    def end(x):
        ends = (dataclasses.replace(rope, length=x[0]), dataclasses.replace(scene.stops[1], angle=x[1]))
        own, q = dataclasses.replace(scene, stops=ends), dx.integrate(model, dx.neutral(model), x[2:5])
        found = c.compliant_forces(own, q, x[5:], c.Patch(jnp.zeros(2), jnp.zeros((0, 3))))
        return jnp.concatenate([found.tau, found.stops])

    x = jnp.array([0.3, 0.4, -0.4, -0.12, 0.05, -1.0, -0.6, 0.2])
    # At the identity a cone has no direction, and a rope of no length neither: that is no special point.
    special = jnp.zeros(8).at[:2].set(jnp.array([0.3, 0.4]))
    middle = dataclasses.replace(rope, offsets=jnp.array([[0, 0, 0.5], [0, 0, 0.5]]))
    close(stops_at(dataclasses.replace(scene, stops=(middle,)), dx.neutral(model), None).gap, 0.3, 1e-12)
    forth, back = (jax.jit(jax.vmap(j(end)))(jnp.stack([x, special])) for j in (jax.jacfwd, jax.jacrev))
    close(forth, back, 1e-9 * np.max(np.abs(forth)))
    assert np.all(np.isfinite(back))
    h, steps = 1e-7, np.eye(8)
    many = jax.jit(jax.vmap(end))(jnp.concatenate([x + h * steps, x - h * steps]))
    assert np.all(many[:, 3:] < -1.0)
    difference = ((many[:8] - many[8:]) / (2 * h)).T
    close(forth[0], difference, 1e-5 * np.max(np.abs(difference)))


SOLREF = """<mujoco><option timestep="{dt}" gravity="0 0 0" cone="elliptic"/><worldbody>
  <geom name="wall" type="plane" size="1 1 1" condim="1" solref="{solref}" solimp="0.9 0.9 0.001"/>
  <body name="ball" pos="0 0 0.1"><joint name="slide" type="slide" axis="0 0 1" range="-1 0.2" limited="true"
    solreflimit="{solref}" solimplimit="0.9 0.9 0.001"/>
    <geom name="ball" size="0.1" mass="2" condim="1" solref="{solref}" solimp="0.9 0.9 0.001"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("solref", ["0.1 0.2", "-2500 -20"])
def test_solref(solref):
    """What MuJoCo's contact and limit give back of a speed, ours gives, and as deep, for the same frequency."""
    mujoco = pytest.importorskip("mujoco")
    text = SOLREF.format(dt=1e-4, solref=solref)
    scene = dx.load_scene(text)
    m = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(m)
    (material,), (limit,) = scene.between, scene.limiting
    close((material.stiffness, material.damping), (5000.0, 40.0), 1e-6)
    close((limit.stiffness, limit.damping), (5000.0, 40.0), 1e-6)
    for speed, place in ((-1.0, 0.01), (1.0, 0.19)):
        mujoco.mj_resetData(m, data)
        data.qpos[:], data.qvel[:] = place, speed
        path = []
        for _ in range(3000):
            mujoco.mj_step(m, data)
            path.append(data.qpos[0])
        found = run(scene, jnp.array([place]), jnp.array([speed]), 1e-4, 3000, Compliant("rk4"))
        close(found.v[-1], data.qvel, 5e-3)
        close(np.max(found.q) if speed > 0 else np.min(found.q), max(path) if speed > 0 else min(path), 2e-4)


TENDONS = """<mujoco><worldbody><site name="hook" pos="0 0 2"/>
  <body name="a" pos="0 0 1.5"><freejoint/><geom size="0.1"/><site name="ring"/></body></worldbody>
  <tendon><spatial name="line" limited="true" range="0 0.8"><site site="hook"/><site site="ring"/></spatial>
  <spatial name="rod" limited="true" range="0.2 0.9"><site site="hook"/><site site="ring"/></spatial></tendon>
</mujoco>"""


def test_tendons_are_ropes():
    pytest.importorskip("mujoco")
    scene = dx.load_scene(TENDONS)
    line, rod = scene.stops
    assert line.points == ("hook", "ring")
    close((line.length, rod.length), (0.8, 0.9), 1e-12)
    assert "tendon 'rod': its least length 0.2 is left out" in "\n".join(map(str, scene.report))
    found = run(scene, dx.neutral(scene.model).at[2].set(1.5), jnp.zeros(6), 0.005, 300)
    close(found.q[-1, 2], 1.2, 1e-6)


def test_what_it_refuses():
    model = load("a", "b")
    for stop, words in (
        (c.Rope(("a",), 1.0), "two points or more"),
        (c.Rope(("a", "c"), 1.0), "'c'"),
        (c.Rope(("a", "b"), 0.0), "its length is 0.0, expected more than 0"),
        (c.Rope(("a", "b"), 1.0, offsets=[[0, 0, 0]]), r"shape \(1, 3\), expected \(2, 3\)"),
        (c.Cone("a_joint", 0.5), "it is not spherical"),
        (c.Cone("c_joint", 0.5), "no joint has this name"),
        (c.Rope(("a", "b"), 1.0, material=c.Material(stiffness=-1.0)), "its stiffness is -1.0"),
        ("a", "is no Rope and no Cone"),
    ):
        with pytest.raises(dx.ModelError, match=words):
            c.scene(model, [], stops=[stop])
    with pytest.raises(dx.ModelError, match="limits 'c_joint'"):
        c.scene(model, [], limits={"c_joint": c.Material()})


def test_what_begins_at_rest_far_beyond_its_range_is_solved():
    """In float32: by the momentum that it takes to come back, and not by the little that weight gives it in a step. The
    robots of many files have ranges without their neutral pose."""
    builder = dx.ModelBuilder()
    builder.body("trunk", joint=dx.Free(), inertia=dx.SpatialInertia(2.0, (0, 0, 0.05), 0.02 * np.eye(3)))
    shin = dx.SpatialInertia(0.2, (0, 0, -0.1), 0.001 * np.eye(3))
    for k, (x, y) in enumerate(((1, 0), (0, 1), (-1, 0), (0, -1))):
        for part, parent, place, limits in (
            ("hip", "trunk", (0.1 * x, 0.1 * y, -0.05), (0.5, 1.0)),
            ("knee", f"hip{k}", (0.1 * x, 0.1 * y, -0.15), (-1.0, -0.5)),
        ):
            joint, there = dx.Revolute((-y, x, 0)), dx.Transform.from_translation(place)
            body = {"parent": parent, "joint": joint, "placement": there, "inertia": shin}
            builder.body(f"{part}{k}", position_limits=limits, **body)
    scene = c.scene(builder.build(), [])
    q, v = (jnp.asarray(x, jnp.float32) for x in (dx.neutral(scene.model), np.zeros(scene.nv)))
    step = jax.jit(jax.vmap(lambda dt: Touching().touched(scene, q, v, v, dt)))
    found = step(jnp.array([1e-4, 5e-4, 2e-3, 1e-2], jnp.float32))
    assert np.all(found.report.status == TouchStatus.SOLVED)
    assert np.max(found.report.unbalanced) < 1.01e-4
    assert np.all(jnp.sign(found.v[:, 6:]) == jnp.tile(jnp.array([1, -1]), 4))
