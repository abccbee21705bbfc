"""Displacements of a tree with loops, which are closed again, and how they are differentiated.

    q+ = integrate(q, X dv) and corrections of dependent coordinates until        r(q+) = 0

The derivative is that of the implicit function,

    dq+ = X dy - Y1^+ dr/dP dP        X and Y1 at q+, dy the tangent there of the independent coordinates

so it knows neither the corrections nor the way of dependent coordinates to where they began.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.batching import batch_last
from dynax.compile.zeros import along_moving, is_zero
from dynax.constraints.residual import rows_at
from dynax.embedding.coefficients import dependents, expanded, plan_of
from dynax.embedding.model import EmbeddedModel, factors, of_independent
from dynax.model import Model
from dynax.model.configuration import integrate_rows, rate_rows, tangent_rows

CORRECTIONS = 3


def closing(model: EmbeddedModel, q: jax.Array) -> jax.Array:
    """`q` with the dependent coordinates corrected until the loops close, the independent ones as they are; batch axes
    trail.

    Newton's method; quadratic, so a residual of 1e-2 is at rounding after three steps, each of which is exact to first
    order.
    """
    tree, p = model.tree, plan_of(model.tree, model.embedding)
    if not p.groups:
        return q

    def corrected(q: jax.Array, _) -> tuple[jax.Array, None]:
        rows = rows_at(tree, q)
        return integrate_rows(tree, q, -dependents(p, factors(model, rows)[0], rows.residual)), None

    return lax.scan(corrected, q, length=CORRECTIONS)[0]


def _displaced(model: EmbeddedModel, q: jax.Array, dv: jax.Array) -> jax.Array:
    """The step and the corrections as one loop, so that conditions are compiled once."""
    tree, p = model.tree, plan_of(model.tree, model.embedding)

    def moved(q: jax.Array, first: jax.Array) -> tuple[jax.Array, None]:
        rows = rows_at(tree, q)
        e, x = factors(model, rows)
        change = jnp.where(first, expanded(p, x, dv), -dependents(p, e, rows.residual))
        return integrate_rows(tree, q, change), None

    return lax.scan(moved, q, np.arange(1 + (CORRECTIONS if p.groups else 0)) == 0)[0]


def _rate(primals: tuple, found: jax.Array, tangents: tuple) -> jax.Array:
    model, dmodel = primals[0], tangents[0]
    tree, p = model.tree, plan_of(model.tree, model.embedding)
    if not _are_apart(model):
        return along_moving(_displaced, primals, tangents)[1]
    e, x = factors(model, rows_at(tree, found))

    def open_yet(model: EmbeddedModel, q: jax.Array, dv: jax.Array) -> jax.Array:
        """Independent coordinates are right."""
        return integrate_rows(model.tree, q, expanded(p, x, dv))

    change = expanded(p, x, of_independent(model, tangent_rows(tree, *along_moving(open_yet, primals, tangents))))
    if not all(is_zero(leaf) for leaf in jax.tree.leaves(dmodel.tree, is_leaf=is_zero)):
        opened = along_moving(lambda tree: rows_at(tree, found).residual, (tree,), (dmodel.tree,))[1]
        change = change - dependents(p, e, opened)
    return rate_rows(tree, found, change)


displaced = batch_last(_displaced, tangent=_rate)
"""`integrate` of an embedded model: `(model, q, dv)`, for plain `vmap`."""


def _are_apart(model: EmbeddedModel) -> bool:
    """Whether no joint is dependent in part. Of one that is, a correction along some freedoms turns the axes of the
    others, and the derivative is that of the corrections."""
    tree = model.tree
    if not isinstance(tree, Model) or not all(joint.holonomic for joint in tree.topology.joints):
        return False
    for g in plan_of(tree, model.embedding).groups:
        for bodies in tree.topology.body_of_velocity[g.freedoms]:
            # In a chart it is data which freedoms are dependent, so that no joint may have two.
            follow, lead = bodies[: g.dependent], bodies[g.dependent :]
            if set(follow) & set(lead) or (model.chart is not None and len(set(bodies)) < len(bodies)):
                return False
    return True
