"""What the table of `dynax.operators.patterns` puts in the place of products and sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dynax.operators.articulated import articulated
from dynax.operators.blocks import BlockDiagonal, ChildToParent, Propagation
from dynax.operators.operator import Operator
from dynax.operators.paths import ancestors, closest_common, pair_blocks
from dynax.operators.pickoff import PickOff
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import accumulate, compliance, composite, mul, transpose


@pytree_dataclass("sign")
class UnitTriangular(Operator):
    """`1 + H phi K` (or minus), unit triangular from block to block: the innovations factor and its inverse.

    With `psi = (1 - E + K H)^-1`, `(1 + H phi K)^-1 = 1 - H psi K` (Jain, LEM-0.2; with psi, where a printed form has
    phi).
    """

    H: BlockDiagonal
    phi: Propagation
    K: ChildToParent
    sign: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.H.shape[0], self.H.shape[0]

    @property
    def inv(self) -> Operator:
        e, through = self.phi.step, self.K.after(self.H)
        step = ChildToParent(e.parents, e.rows, e.columns, e.blocks - self.sign * through.blocks)
        return UnitTriangular(self.H, Propagation(step), self.K, -self.sign)

    def _apply(self, x: jax.Array) -> jax.Array:
        return x + self.sign * self.H._apply(self.phi._apply(self.K._apply(x)))

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        moved = self.phi._apply_transpose(self.H._apply_transpose(y))
        return y + self.sign * self.K._apply_transpose(moved)


class _Congruence(Operator):
    """A block-diagonal operator between a propagation and its transpose."""

    phi: Propagation
    middle: BlockDiagonal

    @property
    def shape(self) -> tuple[int, int]:
        return self.phi.shape

    @property
    def symmetric(self) -> bool:
        return self.middle.symmetric

    @property
    def positive(self) -> bool:
        return self.middle.positive


@pytree_dataclass()
class CompositeOperator(_Congruence):
    """`phi X phi*` (Jain, CRB-DEC: it is `R + phi_t R + R phi_t*`)."""

    phi: Propagation
    middle: BlockDiagonal

    @property
    def inv(self) -> Operator:
        return self.phi.inv.T @ self.middle.inv @ self.phi.inv

    @property
    def diagonal(self) -> BlockDiagonal:
        """`R`, the blocks on the diagonal: composite inertias if `X` is `M`."""
        e = self.phi.step
        return BlockDiagonal(e.rows, e.rows, composite(e.parents, e.blocks, self.middle.blocks), self.middle.kind)

    def _apply(self, x: jax.Array) -> jax.Array:
        return self.phi._apply(self.middle._apply(self.phi._apply_transpose(x)))

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return self.phi._apply(self.middle._apply_transpose(self.phi._apply_transpose(y)))


@pytree_dataclass()
class ComplianceOperator(_Congruence):
    """`phi* X phi`; `Omega = psi* H* D^-1 H psi` is one (Jain, OMEGA, UPS).

    Blocks of bodies that carry one another, and of bodies on different branches, come from where their paths meet:
    `Omega(i, j) = psi*(c, i) Upsilon(c) psi(c, j)` with `c` the closest body that carries both, and zero only if there
    is none. (The source has zero for all bodies that do not carry one another: true of chains only.)
    """

    phi: Propagation
    middle: BlockDiagonal

    @property
    def inv(self) -> Operator:
        return self.phi.inv @ self.middle.inv @ self.phi.inv.T

    @property
    def diagonal(self) -> BlockDiagonal:
        """`Upsilon`, the blocks on the diagonal, O(n)."""
        e = self.phi.step
        return BlockDiagonal(e.rows, e.rows, compliance(e.parents, e.blocks, self.middle.blocks), self.middle.kind)

    def blocks(self, nodes: tuple[int, ...]) -> jax.Array:
        """The blocks of all pairs of nodes, shape `(m, m, w, w)`: O(n), and a sweep over what carries the nodes."""
        e = self.phi.step
        carriers = ancestors(e.parents, nodes)
        if not carriers:
            return jnp.zeros((len(nodes), len(nodes), e.rows.width, e.rows.width), e.blocks.dtype)
        width, place = e.rows.width, {node: k for k, node in enumerate(carriers)}
        start = np.zeros((len(carriers), width, len(nodes), width))
        for k, node in enumerate(nodes):
            if node >= 0:
                start[place[node], :, k] = np.eye(width)
        own = e.take(carriers)
        flat = jnp.asarray(start.reshape(len(carriers), width, -1), e.blocks.dtype)
        paths = accumulate(own.parents, own.blocks, flat).reshape(start.shape).swapaxes(1, 2)
        meeting = closest_common(own.parents, tuple(place.get(node, -1) for node in nodes))
        return pair_blocks(self.diagonal.take(carriers).blocks, paths, meeting)

    def block(self, i: int, j: int) -> jax.Array:
        """The block of two nodes, shape `(rows of i, rows of j)`."""
        sizes = self.phi.step.rows.sizes
        return self.blocks((i, j))[0, 1, : sizes[i], : sizes[j]]

    def _apply(self, x: jax.Array) -> jax.Array:
        return self.phi._apply_transpose(self.middle._apply(self.phi._apply(x)))

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return self.phi._apply_transpose(self.middle._apply_transpose(self.phi._apply(y)))


@pytree_dataclass()
class MassMatrix(Operator):
    """`H phi M phi* H* + armature` (Jain, SOA-MASS), with `M` positive."""

    H: BlockDiagonal
    inner: CompositeOperator
    armature: BlockDiagonal | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.H.shape[0], self.H.shape[0]

    @property
    def positive(self) -> bool:
        return True

    @property
    def inv(self) -> Operator:
        """`[1 - H psi K]* D^-1 [1 - H psi K]` (Jain, LEM-0.3), by one articulated recursion."""
        h = self.H
        a = articulated(self.inner.phi.step, self.inner.middle, h, self.armature)
        w = UnitTriangular(h, Propagation(a.E_psi), a.K, -1)
        return w.T @ a.D.inv @ w

    def _apply(self, x: jax.Array) -> jax.Array:
        rigid = self.H._apply(self.inner._apply(self.H._apply_transpose(x)))
        return rigid if self.armature is None else rigid + self.armature._apply(x)

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return self._apply(y)


@pytree_dataclass()
class NodeCompliance(Operator):
    """`B* Omega B`: motions of nodes that forces on them cause; `Lambda = J M^-1 J*` is one (Jain, LAMBDA)."""

    B: PickOff
    omega: ComplianceOperator

    @property
    def shape(self) -> tuple[int, int]:
        return self.B.shape[1], self.B.shape[1]

    @property
    def symmetric(self) -> bool:
        return self.omega.symmetric

    @property
    def positive(self) -> bool:
        return self.omega.positive

    def _apply(self, x: jax.Array) -> jax.Array:
        return self.B._apply_transpose(self.omega._apply(self.B._apply(x)))

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return self.B._apply_transpose(self.omega._apply_transpose(self.B._apply(y)))

    def dense(self) -> jax.Array:
        """The matrix, in O(n) and what the bodies that carry the nodes cost."""
        b = self.B.blocks
        pairs = mul(mul(transpose(b)[:, None], self.omega.blocks(self.B.bodies)), b[None])
        return pairs.swapaxes(1, 2).reshape(self.shape)
