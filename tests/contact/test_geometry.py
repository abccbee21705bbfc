"""Shapes: where they touch, how far they are apart and how fast that changes."""

from __future__ import annotations

import itertools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.contact.stops import stops_at
from dynax.contact.touch import Posed, candidates, supported

RNG = np.random.default_rng(0)
SHAPES = {
    "plane": c.Plane(),
    "ground": c.Ground(lambda x, y, p: p * jnp.sin(x + 0.3 * y), jnp.array(0.2)),
    "heights": c.HeightField(0.1 * RNG.normal(size=(6, 7)), 0.5),
    "sphere": c.Sphere(0.2),
    "capsule": c.Capsule(0.1, 0.3),
    "ellipsoid": c.Ellipsoid([0.1, 0.2, 0.3]),
    "box": c.Box([0.1, 0.2, 0.3], 0.05),
    "cylinder": c.Cylinder(0.1, 0.2),
    "points": c.Points(0.1 * RNG.normal(size=(5, 3))),
}
CURVED = ("ground", "heights")
"""Whose distances are right to first order."""


def bodies(names) -> dx.Model:
    builder = dx.ModelBuilder()
    for name in names:
        builder.body(name, joint=dx.Free(), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (0.1, 0.2, 0.3)))
    return builder.build()


MODEL = bodies("ab")


def close(a, b, tolerance):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def test_supported_pairs():
    """Balls, capsules and points on everything that is flatter, boxes on boxes, and every convex shape on planes."""
    every = itertools.combinations_with_replacement(SHAPES, 2)
    known = {pair for pair in every if supported(*(SHAPES[k] for k in pair))}
    flat = ("plane", "ground", "heights")
    convex = ("sphere", "capsule", "ellipsoid", "box", "cylinder")
    assert known == {
        *itertools.product(flat, ("sphere", "capsule", "box", "points")),
        *(("plane", k) for k in ("ellipsoid", "cylinder")),
        *((a, b) for a, b in itertools.combinations(convex, 2) if {"sphere", "capsule"} & {a, b}),
        *((k, k) for k in ("sphere", "capsule", "box")),
        *((k, "points") for k in ("capsule", "ellipsoid", "box", "cylinder")),
    }


@pytest.mark.spec("RBDA-11.6-SHAPE", "RBDA-11.3-SYSTEM")
def test_rates_of_gaps_are_velocities_along_normals(key):
    """Of each shape that is known on each, two of a kind: so the normal is the slope of the gap. Turning a pair round
    turns normals and nothing else."""
    names = [k for k in SHAPES if k not in CURVED for _ in (0, 1)]
    places = [f"{k}{i % 2}" for i, k in enumerate(names)]
    model = bodies(places)
    colliders = [c.Collider(place, SHAPES[k], name=place) for place, k in zip(places, names, strict=True)]
    unknown = [
        (places[a], places[b])
        for a, b in itertools.combinations(range(len(names)), 2)
        if not supported(SHAPES[names[a]], SHAPES[names[b]])
    ]
    one, other = (c.scene(model, own, unknown) for own in (colliders, colliders[::-1]))
    q = jax.vmap(lambda k: dx.random_configuration(model, k))(jax.random.split(key, 8))
    origins = (7 * np.arange(len(names))[:, None] + np.arange(3)).reshape(-1)
    q = q.at[:, origins].set(jax.random.uniform(key, (8, len(origins)), minval=-0.4, maxval=0.4))
    v = jax.random.normal(key, (8, model.nv))

    @jax.jit
    @jax.vmap
    def rates(q, v):
        touch = c.contacts(one, q)
        rate = jax.jvp(lambda t: c.contacts(one, dx.integrate(model, q, t * v)).gap, (0.0,), (1.0,))[1]
        return touch, rate, jnp.sum(touch.normal * c.contact_velocities(one, touch, q, v), axis=1)

    touch, rate, along = rates(q, v)
    close(rate, along, 1e-8)
    close(jnp.linalg.norm(touch.normal, axis=-1), 1.0, 1e-12)
    assert np.sum(touch.gap < 0) > 100 < np.sum(touch.gap > 0)
    turned = jax.jit(jax.vmap(lambda q: c.contacts(other, q)))(q)

    def named(scene, found, sign):
        """Gaps and normals of pairs of unlike shapes; of two alike the first is taken as the flatter."""
        kept = {}
        for k, pair in enumerate(scene.candidates):
            a, b = (scene.names[i] for i in pair)
            if a[:-1] != b[:-1]:
                kept.setdefault(frozenset((a, b)), []).append(
                    np.concatenate([found.gap[:, k, None], sign * found.normal[:, k]], axis=1)
                )
        return kept

    there, back = named(one, touch, 1.0), named(other, turned, -1.0)
    assert there.keys() == back.keys()
    for pair, values in there.items():
        close(values, back[pair], 1e-11)


