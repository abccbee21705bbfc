"""The nodes of a model with bodies that bend, and forward dynamics by the recursion over them (Jain and Rodriguez,
FLEX-ABA).

A body that bends is a node whose freedoms are those of its joint and its modes and whose ports are its places that
carry something: the full form. In the split form the modes are a node behind the hinges of the joint; both eliminate
the same system in another order. All is about the node's point, the joint (in the split form that of the carrier):

    U_m    the joint's columns, and how each mode moves the place, as the motion of all space with it
    M_bb = M_rr        M_bx = M_rf + M_rr U_f        M_xx = M_ff + U_f* M_rf + M_fr U_f + U_f* M_rr U_f

with `M_m(eta)` in the parts r and f at the frame, `U_f`, and what is welded to a place like a frame of rigid inertia.
Arrays have the axes of the batch last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.articulated import Tree, recursion
from dynax.algorithms.factor import Factor
from dynax.bodies.base import free_bases
from dynax.bodies.block import Block
from dynax.bodies.flexible import Modal
from dynax.bodies.hinge import slot_rows
from dynax.compile.fence import apart
from dynax.embedding.coefficients import pick
from dynax.embedding.flexible import Inertias, Moving, State, bending, flat, moving, passive, state
from dynax.embedding.flexible_plan import Blocks, Plan, plan
from dynax.model.flexible import FlexibleModel
from dynax.spatial import Force, Motion, RigidInertia, Vec3
from dynax.sweep import take_rows
from dynax.sweep.kinds import Kinds
from dynax.sweep.sums import summed
from dynax.tree.bodies import per_velocity
from dynax.tree.freedoms import columns_of
from dynax.tree.layout import Parts
from dynax.tree.nodes import Load, NodesOfKinds
from dynax.tree.setup import Setup


class Bent(NamedTuple):
    """Bodies that bend as nodes of one size, about their nodes' points."""

    node: Block
    joint: Motion
    """The columns of the joint, axes (row, freedom)."""
    places: Motion
    """Those of the modes at each place that they move, extended to the node's point, axes (row, place, mode)."""
    arm: Vec3
    """From the node's point to each place."""


def nodes(
    model: FlexibleModel, at: State, s: Setup, kin: Parts, own: Inertias, p: Plan, locked: np.ndarray | None = None
) -> Tree:
    """The tree of nodes; `locked` freedoms (mask over `nv`) are taken out of the recursion."""
    return node_tree(model, at, s, kin, own, p, locked)[0]


def node_tree(
    model: FlexibleModel, at: State, s: Setup, kin: Parts, own: Inertias, p: Plan, locked: np.ndarray | None = None
) -> tuple[Tree, list[Bent]]:
    """The tree of nodes, and of those that bend what else is known."""
    tree, modal = model.tree, bending(model, own, s, kin)
    rotation, offset, inertia = s.layout.body_order(
        Parts(*((k.rotation, k.offset, i) for k, i in zip(kin, own.rigid, strict=True)))
    )
    offset = jax.tree.map(lambda a: jnp.broadcast_to(a, (len(a), *s.batch)), offset)
    armature = per_velocity(tree.armature, jnp.zeros((tree.nv, *s.batch), s.dtype))
    freedom = [columns_of(tree, s, kin, b.freedom) for b in p.blocks]
    bent = [_bent(at, b, modal, inertia, rotation, offset, u, armature) for b, u in zip(p.blocks, freedom, strict=True)]
    rigid = []
    if len(p.slot):
        hinge = take_rows(slot_rows(tree, s, kin), np.where(p.slot >= 0, s.layout.slots.inverse[p.slot], -1))
        rigid = [hinge._replace(offset=_along(offset, p.path), armature=hinge.armature + _static(p.slot < 0, s))]
    found = [*rigid, *(b.node for b in bent)]
    if locked is not None:
        held = [(v >= 0) & locked[v] for v in p.order.velocity]
        found = [node.without(_static(h, s)) for node, h in zip(found, held, strict=True)]
    at_ports = Kinds([*(take_rows(inertia, p.last) for _ in rigid), *(None for _ in bent)])
    return Tree(p.order, NodesOfKinds(found), at_ports, free_bases(tree, s, own.rigid, p.bases)), bent


