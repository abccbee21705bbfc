"""The innovations factor of an embedded mass matrix, in O(n) (Jain, EMBED-INV, EMBED-LOGDET).

    X^T M X = L L^T      L = [1 + H_R psi K] D^1/2

From the recursion over the nodes of the aggregated tree: per node the root `L_S` of its `D` and the gains `Phi L_S^-*`,
per base the root of its 6x6. Then each product is one walk over the nodes, as in `operators.factor`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from dynax.algorithms._articulated import root_forces
from dynax.constraints._aggregate_aba import (
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
from dynax.constraints._embedded_dynamics import at, base_inertias, base_members, embedded_order
from dynax.constraints._nodes import Embedding, NodePlan, node_plan, pick
from dynax.constraints.embedding import EmbeddedModel
from dynax.model.checks import as_state
from dynax.model.kinds import extend
from dynax.model.structure import Structure
from dynax.operators._pytree import pytree_dataclass
from dynax.operators.determinant import log_determinant
from dynax.operators.factor import innovations_factor
from dynax.operators.recursions import mul
from dynax.spatial import ArticulatedInertia, Force, Mat3, Motion


@pytree_dataclass("structure", "embedding")
class EmbeddedFactor:
    """`X^T M X = L L^T` at one configuration, armature included; made by `innovations_factor`, a pytree.

    Every method takes a vector `(nv,)`, or a matrix `(nv, m)` of `m` at once, and costs O(n) for each.
    """

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

    def apply(self, x) -> jax.Array:
        """`L x`."""
        return _apply(self, self._checked(x))

    def apply_transpose(self, x) -> jax.Array:
        """`L^T x`: of a velocity, the rates in which the kinetic energy is half the sum of squares."""
        return _apply_transpose(self, self._checked(x))

    def solve_root(self, x) -> jax.Array:
        """`L^-1 x`: of joint forces, the whitened innovations."""
        return _solve_root(self, self._checked(x))

    def solve_root_transpose(self, x) -> jax.Array:
        """`L^-T x`."""
        return _solve_root_transpose(self, self._checked(x))

    def solve(self, x) -> jax.Array:
        """`M^-1 x`."""
        return self.solve_root_transpose(self.solve_root(x))

    def mass_product(self, x) -> jax.Array:
        """`M x`."""
        return self.apply(self.apply_transpose(x))

    def inverse(self) -> jax.Array:
        """`M^-1`, shape `(nv, nv)`, exactly symmetric; O(n) for each column."""
        root = self.solve_root(jnp.eye(self.nv, dtype=self.root.dtype))
        inverse = mul(root.T, root)
        return 0.5 * (inverse + inverse.T)

    def logdet(self) -> jax.Array:
        """`log det M`, the sum of `log det D`."""
        nodes, bases = (jnp.diagonal(a, axis1=-2, axis2=-1) for a in (self.gains.lower, self.root))
        return 2.0 * (jnp.sum(jnp.log(nodes)) + jnp.sum(jnp.log(bases)))  # padding has D = 1

    def sample(self, key: jax.Array, kt=1.0) -> jax.Array:
        """Thermal velocities `(nv,)`: normal, with mean zero and covariance `kt M^-1` (equipartition).

        **Arguments:**

        - `key`: a key of `jax.random`; `jax.vmap` over keys for many samples.
        - `kt`: the temperature as an energy [J].
        """
        noise = jax.random.normal(key, (self.nv,), self.root.dtype)
        return self.solve_root_transpose(jnp.sqrt(jnp.asarray(kt, noise.dtype)) * noise)

    def _checked(self, x) -> jax.Array:
        array = jnp.asarray(x, self.root.dtype)
        if array.ndim not in (1, 2) or array.shape[0] != self.nv:
            raise ValueError(
                f"a factor of this model takes vectors ({self.nv},) or matrices ({self.nv}, m), got {array.shape}"
            )
        return array

    def __repr__(self) -> str:
        return f"EmbeddedFactor(nv={self.nv})"


def _columns(method: Callable[[EmbeddedFactor, jax.Array], jax.Array]):
    """A function of matrices `(nv, m)` for vectors too, compiled when called outside of `jit`."""
    return jax.jit(lambda f, x: method(f, x) if x.ndim == 2 else method(f, x[:, None])[:, 0])


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


@_columns
def _apply(f: EmbeddedFactor, w: jax.Array) -> jax.Array:
    def step(z: Force, node: NodeRows, gains: NodeGains, w: jax.Array) -> tuple[Force, jax.Array]:
        own = jnp.sum(gains.lower * w[:, None], axis=2)
        return at_port(node.port, collected(z, node, gains, w)), own + node.dual(z)

    z, x = _gather(f, w, step)
    return _ordered(f, x, mul(f.root, _of_bases(f, w)) + z)


@_columns
def _solve_root(f: EmbeddedFactor, x: jax.Array) -> jax.Array:
    z, w = _gather(f, x, innovated)
    return _ordered(f, w, solve_triangular(f.root, _of_bases(f, x) - z, lower=True))


@_columns
def _apply_transpose(f: EmbeddedFactor, a: jax.Array) -> jax.Array:
    def step(parent: Motion, gains: NodeGains, rates: jax.Array) -> tuple[jax.Array, jax.Array]:
        return rates, jnp.sum(gains.lower * rates[:, :, None], axis=1) + gains.dual(parent)

    own = _of_bases(f, a)
    return _ordered(f, _scatter(f, a, own, step), mul(jnp.swapaxes(f.root, -1, -2), own))


@_columns
def _solve_root_transpose(f: EmbeddedFactor, w: jax.Array) -> jax.Array:
    def step(parent: Motion, gains: NodeGains, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        rates = accelerated(parent, gains, w)
        return rates, rates

    own = solve_triangular(f.root, _of_bases(f, w), trans=1, lower=True)
    return _ordered(f, _scatter(f, w, own, step), own)


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