def test_a_state_alone_and_one_of_a_batch_are_alike(key):
    """Of every pair of kinds that is known: a batch is read with its axis last, and its derivative goes back."""
    names = [*SHAPES]
    model = bodies(k for k in names if k not in ("plane", *CURVED))
    on = {k: "world" if k in ("plane", *CURVED) else k for k in names}
    known = [pair for pair in itertools.combinations(names, 2) if supported(*(SHAPES[k] for k in pair))]
    scene = c.scene(model, [c.Collider(on[k], SHAPES[k], name=k) for k in names], pairs=known)
    q = jax.vmap(lambda k: dx.random_configuration(model, k))(jax.random.split(key, 3))

    def gaps(q):
        return c.contacts(scene, q).gap

    touch, slopes = jax.jit(jax.vmap(lambda q: (c.contacts(scene, q), jax.jacrev(gaps)(q))))(q)
    one = jax.jit(lambda q: (c.contacts(scene, q), jax.jacfwd(gaps)(q)))
    for k in range(3):
        alone, slope = one(q[k])
        for a, b in zip(alone, touch, strict=True):
            close(a, b[k], 1e-9)
        close(slope, slopes[k], 1e-8)


@pytest.mark.parametrize("ground", CURVED)
def test_ground_is_where_it_is(ground, key):
    """The gap of a point is zero on the ground, and of first order right beside it."""
    scene = c.scene(MODEL, [c.Collider("a", SHAPES[ground]), c.Collider("b", c.Sphere(0.0))])
    xy = jax.random.uniform(key, (20, 2), minval=-0.8, maxval=0.8)
    flat = jnp.tile(jnp.array([1.0, 0, 0, 0]), (20, 1))

    @jax.jit
    @jax.vmap
    def at(p, turn):
        q = jnp.concatenate([jnp.zeros(3), jnp.array([1.0, 0, 0, 0]), p, turn])
        return c.contacts(scene, q)

    zero = jnp.concatenate([xy, jnp.zeros((20, 1))], axis=1)
    found = at(zero, flat)
    height = -found.gap[:, 0] / found.normal[:, 0, 2]  # the gap is (z - height) times the normal's z
    on = at(zero.at[:, 2].set(height), flat)
    close(on.gap, 0.0, 1e-14)
    for h in (1e-3, 5e-4):
        beside = at(zero.at[:, 2].set(height) + h * on.normal[:, 0], flat)
        assert np.max(np.abs(beside.gap[:, 0] - h)) < 30 * h**2
    if ground == "ground":
        close(height, 0.2 * jnp.sin(xy[:, 0] + 0.3 * xy[:, 1]), 1e-14)


def gap_of(a, b, place, turn=(1.0, 0, 0, 0)):
    scene = c.scene(MODEL, [c.Collider("a", a), c.Collider("b", b)])
    q = jnp.array([0.0, 0, 0, 1, 0, 0, 0, *place, *turn])
    return c.contacts(scene, q)