def _bent(
    at: State, b: Blocks, modal: Modal, inertias: RigidInertia, rotation, offset: Vec3, joint: Motion, armature
) -> Bent:
    """The nodes of one size, from the modal inertias in world axes, those of what is welded to places, and the columns
    of the joints."""
    arm, first = _along(offset, b.paths), int(b.clamped)  # the first place that modes move
    to_frame, arms = (jax.tree.map(lambda a, k=k: a[:, k], arm) for k in (0, slice(first, None)))
    turned = pick(rotation, b.body[:, first:-1])
    place = b.place[:, first:]
    own = pick(at.moves, np.where(place >= 0, at.bodies.row[place], -1))
    own = jax.tree.map(lambda a: a[:, :, : b.mode.shape[1]], own)
    own = own.rotate(_per_mode(turned, 2)).shift(-_per_mode(arms, 2))
    inertia = take_rows(modal.inertia, b.member).shift_to_parent(to_frame)
    coupling = pick(flat(modal.coupling, 2), b.mode).shift_to_parent(_per_mode(to_frame, 1))
    inertia, coupling = jax.tree.map(apart, (inertia, coupling))
    mass = pick(flat(modal.mass, 3), b.pair)
    places = jax.tree.map(apart, own)
    if not b.clamped:
        places = jax.tree.map(lambda a: apart(jnp.concatenate([a[:, :1], a[:, :1] + a[:, 1:]], axis=1)), own)
        frame, along = jax.tree.map(lambda a: a[:, 0], places), coupling
        coupling = jax.tree.map(apart, _per_mode(inertia, 1) @ frame + along)
        mass = mass + _pairs(frame, coupling) + jnp.swapaxes(_pairs(frame, along), 1, 2)
    inertia = inertia + take_rows(inertias, b.body[:, -1])
    if len(b.loaded):
        loads = pick(inertias, b.body[:, b.loaded]).shift_to_parent(jax.tree.map(lambda a: a[:, b.loaded], arm))
        nodes = jax.tree.map(lambda a: a[:, b.loaded - first], places)
        pulls = jax.tree.map(apart, _per_mode(loads, 2) @ nodes)
        coupling, inertia = coupling + summed(pulls), inertia + summed(loads)
        mass = mass + summed(_pairs(nodes, pulls, 2))
    mass, each = apart(mass), _per_mode(inertia, 1)
    if (b.mode < 0).any():
        mass = mass + _like((b.mode < 0)[:, :, None] * np.eye(b.mode.shape[1]), mass)
    image = jax.tree.map(apart, each @ joint)
    mixed, rotor = _pairs(joint, coupling), pick(armature, b.freedom) + _like(b.freedom < 0, mass)
    mixed = apart(mixed)
    hinged = _pairs(joint, image) + rotor[:, :, None] * _like(np.eye(b.freedom.shape[1])[None], mass)
    columns = [jnp.concatenate([hinged[:, k, k:], mixed[:, k]], axis=1) for k in range(hinged.shape[1])]
    columns += [mass[:, k, k:] for k in range(mass.shape[1])]
    # Places that no mode moves, the first node and a frame that is clamped to it, are rows of zeros.
    count, port = places.angular.x.shape[1], b.port - first
    which = np.where((port >= 0) & (port < count), count * np.arange(len(port))[:, None] + port, -1)
    carrying = pick(flat(places, 2), which)
    column = jax.tree.map(
        lambda s, u: jnp.concatenate([jnp.broadcast_to(s[:, None], (*u.shape[:2], *s.shape[1:])), u], axis=2),
        joint,
        carrying,
    )
    phi = jax.tree.map(lambda s, u: jnp.concatenate([s, u], axis=1), image, coupling)
    return Bent(Block(_along(offset, b.path), column, phi, tuple(columns), inertia), joint, places, arm)


def _pairs(motion: Motion, force: Force, axis: int = 1) -> jax.Array:
    """`[..., i, j]`: the power of force `j` along motion `i`, which are on `axis`."""
    return _per_mode(motion, axis + 1).dot(_per_mode(force, axis))


def _per_mode(tree, axis: int):
    return jax.tree.map(lambda a: jnp.expand_dims(a, axis), tree)


def _along(offset: Vec3, path: np.ndarray) -> Vec3:
    """Sums of offsets along paths, the last axis of indices."""
    return summed(pick(offset, path), path.ndim - 1)


def _like(known: np.ndarray, like: jax.Array) -> jax.Array:
    return jnp.asarray(known.reshape(*known.shape, *(1,) * (like.ndim - 3)), like.dtype)


def _static(known: np.ndarray, s: Setup) -> jax.Array:
    """A known array with axes of length one for the batch."""
    return jnp.asarray(known.reshape(*known.shape, *(1,) * len(s.batch)), s.dtype)


def forward(*state, **options) -> jax.Array:
    """Accelerations for trailing batch axes."""
    return solved(*state, **options)[0]


def solved(
    model: FlexibleModel,
    q,
    v,
    tau,
    external,
    execution: str = "levels",
    *,
    full: bool | None = None,
    locked=None,
    a=None,
) -> tuple[jax.Array, Factor]:
    """Accelerations, on top of `a`, which has those of `locked` freedoms, if any; and the factor of the mass matrix,
    for trailing batch axes."""
    at, p = state(model, q, v), plan(model.skeleton.topology, model.members, full)
    return solved_in(model, at, moving(model, at, a, external, execution), tau, p, locked)


def solved_in(
    model: FlexibleModel, at: State, m: Moving, tau: jax.Array, p: Plan, locked: np.ndarray | None = None
) -> tuple[jax.Array, Factor]:
    """The same on top of the accelerations of a motion that is known."""
    tree, bent = node_tree(model, at, m.setup, m.kin, m.inertias, p, locked)
    forces = m.setup.layout.body_order(m.forces)
    rigid = [take_rows(forces, p.last)] if len(p.slot) else []
    acting, pulls = [], [jnp.zeros((len(p.slot), *m.setup.batch), m.setup.dtype) for _ in rigid]
    for own, b in zip(p.blocks, bent, strict=True):
        force = pick(forces, own.body[:, :-1]).shift_to_parent(b.arm)
        total = summed(force) + take_rows(forces, own.body[:, -1])
        onto = jax.tree.map(lambda a, k=int(own.clamped): a[:, k:], force)
        modes = summed(b.places.dot(_per_mode(onto, 2)))
        modes = modes + pick(flat(m.modal, 2), own.mode)
        pulls.append(jnp.concatenate([b.joint.dot(_per_mode(total, 1)), modes], axis=1))
        acting.append(total)
    load = Load(
        Kinds([*rigid, *(None for _ in bent)]), Kinds([*(None for _ in rigid), *acting]), pull=Kinds(map(apart, pulls))
    )
    on_bases = take_rows(forces, model.tree.topology.free_roots[p.bases])
    held = None if locked is None else locked[tree.order.roots]
    found = recursion(tree, load, on_bases, tau - passive(model, at), held)
    # A mode or a hinge whose pivot is negative has no root; of a base that floats nothing else would say so.
    a = found.a * found.roots.definite() if len(p.bases) and held is None else found.a
    return a, Factor(tree.order, tree.bases.rotation, tree.nodes, found.gains, found.roots)
