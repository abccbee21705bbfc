"""Mobility, ranks, clusters of loops and the choice of independent variables (sections 4.1 and 8.8 to 8.10)."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.facts import admissible, close, facts, solution
from constraints.mechanisms import HINGE, at, four_bar, rod, stewart_gough

import dynax as dx
from dynax.constraints.explicit import choose_independent, clusters, constraint_pattern, explicit_constraints
from dynax.constraints.mobility import count_spanning_trees, mobility, spanning_tree

pytestmark = pytest.mark.slow

SLOT = dx.SphereInCylinder((0.0, 0.0, 1.0))
RHOMBUS = (1.0, 1.0, 1.0, 1.0)


@pytest.mark.spec("RBDA-8.10-MOB", "RBDA-8.10-OVER")
def test_counting_and_what_it_misses():
    bar, loose, platform = four_bar(), four_bar(joint=SLOT), stewart_gough()
    q = dx.assemble(bar.model, bar.q).q
    found = mobility(bar.model, q)
    assert [int(x) for x in found[:4]] == [1, 3 - 5, 2, 3]
    assert int(found.mobility) == 4 - 6 + 3 == 4 - 3  # in space, with what repeats; in the plane
    assert bool(found.overconstrained)
    found = mobility(loose.model, q)
    assert [int(x) for x in found[:4]] == [1, 7 - 6, 2, 0]
    assert not bool(found.overconstrained)
    q = dx.assemble(platform.model, platform.q).q
    found = jax.jit(lambda q: mobility(platform.model, q))(q)
    assert [int(x) for x in found[:4]] == [6, 6, 18, 0]
    assert found.singular_values.shape == (18,)


def parallel(angle):
    """A rhombus as a parallelogram: crank, coupler and rocker coordinates, and velocities for a crank rate of one."""
    return np.stack([angle, -angle, angle], -1), np.tile([1.0, -1.0, 1.0], (*np.shape(angle), 1))


@pytest.mark.spec("RBDA-8.10-VARMOB", "RBDA-8.10-SINGTOL")
def test_a_rhombus_through_its_flat_pose():
    """Rank two, and one where it is flat: the motion goes on through, multipliers and rank are told."""
    model = four_bar(RHOMBUS).model
    angles = np.array([-0.3, -1e-2, -1e-4, -1e-6, 0.0, 1e-6, 1e-4, 1e-2, 0.3])
    q, v = parallel(angles)
    assert np.abs(facts(model, q, v).phi).max() < 1e-15
    ranks = jax.vmap(lambda q: mobility(model, q))(q)
    assert ranks.rank.tolist() == [2, 2, 2, 1, 1, 1, 2, 2, 2]  # a millionth of a radian is less than files tell
    assert ranks.mobility.tolist() == [1, 1, 1, 2, 2, 2, 1, 1, 1]
    sharp = jax.vmap(lambda q: mobility(model, q, tolerance=1e-12).rank)(q)
    assert sharp.tolist() == [2, 2, 2, 2, 1, 2, 2, 2, 2]
    # A tolerance of one's own decides what is near.
    coarse = jax.vmap(lambda q: mobility(model, q, tolerance=1e-3).rank)(q)
    assert coarse.tolist() == [2, 2, 1, 1, 1, 1, 1, 2, 2]
    close(ranks.singular_values[:, 1] / np.abs(np.sin(np.where(angles, angles, 1.0))) * (angles != 0),
          ranks.singular_values[0, 1] / np.sin(0.3) * (angles != 0), 0.3)  # fmt: skip
    tau = jnp.array([0.5, 0.2, -0.3])
    found = jax.vmap(lambda q, v: dx.constrained_dynamics(model, q, v, tau, tolerance=1e-12))(q, v)
    assert found.rank.tolist() == sharp.tolist()
    assert np.all(found.gap >= 2.0)
    assert np.all(np.abs(found.a) < 100.0)
    # The parallelogram moves on as one: a = (y'', -y'', y'') wherever it has one freedom.
    other = np.flatnonzero(angles)
    one = np.asarray(found.a)[other]
    close(one, one[:, :1] * np.array([1.0, -1.0, 1.0]), 1e-7)
    assert np.ptp(one[1:-1, 0]) < 0.2


@pytest.mark.spec("RBDA-4.1.1-SPAN")
def test_spanning_trees_of_a_slider_crank():
    """One loop, four spanning trees; the tree of least depth has the branches short."""
    joints = [(-1, 0), (0, 1), (1, 2), (-1, 2)]
    for cut in range(4):
        assert spanning_tree(3, [j for k, j in enumerate(joints) if k != cut]).loop_joints == ()
    assert count_spanning_trees(3, joints) == 4
    found = spanning_tree(3, joints)
    assert len(found.loop_joints) == len(joints) - 3 == 1
    assert found.parents.count(-1) == 2  # crank and slider on the ground, the rod on one of them
    assert [len(loop) for loop in found.loops] == [3]
    with pytest.raises(ValueError, match="not connected"):
        spanning_tree(4, joints)
    ladder = [(-1, 0), (0, 1)] + [pair for k in range(0, 6, 2) for pair in ((k, k + 2), (k + 1, k + 3), (k + 2, k + 3))]
    found = spanning_tree(8, ladder)
    assert len(found.loop_joints) == len(ladder) - 8 == 3
    for k, loop in zip(found.loop_joints, found.loops, strict=True):
        ends = np.zeros(9)
        for p, s in (ladder[j] for j in (k, *loop)):
            ends[p] += 1
            ends[s] += 1
        assert set(ends) <= {0, 2}  # a cycle


def slider_crank(cut: int) -> dx.Model:
    """Crank, rod and slider with one of four joints cut: any three of them make a tree."""
    ends = (("world", "crank"), ("crank", "rod"), ("rod", "slider"), ("world", "slider"))
    joints = [(*pair, (x, 0.0)) for pair, x in zip(ends, (0.0, 0.15, 0.3, 0.0), strict=True)]
    slider = dx.SpatialInertia(0.1, (0.01, 0, 0), (1e-3,) * 3)
    inertia = {"crank": rod(0.15, 0.4), "rod": rod(0.3, 0.2), "slider": slider}
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    waiting = [k for k in range(4) if k != cut]
    there = {"world"}
    kinds = [HINGE, HINGE, HINGE, dx.Prismatic((1, 0, 0))]
    while waiting:
        for k in waiting:
            below, above, offset = joints[k]
            if below in there and above not in there:
                builder.body(above, parent=below, joint=kinds[k], placement=at(*offset), inertia=inertia[above],
                             joint_name=f"joint{k}")  # fmt: skip
                there.add(above)
                waiting.remove(k)
                break
            if above in there and below not in there:
                builder.body(below, parent=above, joint=dx.Reversed(kinds[k]), inertia=inertia[below],
                             placement=at(-offset[0]), anchor=(*offset, 0.0), joint_name=f"joint{k}")  # fmt: skip
                there.add(below)
                waiting.remove(k)
                break
    below, above, offset = joints[cut]
    builder.loop("close", predecessor=below, successor=above, joint=kinds[cut], predecessor_placement=at(*offset))
    return builder.build()


@pytest.mark.spec("RBDA-4.1.1-SPAN")
def test_results_do_not_depend_on_the_tree():
    """The slider-crank cut at each of its joints: the crank's torque moves all bodies alike."""
    angle, rate = 0.8, 1.7
    lean = -np.arcsin(0.15 * np.sin(angle) / 0.3)
    lean_rate = -0.15 * np.cos(angle) * rate / (0.3 * np.cos(lean))
    reach = 0.15 * np.cos(angle) + 0.3 * np.cos(lean)
    reach_rate = -0.15 * np.sin(angle) * rate - 0.3 * np.sin(lean) * lean_rate
    q = np.array([angle, lean - angle, -lean, reach])
    v = np.array([rate, lean_rate - rate, -lean_rate, reach_rate])
    # The force of the slide, which every tree with it has, does the same work as a torque at the crank.
    results = []
    for cut in range(4):
        model = slider_crank(cut)
        order = [int(name[-1]) for name in model.joint_names]
        f = facts(model, q[order], v[order])
        close(f.phi, 0.0, 1e-14)
        close(f.rate, 0.0, 1e-13)
        tau = np.zeros(3)
        tau[order.index(3 if cut != 3 else 0)] = 4.0 if cut != 3 else 4.0 * reach_rate / rate
        a = np.full(4, np.nan)
        a[order] = solution(f, tau)[0]
        results.append(a)
    for joint in range(4):
        known = [a[joint] for cut, a in enumerate(results) if cut != joint]
        close(known, known[0], 1e-9)