def test_closed_forms():
    half = np.sqrt(0.5)
    close(gap_of(c.Sphere(0.2), c.Sphere(0.3), (3.0, 4.0, 0)).gap, 4.5, 1e-15)
    close(gap_of(c.Plane(), c.Capsule(0.1, 0.5), (0, 0, 1.0), (half, half, 0, 0)).gap, 0.9, 1e-15)
    # Crossed capsules: the middles are nearest.
    crossed = gap_of(c.Capsule(0.1, 0.5), c.Capsule(0.1, 0.5), (0.4, 0, 0), (half, half, 0, 0))
    close(jnp.min(crossed.gap), 0.2, 1e-12)
    close(gap_of(c.Plane(), c.Ellipsoid([0.1, 0.2, 0.3]), (0, 0, 1), (half, half, 0, 0)).gap, 0.8, 1e-15)
    # Of a box turned by an angle the lowest corner.
    angle = 0.3
    corner = gap_of(c.Plane(), c.Box([0.1, 0.2, 0.3]), (0, 0, 1), (np.cos(angle / 2), np.sin(angle / 2), 0, 0))
    close(jnp.min(corner.gap), 1 - 0.2 * np.sin(angle) - 0.3 * np.cos(angle), 1e-15)
    close(gap_of(c.Box([0.1, 0.2, 0.3]), c.Sphere(0.1), (0.4, 0.6, 0)).gap, 0.4, 1e-15)
    close(gap_of(c.Cylinder(0.1, 0.2), c.Sphere(0.1), (0.3, 0.4, 0.2)).gap, 0.3, 1e-15)
    # Inside, the nearest way out.
    close(gap_of(c.Box([0.1, 0.2, 0.3]), c.Sphere(0.0), (0.08, 0, 0)).gap, -0.02, 1e-15)
    # An ellipsoid with equal axes is a sphere.
    close(gap_of(c.Ellipsoid([0.3] * 3), c.Sphere(0.1), (0.2, 0.5, 0.3)).gap, np.sqrt(0.38) - 0.4, 1e-14)


def lying(x, yaw):
    """A turn about z of what lies along x."""
    cos, sin = jnp.cos(yaw), jnp.sin(yaw)
    zero = jnp.zeros_like(cos)
    rows = [[zero, -sin, cos], [zero, cos, sin], [zero - 1.0, zero, zero]]
    return jnp.stack([jnp.stack(row) for row in rows]), jnp.stack([x, 0.01 + zero, 0.25 + zero])


@pytest.mark.spec("RBDA-11.6-SHAPE")
def test_capsule_that_lies_along_a_face_or_a_capsule():
    """It is borne where the face ends, whatever place between is taken for the nearest; and where that is depends on
    how it lies. So it is by a capsule that is shorter."""
    box = c.Box([0.1, 0.3, 0.2], 0.02)

    @jax.jit
    def on(x, yaw):
        at = Posed(c.Capsule(0.05, 0.4), *lying(x, yaw))
        short = Posed(c.Capsule(0.05, 0.1), at.rotation, at.translation - jnp.array([0.0, 0, 0.1]))
        return candidates(Posed(box, jnp.eye(3), jnp.zeros(3)), at), candidates(short, at)

    place = jnp.array(0.03), jnp.array(0.3)
    (edges, ends), (turned, _) = jax.jvp(on, place, (jnp.array(0.0), jnp.array(1.0)))
    close(edges.gap[1:2], 0.0, 1e-12)
    close(edges.gap[3:5], 0.0, 1e-12)
    close(edges.normal[3:5], [[0, 0, 1.0]] * 2, 1e-12)
    x = np.array([-0.08, 0.08])  # where the rounding begins
    close(edges.point[3:5], np.stack([x, 0.01 + (x - 0.03) * np.tan(0.3), [0.2, 0.2]], axis=1), 1e-12)
    close(turned.point[3:5, 1], (x - 0.03) / np.cos(0.3) ** 2, 1e-12)
    close(turned.gap[3:5], 0.0, 1e-12)
    assert np.all(edges.gap[5:] > 0.01)  # the other two edges bear nothing
    close(ends.gap[1:2], 0.0, 1e-12)
    close(ends.gap[3:], 0.0, 1e-12)
    arm = 0.1 * np.array([np.cos(0.3), np.sin(0.3)])
    close(ends.point[3:, :2] - np.array([0.03, 0.01]), [-arm, arm], 1e-12)


