"""The sparse system of all bodies and joints (section 8.13)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from constraints.facts import admissible, close, facts, solution
from constraints.mechanisms import ladder, rod

import dynax as dx
from dynax.constraints.elimination import elimination
from dynax.constraints.sparse_system import sparse_constrained_dynamics, system_plan

pytestmark = pytest.mark.slow


@pytest.mark.spec("RBDA-8.13-LADDER")
def test_interleaved_order_of_a_ladder():
    """`1, 2, 12, 13, 24, 3, 4, 34, ...`: no entry is further than three places from the diagonal, nor is any fill."""
    order = ["1", "2", "12"]
    for k in range(1, 19, 2):
        order += [f"{k}-{k + 2}", f"{k + 1}-{k + 3}", str(k + 2), str(k + 3), f"{k + 2}-{k + 3}"]
    order[2] = "1-2"
    place = {name: i for i, name in enumerate(order)}
    width = max(abs(i - place[end]) for name, i in place.items() if "-" in name for end in name.split("-"))
    assert width == 3


@pytest.mark.spec("RBDA-8.13-LADDER", "RBDA-8.13-SPARSE")
def test_cost_grows_with_the_graph_alone():
    """Products of blocks: linear in rungs, in a chain, in a star; the mass matrix of a ladder fills quadratically."""

    def operations(bodies, joints):
        return elimination(bodies, tuple(joints)).operations

    def rails(rungs):
        return [(-1, 0), (0, 1)] + [pair for k in range(0, 2 * rungs - 2, 2)
                                    for pair in ((k, k + 2), (k + 1, k + 3), (k + 2, k + 3))]  # fmt: skip

    counts = [operations(2 * n, rails(n)) for n in (10, 20, 40)]
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])
    assert elimination(80, tuple(rails(40))).later.shape[1] == 3  # neighbours at once: the half-bandwidth
    chain = [operations(n, [(i - 1, i) for i in range(n)]) for n in (10, 20, 40)]
    assert chain == [2 * (2 * n - 1) for n in (10, 20, 40)]
    star = operations(40, [(-1, 0)] + [(0, i) for i in range(1, 40)])
    assert star == 2 * 79
    # Without any loop nothing fills: as many blocks as the matrix has.
    plan = elimination(40, tuple((i - 1, i) for i in range(40)))
    assert len(plan.slots) == 80 + 2 * 79
    mass = [int(np.sum(ladder(n).topology.velocity_support)) for n in (4, 8)]
    assert mass[1] > 3 * mass[0]
    # Analysed once for a structure, and for all models that share it.
    one = ladder(4)
    assert system_plan(one.structure) is system_plan(one.replace(mass=2 * one.mass).structure)


@pytest.mark.spec("RBDA-8.13-SPARSE", "RBDA-8.1-EOM")
def test_equals_the_spanning_tree_with_its_loops(rng):
    """A ladder that moves, with joint forces, rotor inertia and wrenches; multipliers are the loops' too."""
    model = ladder(3)
    q = np.asarray(dx.neutral(model)).copy()
    q = np.asarray(dx.assemble(model, dx.integrate(model, q, 0.15 * rng.normal(size=model.nv))).q)
    still = facts(model, q, np.zeros(model.nv))
    close(still.phi, 0.0, 1e-12)
    assert np.linalg.matrix_rank(still.k, tol=1e-6) == len(still.k) == 10
    v = admissible(still.k, rng.normal(size=model.nv))
    tau, external = rng.normal(size=model.nv), rng.normal(size=(model.num_bodies, 6))
    f = facts(model, q, v)
    f = f._replace(c=np.asarray(dx.bias_force(model, q, v, external)))
    a, push = solution(f, tau)
    found = sparse_constrained_dynamics(model, q, v, tau, external)
    close(found.a, a, 1e-9)
    close(f.k.T @ np.asarray(found.multipliers), push, 1e-9)
    close(f.k @ np.asarray(found.a), f.bias, 1e-9)
    # Stabilised away from closure, and under vmap and jit.
    off = np.asarray(dx.integrate(model, q, 1e-3 * rng.normal(size=model.nv)))
    g = facts(model, off, v)
    g = g._replace(bias=g.bias - 2 / 0.1 * g.rate - g.phi / 0.01, c=np.asarray(dx.bias_force(model, off, v, external)))
    settled = jax.jit(jax.vmap(lambda q: sparse_constrained_dynamics(model, q, v, tau, external, settle=0.1).a))
    close(settled(jnp.stack([q, off]))[1], solution(g, tau)[0], 1e-8)


@pytest.mark.spec("RBDA-8.13-SPARSE")
def test_trees_of_every_joint():
    """Without loops it is forward dynamics: every joint, floating roots, rotor inertias and passive forces."""
    model = trees.tree("screws")
    s = trees.states(model, 2)
    found = jax.vmap(lambda *x: sparse_constrained_dynamics(model, *x).a)(s.q, s.v, s.tau, s.external)
    close(found, jax.jit(jax.vmap(lambda *x: dx.forward_dynamics(model, *x)))(s.q, s.v, s.tau, s.external), 1e-10)


def test_what_it_refuses():
    builder = dx.ModelBuilder()
    for name in ("one", "two"):
        builder.body(name, joint=dx.Revolute((0, 0, 1)), inertia=rod(1.0))
    model = builder.gear("one_joint", "two_joint").build()
    with pytest.raises(ValueError, match="closes loops only"):
        sparse_constrained_dynamics(model, np.zeros(2), np.zeros(2), np.zeros(2))
