"""The node: what everything in a tree is to its neighbours, and the one elimination (Featherstone 2008, section 7.3;
Jain, ABI-*, SOA-FD, EMBED-ABA).

A node hangs on a port of its parent, has `r` freedoms `x` of its own, and ports `m` on which others hang. A motion `a`
of what carries it and its own `x` move port `m` by `A_m a + U_m x + b_m`. Its inertia is that of the rigid bodies at
its ports, and, over carrier and freedoms, `[[M_bb, M_bx], [M_bx*, M_xx]]`. With the articulated inertia `P_m` and the
force `z_m` at each port, those of its bodies and of its children together,

    inward    Phi = M_bx + sum A_m* P_m U_m      D = M_xx + sum U_m* P_m U_m = L L*      G = Phi L^-*
              P+  = M_bb + sum A_m* P_m A_m - G G*
              w   = L^-1 (tau - sum U_m* z_m)    z+ = sum A_m* z_m + G w
    outward   x   = L^-* (w - G* a)              a_m = A_m a + U_m x

It is a Kalman filter along the tree and its smoother. A hinge is a node of one freedom and one port. A joint with
several freedoms is several hinges with nothing between them, which is exactly its block elimination. Velocity products
are outside: they enter as forces, or where that is cheaper as `b_m`, of which the force is `P_m b_m`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dynax.spatial import ArticulatedInertia, Force, Motion, RigidInertia
from dynax.sweep import Walk, take_rows
from dynax.sweep.kinds import Kinds, KindWalk, each_kind

Shiftable = TypeVar("Shiftable", ArticulatedInertia, Force)


class Nodes(Protocol):
    """All nodes of a walk, in its rows: the contract. Quantities are in world axes, about the node's own point.

    `dynax.bodies` has two: `Hinge`, of one freedom and one port, and `Node`, of any number. Whatever answers these
    questions can stand in a tree.
    """

    def coupled(self, p: ArticulatedInertia) -> tuple[Force, jax.Array]:
        """`Phi` and `D`, from the articulated inertias at the ports."""
        ...

    def inertia(self, p: ArticulatedInertia) -> ArticulatedInertia:
        """`M_bb + sum A_m* P_m A_m`."""
        ...

    def force(self, z: Force) -> Force:
        """`sum A_m* z_m`."""
        ...

    def dual(self, z: Force) -> jax.Array:
        """`sum U_m* z_m`."""
        ...

    def moved(self, a: Motion, x: jax.Array) -> Motion:
        """`A_m a + U_m x`, the motions of the ports."""
        ...

    def handed(self, own: Shiftable) -> Shiftable:
        """An inertia or a force of the node, at the ports of its parent."""
        ...

    def carried(self, ports: Motion) -> Motion:
        """The motion of the node's point as its parent moves, from those of all its parent's ports."""
        ...

    def eliminated(self, p: ArticulatedInertia, phi: Force, d: jax.Array) -> tuple[ArticulatedInertia, Gains]:
        """`P - Phi D^-1 Phi*`, and the factor."""
        ...

    def ports(self, like: jax.Array) -> jax.Array:
        """A number for each port of one node, all like the one given."""
        ...

    def of_bases(self, ports: Shiftable) -> Shiftable:
        """What arrived at the ports of the bases, at the bases themselves."""
        ...

    def on_bases(self, motion: Motion) -> Motion:
        """The motions of the ports of the bases."""
        ...


class Gains(Protocol):
    """The factor `D = L L*` of each node, and its gain `G`."""

    def along(self, x: jax.Array) -> Force:
        """`G x`."""
        ...

    def dual(self, a: Motion) -> jax.Array:
        """`G* a`."""
        ...

    def apply(self, x: jax.Array) -> jax.Array:
        """`L x`."""
        ...

    def apply_transpose(self, x: jax.Array) -> jax.Array:
        """`L* x`."""
        ...

    def solve(self, x: jax.Array) -> jax.Array:
        """`L^-1 x`."""
        ...

    def solve_transpose(self, x: jax.Array) -> jax.Array:
        """`L^-* x`."""
        ...

    def log_pivots(self) -> jax.Array:
        """`log det L`, one for each row."""
        ...


class NodesOfKinds(Kinds):
    """Nodes of several kinds, which walk by kinds: there the walk knows where ports are."""

    def ports(self, like: jax.Array) -> jax.Array:
        return like

    def of_bases(self, ports: Shiftable) -> Shiftable:
        return ports

    def on_bases(self, motion: Motion) -> Motion:
        return motion


jax.tree_util.register_pytree_node(NodesOfKinds, lambda x: (list(x), None), lambda _, x: NodesOfKinds(x))


def articulate(
    handed: ArticulatedInertia, inertia: RigidInertia | None, node: Nodes
) -> tuple[ArticulatedInertia, Gains]:
    """The freedoms of a node eliminated from what its children hand over and its bodies' inertias: `P+`, the factor."""
    p = handed if inertia is None else handed + inertia
    phi, d = node.coupled(p)
    return node.eliminated(node.inertia(p), phi, d)