@pytest.mark.spec("RBDA-11.6-SHAPE")
def test_capsule_that_lies_along_a_cylinder():
    """It is borne where the side ends, and these places turn with it; askew, each rim is as far from it as it is."""
    upright, place = Posed(c.Cylinder(0.2, 0.1), jnp.eye(3), jnp.zeros(3)), jnp.array([0.25, 0.0, 0.03])

    def turned(x, y):
        about_x = jnp.array([[1.0, 0, 0], [0, jnp.cos(x), -jnp.sin(x)], [0, jnp.sin(x), jnp.cos(x)]])
        about_y = jnp.array([[jnp.cos(y), 0, jnp.sin(y)], [0, 1, 0], [-jnp.sin(y), 0, jnp.cos(y)]])
        return about_x @ about_y

    @jax.jit
    def beside(place, x, y):
        return jax.jvp(
            lambda x: candidates(upright, Posed(c.Capsule(0.05, 0.4), turned(x, y), place)), (x,), (jnp.ones_like(x),)
        )

    found, moved = beside(place, 0.0, 0.0)
    close(found.gap[1:2], 0.0, 1e-12)
    close(found.gap[3:], 0.0, 1e-12)
    close(found.normal[3:], [[1.0, 0, 0]] * 4, 1e-12)
    close(found.point[3:], [[0.2, 0, -0.1]] * 2 + [[0.2, 0, 0.1]] * 2, 1e-12)
    # The axis passes the rims 0.13 and 0.07 m from its middle, and of that the rim lies at four fifths of the distance.
    close(moved.gap[3:], 0.0, 1e-12)
    close(moved.point[3:, 1], 0.8 * np.repeat([0.13, -0.07], 2), 1e-9)
    s, angle = np.linspace(-0.4, 0.4, 801)[:, None, None], np.linspace(-1, 1, 1001)[:, None]
    for x, y in ((0.3, 0.0), (0.0, 0.2), (0.2, -0.1)):
        found, _ = beside(place + 0.1, x, y)
        on_axis = np.asarray(place + 0.1) + s * np.asarray(turned(x, y))[:, 2]
        for gap, side in zip(found.gap[3:], (-1, -1, 1, 1), strict=True):
            rim = np.concatenate([0.2 * np.cos(angle), 0.2 * np.sin(angle), 0 * angle + side * 0.1], axis=1)
            close(gap, np.min(np.linalg.norm(on_axis - rim, axis=2)) - 0.05, 3e-6)


@pytest.mark.spec("RBDA-11.6-SHAPE")
def test_capsule_that_lies_along_an_edge_or_across_an_end():
    """Along an edge, beside the face, both ends of the edge are looked at, whichever is nearest. Across the end of a
    cylinder it is borne where it passes the one rim, twice."""
    half, radius = np.array([0.05, 0.14, 0.08]), 0.1
    yaw = 0.13
    rotation, _ = lying(jnp.array(0.0), jnp.array(yaw))
    middle = jnp.array([0.01, -0.136, 0.18])
    capsule = Posed(c.Capsule(radius, 0.15), rotation, middle)
    found = candidates(Posed(c.Box(half, 0.02), jnp.eye(3), jnp.zeros(3)), capsule)
    corners = np.array([[-0.03, -0.12, 0.06], [0.03, -0.12, 0.06]])
    s = np.linspace(-0.15, 0.15, 100001)[:, None]
    on_axis = np.asarray(middle) + s * np.asarray(rotation)[:, 2]
    away = [np.min(np.linalg.norm(on_axis - corner, axis=1)) - 0.12 for corner in corners]
    close(found.gap[3:5], away, 1e-9)

    rotation, place = lying(jnp.array(0.0), jnp.array(0.0))[0], jnp.array([0.03, 0.12, 0.15])
    end = Posed(c.Cylinder(0.2, 0.1), jnp.eye(3), jnp.zeros(3))
    across = candidates(end, Posed(c.Capsule(0.05, 0.4), rotation, place))
    close(across.gap[5:], 0.0, 1e-12)
    close(across.normal[5:], [[0, 0, 1.0]] * 2, 1e-12)
    close(across.point[5:], [[-0.16, 0.12, 0.1], [0.16, 0.12, 0.1]], 1e-6)


@pytest.mark.slow
def test_capsule_lies_still():
    """In single precision, across a box, along a shorter capsule and a cylinder, by nothing but their ends."""
    builder = dx.ModelBuilder(gravity=(0, 0, -9.81))
    for name in "abd":
        builder.body(name, joint=dx.Free(), inertia=dx.SpatialInertia.capsule(0.05, 0.8, density=1000.0))
    across = dx.Transform(np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]), np.array([1.0, 0, 0]))
    flat = [
        c.Collider("world", c.Box([0.1, 0.3, 0.2], 0.02), name="box"),
        c.Collider("world", c.Capsule(0.2, 0.1), across, name="short"),
        c.Collider("world", c.Cylinder(0.2, 0.1), across @ dx.Transform.from_translation((0, 0, 1.0)), name="side"),
    ]
    rods = [c.Collider(name, c.Capsule(0.05, 0.4), name=name) for name in "abd"]
    scene = c.scene(builder.build(), [*flat, *rods], pairs=[("box", "a"), ("short", "b"), ("side", "d")])
    half = np.sqrt(0.5)
    lies = half, 0, half, 0
    q = jnp.array([0.03, 0.01, 0.25, *lies, 1.03, 0, 0.25, *lies, 2.03, 0, 0.25, *lies], jnp.float32)
    run = jax.jit(lambda q: dx.rollout(scene, q, jnp.zeros(18, q.dtype), jnp.zeros((500, 18), q.dtype), 0.002))(q)
    assert np.max(run.touch.penetration) < 1e-6
    assert np.max(np.abs(run.v)) < 1e-3


