"""Problems that wait packed, and mobilities tree by tree: the same numbers as of the whole matrices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.contact.coulomb import Impact, mobilities
from dynax.contact.mobility import mobilities_by, trees_of
from dynax.contact.packing import packing_of, whole
from dynax.contact.placing import placed
from dynax.contact.stop_rows import StopRows
from dynax.simulate.touching_begin import where
from dynax.simulate.touching_problem import Numbers, problem
from dynax.simulate.turning import Turning


class Both(NamedTuple):
    scene: c.Scene
    problems: Impact
    """Of steps from some states, one after another."""


@pytest.fixture(scope="module")
def both():
    """An arm with two fingers, some with limits, and two boxes, one on a rope: all touch each other and the ground."""
    builder, parent = dx.ModelBuilder(), "world"
    for k in range(3):
        builder.body(f"link{k}", parent=parent, joint=dx.Revolute((k % 2, 1 - k % 2, 0)),
                     placement=dx.Transform.from_translation((0, 0, 0.2)),
                     inertia=dx.SpatialInertia.capsule(0.05, 0.2, mass=2.0),
                     position_limits=(-1.0, 1.0) if k == 1 else None)  # fmt: skip
        parent = f"link{k}"
    builder.body("box0", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.1, 0.1, 0.1), mass=1.0))
    for k, side in enumerate((-1.0, 1.0)):
        builder.body(f"finger{k}", parent=parent, joint=dx.Prismatic((0, side, 0)), position_limits=(0.0, 0.1),
                     inertia=dx.SpatialInertia.sphere(0.03, mass=0.1))  # fmt: skip
    builder.body("box1", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.1, 0.1, 0.1), mass=1.0))
    names = ["finger0", "finger1", "box0", "box1"]
    balls = [c.Collider(name, c.Sphere(0.03)) for name in names]
    scene = c.scene(builder.build(), [c.Collider("world", c.Plane()), *balls], stops=[c.Rope(("link0", "box0"), 0.5)])
    rng, dt = np.random.default_rng(3), jnp.asarray(0.002)
    q = np.tile(dx.neutral(scene.model), (8, 1))
    q[:, :3] = rng.normal(size=(8, 3))
    for name in ("box0_joint", "box1_joint"):
        q[:, scene.model.q_slice(name)][:, :3] += rng.normal(size=(8, 3))
    v = rng.normal(size=(8, scene.nv))

    @jax.jit
    @jax.vmap
    def problems(q, v):
        inertia = dx.mass_matrix(scene.model, q)
        axes = Turning.of_tree(scene.model, where(scene.model, q).centres, dt)
        return problem(scene, Numbers(0.02, 1e-6, 32), q, placed(scene, q), v, v, inertia, axes, dt).problem

    return Both(scene, problems(jnp.asarray(q), jnp.asarray(v)))


def test_nothing_is_lost_in_packing(both):
    """All numbers of matrices and rows, bit by bit, from fewer of them."""
    packing = packing_of(both.scene, 32)
    packed = jax.jit(jax.vmap(packing.packed))(both.problems)
    again = jax.jit(jax.vmap(lambda x: whole(packing)((), x)))(packed)
    jax.tree.map(np.testing.assert_array_equal, again, both.problems)
    n = both.scene.nv
    assert packed.inertia.shape[1] == 6 + 2 * 4 + 2 * 21  # links, fingers, boxes
    assert packed.jacobian.shape[1] < 3 * len(both.scene.candidates) * n


def test_packing_where_any_candidates_take_part(both):
    """Then every row may be of any freedoms."""
    packing = packing_of(both.scene, 2)
    some = both.problems._replace(jacobian=jnp.ones((8, 2, 3, both.scene.nv)))
    again = jax.vmap(lambda x: packing.whole(packing.packed(x)))(some)
    np.testing.assert_array_equal(again.jacobian, some.jacobian)


def test_mobilities_tree_by_tree(both):
    """Of contacts between trees, limits and a rope: as of the whole matrix, which is inverted otherwise."""
    trees = trees_of(both.scene)
    assert sorted(len(own.freedoms) for own in trees) == [5, 6, 6]
    x = both.problems
    rows = jnp.concatenate([x.jacobian[:, :, 2], jax.vmap(lambda s: s.dense)(x.stops)], axis=1)
    found = jax.jit(jax.vmap(lambda *a: mobilities_by(trees)((), *a)))(x.inertia, x.jacobian[:, :, 2], x.stops)
    np.testing.assert_allclose(found, jax.vmap(mobilities)(x.inertia, rows), rtol=1e-10, atol=1e-14)
    by_library = np.einsum("bki,bij,bkj->bk", rows, np.linalg.inv(x.inertia), rows)
    np.testing.assert_allclose(found, by_library, rtol=1e-9, atol=1e-14)
    assert np.count_nonzero(np.asarray(found[0])) == found.shape[1]


def test_mobilities_of_a_batch_of_one_place(both):
    """Many directions of normals at one configuration; and what moves nothing."""
    trees, one = trees_of(both.scene), jax.tree.map(lambda x: x[0], both.problems)
    normals = both.problems.jacobian[:, :, 2]
    by_trees = mobilities_by(trees)
    found = jax.jit(jax.vmap(lambda j: by_trees((), one.inertia, j, one.stops)))(normals)
    again = [by_trees((), one.inertia, j, one.stops) for j in normals]
    np.testing.assert_allclose(found, again, rtol=1e-12, atol=1e-14)
    nothing = jnp.zeros((0, 0))
    assert mobilities_by(())((), nothing, jnp.zeros((2, 0)), StopRows.none(nothing)).shape == (2,)
