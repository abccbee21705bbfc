"""Things in the hands of a robot: against trees built from scratch, taken and let go."""

from __future__ import annotations

from typing import NamedTuple

import dense
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from constraints.hands import NODES, arms, close, equations, known, thing

import dynax as dx
from dynax.constraints import open_system as opened

pytestmark = pytest.mark.slow


class Held(NamedTuple):
    """Arms that hold a thing in the left hand, and what a tree of both says."""

    primary: dx.OpenSystem
    secondary: dx.OpenSystem
    whole: np.ndarray
    """Accelerations of the tree's joints."""
    v: np.ndarray


def held(joint):
    model, body = arms(), thing()
    builder = dx.to_builder(model)
    carrier, pose = model.locate("left")
    placement = dx.Transform(np.asarray(pose.rotation), np.asarray(pose.translation))
    inertia = trees.random_inertia(np.random.default_rng([8, 0]))
    builder.body("part0", parent=model.body_names[carrier], joint=joint, placement=placement, inertia=inertia)
    tree = builder.build()
    s = trees.states(tree, 1)
    q, v, external = (np.asarray(x[0]) for x in (s.q, s.v, s.external))
    tau = np.append(s.tau[0, :12], np.zeros(joint.nv))
    own = np.zeros((1, 6))
    d = dense.Dense(tree, jnp.asarray(q)[None], jnp.asarray(v)[None])
    if joint.nv:
        own = external[12:]
        rotation, position, velocity = (x[0, 12] for x in (d.rotation, d.position, d.velocity))
    else:
        turn, shift = np.asarray(pose.rotation), np.asarray(pose.translation)
        rotation = d.rotation[0, carrier] @ turn
        position = d.position[0, carrier] + d.rotation[0, carrier] @ shift
        velocity = dense.motion_transform(turn, shift) @ d.velocity[0, carrier]
    at = jnp.concatenate([position, dx.Rotation(rotation).quaternion()])
    force = tau - d.tau(np.zeros((1, tree.nv)), external[None])[0]
    primary = dx.open_system(model, q[:12], v[:12], tau[:12], external[:12], nodes=NODES)
    secondary = dx.open_system(body, at, velocity, None, own, nodes=("part0", "other"))
    return Held(primary, secondary, np.linalg.solve(d.mass_matrix[0], force), v)


JOINTS = [dx.Weld(), dx.Revolute((1.0, 2.0, -1.0)), dx.Spherical(), dx.Universal()]


@pytest.mark.spec("CC-SPECIAL", "CC-6STEP", "ERR-6", "ERR-7")
@pytest.mark.parametrize("joint", JOINTS, ids=repr)
def test_a_thing_in_the_hand_is_a_tree(joint):
    """Coupled by a joint: the tree that the joint makes. The thing itself has no motors."""
    p, s, whole, _ = held(joint)
    c = dx.joint_coupling(p, s, ("primary", "left"), ("secondary", "part0"), joint)
    close(c.residual, 0.0, 1e-12)
    velocity = c.primary @ p.free.node_velocities.reshape(-1) + c.secondary @ s.free.node_velocities.reshape(-1)
    close(velocity, 0.0, 1e-12)
    found = dx.coupled_dynamics(p, s, c)
    close(found.primary, whole[:12])
    close(dx.coupled_dynamics(p, s, c, method="primary").primary, whole[:12])
    if joint.nv:
        without = dx.coupled_dynamics(p, s, c._replace(rate=None)).primary
        assert np.abs(without - whole[:12]).max() > 1e-3
    else:
        # A rigid grasp of frames that are one: relative velocity zero.
        close(c.primary[:, :6], -np.eye(6), 1e-12)
        close(c.secondary[:, :6], np.eye(6), 1e-12)
        # In common axes about a common point a hinge, too, has opposite blocks.
        hinge = dx.joint_coupling(p, s, ("primary", "left"), ("secondary", "part0"), dx.Revolute((0, 1, 1)))
        close(hinge.primary, -np.pad(np.asarray(hinge.secondary), ((0, 0), (0, 12))), 1e-12)
    assert not np.any(c.primary[:, 6:])
    # The thing is free: its compliance is phi* M^-1 phi.
    own = np.linalg.inv(dense.inertia_matrix(*(np.asarray(x[0]) for x in (thing().mass, thing().com, thing().inertia))))
    pose = thing().locate("other")[1]
    both = np.concatenate([np.eye(6), dense.motion_transform(np.asarray(pose.rotation), np.asarray(pose.translation))])
    close(s.free.compliance, both @ own @ both.T, 1e-12)


