"""The spatial operators of an embedded model: one block per node of the aggregated tree (Jain, AGG-E, EMBED-X).

    E_A(p, S) = E_S A_S        H_R(S) = X* H_S A_S        M(S) = diag of the members'

A node's block stacks its members, each in its own body's axes about its origin, so everything that is made of `E`, `H`
and `M` is made of these in the same way: phi, psi, the innovations factor, the inverse, Omega.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.frames import forward_kinematics
from dynax.bodies.node import Node
from dynax.embedding.coefficients import plan_of
from dynax.embedding.dynamics import at
from dynax.embedding.model import EmbeddedModel
from dynax.model.checks import as_state
from dynax.model.flexible import FlexibleModel
from dynax.model.inertias import body_inertias
from dynax.model.kinds import extend
from dynax.operators.articulated import articulated
from dynax.operators.blocks import BlockDiagonal, Blocks, ChildToParent
from dynax.operators.model_blocks import force_transform
from dynax.operators.pickoff import PickOff
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import compliance, composite, mul, transpose
from dynax.operators.spatial import SpatialOperators, spatial_operators
from dynax.spatial import Transform
from dynax.sweep import take_rows
from dynax.tree.bodies import public_motion
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import setup


@pytree_dataclass("bodies", "members")
class EmbeddedOperators(SpatialOperators):
    """The operators of an embedded model; vectors over bodies are stacked node by node, see `members`."""

    members: tuple[tuple[int, ...], ...]
    """The bodies of each node, in the order of the blocks."""

    def B(self, *frames: str) -> PickOff:
        if not frames:
            raise ValueError("B, J and Lambda need at least one name of a body or frame")
        place = {body: (k, m) for k, bodies in enumerate(self.members) for m, body in enumerate(bodies)}
        nodes, blocks, width = [], [], self.P.rows.width
        for name in frames:
            body, pose = self.model.locate(name)
            pose = Transform.identity() if pose is None else pose
            node, port = place.get(body, (-1, 0))
            dtype = self.H.blocks.dtype
            own = force_transform(jnp.asarray(pose.rotation, dtype)[None], jnp.asarray(pose.translation, dtype)[None])
            nodes.append(node)
            blocks.append(jnp.zeros((width, 6), dtype).at[6 * port : 6 * port + 6].set(own[0]))
        return PickOff(self.P.rows, tuple(nodes), jnp.stack(blocks))

    def restrict(self, bodies):
        raise ValueError("operators of an embedded model cannot be restricted; restrict those of its tree")


@jax.jit
def _embedded_operators(model: EmbeddedModel, q: jax.Array) -> EmbeddedOperators:
    if isinstance(model.tree, FlexibleModel):
        raise ValueError(
            f"the operators of {model.name!r}, with loops embedded and bodies that bend, are not there; "
            "those of its tree are: dx.spatial_operators(model.tree, q)"
        )
    tree, p = model.tree, plan_of(model.tree, model.embedding)
    nodes = sorted((*p.rows.tree.members, *((root,) for root in p.rows.tree.bases)), key=min)
    where = {body: (k, m) for k, bodies in enumerate(nodes) for m, body in enumerate(bodies)}
    parents, ports = [], []
    row_of = {bodies: row for row, bodies in enumerate(tuple(b for b in r if b >= 0) for r in p.rows.body.tolist())}
    for bodies in nodes:
        carrier = p.rows.carrier[row_of[bodies]] if bodies in row_of else -1
        node, port = where.get(int(carrier), (-1, 0))
        parents.append(node)
        ports.append(port)
    counts = tuple(len(bodies) for bodies in nodes)
    six, most = Blocks(tuple(6 * n for n in counts)), max([1, *counts])
    member = np.array([[*bodies, *(-1,) * (most - len(bodies))] for bodies in nodes], dtype=int).reshape(-1, most)
    free = Blocks(tuple(_freedoms(p, nodes, row_of, tree)))

    poses = forward_kinematics(tree, q)
    carriers = np.array([p.rows.carrier[row_of[b]] if b in row_of else -1 for b in nodes], dtype=int)
    pose = _padded(poses, member)
    above = _padded(poses, carriers[:, None])
    relative = jax.vmap(jax.vmap(lambda a, b: _between(a, b), in_axes=(None, 0)))(
        Transform(above.rotation[:, 0], above.translation[:, 0]), pose
    )
    held = (member >= 0) & (carriers >= 0)[:, None]
    shift = jnp.where(held[..., None, None], force_transform(relative.rotation, relative.translation), 0.0)
    across = jnp.moveaxis(shift, 1, 2).reshape(len(nodes), 6, 6 * most)
    at_port = jnp.eye(most, dtype=q.dtype)[np.array(ports, dtype=int)]
    blocks = (at_port[:, :, None, None] * across[:, None]).reshape(len(nodes), 6 * most, 6 * most)

    own = take_rows(body_inertias(tree, q.dtype).matrix, member.reshape(-1)).reshape(*member.shape, 6, 6)
    eye = jnp.eye(most, dtype=q.dtype)
    inertias = jnp.einsum("nmij,mk->nmikj", own, eye).reshape(len(nodes), 6 * most, 6 * most)

    columns, armature = _columns(model, q, nodes, row_of, free.width, most)
    e = ChildToParent(tuple(parents), six, six, blocks)
    m = BlockDiagonal(six, six, inertias, "positive")
    h = BlockDiagonal(free, six, columns)
    rotor = BlockDiagonal(free, free, armature, "positive")
    a = articulated(e, m, h, rotor)
    give = mul(mul(transpose(h.blocks), a.D.inv.blocks), h.blocks)
    return EmbeddedOperators(
        model=tree,
        bodies=tuple(range(len(nodes))),
        E_phi=e,
        H=h,
        M=m,
        armature=rotor,
        R=BlockDiagonal(six, six, composite(e.parents, e.blocks, m.blocks), "positive"),
        Upsilon=BlockDiagonal(six, six, compliance(e.parents, a.E_psi.blocks, give), "positive"),
        members=tuple(nodes),
        **a._asdict(),
    )


def _freedoms(p, nodes, row_of, tree) -> list[int]:
    held = p.rows.velocity >= 0
    return [int(np.count_nonzero(held[row_of[b]])) if b in row_of else tree.joints[b[0]].nv for b in nodes]


def _padded(poses: Transform, index: np.ndarray) -> Transform:
    """Poses of bodies, the identity where there is none."""
    eye = jnp.eye(3, dtype=poses.rotation.dtype)
    rotation = jnp.where((index >= 0)[..., None, None], poses.rotation[np.maximum(index, 0)], eye)
    return Transform(rotation, jnp.where((index >= 0)[..., None], poses.translation[np.maximum(index, 0)], 0.0))


def _between(a: Transform, b: Transform) -> Transform:
    return a.inverse @ b


def _columns(model: EmbeddedModel, q, nodes, row_of, width: int, most: int) -> tuple[jax.Array, jax.Array]:
    """`H_R` and the armature of each node, `(nodes, r, 6 m)` and `(nodes, r, r)`."""
    tree, place = model.tree, at(model.tree, q, model.embedding, chart=model.chart)
    p, s, nodes_at = place.coordinates.plan, setup(tree, q), place.tree.nodes
    assert isinstance(nodes_at, Node)
    kin = kinematics(tree, s)
    rotation = s.layout.body_order(Parts(kin.roots.rotation, kin.rows.rotation))
    constants = s.layout.body_order(s.constants)
    index = p.rows.body.reshape(-1)
    axes, fixed = take_rows((rotation, constants), np.maximum(index, 0))
    axes, fixed = jax.tree.map(lambda a: a.reshape(*p.rows.body.shape, 1), (axes, fixed))
    column = public_motion(fixed, axes, nodes_at.column)
    found = jnp.moveaxis(column.array, 1, 2)  # (row, r, m, 6)
    count, r = found.shape[:2]
    # One row more, for the bases: all six freedoms of a free root.
    six = jnp.eye(width, 6 * most, dtype=q.dtype)[None]
    rows = jnp.pad(found.reshape(count, r, -1), ((0, 0), (0, width - r), (0, 0)))
    padding = (p.rows.velocity < 0)[:, :, None] * np.eye(r)
    inner = jnp.pad(nodes_at.mass - padding, ((0, 1), (0, width - r), (0, width - r)))
    pick = np.array([row_of.get(bodies, count) for bodies in nodes], dtype=int)
    start = [tree.topology.v_start[bodies[0]] if bodies not in row_of else -width for bodies in nodes]
    own = np.array([[max(first + k, -1) if k < 6 else -1 for k in range(width)] for first in start], dtype=int)
    rotor = take_rows(tree.armature.astype(q.dtype), own.reshape(-1)).reshape(len(nodes), width, 1)
    return jnp.concatenate([rows, six])[pick], (inner[pick] + rotor * np.eye(width)).astype(q.dtype)


@extend(spatial_operators, EmbeddedModel)
def _(model, q):
    return _embedded_operators(model, *as_state(model, q=q))
