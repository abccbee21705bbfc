"""Articulated bodies with several handles, and forward dynamics by divide and conquer."""

from __future__ import annotations

import dataclasses
from math import ceil, log2

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import trees
from dense import Dense, motion_transform
from linkages import blocks, complement, four_bar, of_model

import dynax as dx
from dynax.model.equivalence import SIMPLIFIED
from dynax.model.structure import Finding
from dynax.routes.assembly import by_inertias, by_inverse_inertias, coupling
from dynax.routes.divide_and_conquer import (
    Handles,
    assemble,
    coupling_of_sets,
    divide_and_conquer,
    divide_and_conquer_dynamics,
    joined,
    joint_force,
    rigid_handles,
)
from dynax.routes.handles import JointSpace, bodies
from dynax.sweep.contraction import Level, contraction


def close(a, b, tolerance=1e-10):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1.0))


def definite(rng, size, rank=None):
    a = rng.normal(size=(size, rank or size + 3))
    return a @ a.T


# The schedule ------------------------------------------------------------------------------------------------------


def check_schedule(parents):
    """Every joint between bodies is assembled once, between clusters that are neighbours then."""
    levels = contraction(tuple(parents))
    cluster = list(range(len(parents)))  # the cluster each body is in
    for level in levels:
        before = list(cluster)
        used = [*level.near, *level.far, *level.trunks, *level.leaves]
        assert len(set(used)) == len(used)
        merges = list(zip(level.near, level.far, strict=True))
        merges += [(level.trunks[at], leaf) for at, leaf in zip(level.trunk_of_leaf, level.leaves, strict=True)]
        for near, far in merges:
            assert before[near] == near
            assert before[far] == far
            assert before[parents[far]] == near
            cluster = [near if c == far else c for c in cluster]
        # What hangs on a cluster does so at one body of it.
        borne_at = {}
        for body, parent in enumerate(parents):
            if parent >= 0 and cluster[body] != cluster[parent]:
                assert borne_at.setdefault(cluster[parent], parent) == parent
    assert [c for c in range(len(parents)) if cluster[c] == c] == [b for b, p in enumerate(parents) if p < 0]
    return len(levels)