# The four walks with the factor: what a node makes of the force at its ports, or of the motion of its point.


def innovate(z: Force, node: Nodes, gains: Gains, tau: jax.Array) -> tuple[Force, jax.Array]:
    """`L^-1`: the whitened innovations, and the force that passes on."""
    w = gains.solve(tau - node.dual(z))
    return node.force(z) + gains.along(w), w


def excite(z: Force, node: Nodes, gains: Gains, w: jax.Array) -> tuple[Force, jax.Array]:
    """`L`: the joint forces that whitened ones stand for."""
    return node.force(z) + gains.along(w), gains.apply(w) + node.dual(z)


def accelerate(a: Motion, node: Nodes, gains: Gains, w: jax.Array) -> tuple[Motion, jax.Array]:
    """`L^-*`: the rates of the freedoms, and the motions of the ports: the smoother."""
    x = gains.solve_transpose(w - gains.dual(a))
    return node.moved(a, x), x


def observe(a: Motion, node: Nodes, gains: Gains, x: jax.Array) -> tuple[Motion, jax.Array]:
    """`L*`: the rates in which the kinetic energy is half the sum of squares."""
    return node.moved(a, x), gains.apply_transpose(x) + gains.dual(a)


class Load(NamedTuple):
    """What velocities and the outside do to each node, in rows."""

    force: Force | Kinds | None
    """At the ports."""
    own: Force | Kinds | None = None
    """At the node's point, `p_b`: of inertia that is at no port."""
    bias: Motion | None = None
    """`b_m`, if it is not in the forces."""
    pull: Kinds | None = None
    """What the freedoms need, `p_x`, if it is not in the joint forces."""


class NodeOrder:
    """Where velocities stand in the rows of a walk over nodes: static, made once for each tree and execution."""

    def __init__(
        self,
        walk: Walk | KindWalk,
        velocity: np.ndarray | Kinds,
        roots: np.ndarray,
        last: np.ndarray | None = None,
    ):
        self.walk = walk
        self.last = last
        """For each body the row of its last hinge, `None` where rows stand for bodies."""
        self.velocity = velocity
        """The entry of each row's freedom, or `(rows, r)` for those of several, of each kind if there are; -1 where
        there is none."""
        self.roots = roots
        """The six entries of each free base, one after another."""
        flat = np.concatenate([own.reshape(-1) for own in each_kind(velocity)])
        held = np.flatnonzero(flat >= 0)
        self.places = np.zeros(len(roots) + len(held), dtype=int)
        """Where each entry stands among the roots' and the rows'."""
        self.places[roots] = np.arange(len(roots))
        self.places[flat[held]] = len(roots) + held

    def rows(self, x: jax.Array) -> Any:
        """Entries of a vector over freedoms in rows, zeros where there is none."""
        each = [take_rows(x, own.reshape(-1)).reshape(*own.shape, *x.shape[1:]) for own in each_kind(self.velocity)]
        return Kinds(each) if isinstance(self.velocity, Kinds) else each[0]

    def vector(self, roots: jax.Array, rows: jax.Array | Kinds) -> jax.Array:
        """A vector over freedoms, from entries of the roots and those in rows."""
        each = zip(each_kind(self.velocity), each_kind(rows), strict=True)
        return take_rows(
            jnp.concatenate([roots, *(x.reshape(own.size, *roots.shape[1:]) for own, x in each)]), self.places
        )

    def to_bodies(self, rows):
        """Quantities of rows for the bodies whose motions are theirs."""
        return rows if self.last is None else take_rows(rows, self.last)