@jax.jit
def slopes(scene, q, way):
    """Contacts, the derivatives of each of their leaves' sum in both modes and of second order, those forwards along
    one way: a number that is not finite in any column makes this one so."""

    def both(q):
        touch = c.contacts(scene, q)
        return touch, jax.jacrev(lambda q: jax.tree.map(jnp.sum, c.contacts(scene, q)))(q)

    return jax.jvp(both, (q,), (way,))


@pytest.mark.spec("RBDA-11.6-SHAPE")
@pytest.mark.parametrize(
    ("a", "b", "places"),
    [
        (c.Sphere(0.2), c.Sphere(0.3), [(0, 0, 0)]),
        (c.Sphere(0.2), c.Capsule(0.1, 0.5), [(0, 0, 0)]),
        (c.Capsule(0.1, 0.5), c.Capsule(0.1, 0.5), [(0, 0, 0)]),
        (c.Box([0.1, 0.1, 0.1]), c.Sphere(0.1), [(0, 0, 0), (0.1, 0.1, 0.1)]),
        (c.Cylinder(0.1, 0.1), c.Sphere(0.1), [(0, 0, 0)]),
        (c.Cylinder(0.1, 0.1), c.Capsule(0.1, 0.3), [(0, 0, 0), (0.2, 0, 0)]),
        (c.Ellipsoid([0.1, 0.1, 0.3]), c.Sphere(0.1), [(0, 0, 0)]),
        (c.Box([0.1, 0.1, 0.3]), c.Capsule(0.1, 0.3), [(0.1, 0.2, 0)]),
        (c.Plane(), c.Cylinder(0.1, 0.2), [(0, 0, 0.2)]),
        (c.Plane(), c.Ellipsoid([0.1, 0.1, 0.3]), [(0, 0, 0.3)]),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_derivatives_are_finite_where_shapes_are_not_smooth(a, b, places, dtype, rng):
    scene = c.scene(MODEL, [c.Collider("a", a), c.Collider("b", b)])
    way = jnp.asarray(rng.normal(size=14), dtype)
    for place in places:
        found = slopes(scene, jnp.array([0.0, 0, 0, 1, 0, 0, 0, *place, 1, 0, 0, 0], dtype), way)
        for leaf in jax.tree.leaves(found):
            assert leaf.dtype == dtype
            assert np.all(np.isfinite(leaf))


@pytest.mark.spec("RBDA-11.3-SYSTEM")
def test_jacobian_and_wrenches_are_transposes(key):
    """Forces at the contacts do the work of their wrenches on the bodies, and those on one body cancel on the other."""
    scene = c.scene(MODEL, [c.Collider("a", SHAPES["box"]), c.Collider("b", SHAPES["capsule"])])
    q, v = dx.random_configuration(MODEL, key), jax.random.normal(key, (MODEL.nv,))
    touch = c.contacts(scene, q)
    forces = jax.random.normal(key, touch.point.shape)
    wrenches = c.contact_wrenches(scene, touch, q, forces)
    jacobian = c.contact_jacobian(scene, touch, q)
    velocities = c.contact_velocities(scene, touch, q, v)
    close(jacobian @ v, velocities, 1e-12)
    close(jnp.sum(wrenches * dx.body_velocities(MODEL, q, v)), jnp.sum(forces * velocities), 1e-12)


def test_pairs():
    """None on one body or a body and its parent; those to be ignored by the names of colliders or bodies."""
    builder = dx.ModelBuilder()
    parent = "world"
    for k in range(4):
        name = f"link{k}"
        builder.body(
            name, parent=parent, joint=dx.Revolute((0, 1, 0)), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1))
        )
        parent = name
    arm = builder.build()
    balls = [c.Collider(f"link{k}", c.Sphere(0.1)) for k in range(4)]
    ground = c.Collider("world", c.Plane(), name="floor")
    found = c.scene(arm, [ground, *balls])
    assert found.pairs == ((0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 4))
    assert len(found.candidates) == 7
    assert c.scene(arm, [ground, *balls], ignore=[("floor", "link0"), ("link0", "link2")]).pairs == (
        *((0, 2), (0, 3), (0, 4)),
        *((1, 4), (2, 4)),
    )
    assert c.scene(arm, [ground, c.Collider("world", c.Plane(), name="wall")]).pairs == ()


