"""The spatial operators of a model with bodies that bend (Jain and Rodriguez, FLEX-OPS, equations 15 to 25).

A body that bends has one block, of its modal rates and the motion of its frame, `V_m = [eta rate; omega; v]`, a rigid
one the block of six it always has:

    V_m = Phi* Hcal* chi       mass matrix = Hcal Phi M_m Phi* Hcal*       chi = [joint; modes] of each body
    E(p, k) = A_t phi(t, k) [0 1]      A_t = [Pi_t*; phi(p, t)]            for `k` on node `t` of `p`
    Hcal(k) = [[0, H phi(d, k)], [1, Pi_k*]]                               for `k` held by its node `d`

`Pi_k`, the motion of the frame by the modes while `d` is at rest, stands for the paper's `-Pi_d`: the shapes are exact
at any deformation, and so is what is made of them. `Phi`, `Psi`, the factors and `Omega` are made of these as ever.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.embedding.flexible import state
from dynax.model.checks import as_state
from dynax.model.flexible import FlexibleModel, Member
from dynax.model.kinds import extend
from dynax.operators.articulated import articulated
from dynax.operators.blocks import BlockDiagonal, Blocks, ChildToParent, add_at
from dynax.operators.model_blocks import force_transform, model_blocks
from dynax.operators.pickoff import PickOff
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import compliance, composite, mul, transpose
from dynax.operators.spatial import SpatialOperators, spatial_operators
from dynax.spatial import Transform
from dynax.sweep import take_rows
from dynax.topology import Topology


@pytree_dataclass("bodies")
class FlexibleOperators(SpatialOperators):
    """The operators of a model with bodies that bend; vectors over bodies stack `[modes; six]` of each."""

    places: jax.Array
    """For each body and place of the model the forces on it as forces on its block, `A_t`: `(num_bodies, width, 6)`."""

    def B(self, *frames: str) -> PickOff:
        if not frames:
            raise ValueError("B, J and Lambda need at least one name of a body or frame")
        nodes, blocks, dtype = [], [], self.places.dtype
        model: Any = self.model
        owner = _static(model.skeleton.topology, model.members).owner
        for name in frames:
            body, pose = model.locate(name)
            pose = Transform.identity() if pose is None else pose
            own = force_transform(jnp.asarray(pose.rotation, dtype)[None], jnp.asarray(pose.translation, dtype)[None])
            nodes.append(int(owner[body]) if body >= 0 else -1)
            blocks.append(mul(self.places[body], own[0]))
        return PickOff(self.P.rows, tuple(nodes), jnp.stack(blocks))

    def restrict(self, bodies):
        raise ValueError("operators of a model with bodies that bend cannot be restricted")


class _Static(NamedTuple):
    """Of the nodes, a rigid body or one that bends each, and of the bodies of the skeleton, which belong to them."""

    rows: Blocks
    """`[modes; six]`."""
    free: Blocks
    """`[joint; modes]`."""
    frame: np.ndarray
    """The body of the skeleton whose motion is in the node's block."""
    first: np.ndarray
    """That which hangs on the parent: its first node, where it is held by a joint."""
    held: np.ndarray
    """Whether it is: `frame` then hangs on `first`."""
    six: np.ndarray
    """Where the six stand in the block, ones in `(nodes, width, 6)`."""
    modes: np.ndarray
    """Where the modes stand, `(nodes, width, most)`."""
    of_joint: np.ndarray
    """Where the freedoms of the joint stand, `(nodes, free.width, widest joint)`."""
    of_modes: np.ndarray
    """Where the modes stand, `(nodes, free.width, most)`."""
    owner: np.ndarray
    """The node of each body of the skeleton."""
    place: np.ndarray
    """Which place of `State.columns` it is, -1 for none."""
    node: np.ndarray
    """Whether it is a node of a body that bends, but the first."""
    below: np.ndarray
    """The frame that hangs on it, if it is a first node, and else -1."""


