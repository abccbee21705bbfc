"""How the spatial operators change with the configuration, as operators again, in O(n) (Jain, SENS-PHI to SENS-MINV).

Along a tangent vector `dq`, in body axes: every body moves in its parent with `u = H* dq`, and turns its own axes with
it. With the block diagonal `T = u x` (the matrix of the cross product of motions) and `dH`, what the joints' columns
change by in their bodies, zero where they are fixed there:

    dE = -E T*      dphi = phi dE phi = -phi_t T* phi      dM = 0
    d(mass matrix) = X + X*                   X = (dH + H phi dE) phi M phi* H*
    dP = E_psi dP E_psi* - E [(T* + G dH) P+ + P+ (T + dH* G*)] E*               (its diagonal)
    dD = H dP H* + dH P H* + H P dH*
    dG = [(1 - G H) dP H* + P+ dH* - G dH P H*] D^-1
    dF = dH phi K + H phi (dE phi G + E dG)                  dW = -W dF W
    d(inverse mass matrix) = -(inverse) d(mass matrix) (inverse)

With `dH = 0` these are the formulas of the source, for one coordinate at a time; `dH` is an exact derivative of what
each joint says of itself. The armature does not change and enters by `D` and `P+` alone.
"""

from __future__ import annotations

import jax
import numpy as np
from jax.typing import ArrayLike

from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import rate_rows
from dynax.operators.blocks import BlockDiagonal, ChildToParent, add_at
from dynax.operators.model_blocks import model_blocks
from dynax.operators.operator import Operator
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import composite, mul, transpose
from dynax.operators.spatial import SpatialOperators, spatial_operators
from dynax.spatial import plucker


@pytree_dataclass()
class Sensitivities:
    """The rates of the operators along a tangent vector; made by `sensitivities`, a pytree.

    Each has the name and the shape of the operator of `SpatialOperators` it is the rate of.
    """

    operators: SpatialOperators
    """The operators themselves."""
    E_phi: ChildToParent
    H: BlockDiagonal
    P: BlockDiagonal

    @property
    def phi(self) -> Operator:
        """`(6 n, 6 n)`"""
        return self.operators.phi @ self.E_phi @ self.operators.phi

    @property
    def mass_matrix(self) -> Operator:
        """`(nv, nv)`, symmetric."""
        o = self.operators
        half = (self.H + o.H @ o.phi @ self.E_phi) @ o.phi @ o.M @ o.phi.T @ o.H.T
        return half + half.T

    @property
    def D(self) -> BlockDiagonal:
        """`(nv, nv)`"""
        o = self.operators
        h, moved = o.H.blocks, mul(self.H.blocks, mul(o.P.blocks, transpose(o.H.blocks)))
        blocks = mul(h, mul(self.P.blocks, transpose(h))) + moved + transpose(moved)
        return BlockDiagonal(o.D.rows, o.D.columns, blocks, "symmetric")

    @property
    def G(self) -> BlockDiagonal:
        """`(6 n, nv)`"""
        o, dh, dp = self.operators, self.H.blocks, self.P.blocks
        h = transpose(o.H.blocks)
        blocks = (
            mul(o.tau_bar.blocks, mul(dp, h))
            + mul(o.P_plus.blocks, transpose(dh))
            - mul(o.G.blocks, mul(dh, mul(o.P.blocks, h)))
        )
        return BlockDiagonal(o.G.rows, o.G.columns, mul(blocks, o.D.inv.blocks))

    @property
    def F(self) -> Operator:
        """`(nv, nv)`, strictly triangular from block to block."""
        o = self.operators
        return self.H @ o.phi @ o.K + o.H @ o.phi @ (self.E_phi @ o.phi @ o.G + o.E_phi @ self.G)

    @property
    def W(self) -> Operator:
        """`(nv, nv)`, strictly triangular from block to block."""
        return -(self.operators.W @ self.F @ self.operators.W)

    @property
    def inverse_mass_matrix(self) -> Operator:
        """`(nv, nv)`, symmetric."""
        inverse = self.operators.inverse_mass_matrix
        return -(inverse @ self.mass_matrix @ inverse)


@jax.jit
def _sensitivities(model: Model, q: jax.Array, dq: jax.Array) -> Sensitivities:
    o = spatial_operators(model, q)
    rate = rate_rows(model, q, dq)
    h = jax.jvp(lambda q: model_blocks(model, q).H.blocks, (q,), (rate,))[1]
    six, e = o.P.rows, o.E_phi
    turn = plucker.crm(o.H.rmv(dq).reshape(-1, 6))
    along = mul(transpose(turn) + mul(o.G.blocks, h), o.P_plus.blocks)
    handed = -mul(mul(e.blocks, along + transpose(along)), transpose(e.blocks))
    received = add_at(np.array(e.parents, int), handed, six.count)
    return Sensitivities(
        o,
        ChildToParent(e.parents, six, six, -mul(e.blocks, transpose(turn))),
        BlockDiagonal(o.H.rows, six, h),
        BlockDiagonal(six, six, composite(e.parents, o.E_psi.blocks, received), "symmetric"),
    )


def sensitivities(model: Model, q: ArrayLike, dq: ArrayLike) -> Sensitivities:
    """The rates of the spatial operators as the configuration moves along `integrate(model, q, t dq)`, in O(n).

    `.phi`, `.mass_matrix`, `.P`, `.D`, `.G`, `.F`, `.W` and `.inverse_mass_matrix` are operators like those of
    `spatial_operators`: applied by sweeps, never formed. For the sensitivity to one coordinate give its unit vector.
    Driven joints stay where they are.

    **Arguments:** `q`: configuration, shape `(nq,)`; `dq`: tangent vector, shape `(nv,)`.
    """
    return _sensitivities(model, *as_state(model, q=q, dq=dq))
