"""What joints that close loops do and bear (sections 8.2, 8.4 and 8.6)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.closed_tree import closed_tree
from constraints.facts import admissible, close, facts, solution
from constraints.mechanisms import four_bar
from dense import motion_transform

import dynax as dx
from dynax.constraints.loop_joints import loop_jacobians, loop_poses, loop_wrenches

pytestmark = pytest.mark.slow

LOOPS = ("revolute", "slot", "distance", "spherical", "cylindrical", "prismatic")
"""Between branches of one tree, of two, and to the world."""


@pytest.mark.spec("RBDA-8.2-LOOPJAC")
def test_loop_jacobians(rng):
    model, q = closed_tree(LOOPS)
    v = rng.normal(size=model.nv)
    velocities, poses = np.asarray(dx.body_velocities(model, q, v)), dx.forward_kinematics(model, q)
    jacobians = np.asarray(loop_jacobians(model, q))
    support = model.topology.support[:, model.topology.body_of_velocity]
    for k, loop in enumerate(model.structure.loops):
        ends, frames = [], []
        for body, places in ((loop.predecessor, model.loop_predecessors), (loop.successor, model.loop_successors)):
            place = np.asarray(places.rotation[k]), np.asarray(places.translation[k])
            own = np.zeros(6) if body < 0 else velocities[body]
            whole = (np.eye(3), np.zeros(3)) if body < 0 else (poses.rotation[body], poses.translation[body])
            ends.append(motion_transform(*place) @ own)
            frames.append((whole[0] @ place[0], whole[1] + whole[0] @ place[1]))
        (r_p, x_p), (r_s, x_s) = frames
        # `v_s - v_p`, both in the successor frame.
        across = motion_transform(r_p.T @ r_s, r_p.T @ (x_s - x_p))
        close(jacobians[k] @ v, ends[1] - across @ ends[0], 1e-12)
        # Joints on both branches or on none cancel exactly.
        ends = loop.predecessor, loop.successor
        moved = [np.zeros(model.nv, bool) if body < 0 else support[body] for body in ends]
        assert not jacobians[k][:, moved[0] == moved[1]].any()
        assert np.all(np.abs(jacobians[k][:, moved[0] != moved[1]]).max(axis=0) > 1e-3)


@pytest.mark.spec("RBDA-8.4-FORCES", "RBDA-8.6-CTAU")
def test_active_forces_of_loop_joints(rng):
    """A motor or spring in a loop joint is `J_L^T f` on the tree, and inverse dynamics with it gives `C - tau^a`."""
    model, q = closed_tree(LOOPS)
    v, forces = rng.normal(size=model.nv), rng.normal(size=(len(LOOPS), 6))
    external = loop_wrenches(model, q, forces)
    pushed = np.einsum("kij,ki->j", loop_jacobians(model, q), forces)
    bias = dx.bias_force(model, q, v)
    close(dx.bias_force(model, q, v, external), bias - pushed, 1e-12)
    close(dx.inverse_dynamics(model, q, v, np.zeros(model.nv), external), bias - pushed, 1e-12)
    with pytest.raises(ValueError, match="one per loop"):
        loop_wrenches(model, q, forces[1:])


@pytest.mark.spec("RBDA-8.4-FORCES")
def test_spring_in_a_loop_joint(rng):
    """A torsion spring where coupler and rocker meet has the energy of the angle there."""
    m = four_bar()
    model, q = m.model, np.asarray(dx.assemble(m.model, m.q).q)

    def energy(q):
        r = loop_poses(model, q).rotation[0]
        return 0.5 * 7.0 * jnp.arctan2(r[1, 0], r[0, 0]) ** 2

    r = np.asarray(loop_poses(model, q).rotation[0])
    torque = -7.0 * np.arctan2(r[1, 0], r[0, 0])
    external = loop_wrenches(model, q, [[0, 0, torque, 0, 0, 0]])
    spring = dx.bias_force(model, q, np.zeros(3)) - dx.bias_force(model, q, np.zeros(3), external)
    close(spring, -jax.grad(energy)(q), 1e-12)


@pytest.mark.spec("RBDA-8.4-FORCES")
def test_multipliers_are_the_reaction_of_the_joint(rng):
    """What the cut joint bears is what it bears as a joint of the tree, when another one is cut."""
    inner, outer = four_bar(joint=dx.SphereInCylinder((0.0, 0.0, 1.0))), four_bar(cut="terminal")
    q = np.asarray(dx.assemble(inner.model, inner.q).q)
    f = facts(inner.model, q, 0 * q)
    v = admissible(f.k, np.array([1.3, 0.2, -0.4]))
    f = facts(inner.model, q, v)
    tau = np.array([3.0, 0.0, 0.0])
    a, push = solution(f, tau)
    multipliers = np.linalg.lstsq(f.k.T, push, rcond=None)[0]
    # In the axes of the slot, which lie in the predecessor, about the ball's centre at the end of the rocker.
    names = [f"{name}_joint" for name in ("crank", "coupler", "rocker")]
    assert inner.model.joint_names == outer.model.joint_names == tuple(names)
    relative = np.array([[1, 0, 0], [0, 1, 0], [-1, -1, 1]])  # the rocker's angle from the coupler's
    q2, v2, a2 = q @ relative.T, v @ relative.T, a @ relative.T
    # The loop's forces on the rocker in the other tree, from its own multipliers: with them its joints bear all.
    g = facts(outer.model, q2, v2)
    a_there, push_there = solution(g, np.array([3.0, 0.0, 0.0]))
    close(a_there, a2, 1e-9)
    lam = np.linalg.pinv(g.k.T, rcond=1e-10) @ push_there
    # rows of a hinge: two tilts, then the position
    wrench = np.array([lam[0], lam[1], 0.0, *lam[2:]])
    external = loop_wrenches(outer.model, q2, wrench[None])
    borne = np.asarray(dx.joint_forces(outer.model, q2, v2, a2, external))[2]
    turn = np.asarray(dx.forward_kinematics(outer.model, q2).rotation[1])
    own = np.asarray(dx.forward_kinematics(outer.model, q2).rotation[2])
    slot = np.asarray(inner.model.loop_predecessors.rotation[0])
    in_slot = slot.T @ turn.T @ own @ borne[3:]
    close(in_slot[:2], multipliers, 1e-9)
