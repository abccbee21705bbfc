"""The operators of the trees as matrices, compiled once per tree, with the dense textbook beside them."""

from __future__ import annotations

from functools import cached_property, lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import trees
from dense import Dense

import dynax as dx

#: Nodes: several on a body, one at rest, some on sibling branches and on other trees.
FRAMES = {
    "mixed": ("tool", "b21", "mark", "b6", "b8", "b17"),
    "screws": ("tool", "b3", "mark", "b7", "b5"),
    "arm": ("tool", "b6", "mark", "b3", "b5"),
}


def operators(ops: dx.SpatialOperators, frames: tuple[str, ...]) -> dict:
    """All operators by name."""
    own = {name: getattr(ops, name) for name in OWN}
    own["B"], own["J"], own["Lambda"] = ops.B(*frames), ops.J(*frames), ops.Lambda(*frames)
    own["factors"] = ops.F @ ops.D @ ops.F.T
    own["factored_inverse"] = own["mass_matrix"].inv
    own["composite"] = ops.phi @ ops.M @ ops.phi.T
    own["free_accelerations"] = ops.psi.T @ ops.H.T @ ops.D.inv @ ops.W
    return own


OWN = (
    "E_phi", "phi", "phi_t", "H", "M", "armature", "R", "P", "P_plus", "D", "G", "K", "tau", "tau_bar", "E_psi", "psi",
    "psi_t", "F", "W", "mass_matrix", "inverse_mass_matrix", "Upsilon", "Omega", "I", "I_bodies",
)  # fmt: skip


class Case:
    """One state of one of `trees.TREES`; what is not asked for is not compiled."""

    def __init__(self, name: str, armature: bool):
        model = trees.tree(name)
        self.name, self.model = name, model if armature else model.replace(armature=0 * model.armature)
        self.states = trees.states(model, 1)
        self.q = self.states.q[0]

    @cached_property
    def ops(self) -> dx.SpatialOperators:
        return dx.spatial_operators(self.model, self.q)

    @cached_property
    def dense(self) -> dict[str, np.ndarray]:
        """The operators as matrices."""
        return {key: np.asarray(a) for key, a in matrices(self.ops, FRAMES[self.name]).items()}

    @cached_property
    def book(self) -> Dense:
        """The textbook at this configuration, a batch of one."""
        return Dense(self.model, self.states.q, self.states.v)

    @cached_property
    def mass(self) -> np.ndarray:
        return np.asarray(dx.mass_matrix(self.model, self.q))


@lru_cache
def case(name: str, armature: bool = True) -> Case:
    return Case(name, armature)


@partial(jax.jit, static_argnums=(1, 2))
def matrices(ops, frames: tuple[str, ...], names: tuple[str, ...] | None = None) -> dict:
    """All operators as matrices, or those of some names, in one program."""
    every = operators(ops, frames)
    return {key: every[key].dense() for key in names or every}


def close(a, b, tolerance: float = 1e-12) -> None:
    """Equal to `tolerance`, relative to the largest entry."""
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max(initial=0.0)))


def block(matrix: np.ndarray, i: int, j: int) -> np.ndarray:
    """The 6x6 block of two bodies."""
    return matrix[6 * i : 6 * i + 6, 6 * j : 6 * j + 6]


def block_mask(relation: np.ndarray) -> np.ndarray:
    """A relation of bodies, entry by entry."""
    return np.kron(relation, np.ones((6, 6), bool))


def vectors(rng: np.random.Generator, a: dx.operators.Operator) -> tuple[jax.Array, jax.Array]:
    """A vector that goes in, and one that could come out."""
    rows, columns = a.shape
    return jnp.asarray(rng.normal(size=columns)), jnp.asarray(rng.normal(size=rows))
