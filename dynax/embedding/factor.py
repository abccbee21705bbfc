"""The innovations factor of an embedded mass matrix, in O(n) (Jain, EMBED-INV, EMBED-LOGDET).

    X^T M X = L L^T      L = [1 + H_R psi K] D^1/2

From the recursion over the nodes of the aggregated tree: per node the root `L_S` of its `D` and the gains `Phi L_S^-*`,
per base the root of its 6x6. Then each product is one walk over the nodes, as in `operators.factor`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from dynax.algorithms.articulated import root_forces
from dynax.embedding.coefficients import Embedding, NodePlan, node_plan, pick
from dynax.embedding.dynamics import at, base_inertias, base_members, embedded_order
from dynax.embedding.model import EmbeddedModel
from dynax.embedding.node import (
    NodeGains,
    NodeRows,
    accelerated,
    at_port,
    carried,
    collected,
    factorized,
    innovated,
    moved,
)
from dynax.model.checks import as_state
from dynax.model.kinds import extend
from dynax.model.structure import Structure
from dynax.operators.determinant import log_determinant
from dynax.operators.factor import innovations_factor
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import mul
from dynax.operators.square_root import SquareRoot, by_columns
from dynax.spatial import ArticulatedInertia, Force, Mat3, Motion


@pytree_dataclass("structure", "embedding")
class EmbeddedFactor(SquareRoot):
    """`X^T M X = L L^T` of a tree into which loops are embedded."""

    structure: Structure
    embedding: Embedding
    nodes: NodeRows
    gains: NodeGains
    rotation: Mat3
    """Of the bases."""
    root: jax.Array
    """The lower triangular roots of the bases' articulated inertias, in their own axes, shape `(k, 6, 6)`."""

    @property
    def plan(self) -> NodePlan:
        return node_plan(self.structure, self.embedding)

    @property
    def nv(self) -> int:
        """The number of independent velocities."""
        return len(self.plan.independent)

    def logdet(self) -> jax.Array:
        nodes, bases = (jnp.diagonal(a, axis1=-2, axis2=-1) for a in (self.gains.lower, self.root))
        return 2.0 * (jnp.sum(jnp.log(nodes)) + jnp.sum(jnp.log(bases)))  # padding has D = 1

    @by_columns
    def _apply(self, w: jax.Array) -> jax.Array:
        def step(z: Force, node: NodeRows, gains: NodeGains, w: jax.Array) -> tuple[Force, jax.Array]:
            own = jnp.sum(gains.lower * w[:, None], axis=2)
            return at_port(node.port, collected(z, node, gains, w)), own + node.dual(z)

        z, x = _gather(self, w, step)
        return _ordered(self, x, mul(self.root, _of_bases(self, w)) + z)

    @by_columns
    def _solve_root(self, x: jax.Array) -> jax.Array:
        z, w = _gather(self, x, innovated)
        return _ordered(self, w, solve_triangular(self.root, _of_bases(self, x) - z, lower=True))

    @by_columns
    def _apply_transpose(self, a: jax.Array) -> jax.Array:
        def step(parent: Motion, gains: NodeGains, rates: jax.Array) -> tuple[jax.Array, jax.Array]:
            return rates, jnp.sum(gains.lower * rates[:, :, None], axis=1) + gains.dual(parent)

        own = _of_bases(self, a)
        return _ordered(self, _scatter(self, a, own, step), mul(jnp.swapaxes(self.root, -1, -2), own))

    @by_columns
    def _solve_root_transpose(self, w: jax.Array) -> jax.Array:
        def step(parent: Motion, gains: NodeGains, w: jax.Array) -> tuple[jax.Array, jax.Array]:
            rates = accelerated(parent, gains, w)
            return rates, rates

        own = solve_triangular(self.root, _of_bases(self, w), trans=1, lower=True)
        return _ordered(self, _scatter(self, w, own, step), own)


def _rows(f: EmbeddedFactor, x: jax.Array) -> tuple[Mat3, tuple[NodeRows, NodeGains, jax.Array]]:
    """Rotations of the bases, and what a walk reads, with an axis for the columns of `x`."""
    rotation, nodes, gains = jax.tree.map(lambda a: a[..., None], (f.rotation, f.nodes, f.gains))
    return rotation, (nodes, gains, pick(x, f.plan.velocity))


def _of_bases(f: EmbeddedFactor, x: jax.Array) -> jax.Array:
    """The bases' entries, shape `(k, 6, m)`."""
    return x[f.plan.roots].reshape(-1, 6, x.shape[1])


def _ordered(f: EmbeddedFactor, rates: jax.Array, bases: jax.Array) -> jax.Array:
    return embedded_order(f.plan, rates, bases.reshape(-1, rates.shape[-1]))


def _gather(f: EmbeddedFactor, x: jax.Array, step) -> tuple[jax.Array, jax.Array]:
    """An inward walk of forces: what arrives at the bases, `(k, 6, m)`, and the results in rows."""
    rotation, xs = _rows(f, x)
    zero = Force.zero(jnp.zeros((f.plan.body.shape[1], x.shape[1]), x.dtype))
    z, ys = f.plan.walk.gather(lambda z, x: step(z, *x), zero, xs)
    return root_forces(rotation, jax.tree.map(lambda a: a[1:, 0], z)).reshape(-1, 6, x.shape[1]), ys


def _scatter(f: EmbeddedFactor, x: jax.Array, bases: jax.Array, step) -> jax.Array:
    """An outward walk of motions from those of the bases, `(k, 6, m)`: the results in rows."""
    rotation, xs = _rows(f, x)

    def outward(members: Motion, x: tuple[NodeRows, NodeGains, jax.Array]) -> tuple[Motion, jax.Array]:
        node, gains, own = x
        parent = carried(members, node)
        rates, result = step(parent, gains, own)
        return moved(parent, node, rates), result

    start = base_members(f.plan, rotation, bases.reshape(-1, x.shape[1]))
    return f.plan.walk.scatter(outward, start, xs)


@jax.jit
def _factor(model: EmbeddedModel, q: jax.Array) -> EmbeddedFactor:
    structure, embedding = model.tree.structure, model.embedding
    place, p = at(model.tree, q, embedding), node_plan(structure, embedding)

    def inward(handed: ArticulatedInertia, node: NodeRows) -> tuple[ArticulatedInertia, NodeGains]:
        return factorized(handed + node.inertia, node)

    zero = ArticulatedInertia.zero(jnp.zeros(p.body.shape[1], q.dtype))
    handed, gains = p.walk.gather(inward, zero, place.nodes)
    root = jnp.linalg.cholesky(jnp.moveaxis(base_inertias(place, handed), 2, 0))
    return EmbeddedFactor(structure, embedding, place.nodes, gains, place.rotation, root)


@extend(innovations_factor, EmbeddedModel)
def _(model, q):
    return _factor(model, *as_state(model, q=q))


@extend(log_determinant, EmbeddedModel)
def _(model, q):
    return innovations_factor(model, q).logdet()
