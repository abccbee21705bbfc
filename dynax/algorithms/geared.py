"""A tree whose joints are geared to one another: its accelerations and what the gears bear (Featherstone 2008, 8.5).

    M a - K^T l = f        K a = k

Gears that are linear, each with a follower of its own, have a constant `K` of full rank, so nothing is decided:

    a = M^-1 f + Y l        l = (K Y)^-1 (k - K M^-1 f)        Y = M^-1 K^T
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.factor import Factor, response, solve
from dynax.linear.gauss_jordan import gauss_jordan
from dynax.linear.sums import by_terms, outer_products
from dynax.model import Model
from dynax.sweep import take_rows
from dynax.tree.layout import Parts
from dynax.tree.setup import lift


def gear_matrix(model: Model, like: jax.Array) -> jax.Array:
    """`K`, shape `(nc, nv, *batch)`, batch axes those of `like` or of length one: a one for each follower, and the
    negative ratios of what it follows."""
    structure, start = model.structure, model.topology.v_start
    ratios = lift(model.coupling_ratio, 1, like.ndim - 1, like.dtype)
    entry = np.full((len(structure.couplings), model.nv), len(ratios) + 1)
    count = 0
    for row, (follower, *sources) in zip(entry, structure.couplings, strict=True):
        row[start[structure.joint_index[follower]]] = len(ratios)
        for source in sources:
            row[start[structure.joint_index[source]]] = count
            count += 1
    one = jnp.ones((1, *ratios.shape[1:]), like.dtype)
    return take_rows(jnp.concatenate([-ratios, one, 0.0 * one]), entry)


class Geared(NamedTuple):
    """The tree's mass matrix, factorised, and how it yields to the gears, at one configuration."""

    factor: Factor
    matrix: jax.Array
    """`K`."""
    responses: jax.Array
    """`Y`, shape `(nv, nc, *batch)`."""
    inverse: jax.Array
    """`(K Y)^-1`, shape `(nc, nc, *batch)`."""

    @staticmethod
    def of(model: Model, factor: Factor, like: jax.Array) -> Geared:
        """`like` has the type and the batch."""
        matrix = gear_matrix(model, like)
        columns = jnp.swapaxes(jnp.broadcast_to(matrix, (*matrix.shape[:2], *like.shape[1:])), 0, 1)
        responses = solve(factor, columns)
        eye = jnp.eye(len(matrix), dtype=like.dtype).reshape(len(matrix), len(matrix), *(1,) * (like.ndim - 1))
        return Geared(factor, matrix, responses, gauss_jordan(outer_products(columns, responses), eye))

    def solve(self, force: jax.Array, forces: Parts | None = None) -> jax.Array:
        """`[a, l]` for `[f, k]`, shape `(nv + nc, *batch)`, with the `forces` of `factor.inward`."""
        nv = self.matrix.shape[1]
        free = solve(self.factor, force[:nv, None], forces)[:, 0]
        borne = by_terms(self.inverse, force[nv:] - by_terms(jnp.swapaxes(self.matrix, 0, 1), free))
        return jnp.concatenate([free + by_terms(jnp.swapaxes(self.responses, 0, 1), borne), borne])

    def response(self, bar: jax.Array) -> tuple[jax.Array, Parts]:
        """The transpose of `solve`: `[w, u]` with `M w + K^T u = bar`, `-K w = bar'`, for `[bar, bar']`, and the
        motions that the rates `w` give the bodies, `(n, 1, *batch)`."""
        nv = self.matrix.shape[1]
        borne = by_terms(self.inverse, bar[nv:] + by_terms(self.responses, bar[:nv]))
        rates, motions = response(self.factor, (bar[:nv] - by_terms(self.matrix, borne))[:, None])
        return jnp.concatenate([rates[:, 0], borne]), motions


class Ungeared(NamedTuple):
    """The same where nothing is geared."""

    factor: Factor

    def solve(self, force: jax.Array, forces: Parts | None = None) -> jax.Array:
        return solve(self.factor, force[:, None], forces)[:, 0]

    def response(self, bar: jax.Array) -> tuple[jax.Array, Parts]:
        rates, motions = response(self.factor, bar[:, None])
        return rates[:, 0], motions


def system(model: Model, factor: Factor, like: jax.Array) -> Geared | Ungeared:
    """With the gears of the model, if it has linear ones and nothing else that ties its joints together."""
    return Geared.of(model, factor, like) if model.structure.geared else Ungeared(factor)


def balance(model: Model, force: jax.Array, x: jax.Array) -> jax.Array:
    """`[f - K^T l, K a]` for what the tree needs `f` and `x = [a, l]`, or `f` where nothing is geared."""
    if not model.structure.geared:
        return force
    matrix = gear_matrix(model, force)
    a, borne = x[: model.nv], x[model.nv :]
    return jnp.concatenate([force - by_terms(matrix, borne), by_terms(jnp.swapaxes(matrix, 0, 1), a)])
