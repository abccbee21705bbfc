"""Closed mechanisms by all routes at once: what is assembled first, and by what equations, does not show."""

from __future__ import annotations

from itertools import count

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.crane import crane
from constraints.facts import admissible, close, facts, solution
from constraints.mechanisms import Mechanism, four_bar, ladder, slider_crank, stewart_gough
from dense import crm
from linkages import Joint, Linkage, blocks, of_model, pin

import dynax as dx
from dynax.constraints.dynamics import METHODS
from dynax.embedding.closing import closing
from dynax.joints import JointClosure
from dynax.routes.divide_and_conquer import Handles, coupling_of_sets, joined

BARS = (0.5, 1.2, 1.2, 1.0)
MECHANISMS = {
    "four-bar of hinges": lambda: four_bar(BARS),
    "four-bar with a slot": lambda: four_bar(BARS, joint=dx.SphereInCylinder((0.0, 0.0, 1.0))),
    "four-bar cut at the ground": lambda: four_bar(BARS, cut="terminal"),
    "slider-crank": slider_crank,
    "figure 8.3": lambda: Mechanism(crane(), np.array([0.9, 2.37, 0.79, -0.4]), 2),
    "stewart-gough": stewart_gough,
    "ladder": lambda: Mechanism(ladder(3), np.asarray(dx.neutral(ladder(3))), -1),
}


# The whole system, in NumPy -------------------------------------------------------------------------------------------


def loop_joint(model: dx.Model, k: int, poses, velocity) -> Joint:
    """A hinge, a ball or a ball in a slot that closes a loop: its columns in world axes about the world's origin."""
    loop = model.structure.loops[k]

    def end(body, placements):
        place = dx.Transform(placements.rotation[k], placements.translation[k])
        at = place if body < 0 else dx.Transform(poses.rotation[body], poses.translation[body]) @ place
        return np.asarray(at.rotation), np.asarray(at.translation)

    (turn, _), (_, point) = end(loop.predecessor, model.loop_predecessors), end(loop.successor, model.loop_successors)
    below, above = (np.zeros(6) if b < 0 else velocity[b] for b in (loop.predecessor, loop.successor))
    assert isinstance(loop.closure, JointClosure)
    joint = loop.closure.joint
    carried = np.cross(above[:3], point) + above[3:]  # the velocity of the point
    if isinstance(joint, dx.Revolute):
        s = pin(turn @ joint.axis, point)
        change = crm(below) @ s
    else:
        balls = np.concatenate([pin(axis, point) for axis in np.eye(3)], axis=1)
        moved = np.concatenate([np.zeros((3, 3)), np.cross(carried, np.eye(3)).T])
        slides = np.zeros((6, 0))
        if isinstance(joint, dx.SphereInCylinder):
            slides = np.concatenate([np.zeros(3), turn @ joint.axis])[:, None]
        s, change = np.hstack([balls, slides]), np.hstack([moved, crm(below) @ slides])
    rates = np.linalg.lstsq(s, above - below, rcond=None)[0]
    return Joint(loop.predecessor, loop.successor, s, change @ rates, np.zeros(s.shape[1]))


def linkage_of(model: dx.Model, q, v, tau, external) -> Linkage:
    """All bodies free, and all joints as conditions on them."""
    tree = of_model(model, q, v, tau, external)
    poses = dx.forward_kinematics(model, q)
    velocity = []
    for body, joint in enumerate(tree.joints):
        own = joint.s @ np.asarray(v)[model.topology.v_start[body] : model.topology.v_start[body + 1]]
        velocity.append(own + (velocity[joint.predecessor] if joint.predecessor >= 0 else 0.0))
    loops = [loop_joint(model, k, poses, velocity) for k in range(len(model.structure.loops))]
    return tree._replace(joints=tree.joints + loops)


def by_handles(linkage: Linkage, pairwise: bool) -> np.ndarray:
    """Accelerations of all bodies, which are put together pair by pair, or one by one from the ground (section 7.5).

    A part knows how its bodies answer to forces on any of them. Two parts are joined by all joints between them at
    once; constraints among them may repeat each other.
    """
    phi, outside = np.linalg.inv(linkage.inertia), -linkage.bias
    for joint in linkage.joints:
        active = joint.t_a @ joint.tau
        outside[joint.successor] += active
        if joint.predecessor >= 0:
            outside[joint.predecessor] -= active
    parts = {body: ([body], phi[body], phi[body] @ outside[body]) for body in range(len(phi))}
    parts[-1] = ([-1], np.zeros((6, 6)), np.zeros(6))
    label = count(len(phi))

    def between(one, two):
        return [j for j in linkage.joints if {j.predecessor, j.successor} & set(one)
                and {j.predecessor, j.successor} & set(two)]  # fmt: skip

    while len(parts) > 1:
        keys = list(parts)
        near = [(a, b) for a in keys for b in keys if a != b and between(parts[a][0], parts[b][0])]
        if pairwise:
            a, b = min(near, key=lambda pair: (len(parts[pair[0]][0]) + len(parts[pair[1]][0]), pair))
        else:
            a, b = min(pair for pair in near if -1 in parts[pair[0]][0])
        (one, phi_1, b_1), (two, phi_2, b_2) = parts.pop(a), parts.pop(b)
        shared = between(one, two)

        def ends(bodies, shared=shared):
            held = [j.successor if j.successor in bodies else j.predecessor for j in shared]
            return np.concatenate([np.arange(6) + 6 * bodies.index(body) for body in held])

        at_1, at_2 = ends(one), ends(two)
        signs = [1.0 if j.successor in two else -1.0 for j in shared]
        c = np.concatenate([sign * j.c for sign, j in zip(signs, shared, strict=True)])
        first = Handles(phi_1, phi_1[:, at_1], phi_1[np.ix_(at_1, at_1)], b_1, b_1[at_1])
        second = Handles(phi_2[np.ix_(at_2, at_2)], phi_2[at_2], phi_2, b_2[at_2], b_2)
        w = coupling_of_sets(jnp.asarray(first.far + second.near), blocks([j.t for j in shared]), tolerance=1e-9)
        whole = joined(*jax.tree.map(jnp.asarray, (first, second)), w, c)
        compliance = np.block([[whole.near, whole.cross], [np.asarray(whole.cross).T, whole.far]])
        bias = np.concatenate([whole.near_bias, whole.far_bias])
        parts[-1 if -1 in (*one, *two) else next(label)] = (one + two, compliance, bias)
    bodies, _, accelerations = parts.popitem()[1]
    return accelerations.reshape(-1, 6)[np.argsort(bodies)][1:]