@lru_cache(maxsize=64)
def _static(topology: Topology, members: tuple[Member, ...]) -> _Static:
    count, widest = topology.num_bodies, max([1, *(joint.nv for joint in topology.joints)])
    of_body = {body: m for m in members for body in (m.held, m.frame, *m.nodes) if body >= 0}
    frame = [k for k in range(count) if k not in of_body or of_body[k].frame == k]
    bending = [of_body.get(k) for k in frame]
    held = np.array([m is not None and m.held >= 0 for m in bending])
    first = [m.held if m and m.held >= 0 else k for m, k in zip(bending, frame, strict=True)]
    sizes = [m.modes if m else 0 for m in bending]
    most = max(sizes)
    joints = [topology.joints[k].nv if m is None or m.held >= 0 else 0 for m, k in zip(bending, first, strict=True)]
    rows, free = Blocks(tuple(n + 6 for n in sizes)), Blocks(tuple(np.add(joints, sizes).tolist()))
    places = [k for m in members for k in (m.frame, *m.nodes)]
    frames = {m.held: m.frame for m in members if m.held >= 0}
    return _Static(
        rows, free, np.array(frame), np.array(first), held,
        np.array([np.eye(rows.width, 6, -n) for n in sizes]),
        np.array([np.eye(rows.width, most) * (np.arange(most) < n) for n in sizes]),
        np.array([np.eye(free.width, widest) * (np.arange(widest) < k) for k in joints]),
        np.array([np.eye(free.width, most, -k) * (np.arange(most) < n) for k, n in zip(joints, sizes, strict=True)]),
        np.array([frame.index(of_body[k].frame if k in of_body else k) for k in range(count)]),
        np.array([places.index(k) if k in places else -1 for k in range(count)]),
        np.array([k in of_body and k in of_body[k].nodes for k in range(count)]),
        np.array([frames.get(k, -1) for k in range(count)]),
    )  # fmt: skip


def _inverse(shift: jax.Array) -> jax.Array:
    """Of `phi = [[R, l~ R], [0, R]]`."""
    turned, moment = transpose(shift[..., 3:, 3:]), transpose(shift[..., :3, 3:])
    top = jnp.concatenate([turned, moment], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([jnp.zeros_like(turned), turned], axis=-1)], axis=-2)


def _where(mask: np.ndarray, a: jax.Array, b: jax.Array | float) -> jax.Array:
    return jnp.where(mask[:, None, None], a, b)


@jax.jit
def _flexible_operators(model: FlexibleModel, q: jax.Array) -> FlexibleOperators:
    topology, at = model.skeleton.topology, state(model, q)
    own, n = model_blocks(model.skeleton, at.q), _static(topology, model.members)
    six, modes, of_joint, of_modes = (jnp.asarray(a, q.dtype) for a in (n.six, n.modes, n.of_joint, n.of_modes))
    shift, eye = own.E_phi.blocks, jnp.eye(6, dtype=q.dtype)
    along = transpose(take_rows(at.columns, n.place))  # of each place, (bodies, most, 6)

    # `A_t`: of a first node the motion is that of the frame, without what the frame does by the modes.
    back = _where(n.below >= 0, _inverse(take_rows(shift, np.maximum(n.below, 0))), eye)
    straight = _where(n.node, shift, back)
    bent = _where(n.node, along, -mul(take_rows(along, n.below), back))
    places = mul(six[n.owner], straight) + mul(modes[n.owner], bent)

    carrier = np.array(topology.parents)[n.first]
    inside = mul(_where(n.held, shift[n.frame], eye), transpose(six))
    e = mul(take_rows(places, carrier), mul(shift[n.first], inside))
    by_modes = transpose(modes) + mul(along[n.frame], transpose(six))
    h = mul(of_joint, mul(own.H.blocks[n.first], inside)) + mul(of_modes, by_modes)
    rotors = mul(mul(of_joint, own.armature.blocks[n.first]), transpose(of_joint))

    inertia = add_at(n.owner, mul(mul(places, own.M.blocks), transpose(places)), n.rows.count)
    for k, (member, body) in enumerate(zip(model.members, model.bodies, strict=True)):
        size, row = member.modes + 6, int(n.owner[member.frame])
        inertia = inertia.at[row, :size, :size].add(body.mass_matrix(at.eta[k, : member.modes]).astype(q.dtype))

    parents = tuple(int(n.owner[k]) if k >= 0 else -1 for k in carrier)
    e_phi, hcal = ChildToParent(parents, n.rows, n.rows, e), BlockDiagonal(n.free, n.rows, h)
    mass, armature = (
        BlockDiagonal(n.rows, n.rows, inertia, "positive"),
        BlockDiagonal(n.free, n.free, rotors, "positive"),
    )
    a = articulated(e_phi, mass, hcal, armature)
    give = mul(mul(transpose(h), a.D.inv.blocks), h)
    return FlexibleOperators(
        model,  # pyright: ignore[reportArgumentType]
        tuple(range(n.rows.count)),
        E_phi=e_phi,
        H=hcal,
        M=mass,
        armature=armature,
        R=BlockDiagonal(n.rows, n.rows, composite(parents, e, inertia), "positive"),
        Upsilon=BlockDiagonal(n.rows, n.rows, compliance(parents, a.E_psi.blocks, give), "positive"),
        places=places,
        **a._asdict(),
    )


@extend(spatial_operators, FlexibleModel)
def _(model, q):
    return _flexible_operators(model, *as_state(model, q=q))
