"""Systems of steps that fall into branches on a stem."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.contact.branching import mobilities_of, rows_of
from dynax.contact.coulomb import mobilities
from dynax.contact.placing import placed
from dynax.contact.solving import FEW, solved
from dynax.linear.branches import branches_of
from dynax.linear.each import in_rounds
from dynax.simulate import touching_problem
from dynax.simulate.touching_begin import where
from dynax.simulate.touching_problem import Numbers, problem
from dynax.simulate.turning import Turning


def coupled(*trees):
    """The pattern of trees of branches, `(rows, *those that grow from it)`, in an order of no meaning."""
    chains = []

    def grow(tree, carrying):
        own, *later = (tree,) if isinstance(tree, int) else tree
        first = 1 + max((row for chain in chains for row in chain), default=-1)
        chains.append([*carrying, *range(first, first + own)])
        for each in later:
            grow(each, [*carrying, *range(first, first + own)])

    for tree in trees:
        grow(tree, [])
    size = 1 + max(row for chain in chains for row in chain)
    known = np.zeros((size, size), bool)
    for chain in chains:
        known[np.ix_(chain, chain)] = True
    order = np.random.default_rng(0).permutation(size)
    return known[np.ix_(order, order)]


def definite(rng, pattern, batch=()):
    """Symmetric positive definite matrices with that pattern, `(n, n, *batch)`."""
    a = rng.normal(size=(*pattern.shape, *batch)) * pattern.reshape(*pattern.shape, *(1,) * len(batch))
    a = a + np.swapaxes(a, 0, 1)
    return a + np.eye(len(a)).reshape(*pattern.shape, *(1,) * len(batch)) * 2 * np.abs(a).sum(1).max()


@pytest.mark.spec("RBDA-6.4-BIS")
@pytest.mark.parametrize(
    ("trees", "shape"),
    [
        ([(6, 3, 3, 3, 3)], [(1, 6), (4, 3)]),
        ([(2, 3, 1, 2)], [(1, 2), (3, 3)]),
        ([6, 6, 5], [(3, 6)]),
        ([(6, 4, (2, 3, 1, 4), (3, 2, 2), 4)], [(1, 6), (4, 4), (5, 4)]),
        ([(3, (2, 2, (1, 3, 3))), (2, 4, 4), 5], [(3, 5), (4, 4), (2, 3)]),
    ],
)
def test_branches_are_solved_as_the_whole_is(trees, shape):
    """One tree or several, branches of one length or not, some that carry none; rows of every branch, and of those that
    carry it alone."""
    rng, pattern = np.random.default_rng(1), coupled(*trees)
    known = branches_of(pattern)
    assert known is not None
    assert [np.shape(level.rows) for level in known.levels] == shape
    a, b = definite(rng, pattern, (4,)), rng.normal(size=(len(pattern), 4))
    blocks = known.blocks(jnp.asarray(a))
    found = known.solve(blocks, jnp.asarray(b))
    np.testing.assert_allclose(found, np.stack([np.linalg.solve(a[..., k], b[:, k]) for k in range(4)], 1), atol=1e-14)

    inverse = np.stack([np.linalg.inv(a[..., k]) for k in range(4)], 2)
    rows, expected = [], []
    for d, (level, index) in enumerate(zip(known.levels, known.index, strict=True)):
        own = rng.normal(size=(2 if d else 1, *index.shape, 4)) * (index >= 0)[..., None]
        own[1:, :, : level.own] = 0.0
        whole = np.zeros((len(own), len(index), len(pattern) + 1, 4))
        for k, places in enumerate(index):
            whole[:, k, places] = own[:, k]
        rows.append(jnp.asarray(own))
        expected.append(np.einsum("rkib,ijb,rkjb->rkb", whole[:, :, :-1], inverse, whole[:, :, :-1]))
    for one, true in zip(known.powers(blocks, rows), expected, strict=True):
        np.testing.assert_allclose(one, true, atol=1e-14)


def test_no_branches_where_all_is_coupled():
    """A chain, two free bodies that may touch, and a stem so long that branches are not worth it."""
    assert branches_of(np.ones((7, 7), bool)) is None
    assert branches_of(coupled((20, 1, 1))) is None
    builder = dx.ModelBuilder()
    for name in "ab":
        builder.body(name, joint=dx.Free(), inertia=dx.SpatialInertia.sphere(0.1, mass=1.0))
    floor, balls = c.Collider("world", c.Plane()), [c.Collider(name, c.Sphere(0.1)) for name in "ab"]
    assert rows_of(c.scene(builder.build(), [floor, *balls])) is None
    apart = rows_of(c.scene(builder.build(), [floor, *balls], ignore=[("a", "b")]))
    assert apart is not None
    assert [level.rows for level in apart.branches.levels] == [(tuple(range(6)), tuple(range(6, 12)))]


def walker(touches, limits):
    """A base on three legs, one of them longer, with feet and a ball on the base itself, a chest with two arms whose
    hands touch the floor too, and limits of knees and elbows."""
    builder, ends = dx.ModelBuilder(), []
    builder.body("base", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.4, 0.4, 0.1), mass=5.0))
    builder.body(
        "chest",
        parent="base",
        joint=dx.Revolute((0, 0, 1)),
        placement=dx.Transform.from_translation((0, 0, 0.05)),
        inertia=dx.SpatialInertia.sphere(0.1, mass=1.0),
    )
    limbs = [("base", (0.2 * np.cos(2.1 * leg), 0.2 * np.sin(2.1 * leg), 0.0), n) for leg, n in enumerate((2, 2, 3))]
    limbs += [("chest", (0.0, y, 0.0), 2) for y in (-0.1, 0.1)]
    for limb, (parent, place, count) in enumerate(limbs):
        radius = 0.2 if parent == "chest" else 0.15 if count == 2 else 0.015
        for k in range(count):
            builder.body(
                f"{limb}/{k}",
                parent=parent,
                joint=dx.Revolute((k, 1 - k, k)),
                placement=dx.Transform.from_translation(place),
                inertia=dx.SpatialInertia.capsule(0.03, 0.1, mass=0.5),
                position_limits=(-0.05, 0.05) if k else None,
            )
            parent, place = f"{limb}/{k}", (0, 0, -0.15)
        ends.append(c.Collider(parent, c.Sphere(radius)))
    material = c.Material(friction=0.6)
    floor = c.Collider("world", c.Plane(), material=material)
    balls = [*ends, c.Collider("base", c.Sphere(0.05))]
    apart = [(a.on, b.on) for k, a in enumerate(balls) for b in balls[k + 1 :]]
    return c.scene(builder.build(), [floor, *balls] if touches else [], ignore=apart if touches else (), limits=limits)


def states(scene):
    """Feet a little above the floor and a little below, knees near their limits."""
    rng = np.random.default_rng(2)
    q = np.tile(dx.neutral(scene.model), (32, 1))
    q[:, 2] = rng.uniform(0.25, 0.32, size=32)
    q[:, 7:] = rng.uniform(-0.06, 0.06, size=q[:, 7:].shape)
    return jnp.asarray(q), jnp.asarray(rng.normal(size=(32, scene.nv)))


@pytest.mark.spec("RBDA-6.4-BIS")
@pytest.mark.parametrize(("touches", "limits"), [(True, True), (True, False), (False, True)])
def test_steps_by_branches_are_those_of_the_whole(touches, limits):
    """The velocity after a step with feet that stick and slide, limits that press, and one that is pressed alone."""
    scene = walker(touches, limits)
    rows = rows_of(scene)
    assert rows is not None
    assert [np.shape(level.rows) for level in rows.branches.levels] == [(1, 6), (4, 3), (2, 2)]
    q, v = states(scene)
    dt = jnp.asarray(0.002)

    @jax.jit
    @jax.vmap
    def both(q, v):
        at, inertia = placed(scene, q), dx.mass_matrix(scene.model, q)
        axes = Turning.of_tree(scene.model, where(scene.model, q).centres, dt)
        own = problem(scene, Numbers(0.02, 1e-6, 32), q, at, v, v, inertia, axes, dt).problem
        normals = jnp.concatenate([own.jacobian[:, 2], own.stops.dense])
        powers = mobilities_of(rows, inertia, own.jacobian, own.stops), mobilities(inertia, normals)
        return solved(own, rows)[0], solved(own)[0], powers

    one, other, powers = both(q, v)
    assert np.abs(one - v).max() > 0.1
    np.testing.assert_allclose(one, other, atol=1e-9)
    np.testing.assert_allclose(*powers, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.spec("RBDA-6.4-BIS")
@pytest.mark.parametrize("reverse", [True, False])
def test_derivatives_by_branches_are_those_of_the_whole(reverse, monkeypatch):
    """Of feet that stick and slide, whose matrices are not symmetric: there, and transposed."""
    scene = walker(True, True)
    q, v = states(scene)
    tau, dt = jnp.zeros(scene.nv), jnp.asarray(0.002)
    weights = jnp.asarray(np.random.default_rng(3).normal(size=scene.nv))

    def derivatives():
        def power(q, v):
            return weights @ dx.simulate.Touching().step(scene, q, v, tau, dt)[1]

        if reverse:
            return jax.jit(jax.vmap(jax.grad(power, argnums=(0, 1))))(q, v)
        way = jnp.zeros_like(q[0]), weights
        return jax.jit(jax.vmap(lambda q, v: jax.jvp(power, (q, v), way)[1]))(q, v)

    by_branches = derivatives()
    monkeypatch.setattr(touching_problem, "rows_of", lambda scene: None)
    for one, whole in zip(jax.tree.leaves(by_branches), jax.tree.leaves(derivatives()), strict=True):
        assert np.abs(whole).max() > 1.0
        np.testing.assert_allclose(one, whole, atol=1e-8 * np.abs(whole).max())


def test_those_that_are_not_done_go_on_without_the_others():
    """Samples of a batch that take very different numbers of steps, in rounds: as each takes them alone."""

    class Counted(NamedTuple):
        value: jax.Array
        together: jax.Array
        """Steps that were not taken alone."""
        done: jax.Array

    def advance(most, given, s):
        def step(x):
            k, s = x
            value = jnp.where(s.done, s.value, 0.5 * s.value + given)
            together = s.together + (~s.done if s.done.ndim else 0)
            return k + 1, Counted(value, together, s.done | jnp.all(jnp.abs(value - 2 * given) < 1.0, axis=0))

        return jax.lax.while_loop(lambda x: (x[0] < most) & ~jnp.all(x[1].done), step, (0, s))[1]

    rng = np.random.default_rng(4)
    for size in (3, 16, 41):
        given, value = rng.normal(size=(2, size)), np.exp(20 * rng.uniform(size=(2, size)))
        begin = Counted(jnp.asarray(value), jnp.zeros(size, int), jnp.zeros(size, bool).at[1].set(True))
        found = jax.jit(lambda given, s: in_rounds(advance, (2, 3, 4), given, s, 16))(jnp.asarray(given), begin)
        alone = jax.vmap(lambda given, s: advance(10**6, given, s), in_axes=-1, out_axes=-1)(jnp.asarray(given), begin)
        assert found.done.all()
        np.testing.assert_array_equal(found.value, alone.value)
        np.testing.assert_array_equal(found.value[:, 1], value[:, 1])
        whole = advance(10**6, jnp.asarray(given), begin).together
        assert whole.max() > 9 > whole.min()
        np.testing.assert_array_equal(found.together, np.minimum(whole, 9))  # whatever the others do


@pytest.mark.slow
def test_large_problems_of_a_batch_do_not_depend_on_the_others():
    """A thing of 36 freedoms on ten feet: velocities after a step of a batch, where those that are not done are put
    together, and of parts of it."""
    builder, feet = dx.ModelBuilder(), []
    builder.body("base", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.6, 0.6, 0.1), mass=9.0))
    for leg in range(10):
        parent, place = "base", (0.3 * np.cos(0.7 * leg), 0.3 * np.sin(0.7 * leg), 0.0)
        for k in range(3):
            name = f"{leg}/{k}"
            inertia = dx.SpatialInertia.capsule(0.03, 0.1, mass=0.5)
            placement = dx.Transform.from_translation(place)
            builder.body(name, parent=parent, joint=dx.Revolute((k, 1 - k, 0) if k < 2 else (0, 1, 0)),
                         placement=placement, inertia=inertia)  # fmt: skip
            parent, place = name, (0, 0, -0.15)
        feet.append(c.Collider(parent, c.Sphere(0.03)))
    apart = [(a.on, b.on) for k, a in enumerate(feet) for b in feet[k + 1 :]]
    scene = c.scene(builder.build(), [c.Collider("world", c.Plane()), *feet], ignore=apart)
    rng, size = np.random.default_rng(5), 96
    q = np.tile(dx.neutral(scene.model), (size, 1))
    q[:, 2] = rng.uniform(0.3, 0.34, size=size)
    q[:, 7:] = rng.uniform(-0.1, 0.1, size=q[:, 7:].shape)
    v = rng.normal(size=(size, scene.nv))

    def after(q, v):
        return dx.simulate.Touching().step(scene, q, v, jnp.zeros(scene.nv), jnp.asarray(0.002))[1]

    together = jax.jit(jax.vmap(after))(q, v)
    in_parts = jax.jit(lambda *x: jax.lax.map(lambda x: jax.vmap(after)(*x), x))
    parts = in_parts(q.reshape(3, 32, -1), v.reshape(3, 32, -1)).reshape(size, -1)
    assert np.abs(together - v).max() > 0.1
    np.testing.assert_array_equal(together, parts)


@pytest.mark.parametrize("gradient", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_steps_of_many_contacts_do_not_depend_on_the_others(gradient):
    """A box thrown on its corners: velocities after a step of a batch, where those that are not done are put together,
    and of parts of it; and how they change."""
    builder = dx.ModelBuilder()
    builder.body("box", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.2, 0.2, 0.2), mass=1.0))
    box = c.Collider("box", c.Box((0.1, 0.1, 0.1)), material=c.Material(friction=0.5))
    scene = c.scene(builder.build(), [c.Collider("world", c.Plane()), box])
    assert len(scene.candidates) > FEW
    rng, size = np.random.default_rng(6), 200
    q = np.tile(dx.neutral(scene.model), (size, 1))
    q[:, 2] = rng.uniform(0.098, 0.101, size=size)
    v = rng.normal(size=(size, 6))

    def after(q, v):
        return dx.simulate.Touching().step(scene, q, v, jnp.zeros(6), jnp.asarray(0.002))[1]

    def power(q, v):
        return after(q, v) @ jnp.arange(1.0, 7.0)

    one = jax.vmap(jax.grad(power, argnums=(0, 1)) if gradient else after)
    together = jax.jit(one)(q, v)
    in_parts = jax.jit(lambda *x: jax.lax.map(lambda x: one(*x), x))
    parts = in_parts(q.reshape(5, 40, -1), v.reshape(5, 40, -1))
    for own, other in zip(jax.tree.leaves(together), jax.tree.leaves(parts), strict=True):
        assert np.abs(own).max() > 1.0
        np.testing.assert_allclose(own, other.reshape(size, -1), atol=1e-9)
