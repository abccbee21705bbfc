"""Articulated inertias and gains as operators, from the blocks of any model (Jain, SKO-RICC; ABI-D to ABI-PSI).

    P = M + E P+ E*  (its diagonal)    D = H P H* + armature    G = P H* D^-1    K = E G    E_psi = E (1 - G H)

With `phi = (1 - E)^-1` and `psi = (1 - E_psi)^-1`, `H phi M phi* H* + armature = [1 + H phi K] D [1 + H phi K]*`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dynax.operators.blocks import BlockDiagonal, ChildToParent
from dynax.operators.recursions import mul, riccati


class Articulated(NamedTuple):
    """The result of `articulated`, for `s` entries over all nodes and `r` freedoms."""

    P: BlockDiagonal
    """`(s, s)`"""
    P_plus: BlockDiagonal
    """`(s, s)`: what is left across the joint."""
    D: BlockDiagonal
    """`(r, r)`"""
    G: BlockDiagonal
    """`(s, r)`"""
    K: ChildToParent
    """`(s, r)`"""
    E_psi: ChildToParent
    """`(s, s)`"""


def articulated(
    E: ChildToParent, M: BlockDiagonal, H: BlockDiagonal, armature: BlockDiagonal | None = None
) -> Articulated:
    """Riccati's recursion over blocks of any sizes: rigid, flexible, aggregated bodies.

    **Arguments:**

    - `E`: from children to parents, `(s, s)`.
    - `M`: symmetric, `(s, s)`.
    - `H`: hinges, `(r, s)`; `H P H* + armature` must be positive definite.
    - `armature`: symmetric, `(r, r)`; none by default.
    """
    six, free = H.columns, H.rows
    zero = jnp.zeros((free.count, free.width, free.width), H.blocks.dtype)
    rotor = zero if armature is None else armature.blocks
    found = riccati(E.parents, E.blocks, M.blocks, H.blocks, rotor, free.mask)
    g = BlockDiagonal(six, free, found.G)
    passed = BlockDiagonal(six, six, jnp.eye(six.width, dtype=found.G.dtype) - mul(found.G, H.blocks))
    return Articulated(
        P=BlockDiagonal(six, six, found.P, "positive"),
        P_plus=BlockDiagonal(six, six, found.P_plus, "positive"),
        D=BlockDiagonal(free, free, found.D, "positive"),
        G=g,
        K=E.after(g),
        E_psi=E.after(passed),
    )
