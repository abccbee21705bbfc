"""Aggregation: which sub-graphs loops make, and that taking a tree in pieces changes nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from constraints import mechanisms

import dynax as dx
from dynax.embedding.aggregation import Aggregate, aggregates, independent_columns, node_tree
from dynax.embedding.coefficients import Embedding
from dynax.embedding.dynamics import solved
from dynax.sweep import EXECUTIONS
from dynax.topology import Topology


def tree(*parents: int) -> Topology:
    return Topology(parents, [dx.Revolute().canonical] * len(parents))


def found(topology: Topology, *moved) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    return [tuple(a) for a in aggregates(topology, moved)]


def satisfied(topology: Topology, aggregate: Aggregate) -> bool:
    """AGG-COND: path-induced, one parent, which is an ancestor of all members and not one of them."""
    members, parents = set(aggregate.bodies), set()
    for body in members:
        above = topology.parents[body]
        if above not in members:
            parents.add(above)
        while above != -1 and above not in members:
            above = topology.parents[above]
        if above != -1 and topology.parents[body] not in members:
            return False  # a path leaves the set and comes back
    return parents == {aggregate.parent} and aggregate.parent not in members


#        0 - 1 - 2 - 3
#             \ 4 - 5 - 6        7 - 8 - 9 on a tree of its own
LIMBS = tree(-1, 0, 1, 2, 1, 4, 5, -1, 7, 8)


@pytest.mark.spec("AGG-FIND", "AGG-COND")
@pytest.mark.parametrize(
    ("name", "moved", "expected"),
    [
        ("one loop hangs on the common ancestor", [{3, 5}], [(1, (2, 3, 4, 5), (0,))]),
        ("two loops apart stay apart", [{3, 2}, {5, 6}], [(1, (2, 3), (0,)), (4, (5, 6), (1,))]),
        ("two trees", [{2, 9}], [(-1, (0, 1, 2, 7, 8, 9), (0,))]),
        ("two loops that share a body", [{3, 4}, {5, 4}], [(1, (2, 3, 4, 5), (0, 1))]),
        ("a loop inside a loop", [{3, 6}, {5, 6}], [(1, (2, 3, 4, 5, 6), (0, 1))]),
        ("merged by a third", [{3, 2}, {5, 6}, {3, 5}], [(1, (2, 3, 4, 5, 6), (0, 1, 2))]),
        ("to the ground", [{0, 1, 2, 3}], [(-1, (0, 1, 2, 3), (0,))]),
        ("one end is the common ancestor", [{5, 6}], [(4, (5, 6), (0,))]),
        ("gear of two joints of one body", [{2, 4}], [(1, (2, 4), (0,))]),
        ("gear along a limb takes in what is between", [{1, 6}], [(0, (1, 4, 5, 6), (0,))]),
        ("one joint alone", [{5}], [(4, (5,), (0,))]),
        ("nothing moves", [set(), {8, 9}], [(7, (8, 9), (1,))]),
    ],
)
def test_aggregates(name, moved, expected):
    assert found(LIMBS, *moved) == expected, name
    assert all(satisfied(LIMBS, Aggregate(*a)) for a in expected)


@pytest.mark.spec("AGG-FIND")
def test_what_hangs_between_is_taken_in():
    """Merging may enclose a body that no loop names, and with it a third sub-graph."""
    topology = tree(-1, 0, 1, 2, 3, 2, 5)
    assert found(topology, {3, 4}, {5, 6}, {1, 4}) == [(0, (1, 2, 3, 4), (0, 2)), (2, (5, 6), (1,))]
    assert found(topology, {3, 4}, {5, 6}, {4, 6}) == [(2, (3, 4, 5, 6), (0, 1, 2))]


@pytest.mark.spec("AGG-COND", "AGG-FIND", "SKO-PART")
def test_random_forests(rng):
    """Each set is a sub-graph of one parent, they are disjoint and as few as they must be, and make a tree of nodes."""
    for _ in range(200):
        count = int(rng.integers(2, 14))
        parents = tuple(int(rng.integers(-1, k)) for k in range(count))
        topology = tree(*parents)
        moved = [
            set(rng.choice(count, int(rng.integers(1, min(4, count) + 1)), replace=False).tolist()) for _ in range(3)
        ]
        made = aggregates(topology, moved)
        assert all(satisfied(topology, a) for a in made)
        assert sorted(k for a in made for k in a.conditions) == [0, 1, 2]
        members = [body for a in made for body in a.bodies]
        assert len(members) == len(set(members))
        for a in made:
            wanted = set().union(*(moved[k] for k in a.conditions))
            assert wanted <= set(a.bodies)
            # No smaller set will do: every member is on the way from the parent to a body that a condition moves.
            for body in a.bodies:
                assert any(topology.support[other, body] for other in wanted)
        nodes = node_tree(topology, made)
        assert sorted(b for m in nodes.members for b in m) == list(range(count))
        for k, (bodies, parent, carrier, port) in enumerate(
            zip(nodes.members, nodes.parents, nodes.parent_bodies, nodes.ports, strict=True)
        ):
            assert parent < k
            assert {topology.parents[b] for b in bodies} - set(bodies) == {carrier}
            if parent >= 0:
                assert nodes.members[parent][port] == carrier
            else:
                assert carrier == -1


def test_columns_to_solve_for(rng):
    """As many as the rank, regular, and those that are to be kept only if nothing else is left."""
    for _ in range(50):
        matrix = rng.normal(size=(5, 3)) @ rng.normal(size=(3, 6))
        chosen, rank = independent_columns(matrix, [0, 4])
        assert rank == len(chosen) == 3
        assert not {0, 4} & set(chosen)
        assert np.linalg.matrix_rank(matrix[:, chosen]) == 3
        kept, rank = independent_columns(matrix, [0, 1, 2, 3])
        assert (len(kept), rank) == (2, 3)
    assert independent_columns(np.zeros((2, 3)), []) == ([], 0)


@jax.jit
def motion(model, q, v, tau, external):
    factor = dx.innovations_factor(model, q)
    return dx.forward_dynamics(model, q, v, tau, external), factor.solve(jnp.eye(model.nv)), factor.logdet()


@pytest.mark.slow
@pytest.mark.spec("SUBSTR", "SKO-PART", "AGG-VEL/ACC/FRC")
def test_a_tree_in_pieces(rng):
    """Sub-graphs as nodes with all their freedoms, `X = 1`: the same motion, forces, inverse and determinant."""
    model = trees.build(
        (
            (-1, dx.Free()),
            (0, dx.Universal((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))),
            (1, dx.Spherical()),
            (1, dx.Revolute((0.2, 1.0, 0.0))),
            (0, dx.Prismatic((1.0, 0.0, 1.0))),
            (4, dx.Cylindrical((0.3, -1.0, 0.2))),
            (-1, dx.Helical((0.0, 0.2, 1.0), pitch=0.2)),
            (6, dx.Planar((1.0, 1.0, 0.0))),
        )
    )
    s = trees.states(model, 2)
    program = jax.vmap(motion, (None, 0, 0, 0, 0))
    expected = program(model, s.q, s.v, s.tau, s.external)
    for moved in ([{2, 3}, {5, 4}], [{0, *rng.choice(6, 2).tolist()}, {7}]):
        pieces = tuple(a._replace(conditions=()) for a in aggregates(model.topology, moved))
        whole = dx.EmbeddedModel(model, Embedding(pieces, ((),) * len(pieces)))
        assert whole.nv == model.nv
        found = program(whole, s.q, s.v, s.tau, s.external)
        for value, known in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, known, rtol=0, atol=1e-12 * max(1.0, np.abs(known).max()))


def work(jaxpr) -> int:
    """Entries of all arrays that a program makes and uses, those within loops as often as they run."""
    total, used = 0, {id(out) for out in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if not any(id(out) in used for out in equation.outvars):
            continue
        used |= {id(variable) for variable in equation.invars}
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        parameters = jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr"))
        bodies = [getattr(p, "jaxpr", p) for p in parameters if hasattr(p, "eqns") or hasattr(p, "jaxpr")]
        total += times * sum(work(body) for body in bodies)
        total += 0 if bodies else sum(int(np.prod(out.aval.shape)) for out in equation.outvars)
    return total


def embedded_chain(links: int) -> dx.EmbeddedModel:
    """Parallelograms in a row, the cranks independent, without looking for a reference configuration."""
    model = mechanisms.four_bar_chain(links).model
    made = aggregates(model.topology, [{3 * k, 3 * k + 1, 3 * k + 2} for k in range(links)])
    return dx.EmbeddedModel(model, Embedding(made, tuple((3 * k + 1, 3 * k + 2) for k in range(links))))


def test_execution_means_what_it_says(rng):
    """Nodes by levels, one after another or by segments: the same motion by other walks; what cannot be is refused."""
    model = embedded_chain(2)
    q, (v, tau) = rng.normal(size=model.nq), rng.normal(size=(2, model.nv))

    def found(execution):
        return jax.make_jaxpr(lambda q, v, tau: solved(model.tree, q, v, tau, None, model.embedding, execution)[0])(
            q, v, tau
        )

    assert len({str(found(execution)) for execution in EXECUTIONS}) == len(EXECUTIONS)
    expected = dx.forward_dynamics(model, q, v, tau)
    for execution in EXECUTIONS:
        a = dx.forward_dynamics(model, q, v, tau, execution=execution)
        np.testing.assert_allclose(a, expected, rtol=1e-10, atol=1e-10)
    for execution in ("associative", "products", "chains"):
        with pytest.raises(ValueError, match=rf"{execution!r}.*levels, bodies, segments, automatic"):
            dx.forward_dynamics(model, q, v, tau, execution=execution)


def test_gradients_by_each_execution(rng):
    """By state, torques and masses the same, from programs that are not; what is automatic is one of them."""
    model = embedded_chain(2)
    given = model.mass, rng.normal(size=model.nq), *rng.normal(size=(2, model.nv))

    def lowered(execution):
        def loss(mass, q, v, tau):
            return jnp.sum(jnp.sin(dx.forward_dynamics(model.replace(mass=mass), q, v, tau, execution=execution)))

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3))).lower(*given)

    programs = {execution: lowered(execution) for execution in (*EXECUTIONS, "automatic")}
    automatic = programs.pop("automatic").as_text()
    texts = [program.as_text() for program in programs.values()]
    assert len(set(texts)) == len(EXECUTIONS)
    assert automatic in texts
    first, *others = (program.compile()(*given) for program in programs.values())
    for other in others:
        for found, expected in zip(other, first, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_linear_cost():
    """Forward dynamics of rows of 4 to 32 loops: as many operations, on arrays that grow as the row does."""
    sizes, programs = (4, 8, 16, 32), []
    for links in sizes:
        model = embedded_chain(links)
        x = np.zeros(model.nv)
        program = jax.make_jaxpr(lambda q, v, m=model: solved(m.tree, q, v, v, None, m.embedding)[0])
        programs.append(program(np.zeros(model.nq), x).jaxpr)
    slope = np.polyfit(np.log(sizes), np.log([work(p) for p in programs]), 1)[0]
    assert 0.9 < slope < 1.02
    assert len({len(p.eqns) for p in programs}) == 1
