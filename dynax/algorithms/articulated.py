"""Accelerations from forces: one walk inward, the bases closed, one walk outward, for nodes of every kind
(`dynax.tree.nodes` has their equations).

The bias is outside: forces enter as `z`, and the accelerations of this recursion are what comes on top of the bias.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.bodies.base import Bases, RootInertia, base_accelerations, free_bases, root_forces
from dynax.bodies.hinge import Hinge
from dynax.model import Model
from dynax.spatial import ArticulatedInertia, Force, RigidInertia
from dynax.sweep.kinds import Kinds
from dynax.tree.layout import Parts
from dynax.tree.nodes import Gains, Load, NodeOrder, Nodes, NodesOfKinds, accelerate, articulate, innovate
from dynax.tree.setup import Setup


class Tree(NamedTuple):
    """A tree of nodes at one configuration."""

    order: NodeOrder
    nodes: Nodes | NodesOfKinds
    inertia: RigidInertia | Kinds
    """Of the bodies at the ports."""
    bases: Bases


def hinged(model: Model, s: Setup, hinges: Hinge, inertias: Parts) -> Tree:
    """A tree of rigid bodies: each at the last hinge of its joint."""
    rows = s.layout.to_slots(inertias.rows, s.layout.slot_last)
    return Tree(s.layout.order, hinges, rows, free_bases(model, s, inertias))


class Elimination(NamedTuple):
    """What one inward and one outward walk find."""

    a: jax.Array
    """Accelerations of the freedoms, shape `(nv, *batch)`."""
    gains: Gains
    roots: RootInertia
    motions: Parts | None
    """Accelerations of the bases and of the ports in rows on top of the bias, world axes about the joints, if asked
    for."""


def recursion(
    tree: Tree, load: Load, on_bases: Force, tau: jax.Array, held: np.ndarray | None = None, *, motions: bool = False
) -> Elimination:
    """Accelerations from joint forces, `load` and the forces `on_bases` (the fused recursion).

    `held` are bases' freedoms that do not move, a mask over `6 k`.
    """
    order, nodes, bases = tree.order, tree.nodes, tree.bases
    batch = tau.shape[1:]
    zero = nodes.ports(jnp.zeros(batch, tau.dtype))

    def inward(handed, x):
        (p, z), (node, inertia, load, torque) = handed, x
        if load.force is not None:
            z = z + load.force
        if load.bias is not None:
            z = z + (p + inertia) @ load.bias
        torque = torque if load.pull is None else torque - load.pull
        p, gains = articulate(p, inertia, node)
        z, w = innovate(z, node, gains, torque)
        if load.own is not None:
            z = z + load.own
        return (node.handed(p), node.handed(z)), (gains, w)

    def outward(ports, x):
        node, gains, bias, w = x
        moving, rates = accelerate(node.carried(ports), node, gains, w)
        if bias is not None:
            moving = moving + bias
        return moving, (moving, rates) if motions else rates

    xs = nodes, tree.inertia, load, order.rows(tau)
    (p, z), (gains, w) = order.walk.gather(inward, (ArticulatedInertia.zero(zero), Force.zero(zero)), xs)
    inverse = bases.closed(nodes.of_bases(p))
    if not len(order.roots) or (held is not None and held.all()):
        base = jnp.zeros((len(order.roots), *batch), tau.dtype)
    else:
        force = jax.tree.map(lambda a, b: a + b[1:], on_bases, nodes.of_bases(z))
        own = tau[order.roots] - root_forces(bases.rotation, force)
        base = inverse.solve(own[:, None])[:, 0]
        if held is not None and held.any():
            base = jnp.where(held.reshape((-1,) + (1,) * len(batch)), 0.0, base)
    moving = base_accelerations(bases.rotation, base)
    found = order.walk.scatter(outward, nodes.on_bases(moving), (nodes, gains, load.bias, w))
    rows, rates = found if motions else (None, found)
    bodies = Parts(jax.tree.map(lambda a: a[1:], moving), order.to_bodies(rows)) if motions else None
    return Elimination(order.vector(base, rates), gains, inverse, bodies)


def eliminate(
    model: Model, s: Setup, hinges: Hinge, inertias: Parts, forces: Parts, tau: jax.Array, locked=None, *, motions=False
) -> Elimination:
    """The recursion over the hinges of a tree of rigid bodies."""
    plan = s.layout
    load = Load(plan.to_slots(forces.rows, plan.slot_last))
    held = None if locked is None else locked[plan.root_velocity]
    return recursion(hinged(model, s, hinges, inertias), load, forces.roots, tau, held, motions=motions)