@pytest.mark.spec("CC-RECONF")
def test_attach_release_attach(monkeypatch):
    """The primary system is traced once, whatever it holds; each phase is that of the whole system."""
    model, traces = arms("traced once"), []
    plain = opened.factorize

    def counted(m, q):
        traces.append(m.name)
        return plain(m, q)

    monkeypatch.setattr(opened, "factorize", counted)
    start = trees.states(model, 1)
    q, v, tau = (np.asarray(x[0]) for x in (start.q, start.v, start.tau))
    for body in (thing(), None, thing(2)):
        p = dx.open_system(model, q, v, tau, nodes=NODES)
        if body is None:
            close(dx.coupled_dynamics(p, None, dx.Coupling()).primary, p.free.acceleration, 0.0)
            continue
        # It comes flying, with one frame in the left hand; the right one takes it where it is.
        hand, still = p.free.poses, jnp.zeros(body.nq - 7)
        place = jnp.concatenate([hand.translation[0], dx.Rotation(hand.rotation[0]).quaternion(), still])
        u = np.random.default_rng(1).normal(size=body.nv)

        def both(v, u, body=body, place=place):
            """Both systems, what couples them, and their equations."""
            p = dx.open_system(model, q, v, tau, nodes=NODES)
            s = dx.open_system(body, place, u, nodes=("part0", "other"))
            coupling = dx.join_couplings(
                dx.joint_coupling(p, s, ("primary", "left"), ("secondary", "part0")),
                dx.joint_coupling(p, s, ("primary", "right"), ("secondary", "other"), dx.Spherical()),
            )
            rest = np.zeros(body.nv), np.zeros((body.num_bodies, 6))
            facts = (known(model, q, v, tau, np.zeros((12, 6)), NODES), known(body, place, u, *rest, s.nodes))
            return p, s, coupling, facts, [np.asarray(a) @ k.jacobian for a, k in zip(coupling, facts, strict=False)]

        p, s, coupling, facts, jumps = both(v, u)
        after = dx.coupled_impulse(p, s, coupling)
        mass = [k.mass for k in facts]
        schur = sum(j @ np.linalg.solve(m, j.T) for j, m in zip(jumps, mass, strict=True))
        close(after.force, np.linalg.solve(schur, jumps[0] @ v + jumps[1] @ u))
        energies = []
        for new, old, j, m in zip(after[:2], (v, u), jumps, mass, strict=True):
            close(new, old - np.linalg.solve(m, j.T @ after.force))
            energies.append([0.5 * x @ m @ x for x in (old, new)])
        close(sum(j @ x for j, x in zip(jumps, after[:2], strict=True)), np.zeros(9))
        before, now = np.sum(energies, 0)
        assert now < before
        # And then they move together.
        p, s, coupling, facts, _ = both(*after[:2])
        found = dx.coupled_dynamics(p, s, coupling)
        gap = coupling.rate + sum(np.asarray(a) @ k.rate for a, k in zip(coupling[:2], facts, strict=True))
        for a, expected in zip(found[:3], equations(facts, coupling[:2], gap), strict=True):
            close(a, expected)
    assert traces == ["traced once", "thing1", "thing2"]