@pytest.mark.spec("RBDA-7.5-DCA")
def test_levels_grow_like_the_logarithm(rng):
    for n in (1, 2, 3, 8, 9, 64, 100, 1000):
        assert check_schedule((-1, *range(n - 1))) == ceil(log2(n))
    for depth in (1, 4, 8):
        assert check_schedule([-1] + [(i - 1) // 2 for i in range(1, 2**depth - 1)]) <= depth
    assert check_schedule([-1] + [0] * 50) == 1
    for _ in range(200):
        n = int(rng.integers(2, 300))
        parents = trees.random_parents(rng, n, reach=int(rng.integers(1, 12)))
        assert check_schedule(parents) <= 1.5 * log2(n) + 1


def trace(n):
    """How many equations divide and conquer has for a chain, from the state to the result, and its longest loop."""
    model = problems.planar_chain(n)
    jaxpr = jax.make_jaxpr(divide_and_conquer_dynamics)(model, *(jnp.zeros(n),) * 3)

    def measure(jaxpr):
        inner = [measure(p.jaxpr) for eqn in jaxpr.eqns for p in eqn.params.values() if hasattr(p, "jaxpr")]
        loops = [eqn.params["length"] for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]
        counts, lengths = zip(*inner, strict=True) if inner else ((), ())
        return len(jaxpr.eqns) + sum(counts), max([*loops, *lengths], default=0)

    return measure(jaxpr.jaxpr)


@pytest.mark.spec("RBDA-7.5-DCA")
def test_traced_depth_grows_like_the_logarithm():
    """Kinematics included: nothing loops over the bodies."""
    (small, _), (medium, _), (large, loop) = (trace(n) for n in (8, 32, 128))
    assert large - medium == medium - small  # two levels more each time
    assert loop <= 6


# Two handles -------------------------------------------------------------------------------------------------------


def random_handles(rng, near=6, far=6, rank=None):
    phi = definite(rng, near + far, rank)
    b = rng.normal(size=near + far)
    return Handles(phi[:near, :near], phi[:near, near:], phi[near:, near:], b[:near], b[near:])


@pytest.mark.spec("RBDA-7.5-MH", "RBDA-7.1-MULTI")
@pytest.mark.parametrize("grounded", [None, "one", "two"])
def test_two_bodies_with_two_handles_each(rng, grounded):
    """Against all unknowns at once, for any forces on the outer handles; one of the inner ones may be grounded."""
    one, two = random_handles(rng), random_handles(rng)
    nothing = Handles(*(np.zeros_like(x) for x in one))
    if grounded == "one":
        one = nothing._replace(near=one.near, near_bias=one.near_bias)
    elif grounded == "two":
        two = nothing._replace(far=two.far, far_bias=two.far_bias)
    s, c, f_1, f_4 = rng.normal(size=(6, 2)), rng.normal(size=6), rng.normal(size=6), rng.normal(size=6)
    y, t = one.far + two.near, complement(s)
    # a_3 - a_2 = S qdd + c with f_3 = -f_2 = T lambda.
    rest = two.near_bias + two.cross @ f_4 - one.far_bias - one.cross.T @ f_1 - c
    force = -t @ np.linalg.solve(t.T @ y @ t, t.T @ rest)
    w = coupling(jnp.asarray(y), JointSpace.of(s))
    whole = joined(one, two, w, c)
    close(joint_force(one, two, w, f_1, f_4, c), force)
    close(whole.near_acceleration(f_1, f_4), one.near @ f_1 - one.cross @ force + one.near_bias)
    close(whole.far_acceleration(f_1, f_4), two.cross.T @ force + two.far @ f_4 + two.far_bias)
    phi = np.block([[whole.near, whole.cross], [np.asarray(whole.cross).T, whole.far]])
    close(phi, phi.T, 1e-15)
    assert np.linalg.eigvalsh(phi).min() > -1e-10


@pytest.mark.spec("RBDA-7.1-MULTI")
def test_handles_of_a_floating_chain_answer_as_bodies_do():
    """Push the first and the last body: they accelerate as the handles of the assembled chain say."""
    joints = ((-1, dx.Free()), (0, dx.Spherical()), (1, dx.Prismatic((1.0, 0.0, 1.0))))
    model = trees.build(joints, passive=False)
    s = trees.states(model, count=1)
    q, v, tau, external = s.q[0], s.v[0], s.tau[0], s.external[0]

    @jax.jit
    def chain(model, q, v, tau, external):
        b = bodies(model, q, v, tau, external)
        whole = rigid_handles(model.topology, b)
        for level in contraction(model.parents):
            whole = assemble(level, b, whole)[0]
        return jax.tree.map(lambda x: x[0], whole)

    whole, dense = chain(model, q, v, tau, external), Dense(model, s.q, s.v)
    linkage = of_model(model, q, v, tau, external)
    # Motions about the world's origin, about the joints: the root's at its anchor, the last body's at its own.
    places = [dense.position[0, k] + dense.rotation[0, k] @ np.asarray(model.hinges.translation[k]) for k in (0, 2)]
    to_joint = [motion_transform(np.eye(3), place) for place in places]
    answer = np.zeros((13, 12))
    for k in range(13):
        pushed = linkage.bias.copy()
        if k:
            pushed[(0, 2)[(k - 1) // 6]] -= to_joint[(k - 1) // 6][(k - 1) % 6]
        a, _, _ = linkage._replace(bias=pushed).whole_system()
        answer[k] = np.concatenate([to_joint[0] @ a[0], to_joint[1] @ a[2]])
    # On top of the bias: what velocities alone do is not the handles' affair.
    drift = linkage.closed([]).drift[[0, 2]]
    bias = answer[0] - np.concatenate([x @ d for x, d in zip(to_joint, drift, strict=True)])
    close(np.concatenate([whole.near_bias, whole.far_bias]), bias)
    phi = np.block([[whole.near, whole.cross], [np.asarray(whole.cross).T, whole.far]])
    close((answer[1:] - answer[0]).T, phi)
    close(phi, phi.T, 1e-15)
    # Ten freedoms, twelve components: the two bodies cannot be pushed apart at will.
    assert np.linalg.matrix_rank(phi, tol=1e-9) == 10
    assert np.linalg.eigvalsh(phi).min() > -1e-12


# Whole trees -------------------------------------------------------------------------------------------------------


@jax.jit
def assemblies(model, q, v, tau, external):
    """Divide and conquer, and the two variants of assembly."""

    def one(q, v, tau, external):
        topology, b = model.topology, bodies(model, q, v, tau, external)
        by_halves = divide_and_conquer(topology, b, contraction(topology.parents))
        return by_halves, by_inertias(topology, b), by_inverse_inertias(topology, b)

    return jax.vmap(one)(q, v, tau, external)


SOME = (
    (-1, dx.Free()),
    (0, dx.Universal()),
    (1, dx.RollingBall(0.4)),
    (0, dx.Reversed(dx.Spherical())),
    (0, dx.Driven(dx.Revolute((0.0, 1.0, 0.0)), trees.swing)),
    (4, dx.Free()),
    (-1, dx.Planar()),
)
"""Of every number of freedoms, with columns that move and those that do not; the slow run has every joint."""


@pytest.mark.spec("RBDA-7.5-DCA", "RBDA-7.4-V1", "RBDA-7.4-V2", "RBDA-7.4-QDD", "RBDA-X-TREE", "RBDA-3.7-BIG")
@pytest.mark.parametrize("name", [pytest.param("mixed", marks=pytest.mark.slow), "some"])
def test_every_joint_by_every_assembly(name):
    """Against all bodies and constraint forces at once; other tests compare rotors and passive forces."""
    model = trees.build(SOME) if name == "some" else trees.tree(name)
    still = {name: 0 * getattr(model, name) for name in ("armature", "damping", "friction_loss", "stiffness")}
    model, s = model.replace(**still), trees.states(model, count=2)
    found = assemblies(model, s.q, s.v, s.tau, s.external)
    for k in range(2):
        _, wanted, _ = of_model(model, s.q[k], s.v[k], s.tau[k], s.external[k]).whole_system()
        for a in found:
            close(a[k], wanted)


@pytest.mark.spec("RBDA-7.5-DCA", "RBDA-X-TREE")
def test_random_tree_by_divide_and_conquer(rng):
    """Bodies on several, runs of several bodies, on the ground; by the public function, at rest and in motion."""
    kinds = (dx.Revolute((1.0, 0.3, 0.0)), dx.Prismatic((0.0, 1.0, 1.0)), dx.Helical((0.2, 0.0, 1.0), pitch=0.3))
    parents = (-1, 0, 1, 2, 3, 2, 5, 6, 6, 0, 9, 10, 11, 12, -1, 14)
    model = trees.build([(p, kinds[int(rng.integers(3))]) for p in parents])
    assert len(contraction(parents)) == 4
    s = trees.states(model)
    both = jax.jit(jax.vmap(lambda *x: (divide_and_conquer_dynamics(model, *x), dx.forward_dynamics(model, *x))))
    found, wanted = both(s.q, s.v, s.tau, s.external)
    close(found, wanted, 1e-9)
    close(*both(0 * s.q, 0 * s.v, s.tau, 0 * s.external), 1e-9)


def pairs(*merges):
    """A level for each pair of neighbouring clusters of a chain."""
    none = np.zeros(0, int)
    return tuple(Level(np.array([near]), np.array([far]), none, none, none) for near, far in merges)


@pytest.mark.spec("RBDA-7.5-MH")
def test_a_chain_assembled_in_any_order():
    """From the base, from the tip, from the middle, by halves: the bodies do not know."""
    joints = (dx.Revolute(), dx.Prismatic(), dx.Spherical(), dx.Revolute((0.0, 1.0, 0.2)), dx.Prismatic())
    model = trees.build([(k - 1, joint) for k, joint in enumerate(joints)])
    s = trees.states(model, count=2)
    base, tip = pairs((0, 1), (0, 2), (0, 3), (0, 4)), pairs((3, 4), (2, 3), (1, 2), (0, 1))
    orders = base, tip, pairs((1, 2), (1, 3), (0, 1), (0, 4)), contraction(model.parents)

    @jax.jit
    @jax.vmap
    def accelerations(q, v, tau, external):
        b = bodies(model, q, v, tau, external)
        return [divide_and_conquer(model.topology, b, order) for order in orders]

    *others, wanted = accelerations(s.q, s.v, s.tau, s.external)
    for found in others:
        close(found, wanted)


def test_refuses_simplified_inertias():
    model = problems.double_pendulum().model
    structure = dataclasses.replace(model.structure, report=(Finding("body 'upper'", SIMPLIFIED),))
    model = dataclasses.replace(model, structure=structure)
    with pytest.raises(ValueError, match=r"body 'upper'.*use the model before"):
        divide_and_conquer_dynamics(model, jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))


# Loops -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("RBDA-7.5-SETS")
@pytest.mark.parametrize("loosened", [False, True])
def test_four_bar_by_sets_of_handles(rng, loosened):
    """Crank and coupler in one hand, rocker and ground in the other, two joints at once; equals eq. 8.36.

    A further handle on the coupler stays outside: what it answers is the compliance of the closed linkage.
    """
    linkage = four_bar(rng, loosened=loosened)
    phi = np.linalg.inv(linkage.inertia)
    motor = linkage.joints[0].t_a @ linkage.joints[0].tau
    outside = -linkage.bias
    outside[0] += motor  # the ground bears the opposite
    b = np.einsum("nij,nj->ni", phi, outside)
    ground = Handles(*(np.zeros((6, 6)),) * 3, *(np.zeros(6),) * 2)
    to_crank, to_coupler, to_rocker, last = linkage.joints

    def rigid(body):
        return Handles(phi[body], phi[body], phi[body], b[body], b[body])

    def held(one, two, joint, sign=1.0):
        return joined(one, two, coupling(jnp.asarray(one.far + two.near), JointSpace.of(joint.s)), sign * joint.c)

    arm, stand = held(rigid(0), rigid(1), to_coupler), held(rigid(2), ground, to_rocker, -1.0)
    # Outside: the coupler. Inside: the crank at the ground, and the coupler where it meets the rocker.
    one = Handles(
        near=arm.far,
        cross=jnp.hstack([arm.cross.T, arm.far]),
        far=jnp.block([[arm.near, arm.cross], [arm.cross.T, arm.far]]),
        near_bias=arm.far_bias,
        far_bias=jnp.concatenate([arm.near_bias, arm.far_bias]),
    )
    # Inside: the ground at the crank, and the rocker. Outside: nothing.
    two = Handles(
        near=blocks([np.zeros((6, 6)), np.asarray(stand.near)]),
        cross=np.zeros((12, 0)),
        far=np.zeros((0, 0)),
        near_bias=np.concatenate([np.zeros(6), stand.near_bias]),
        far_bias=np.zeros(0),
    )
    t = blocks([to_crank.t, last.t])
    y = t.T @ np.asarray(one.far + two.near) @ t
    # In space a planar loop repeats three constraints; with the ball in a slot none.
    assert t.shape[1] - np.linalg.matrix_rank(y, tol=1e-9 * np.abs(y).max()) == (0 if loosened else 3)
    c = np.concatenate([-to_crank.c, last.c])
    whole = joined(one, two, coupling_of_sets(one.far + two.near, t), c)
    closed = linkage.closed([3])
    close(whole.near_bias, closed.accelerations[1], 1e-9)
    close(whole.near, closed.jacobian[1] @ closed.compliance @ closed.jacobian[1].T, 1e-9)
    # Stabilisation enters with `c`: the acceleration shifts as that of the closed linkage does.
    push = np.concatenate([np.zeros(6), 0.3 * last.t @ last.t.T @ np.array([0, 0, 0, 1.0, 2.0, 0])])
    pushed = joined(one, two, coupling_of_sets(one.far + two.near, t), c + push)
    shifted = closed._replace(right=closed.right + last.t.T @ push[6:])
    close(pushed.near_bias, shifted.accelerations[1], 1e-9)


@pytest.mark.spec("RBDA-7.5-SETS")
@pytest.mark.parametrize("batch", [(), (3,), (2, 0)])
def test_joints_that_leave_all_free_couple_nothing(batch, rng):
    """A free body and the ground share a joint without a constraint force: each moves as it would alone."""
    y = np.broadcast_to(np.eye(6), (*batch, 6, 6))
    w = coupling_of_sets(jnp.asarray(y), jnp.zeros((*batch, 6, 0)))
    assert w.shape == (*batch, 6, 6)
    assert not w.any()
