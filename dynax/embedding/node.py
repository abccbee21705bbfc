"""The articulated-body recursion over aggregated nodes (Jain, EMBED-ABA, eqs. 50 to 57).

A node is some bodies that move together: with respect to the body that carries them, member `m` moves by `U_m x` when
the node's independent velocities are `x`, and by `b_m` when none of them accelerates.

    inward    P_m = M_m + sum over children    D = sum U_m* P_m U_m    Phi = sum phi_m P_m U_m
              P+ = sum phi_m P_m phi_m* - Phi D^-1 Phi*
              eps = T - sum U_m* z_m           z+ = sum phi_m z_m + Phi D^-1 eps      z_m = sum z+ + P_m b_m + forces
    outward   x = D^-1 (eps - Phi* a_p)        a_m = phi_m* a_p + b_m + U_m x

`D = L L*` is eliminated one velocity at a time, and `Phi L^-*` kept as gains, so that a node of one freedom divides
once and nothing is padded but with zero columns of unit armature. Components have axes (row, member) or (row, member,
freedom), then those of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.spatial import ArticulatedInertia, Force, Motion, RigidInertia, Scalar, Vec3


class NodeRows(NamedTuple):
    """What the recursion reads of each node, in rows of its walk."""

    offset: Vec3
    """From the joint of the body that carries the node to each member's joint."""
    inertia: RigidInertia
    column: Motion
    armature: jax.Array
    """Of the independent velocities, shape `(rows, r, r)`; unit on the diagonal where there is none."""
    port: jax.Array
    """One for the member of the parent node that carries this one, zero for the others, shape `(rows, m)`."""

    def dual(self, z: Force) -> jax.Array:
        """`sum U_m* z_m`, shape `(rows, r)`."""
        return jnp.sum(self.column.dot(_per_freedom(z)), axis=1)


class NodeGains(NamedTuple):
    """The factor of one node."""

    gain: Force
    """At the parent's joint, axes (row, freedom)."""
    lower: jax.Array
    """`L`, shape `(rows, r, r)`."""

    def dual(self, parent: Motion) -> jax.Array:
        """`(Phi L^-*)* a_p`, shape `(rows, r)`."""
        return self.gain.dot(jax.tree.map(lambda a: a[:, None], parent))


def _summed(tree, axis: int = 1):
    return jax.tree.map(lambda a: jnp.sum(a, axis), tree)


def _per_freedom(tree):
    """Quantities of members, with an axis for freedoms."""
    return jax.tree.map(lambda a: a[:, :, None], tree)


def at_port(port: jax.Array, tree):
    """A quantity handed to the member of the parent that a node hangs on."""
    return jax.tree.map(lambda a: a[:, None] * port, tree)


def factorized(p: ArticulatedInertia, x: NodeRows) -> tuple[ArticulatedInertia, NodeGains]:
    """One node eliminated, from its members' articulated inertias: what it hands to its parent, and its gains."""
    force = _per_freedom(p) @ x.column
    phi = _summed(force.shift_to_parent(_per_freedom(x.offset)))
    left, right = (jax.tree.map(lambda a, k=k: jnp.expand_dims(a, k), y) for k, y in ((3, x.column), (2, force)))
    d = jnp.sum(left.dot(right), axis=1) + x.armature
    total = _summed(p.shift_to_parent(x.offset))
    size, lower, gains = d.shape[1], [], []
    index = np.arange(size).reshape(1, size, *(1,) * (d.ndim - 3))
    for k in range(size):
        root = jnp.sqrt(d[:, k, k])
        below = jnp.where(index >= k, d[:, :, k] / root[:, None], 0.0)
        gain = jax.tree.map(lambda a, k=k, root=root: a[:, k] / root, phi)
        total = total.downdate(gain)
        phi = jax.tree.map(lambda a, g, below=below: a - g[:, None] * below, phi, gain)
        d = d - below[:, :, None] * below[:, None]
        lower.append(below)
        gains.append(gain)
    gain = jax.tree.map(lambda *a: jnp.stack(a, axis=1), *gains)
    return at_port(x.port, total), NodeGains(gain, jnp.stack(lower, axis=2))


def innovated(z: Force, x: NodeRows, gains: NodeGains, tau: jax.Array) -> tuple[Force, jax.Array]:
    """The whitened innovations of one node, and the force it hands to its parent."""
    rest = tau - x.dual(z)
    whitened: list[Scalar] = []
    for k in range(rest.shape[1]):
        w = rest[:, k] / gains.lower[:, k, k]
        rest = rest - w[:, None] * gains.lower[:, :, k]
        whitened.append(w)
    w = jnp.stack(whitened, axis=1)
    return at_port(x.port, collected(z, x, gains, w)), w


def collected(z: Force, x: NodeRows, gains: NodeGains, w: jax.Array) -> Force:
    """`z+`: the force at the parent's joint, from those on the members and the whitened innovations."""
    return _summed(z.shift_to_parent(x.offset)) + _summed(gains.gain * w)


def carried(moving: Motion, x: NodeRows) -> Motion:
    """The motion of the body that carries a node, from those of all members of its parent."""
    return _summed(jax.tree.map(lambda a: a * x.port, moving))


def moved(parent: Motion, x: NodeRows, rates: jax.Array) -> Motion:
    """The members' motions for the carrier's and the node's own velocities."""
    along = _summed(x.column * rates[:, None], 2)
    return jax.tree.map(lambda a: a[:, None], parent).shift(x.offset) + along


def accelerated(parent: Motion, gains: NodeGains, w: jax.Array) -> jax.Array:
    """The independent accelerations of one node from its carrier's."""
    rest = w - gains.dual(parent)
    found: list[Scalar] = []
    for k in reversed(range(rest.shape[1])):
        rate = rest[:, k] / gains.lower[:, k, k]
        rest = rest - rate[:, None] * gains.lower[:, k]
        found.insert(0, rate)
    return jnp.stack(found, axis=1)
