"""Which freedoms are independent, chosen again in the course of a motion (Jain, EMBED-COORD, EMBED-RANK).

Independent freedoms stop being so where `Y1` loses rank, as a crank does at its dead point: `X = -Y1^-1 Y2` grows
without bound, though the mechanism moves on as before. Other freedoms then serve. How well some do is the volume of
their `Y1`, the product of the diagonal of its `R`; the entries of `X` are ratios of such volumes (Cramer's rule), so
that none is large where the volume is near the largest there is. That is found by pivoting, up to a factor.

Where `Y` itself loses rank no choice serves: the mobility jumps, and which way the mechanism goes is open.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.batching import trailing
from dynax.compile.zeros import along_moving, is_zero
from dynax.constraints.powers import in_closed_form, rate_change
from dynax.constraints.residual import rows_at
from dynax.constraints.rows import constraint_rows
from dynax.embedding.coefficients import (
    Chart,
    Columns,
    NodePlan,
    coefficients,
    dependents,
    elimination,
    expanded,
    plan_of,
)
from dynax.embedding.dynamics import Coordinates, tree_velocity
from dynax.embedding.model import EmbeddedModel, factors, of_independent
from dynax.model import Model
from dynax.model.configuration import tangent_rows
from dynax.sweep import take_rows
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import setup

CHANGE = 0.1
"""Of the volume that pivoting finds: others are taken where the present ones have less."""


class Charted(NamedTuple):
    """A state of an embedded model in the independent freedoms that serve there."""

    columns: Columns
    velocity: jax.Array
    """Of the freedoms chosen, `(nv,)`."""
    own: jax.Array
    """Of the model's own independent freedoms, `(nv,)`."""
    least: jax.Array
    """The last pivot by the first, of the worst aggregate: near zero the mechanism is singular."""
    error: jax.Array
    """Of position, as a part of what the joints could do to it."""


def own_columns(model: EmbeddedModel, dtype) -> Columns:
    """The model's own choice."""
    shapes = (g.freedoms.shape for g in plan_of(model.tree, model.embedding).groups)
    return tuple(jnp.broadcast_to(jnp.eye(n, dtype=dtype), (count, n, n)) for count, n in shapes)


def in_chart(model: EmbeddedModel, columns: Columns, tau: jax.Array) -> EmbeddedModel:
    """The model in other freedoms, under forces `tau` of its own independent ones."""
    force = jnp.zeros(model.tree.nv, tau.dtype).at[jnp.array(model.independent, int)].set(tau)
    return EmbeddedModel(model.tree, model.embedding, Chart(columns, force))


def _charted(model: EmbeddedModel, q: jax.Array, velocity: jax.Array) -> Charted:
    assert model.chart is not None
    p, rows = plan_of(model.tree, model.embedding), rows_at(model.tree, q)
    assert rows.entries is not None
    assert rows.weights is not None
    present = model.chart.columns
    solved = elimination(p, rows.entries, present)
    c = Coordinates(p, coefficients(p, solved, rows.entries), solved)
    whole = tree_velocity(model.tree, q, c, velocity)
    columns, least = _chosen(p, *lax.stop_gradient((present, rows.entries, rows.weights)))
    error = jnp.max(jnp.abs(rows.residual) * rows.weights, axis=0, initial=0.0)
    other = EmbeddedModel(model.tree, model.embedding, model.chart._replace(columns=columns))
    return Charted(
        columns, of_independent(other, whole), take_rows(whole, p.independent), least, lax.stop_gradient(error)
    )


def _rate(primals: tuple, found: Charted, tangents: tuple) -> Charted:
    """The tree moves by `u = X v`, of which `du = X dv - Y1^+ dK u`."""
    (model, q, velocity), (dmodel, dq, dvelocity) = primals, tangents
    tree, p = model.tree, plan_of(model.tree, model.embedding)
    still = all(is_zero(leaf) for leaf in jax.tree.leaves(dmodel.tree, is_leaf=is_zero))
    if not (still and isinstance(tree, Model) and in_closed_form(tree.structure)):
        return along_moving(_charted, primals, tangents)[1]
    s = setup(tree, q)
    rows = constraint_rows(tree, s, kinematics(tree, s, positions=True))
    e, x = factors(model, rows)
    change = jnp.zeros((tree.nv, *q.shape[1:]), q.dtype)
    if not is_zero(dvelocity):
        change = change + expanded(p, x, dvelocity)
    if not is_zero(dq) and rows.places is not None:
        turned = rate_change(tree, rows.places[0], expanded(p, x, velocity), tangent_rows(tree, q, dq))
        change = change - dependents(p, e, turned)
    other = EmbeddedModel(tree, model.embedding, model.chart._replace(columns=found.columns))
    zero = jax.tree.map(jnp.zeros_like, found)
    return zero._replace(velocity=of_independent(other, change), own=take_rows(change, p.independent))