def four_loops() -> tuple[dx.Model, np.ndarray]:
    """Four parallelograms on a carriage, the first two with a crank in common, and an arm in no loop."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    builder.body("carriage", joint=dx.Prismatic((1, 0, 0)), inertia=rod(1.0))
    q = [0.2]
    for k, name in enumerate("abcd"):
        if name != "b":
            builder.body(f"crank {name}", parent="carriage", joint=HINGE, placement=at(k), inertia=rod(1.0))
            q.append(0.5 + 0.2 * k)
        own = q[builder_index(builder, "crank a" if name == "b" else f"crank {name}")]
        shared = "crank a" if name == "b" else f"crank {name}"
        side = 0.6 if name != "b" else -0.6
        builder.body(f"beam {name}", parent=shared, joint=HINGE, placement=at(1.0), inertia=rod(0.6))
        builder.body(f"rocker {name}", parent="carriage", joint=HINGE,
                     placement=at((0 if name == "b" else k) + side), inertia=rod(1.0))  # fmt: skip
        builder.loop(f"loop {name}", predecessor=f"beam {name}", successor=f"rocker {name}", joint=HINGE,
                     predecessor_placement=at(side), successor_placement=at(1.0))  # fmt: skip
        q += [-own, own]
    builder.body("arm", parent="rocker d", joint=HINGE, inertia=rod(0.5))
    return builder.build(), np.array([*q, 0.3])


def builder_index(builder, name):
    return list(builder.bodies).index(name)


@pytest.mark.spec("RBDA-8.9-CLUSTER")
def test_clusters():
    """Loops a and b share a crank: three clusters, `K` and `G` block diagonal, and the blocks are the whole."""
    model, q = four_loops()
    pattern = constraint_pattern(model)
    found = clusters(pattern)
    rows = dx.constraint_names(model)
    names = [[name for name in rows if set(range(20)[rows[name]]) & set(c.rows)] for c in found]
    assert names == [["loop a", "loop b"], ["loop c"], ["loop d"]]
    free = set(range(model.nv)) - {j for c in found for j in c.columns}
    assert {model.joint_names[j] for j in free} == {"carriage_joint", "arm_joint"}
    f = facts(model, q, np.zeros(model.nv))
    close(f.phi, 0.0, 1e-14)
    f = facts(model, q, admissible(f.k, np.random.default_rng(0).normal(size=model.nv)))
    # Permuted, the matrix is block diagonal.
    for one, two in itertools.permutations(found, 2):
        assert not f.k[np.ix_(one.rows, two.columns)].any()
    choice = choose_independent(f.k, pattern=pattern)
    assert choice.rank == 8
    whole, blocks = choose_independent(f.k), explicit_constraints(f.k, f.bias, choice)
    dense = explicit_constraints(f.k, f.bias, whole)
    assert blocks.quality.shape == (3,)
    g, h = np.asarray(blocks.matrix), np.asarray(dense.matrix)
    close(g @ np.linalg.lstsq(g, h, rcond=None)[0], h, 1e-12)
    close(f.k @ g, 0.0, 1e-12)
    close(f.k @ blocks.offset, f.bias, 1e-11)
    # Each dependent variable knows the independent ones of its own cluster alone; others are themselves.
    freedoms = model.nv - choice.rank
    assert np.sum(g == 0.0) >= freedoms * (freedoms - 1)
    for block in choice.blocks:
        outside = [i for i, j in enumerate(choice.independent) if j not in block.independent]
        assert not g[np.ix_(block.dependent, outside)].any()
    for j in free:
        assert g[j].tolist() == [float(i == j) for i in choice.independent]
    # Bodies on different branches have no inertia in common, whatever closes their loops: blocks in `K H^-1 K^T` come
    # from the carriage alone, and `G^T H G` by blocks is what the embedded model walks.
    reduced, tau = g.T @ f.h @ g, np.random.default_rng(1).normal(size=model.nv)
    y = np.linalg.solve(reduced, g.T @ (tau - f.c - f.h @ blocks.offset))
    close(g @ y + blocks.offset, solution(f, tau)[0], 1e-10)


@pytest.mark.spec("RBDA-8.8-GG")
@pytest.mark.parametrize(("rows", "rank"), [(3, 0), (3, 3), (5, 3), (6, 6), (8, 6), (0, 0)])
def test_solving_for_independent_variables(rows, rank, rng):
    """Ranks from nothing to everything, more rows than rank and fewer."""
    matrix = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, 6))
    right = matrix @ rng.normal(size=6)
    choice = choose_independent(matrix)
    found = explicit_constraints(matrix, right, choice)
    assert choice.rank == rank
    assert found.matrix.shape == (6, 6 - rank)
    close(matrix @ found.matrix, 0.0, 1e-11)
    close(matrix @ found.offset, right, 1e-11)
    assert np.linalg.matrix_rank(found.matrix) == 6 - rank
    y = rng.normal(size=6 - rank)
    x = np.asarray(found.matrix @ y + found.offset)
    close(x[list(choice.independent)], y, 1e-12)


@pytest.mark.spec("RBDA-8.8-OPTS")
def test_options_of_the_choice(rng):
    matrix = rng.normal(size=(4, 3)) @ rng.normal(size=(3, 6))
    matrix[:, 2] = 0.0
    right = matrix @ rng.normal(size=6)
    # A supplied rank, and one the matrix does not have.
    assert choose_independent(matrix, rank=3).rank == 3
    with pytest.raises(ValueError, match="not 4"):
        choose_independent(matrix + 0.0, rank=4)
    noisy = matrix + 1e-7 * rng.normal(size=matrix.shape) * (matrix != 0)
    assert choose_independent(noisy).rank == 4
    assert choose_independent(noisy, rank=3).rank == 3
    assert choose_independent(noisy, tolerance=1e-5).rank == 3
    # Columns outside of all loops.
    masked = choose_independent(matrix, columns=[0, 1, 3, 4, 5])
    assert 2 in masked.independent
    with pytest.raises(ValueError, match="leaves out"):
        choose_independent(matrix, columns=[0, 1, 3])
    with pytest.raises(ValueError, match="`pattern` says"):
        choose_independent(matrix, pattern=np.zeros((4, 6)))
    # The user's own variables, with rows of the identity.
    for own in ([0, 1], [4, 5], [0, 5]):
        choice = choose_independent(matrix, independent=own)
        found = explicit_constraints(matrix, right, choice)
        assert set(own) <= set(choice.independent)
        for j in own:
            close(found.matrix[j], np.eye(3)[choice.independent.index(j)], 1e-15)
        close(matrix @ found.matrix, 0.0, 1e-11)
    with pytest.raises(ValueError, match="depend on one another"):
        choose_independent(matrix, independent=[0, 1, 3])


@pytest.mark.spec("RBDA-8.8-OPTS")
def test_a_choice_that_becomes_singular():
    """The crank of a four-bar, where it stands in line with the coupler, tells the rocker nothing: choose another."""
    model = four_bar((1.0, 2.0, 1.5, 2.0)).model
    # Crank and coupler in line, 3 m from the crank's pivot: a triangle with the rocker.
    lean = np.arccos((3.0**2 + 2.0**2 - 1.5**2) / (2 * 3.0 * 2.0))
    end = 3.0 * np.exp(1j * lean) - 2.0
    dead = np.array([lean, 0.0, np.angle(end)])
    usual = np.asarray(dx.assemble(model, four_bar((1.0, 2.0, 1.5, 2.0)).q).q)
    k = facts(model, np.stack([usual, dead]), np.zeros((2, 3))).k
    rocker = choose_independent(k[0], independent=[2])
    qualities = [float(explicit_constraints(matrix, None, rocker).quality[0]) for matrix in k]
    assert qualities[0] > 0.05
    assert qualities[1] < 1e-12
    switched = choose_independent(k[1])
    assert switched.independent != rocker.independent
    assert float(explicit_constraints(k[1], None, switched).quality[0]) > 0.05
    # Under jit and differentiated, with the choice static.
    slope = jax.jit(jax.grad(lambda m: explicit_constraints(m, None, rocker).matrix.sum()))(k[0])
    assert np.all(np.isfinite(slope))