# By dynax -------------------------------------------------------------------------------------------------------------


def with_nodes(model: dx.Model) -> dx.Model:
    """The tree with a frame at both ends of each loop."""
    builder = dx.to_builder(model)
    for k, loop in enumerate(model.structure.loops):
        for side, body, place in (
            ("below", loop.predecessor, model.loop_predecessors),
            ("above", loop.successor, model.loop_successors),
        ):
            placement = dx.Transform(place.rotation[k], place.translation[k])
            carrier = {} if body < 0 else {"body": model.body_names[body]}
            builder.frame(f"{side} {loop.name}", placement=placement, **carrier)
    return builder.build()


def routes(model: dx.Model, embedded: dx.EmbeddedModel, q, v, tau, external) -> dict[str, jax.Array]:
    """Accelerations: of all joints, or from routes that know only those, of the independent ones."""
    found = {m: dx.constrained_dynamics(model, q, v, tau, external, method=m).a for m in METHODS}
    found["sparse"] = dx.sparse_constrained_dynamics(model, q, v, tau, external).a
    independent = jnp.array(embedded.independent)
    still, rate = jnp.zeros(embedded.nv), v[independent]

    # By a function of the independent coordinates, counted from here: the others close the loops by Newton's method.
    def gamma(tree, y):
        start = dx.integrate(tree, q, jnp.zeros(tree.nv).at[independent].set(y))
        return closing(dx.EmbeddedModel(tree, embedded.embedding), start)

    found["loop-closure function"] = dx.loop_closure_dynamics(model, gamma, still, rate, tau, external)
    # An embedded model takes forces on its independent joints; those on others act as the loops pass them on.
    passed = dx.embedding_matrix(embedded, q).T @ tau
    found["embedding"] = dx.forward_dynamics(embedded, q, rate, passed, external)
    return found


def by_six_steps(model: dx.Model, q, v, tau, external) -> jax.Array:
    """The tree as the primary system, coupled to itself."""
    loops = model.structure.loops
    names = [f"{side} {loop.name}" for loop in loops for side in ("below", "above")]
    system = dx.open_system(model, q, v, tau, external, nodes=names)
    couplings = [
        dx.joint_coupling(
            system, None, ("primary", f"below {loop.name}"), ("primary", f"above {loop.name}"), loop.closure
        )
        for loop in loops
    ]
    return dx.coupled_dynamics(system, None, dx.join_couplings(*couplings)).primary


@pytest.mark.spec("RBDA-X-LOOP", "RBDA-3.2-PROC", "FORM-ABS", "RBDA-7.5-SETS", "RBDA-3.7-BIG", "CC-6STEP", "OP-A")
@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_all_routes_agree(name, rng):
    """Four orders of assembly, and every form of the equations: one motion, to 1e-9."""
    mechanism = MECHANISMS[name]()
    # Methods that begin with free bodies need all of them to have an inertia, and no rotors.
    solid = mechanism.model.inertia + np.array([1e-3, 1e-3, 1e-3, 0.0, 0.0, 0.0])
    model = mechanism.model.replace(armature=0 * mechanism.model.armature, inertia=solid)
    embedded = dx.embed(model, mechanism.q)
    q = dx.assemble(model, mechanism.q).q
    v = admissible(facts(model, q, np.zeros(model.nv)).k, rng.normal(size=model.nv))
    f = facts(model, q, v)
    if mechanism.mobility >= 0:
        assert embedded.nv == model.nv - np.linalg.matrix_rank(f.k, tol=1e-9) == mechanism.mobility
    tau, external = rng.normal(size=model.nv), rng.normal(size=(model.num_bodies, 6))
    c = np.asarray(dx.bias_force(model, q, v, external))
    a, _ = solution(f._replace(c=c), tau)
    for route, found in jax.jit(routes)(model, embedded, q, v, tau, external).items():
        expected = a if len(found) == model.nv else a[list(embedded.independent)]
        assert np.abs(found - expected).max() < 1e-9 * np.abs(a).max(), route
    close(jax.jit(by_six_steps)(with_nodes(model), q, v, tau, external), a, 1e-9)

    linkage = linkage_of(model, q, v, tau, external)
    loops = range(model.num_bodies, len(linkage.joints))
    closed = linkage.closed(list(loops))  # a spanning tree, then its loops
    close(closed.qdd, a, 1e-9)
    bodies = closed.jacobian @ a + closed.drift
    close(linkage.whole_system()[0], bodies, 1e-9)  # all bodies, then all joints
    close(by_handles(linkage, pairwise=False), bodies, 1e-9)
    close(by_handles(linkage, pairwise=True), bodies, 1e-9)