charted = trailing(_charted, tangent=_rate)
"""A state of a model in a chart, in the same one where it serves, or in a better one: `(model, q, velocity)`."""


def _chosen(p: NodePlan, present: Columns, entries: jax.Array, weights: jax.Array) -> tuple[Columns, jax.Array]:
    """The columns to go on with, and how far the worst aggregate is from being singular."""
    columns, least = [], jnp.ones(entries.shape[1:], entries.dtype)
    for g, own in zip(p.groups, present, strict=True):
        y = entries[g.entries] * weights[g.rows][:, :, None]
        best, pivots = _pivoted(y, g.dependent, g.preferred)
        lengths = _lengths(jnp.sum(y[:, :, :, None] * own[:, None, :, : g.dependent], axis=2))
        serves = jnp.prod(lengths / jnp.where(pivots > 0.0, pivots, 1.0), axis=1) > CHANGE
        columns.append(jnp.where(serves[:, None, None], own, best))
        first = jnp.max(pivots, axis=1)
        least = jnp.minimum(least, jnp.min(jnp.min(pivots, axis=1) / jnp.where(first > 0.0, first, 1.0), axis=0))
    return tuple(columns), least


def _lengths(rest: jax.Array) -> jax.Array:
    """The diagonal of `R`, `(aggregates, columns)`, of matrices `(aggregates, rows, columns)`."""
    units, batch = np.eye(rest.shape[2]), (1,) * (rest.ndim - 3)

    def own(k: int, lengths: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jnp.asarray(units[k].reshape(-1, *batch), lengths.dtype), lengths.shape)

    return _eliminated(rest, rest.shape[2], own)[1]


def _pivoted(rest: jax.Array, dependent: int, preferred: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """The permutation that puts the longest column first each time, as lengths count, and the lengths."""
    batch = (1,) * (rest.ndim - 3)
    counts = jnp.asarray(preferred.reshape(*preferred.shape, *batch), rest.dtype)
    before = np.tri(rest.shape[2], k=-1).reshape(rest.shape[2], -1, *batch)

    def longest(_, lengths: jax.Array) -> jax.Array:
        """The first of those that no other is longer than, by pairs: a search for it would be in no kernel."""
        length = lengths * counts
        own, other = length[:, :, None], length[:, None]
        beaten = jnp.any((other > own) | ((other == own) & jnp.asarray(before > 0)), axis=2)
        return 1.0 - beaten.astype(lengths.dtype)

    taken, pivots = _eliminated(rest, dependent, longest)
    left = 1.0 - jnp.sum(taken, axis=2)
    place = (left + jnp.sum(left[:, None] * jnp.asarray(before, left.dtype), axis=2))[:, :, None]
    free = jnp.arange(1, left.shape[1] - dependent + 1).reshape(-1, *batch)
    return jnp.concatenate([taken, left[:, :, None] * (place == free)], axis=2), pivots


def _eliminated(rest: jax.Array, count: int, pivot) -> tuple[jax.Array, jax.Array]:
    """Columns orthogonalised one by one: which was taken when, `(aggregates, columns, count)`, and how long it was."""
    taken, pivots = [], []
    open_ = jnp.ones_like(rest[:, 0])
    for k in range(count):
        lengths = jnp.where(open_ > 0.0, jnp.sqrt(jnp.sum(rest * rest, axis=1)), -1.0)
        one = pivot(k, lengths)
        length = jnp.sum(lengths * one, axis=1)
        unit = jnp.sum(rest * one[:, None], axis=2) / jnp.where(length > 0.0, length, 1.0)[:, None]
        rest = rest - unit[:, :, None] * jnp.sum(unit[:, :, None] * rest, axis=1)[:, None]
        open_ = open_ * (1.0 - one)
        taken.append(one)
        pivots.append(length)
    return jnp.stack(taken, axis=2), jnp.stack(pivots, axis=1)
