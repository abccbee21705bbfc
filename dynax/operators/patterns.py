"""The products and sums that are known to be something better, and what they become.

| expression | becomes | which adds |
|---|---|---|
| `1 - E` | itself | `.inv` is `phi = (1 - E)^-1`, one sweep |
| `E X` | `E'` with blocks `E X` | so that `E G` is `K`, and `E (1 - tau)` is `E_psi` |
| `1 + H phi K`, `1 - H phi K` | `UnitTriangular` | `.inv` is `1 -+ H psi K`, `psi = (1 - E +- K H)^-1` (LEM-0.2) |
| `phi X phi.T` | `CompositeOperator` | `.diagonal`, the blocks `R` on its diagonal |
| `phi.T X phi` | `ComplianceOperator` | `.diagonal`, the blocks `Upsilon` on its diagonal, and `.block(i, j)` |
| `H (phi M phi.T) H.T` | `MassMatrix` | `.inv` is `W.T D^-1 W` from the articulated recursion (LEM-0.3) |
| `MassMatrix + armature` | `MassMatrix` | the same with armature |
| `B.T Omega B` | `NodeCompliance` | `.dense()` from the bodies that carry the nodes alone |

`E`, `H`, `K`, `X`, `M` stand for any operators of these kinds, `X` for one block diagonal or several, `M` for one that
is positive. Whether two factors are each other's transpose is decided by their arrays being the very same. Everything
else stays as written; a product of invertible factors, as `F D F.T`, is inverted factor by factor.
"""

from __future__ import annotations

from dynax.operators.blocks import BlockDiagonal, ChildToParent, Propagation
from dynax.operators.fused import ComplianceOperator, CompositeOperator, MassMatrix, NodeCompliance, UnitTriangular
from dynax.operators.operator import (
    INVERSES,
    PRODUCTS,
    SUMS,
    Factors,
    Identity,
    Operator,
    Product,
    Sum,
    Transpose,
    adjoint,
    palindrome,
)
from dynax.operators.pickoff import PickOff
from dynax.operators.recursions import mul, transpose


def inverse_of_sum(total: Sum) -> Operator | None:
    """`phi` for `1 - E`."""
    if len(total.terms) == 2 and total.signs == (1, -1):
        one, e = total.terms
        if isinstance(one, Identity) and isinstance(e, ChildToParent) and e.rows == e.columns:
            return Propagation(e)
    return None


def diagonal_blocks(a: Operator) -> BlockDiagonal | None:
    """A block diagonal, or the transpose of one, as one."""
    if isinstance(a, Transpose) and isinstance(a.operator, BlockDiagonal):
        x = a.operator
        return BlockDiagonal(x.columns, x.rows, transpose(x.blocks), x.kind)
    return a if isinstance(a, BlockDiagonal) else None


def multiplied(factors: Factors) -> BlockDiagonal | None:
    """The product of block diagonals, as one."""
    parts = [diagonal_blocks(factor) for factor in factors]
    total = parts[0] if parts else None
    for part in parts[1:]:
        if total is None or part is None:
            return None
        total = BlockDiagonal(total.rows, part.columns, mul(total.blocks, part.blocks))
    if total is None or len(factors) == 1:
        return total
    middle = palindrome(factors)
    kind = "general" if middle is None else "positive" if middle.positive else "symmetric" * middle.symmetric
    return BlockDiagonal(total.rows, total.columns, total.blocks, kind or "general")


def _step(factors: Factors) -> Operator | None:
    if len(factors) == 2 and isinstance(factors[0], ChildToParent):
        right = diagonal_blocks(factors[1])
        return None if right is None else factors[0].after(right)
    return None


def _composite(factors: Factors) -> Operator | None:
    first, last = factors[0], factors[-1]
    if len(factors) < 3 or not isinstance(first, Propagation) or not adjoint(last, first):
        return None
    middle = multiplied(factors[1:-1])
    return None if middle is None else CompositeOperator(first, middle)


def _compliance(factors: Factors) -> Operator | None:
    first, last = factors[0], factors[-1]
    if len(factors) < 3 or not isinstance(last, Propagation) or not adjoint(first, last):
        return None
    middle = multiplied(factors[1:-1])
    return None if middle is None else ComplianceOperator(last, middle)


def _mass(factors: Factors) -> Operator | None:
    if len(factors) != 3:
        return None
    h, inner, last = factors
    if isinstance(h, BlockDiagonal) and isinstance(inner, CompositeOperator) and inner.positive and adjoint(last, h):
        return MassMatrix(h, inner)
    return None


def _nodes(factors: Factors) -> Operator | None:
    if len(factors) != 3:
        return None
    first, omega, b = factors
    if isinstance(b, PickOff) and isinstance(omega, ComplianceOperator) and adjoint(first, b):
        return NodeCompliance(b, omega)
    return None


def _unit(total: Sum) -> Operator | None:
    if len(total.terms) != 2 or total.signs[0] != 1:
        return None
    one, other = total.terms
    if not isinstance(one, Identity) or not isinstance(other, Product) or len(other.factors) != 3:
        return None
    h, phi, k = other.factors
    if isinstance(h, BlockDiagonal) and isinstance(phi, Propagation) and isinstance(k, ChildToParent):
        return UnitTriangular(h, phi, k, total.signs[1])
    return None


def _armed(total: Sum) -> Operator | None:
    if len(total.terms) != 2 or total.signs != (1, 1):
        return None
    mass, armature = total.terms
    if isinstance(mass, BlockDiagonal):
        mass, armature = armature, mass
    if isinstance(mass, MassMatrix) and mass.armature is None and isinstance(armature, BlockDiagonal):
        return MassMatrix(mass.H, mass.inner, armature) if armature.positive else None
    return None


PRODUCTS.extend((_step, _composite, _compliance, _mass, _nodes))
SUMS.extend((_unit, _armed))
INVERSES.append(inverse_of_sum)
