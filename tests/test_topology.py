"""The static tree: arrays, sets and index ranges of Featherstone (2008), chapter 4 and section 6.5."""

from __future__ import annotations

import numpy as np
import pytest
import trees

import dynax as dx
from dynax.topology import Topology


def topology(parents, freedoms=None):
    """From the book's parent array, which counts from 1 and has 0 for the base."""
    kinds = {0: dx.Driven(dx.Revolute(), trees.swing), 1: dx.Revolute(), 3: dx.Spherical(), 6: dx.Free()}
    freedoms = [1] * len(parents) if freedoms is None else freedoms
    return Topology([p - 1 for p in parents], [kinds[k] for k in freedoms])


def support(t, body):
    return {int(k) + 1 for k in np.flatnonzero(t.support[body - 1])}


def subtree(t, body):
    return {int(k) + 1 for k in np.flatnonzero(t.support[:, body - 1])}


@pytest.mark.spec("RBDA-4.1.4-ARR")
def test_sets():
    chain, fork = topology([0, 1, 2]), topology([0, 0, 1])
    assert chain.parents == (-1, 0, 1)
    assert fork.roots == (0, 1)
    # Figure 4.6, as far as the text tells it.
    t = topology([0, 1, 1, 0, 3, 4, 4, 4])
    assert support(t, 3) == {1, 3}
    assert support(t, 8) == {4, 8}
    assert {b + 1 for b in t.roots} == {1, 4}
    assert tuple(c + 1 for c in t.children[0]) == (2, 3)
    assert t.children[1] == ()
    assert subtree(t, 1) == {1, 2, 3, 5}
    rng = np.random.default_rng(1)
    random = Topology(trees.random_parents(rng, 40, reach=12), [dx.Revolute()] * 40)
    for i in range(1, 41):
        for j in support(random, i):
            assert i in subtree(random, j)
    # A sum over bodies of their supports is a sum over supports of their bodies (eq. 4.3).
    weight = rng.normal(size=(40, 40))
    one = sum(weight[i - 1, j - 1] for i in range(1, 41) for j in support(random, i))
    other = sum(weight[i - 1, j - 1] for j in range(1, 41) for i in subtree(random, j))
    np.testing.assert_allclose(one, other)
    np.testing.assert_array_equal(random.depths, random.support.sum(1))


@pytest.mark.spec("RBDA-4.1.2-NUM", "CONV-ORDER")
def test_parents_come_before_their_children():
    for parents in ((0,), (-1, 2, 1), (-2,), (1, -1)):
        with pytest.raises(ValueError, match="before their children"):
            Topology(parents, [dx.Revolute()] * len(parents))
    with pytest.raises(ValueError, match="2 parents for 1 joints"):
        Topology((-1, 0), [dx.Revolute()])


@pytest.mark.spec("RBDA-6.5-EXPAND")
def test_expanded_parents():
    t = topology([0, 1, 1, 2, 2, 3], [1, 3, 1, 1, 1, 1])
    np.testing.assert_array_equal(t.expanded_parents + 1, [0, 1, 2, 3, 1, 4, 4, 5])
    # The printed algorithm (table 6.4), for joints that all have freedoms.
    rng = np.random.default_rng(2)
    parents = np.array(trees.random_parents(rng, 30, reach=9)) + 1
    freedoms = rng.choice([1, 3, 6], 30)
    where = np.concatenate([[0], np.cumsum(freedoms)])
    expected = np.arange(where[-1])
    for i in range(30):
        expected[where[i]] = where[parents[i]]
    np.testing.assert_array_equal(topology(parents, freedoms).expanded_parents + 1, expected)
    # A joint without freedoms is passed over, where the printed algorithm breaks.
    t = topology([0, 1, 2, 2, 4], [1, 0, 3, 1, 0])
    np.testing.assert_array_equal(t.expanded_parents + 1, [0, 1, 2, 3, 1])


@pytest.mark.spec("RBDA-6.4-BIS")
def test_support_of_freedoms():
    model = trees.tree("mixed")
    t = model.topology
    for i in range(t.nv):
        path, k = {i}, int(t.expanded_parents[i])
        while k >= 0:
            path.add(k)
            k = int(t.expanded_parents[k])
        # Within a joint every freedom supports every other; beyond it the tree of freedoms decides.
        same = set(np.flatnonzero(t.body_of_velocity == t.body_of_velocity[i]))
        assert path | same == set(np.flatnonzero(t.velocity_support[i]))


@pytest.mark.spec("RBDA-4.6-OFFSETS")
def test_index_ranges():
    kinds = (
        dx.Revolute(),
        dx.Spherical(),
        dx.Free(),
        dx.Driven(dx.Prismatic(), trees.swing),
        dx.Planar(),
        dx.RollingBall(),
    )
    t = Topology((-1, 0, 1, 2, 3, 4), kinds)
    np.testing.assert_array_equal(t.q_start, [0, 1, 5, 12, 12, 15, 21])
    np.testing.assert_array_equal(t.v_start, [0, 1, 4, 10, 10, 13, 16])
    assert (t.nq, t.nv, t.num_bodies) == (21, 16, 6)
    np.testing.assert_array_equal(t.body_of_velocity, np.repeat([0, 1, 2, 4, 5], [1, 3, 6, 3, 3]))
    # Every slot carries one freedom; a joint without any has one that is empty; no free root here.
    slots = t.slots
    assert [int(v) for v in slots.velocity if v >= 0] == list(range(16))
    assert list(slots.body).count(3) == 1
    np.testing.assert_array_equal(np.flatnonzero(slots.last)[:-1] + 1, np.flatnonzero(slots.first)[1:])


def test_topologies_are_values():
    a, b = topology([0, 1, 1]), topology([0, 1, 1])
    assert a == b
    assert hash(a) == hash(b)
    assert a != topology([0, 1, 2])
    assert a != topology([0, 1, 1], [1, 1, 3])
    assert a != "tree"
    assert repr(topology([0], [6])) == "Topology(1 bodies, nq=7, nv=6)"
    assert a.all_screws
    assert a.all_revolute
    assert not topology([0, 1], [1, 3]).all_screws
    free = topology([0, 1, 0], [6, 1, 6])
    np.testing.assert_array_equal(free.free_roots, [0, 2])
    np.testing.assert_array_equal(free.carried, [1])
    assert free.carried_parents == (-2,)
