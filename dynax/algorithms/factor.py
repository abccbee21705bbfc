"""The innovations factor of the mass matrix and what it solves (Jain, LEM-0.1 to 0.3, SOA-MINV, EMBED-INV).

    M = [1 + H phi K] D [1 + H phi K]^T        M^-1 = [1 - H psi K]^T D^-1 [1 - H psi K]

Factor once, in O(n), then each solution is one inward and one outward walk of 6-vectors, over nodes of every kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.articulated import Tree, hinged
from dynax.algorithms.crba import like_matrix
from dynax.bodies.base import RootInertia, base_accelerations, root_forces
from dynax.bodies.hinge import slot_rows
from dynax.compile.batching import batch_last
from dynax.compile.zeros import along_moving
from dynax.linear.cholesky import cholesky
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import ArticulatedInertia, Force, Mat3
from dynax.sweep.kinds import each_kind
from dynax.tree.bodies import world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.nodes import Gains, NodeOrder, Nodes, NodesOfKinds, accelerate, articulate, innovate
from dynax.tree.setup import Setup, setup


@dataclass(frozen=True, eq=False)
class Factor:
    """The factor at one configuration."""

    order: NodeOrder
    rotation: Mat3
    """Of the free bases."""
    nodes: Nodes | NodesOfKinds
    gains: Gains
    roots: RootInertia


jax.tree_util.register_dataclass(Factor, ["rotation", "nodes", "gains", "roots"], ["order"])


def factorized(tree: Tree) -> Factor:
    """Articulated inertias and gains."""

    def inward(handed, x):
        node, inertia = x
        p, gains = articulate(handed, inertia, node)
        return node.handed(p), gains

    order, nodes, bases = tree.order, tree.nodes, tree.bases
    like = bases.rotation.xx
    zero = ArticulatedInertia.zero(nodes.ports(jnp.zeros(like.shape[1:], like.dtype)))
    p, gains = order.walk.gather(inward, zero, (nodes, tree.inertia))
    return Factor(order, bases.rotation, nodes, gains, bases.closed(nodes.of_bases(p)))


@for_models
def factorize(model: Model, q: jax.Array) -> Factor:
    """The factor for trailing batch axes."""
    s = setup(model, q)
    kin = kinematics(model, s)
    return factor_at(model, s, kin, world_inertias(s, kin))


def factor_at(model: Model, s: Setup, kin: Parts, inertias: Parts) -> Factor:
    """The same from what is known already."""
    return factorized(hinged(model, s, slot_rows(model, s, kin), inertias))


def inward(
    f: Factor, x: jax.Array, step: Callable = innovate, forces: Parts | None = None
) -> tuple[jax.Array, jax.Array]:
    """A walk of forces for `x` of shape `(nv, m, *batch)`: what arrives at the free bases, in their own axes and of
    shape `(6 k, m, *batch)`, and the results in rows.

    `forces` act on the bodies besides, in world axes about the joints, on free bases and in rows.
    """
    rotation, nodes, gains = along(x, (f.rotation, f.nodes, f.gains))

    def walked(z, x):
        node, gains, own, outside = x
        z, y = step(z if outside is None else z - outside, node, gains, own)
        return node.handed(z), y

    zero = Force.zero(nodes.ports(jnp.zeros(x.shape[1:], x.dtype)))
    outside = None if forces is None else forces.rows
    z, ys = f.order.walk.gather(walked, zero, (nodes, gains, f.order.rows(x), outside))
    if not len(f.order.roots):
        return jnp.zeros((0, *x.shape[1:]), x.dtype), ys
    arrived = jax.tree.map(lambda a: a[1:], nodes.of_bases(z))
    return root_forces(rotation, arrived if forces is None else arrived - forces.roots), ys


def outward(
    f: Factor, base: jax.Array, rows: jax.Array, step: Callable = accelerate, *, motions: bool = False
) -> tuple[jax.Array, Parts | None]:
    """A walk of motions from the bases' rates `(6 k, m, *batch)`: the results in rows and, if asked for, the motions of
    the bodies, world axes about their joints."""
    rotation, nodes, gains = along(base, (f.rotation, f.nodes, f.gains))

    def walked(ports, x):
        node, gains, own = x
        moving, y = step(node.carried(ports), node, gains, own)
        return moving, (moving, y) if motions else y

    bases = base_accelerations(rotation, base)
    found = f.order.walk.scatter(walked, nodes.on_bases(bases), (nodes, gains, rows))
    if not motions:
        return found, None
    return found[1], Parts(jax.tree.map(lambda a: a[1:], bases), f.order.to_bodies(found[0]))


def along(x: jax.Array, tree):
    """Quantities of the nodes with an axis for the columns of `x`, before those of the batch."""
    batch = x.ndim - 2
    return jax.tree.map(lambda a: jnp.expand_dims(a, a.ndim - batch), tree)


def solve(f: Factor, rhs: jax.Array, forces: Parts | None = None) -> jax.Array:
    """`M^-1 rhs` for `rhs` of shape `(nv, m, *batch)`: `m` right-hand sides at once, with the `forces` of `inward`."""
    base, w = _whitened(f, rhs, forces)
    return f.order.vector(base, outward(f, base, w)[0])


def response(f: Factor, rhs: jax.Array) -> tuple[jax.Array, Parts]:
    """`solve`, and the motions that these rates give the bodies, world axes about their joints, `(n, m, *batch)`."""
    base, w = _whitened(f, rhs)
    rates, motions = outward(f, base, w, motions=True)
    assert motions is not None
    return f.order.vector(base, rates), motions


def log_det(factor: Factor) -> jax.Array:
    """The log-determinant of the mass matrix, shape `(*batch)`."""
    roots = cholesky(jnp.moveaxis(factor.roots.matrix, (0, 1), (-2, -1)))
    pivots = sum(jnp.sum(gains.log_pivots(), axis=0) for gains in each_kind(factor.gains))  # padding has D = 1
    return 2.0 * (pivots + jnp.sum(jnp.log(jnp.diagonal(roots, axis1=-2, axis2=-1)), axis=(0, -1)))


def _whitened(f: Factor, rhs: jax.Array, forces: Parts | None = None) -> tuple[jax.Array, jax.Array]:
    """The accelerations of the bases, and the innovations of all nodes."""
    z, w = inward(f, rhs, forces=forces)
    return (f.roots.solve(rhs[f.order.roots] - z) if len(z) else z), w


def inverse_of(factor: Factor, like: jax.Array) -> jax.Array:
    """`M^-1`, symmetric, shape `(nv, nv, *batch)`, with the type and the batch of `like`."""
    size, batch = len(factor.order.places), like.shape[1:]
    eye = jnp.eye(size, dtype=like.dtype).reshape(size, size, *(1,) * len(batch))
    inverse = solve(factor, eye + jnp.zeros(batch, like.dtype))
    return 0.5 * (inverse + jnp.swapaxes(inverse, 0, 1))


def _inverse(model: Model, q: jax.Array) -> jax.Array:
    return inverse_of(factorize(model, q), q)


# The derivative is no kernel: batches of gradients would take a fifth to a half of the time, and nearly twice as long
# to compile.
_inverse_mass_matrix = batch_last(_inverse, partial(along_moving, _inverse), like=like_matrix)


@for_models
def inverse_mass_matrix(model: Model, q: ArrayLike) -> jax.Array:
    """The inverse of the mass matrix, shape `(nv, nv)`, without forming the mass matrix.

    From the innovations factor, O(n) for each column; it keeps more digits than inverting `mass_matrix`.

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _inverse_mass_matrix(model, *as_state(model, q=q))