@pytest.mark.parametrize(
    ("colliders", "ignore", "message"),
    [
        ([c.Collider("c", c.Sphere(0.1))], (), "collider 'c/0': no body or frame named 'c'"),
        ([c.Collider("a", c.Sphere(-0.1))], (), "its radius is -0.1, expected 0 or more"),
        ([c.Collider("a", c.Capsule(0.0, 1.0))], (), "its radius is 0.0, expected more than 0"),
        ([c.Collider("a", c.Box([1.0, np.nan, 1.0]))], (), "its half is"),
        ([c.Collider("a", c.Box([1.0, 1.0]))], (), r"its half has shape \(2,\), expected \(3,\)"),
        ([c.Collider("a", c.Box([1.0, 1.0, 0.1], 0.2))], (), "rounding is larger"),
        ([c.Collider("a", c.Points(np.zeros((0, 3))))], (), "no finite numbers of shape"),
        ([c.Collider("a", cast(Any, "ball"))], (), "its geometry is 'ball', expected a shape"),
        ([c.Collider("a", c.Sphere(0.1), material=c.Material(friction=-1.0))], (), "its friction is -1.0"),
        ([c.Collider("a", c.Sphere(0.1), material=cast(Any, 0.8))], (), "its material is 0.8, expected a Material"),
        ([cast(Any, "ball")], (), r"colliders\[0\]: it is 'ball', expected a Collider"),
        (c.Collider("a", c.Sphere(0.1)), (), "it is one collider, expected a list"),
        ([c.Collider("a", c.Sphere(0.1), material=c.Material(restitution=1.5))], (), "from 0 to 1"),
        ([c.Collider("a", c.Sphere(0.1), name="x"), c.Collider("b", c.Sphere(0.1), name="x")], (), "two of this name"),
        ([c.Collider("a", c.Cylinder(0.1, 0.1)), c.Collider("b", c.Cylinder(0.1, 0.1))], (), "is not known"),
        ([c.Collider("a", c.Sphere(0.1))], [("a", "z")], "ignore 'z': no collider"),
    ],
)
def test_errors_name_the_collider(colliders, ignore, message):
    with pytest.raises(dx.ModelError, match=message):
        c.scene(MODEL, colliders, ignore)


def test_jacobian_with_loops_embedded():
    """Of a four-bar whose coupler has a ball on it, and of the limit of its crank: rates by its one freedom."""
    hinge, rod = dx.Revolute((0, 0, 1)), dx.SpatialInertia(1.0, (0.3, 0, 0), (0.01, 0.1, 0.1))
    at = dx.Transform.from_translation
    builder = dx.ModelBuilder()
    builder.body("crank", joint=hinge, inertia=rod, position_limits=(-3.0, 3.0))
    builder.body("coupler", parent="crank", joint=hinge, inertia=rod, placement=at((0.5, 0, 0)))
    builder.body("rocker", joint=hinge, inertia=rod, placement=at((1.0, 0, 0)), position_limits=(-9.0, 9.0))
    ends = {"predecessor_placement": at((1.2, 0, 0)), "successor_placement": at((1.1, 0, 0))}
    tree = builder.loop("close", predecessor="coupler", successor="rocker", joint=hinge, **ends).build()
    q = dx.assemble(tree, jnp.array([1.0, 0.2, 1.5]), hold=["crank_joint"]).q
    model = dx.embed(tree, q)
    scene = c.scene(model, [c.Collider("world", c.Plane()), c.Collider("coupler", c.Sphere(0.1))])
    v = jnp.array([0.7])
    touch = c.contacts(scene, q)
    jacobian = c.contact_jacobian(scene, touch, q)
    assert jacobian.shape == (1, 3, 1)
    close(jacobian @ v, c.contact_velocities(scene, touch, q, v), 1e-12)
    assert scene.limited == (("crank_joint", 0), ("rocker_joint", 0))
    limits, ahead = (stops_at(scene, x, None) for x in (q, dx.integrate(model, q, 1e-6 * v)))
    close(limits.jacobian @ v, (ahead.gap - limits.gap) / 1e-6, 1e-5)
