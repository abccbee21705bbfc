"""How bodies and nodes give way, on one branch and across branches; operators of a part of the bodies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from dense import skew
from operators.matrices import FRAMES, block, block_mask, case, close, matrices

import dynax as dx

pytestmark = pytest.mark.slow

NAMES = sorted(trees.TREES)


@pytest.mark.spec("OMEGA", "UPS", "OP-UPS", "OP-OMEGA", "ERR-2", "ERR-3", "SOA-ALPHAF", "ERR-5")
@pytest.mark.parametrize("name", NAMES)
def test_compliances(name):
    c = case(name)
    t, d, n = c.model.topology, c.dense, c.model.num_bodies
    e, psi, omega, upsilon = (d[key] for key in ("E_psi", "psi", "Omega", "Upsilon"))
    give = d["H"].T @ np.linalg.inv(d["D"]) @ d["H"]
    jacobians = c.book.jacobians[0]
    close(omega, jacobians @ np.linalg.inv(c.mass) @ jacobians.T, 1e-11)
    close(omega, psi.T @ give @ psi, 1e-11)
    trees_apart = ~(t.support @ t.support.T)
    for i in range(n):
        close(block(upsilon, i, i), block(omega, i, i), 1e-12)
        above = t.parents[i]
        step = block(e, above, i) if above >= 0 else np.zeros((6, 6))
        outer = block(upsilon, above, above) if above >= 0 else np.zeros((6, 6))
        close(block(upsilon, i, i), step.T @ outer @ step + block(give, i, i), 1e-12)
        for j in range(n):
            common = np.flatnonzero(t.support[i] & t.support[j])
            if len(common):
                at = common[-1]
                close(block(omega, i, j), block(psi, at, i).T @ block(upsilon, at, at) @ block(psi, at, j), 1e-11)
            if above >= 0 and not t.support[j, i]:
                # From the parent outwards: the factor is psi(parent, i), with no index of a node in between.
                close(block(omega, j, i), block(omega, j, above) @ step, 1e-11)
    assert not np.any(omega[block_mask(trees_apart)])
    siblings = [(i, j) for i in range(n) for j in range(i) if t.parents[i] == t.parents[j] >= 0]
    assert siblings
    for i, j in siblings:
        assert not t.support[i, j]
        assert not t.support[j, i]
    assert max(np.abs(block(omega, i, j)).max() for i, j in siblings) > 1e-3
    # The equation printed for chains: on a tree, its right-hand side has blocks of siblings.
    rest = upsilon - e.T @ upsilon @ e - give
    assert max(np.abs(block(rest, i, j)).max() for i, j in siblings) > 1e-3
    path = np.flatnonzero(t.support[n - 1])
    rows = np.concatenate([np.arange(6 * b, 6 * b + 6) for b in path])
    close(rest[np.ix_(rows, rows)], np.zeros((len(rows), len(rows))), 1e-12)
    # Free accelerations: psi* H* D^-1 [1 - H psi K] T, and J M^-1 T without the bias.
    close(d["free_accelerations"], jacobians @ np.linalg.inv(c.mass), 1e-11)


def test_blocks_of_omega():
    c = case("mixed")
    omega, full = c.ops.Omega, c.dense["Omega"]
    close(omega.diagonal.dense(), c.dense["Upsilon"], 1e-14)
    for i, j in [(3, 9), (14, 11), (6, 6), (14, 13), (0, 18)]:
        close(omega.block(i, j), block(full, i, j), 1e-12)


@pytest.mark.spec("OP-B", "OP-J", "OP-LAM", "SOA-B", "SOA-JAC", "LAMBDA", "ERR-2")
@pytest.mark.parametrize("name", NAMES)
def test_nodes(name):
    c = case(name)
    frames, d = FRAMES[name], c.dense
    bodies = [c.model.locate(frame)[0] for frame in frames]
    assert -1 in bodies
    assert len(set(bodies)) < len(bodies)
    jacobian = d["B"].T @ c.book.jacobians[0]
    close(jacobian[:6], dx.jacobian(c.model, c.q, "tool", frame="body"), 1e-13)
    close(d["J"], jacobian, 1e-13)
    close(d["Lambda"], jacobian @ np.linalg.inv(c.mass) @ jacobian.T, 1e-11)
    for k, (frame, body) in enumerate(zip(frames, bodies, strict=True)):
        phi = d["B"][:, 6 * k : 6 * k + 6].reshape(-1, 6, 6)
        others = [b for b in range(len(phi)) if b != body]
        assert not np.any(phi[others])
        if frame in c.model.body_names:
            assert np.array_equal(phi[body], np.eye(6))
        elif body >= 0:
            pose = c.model.locate(frame)[1]
            moment = skew(pose.translation) @ pose.rotation
            close(phi[body], np.block([[pose.rotation, moment], [np.zeros((3, 3)), pose.rotation]]), 1e-14)
    # A node at rest neither moves nor feels.
    at_rest = slice(6 * bodies.index(-1), 6 * bodies.index(-1) + 6)
    assert not np.any(d["J"][at_rest])
    assert not np.any(d["Lambda"][at_rest])


@pytest.mark.spec("SOA-B", "SOA-JAC")
def test_forces_on_nodes_are_external_forces(rng):
    """J* f is the generalised force of wrenches on nodes, and B f are they on the bodies."""
    c = case("arm")
    frames = FRAMES["arm"]
    f = rng.normal(size=6 * len(frames))
    zero = jnp.zeros(c.model.nv)
    external = (c.ops.B(*frames) @ f).reshape(-1, 6)
    loaded, free = (dx.inverse_dynamics(c.model, c.q, zero, zero, x) for x in (external, 0 * external))
    close(c.ops.J(*frames).T @ f, free - loaded, 1e-11)


def test_a_free_body_answers_with_its_inertia():
    """Lambda of a free body is phi* M^-1 phi: closed form."""
    builder = dx.ModelBuilder().body("box", joint=dx.Free(), inertia=trees.random_inertia(np.random.default_rng(3)))
    pose = trees.random_pose(np.random.default_rng(4))
    model = builder.frame("grip", body="box", placement=pose).build()
    ops = dx.spatial_operators(model, dx.random_configuration(model, jax.random.key(0)))
    phi = ops.B("grip").dense()
    close(ops.Lambda("grip").dense(), phi.T @ np.linalg.inv(ops.M.dense()) @ phi, 1e-12)
    assert not np.any(ops.P_plus.dense() > 1e-12)


def test_names():
    ops = case("mixed").ops
    with pytest.raises(KeyError, match="did you mean"):
        ops.B("tol")
    with pytest.raises(ValueError, match="at least one name"):
        ops.J()


def test_a_model_without_bodies():
    model = dx.ModelBuilder().build()
    ops = dx.spatial_operators(model, jnp.zeros(0))
    assert ops.phi.dense().shape == (0, 0)
    assert ops.mass_matrix.shape == (0, 0)


OVER_BODIES = ("E_phi", "phi", "phi_t", "M", "R", "P", "P_plus", "E_psi", "psi", "tau", "Upsilon")
OVER_FREEDOMS = ("D", "armature", "F", "W")
PIECES = {
    "subtree": lambda t: [j for j in range(t.num_bodies) if t.support[j, 4]],
    "middle": lambda t: [j for j in range(t.num_bodies) if t.support[j, 1] and not t.support[j, 3]],
    "carriers": lambda t: [j for j in range(t.num_bodies) if t.support[14, j]],
    "several": lambda t: [2, 3, 13, 14, 18, 21],
}


@pytest.mark.spec("OPX")
@pytest.mark.parametrize("kind", PIECES)
def test_restriction(kind):
    """To a subtree, to a piece in the middle, to what carries a body, to pieces of several trees."""
    c = case("mixed")
    t, bodies = c.model.topology, PIECES[kind](c.model.topology)
    part = c.ops.restrict([c.model.body_names[b] for b in bodies] if kind == "subtree" else bodies)
    rows = np.concatenate([np.arange(6 * b, 6 * b + 6) for b in bodies])
    freedoms = np.flatnonzero(np.isin(t.body_of_velocity, bodies))
    names = (*OVER_BODIES, *OVER_FREEDOMS, "H", "K", "mass_matrix", "factored_inverse", "inverse_mass_matrix")
    d = matrices(part, ("mark",), names)
    for key in OVER_BODIES:
        close(d[key], c.dense[key][np.ix_(rows, rows)], 1e-12)
    for key in OVER_FREEDOMS:
        close(d[key], c.dense[key][np.ix_(freedoms, freedoms)], 1e-12)
    close(d["H"], c.dense["H"][np.ix_(freedoms, rows)], 1e-14)
    close(d["K"], c.dense["K"][np.ix_(rows, freedoms)], 1e-14)
    h, phi, m = (np.asarray(d[key]) for key in ("H", "phi", "M"))
    alone = h @ phi @ m @ phi.T @ h.T + c.dense["armature"][np.ix_(freedoms, freedoms)]
    close(d["mass_matrix"], alone, 1e-12)
    close(d["factored_inverse"], np.linalg.inv(alone), 1e-11)
    if kind == "subtree":  # it holds all that its bodies carry
        close(d["inverse_mass_matrix"], np.linalg.inv(alone), 1e-11)
    if kind == "carriers":  # what they carry gives way: a block of the inverse
        close(d["inverse_mass_matrix"], np.linalg.inv(c.mass)[np.ix_(freedoms, freedoms)], 1e-11)


def test_restriction_says_what_is_wrong():
    ops = case("mixed").ops
    part = ops.restrict(["b1", "b2"]).restrict([2])
    assert part.bodies == (2,)
    assert part.phi.shape == (6, 6)
    assert ops.restrict([]).phi.dense().shape == (0, 0)
    with pytest.raises(ValueError, match="without 'b1' between them"):
        ops.restrict([0, 2])
    with pytest.raises(ValueError, match="not among the bodies"):
        part.restrict([1])
    with pytest.raises(ValueError, match="leave out"):
        part.B("tool")
    with pytest.raises(KeyError, match="did you mean"):
        ops.restrict(["b99"])
