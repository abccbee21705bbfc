"""Closed chains with bodies that bend (Jain and Rodriguez, section 7, FLEX-CC).

A loop closes between frames of the skeleton, which nodes of bodies are among, so its rows are those of the skeleton,

    K = K_s X        k = k_s - K_s Xdot v        v_skeleton = X v

and the columns of `X` hold the mode shapes at the nodes. All that solves with `K` and the tree's factor is the same.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from dynax.algorithms.factor import factorized
from dynax.constraints.assembly import assemble
from dynax.constraints.dynamics import Tree, admissible_velocity, constrained_dynamics, impulse, moving_tree
from dynax.constraints.residual import (
    constraint_bias,
    constraint_jacobian,
    constraint_names,
    constraint_rate,
    constraint_residual,
    rows_at,
)
from dynax.constraints.rows import Rows, accelerated, condition_rows, constraint_rows, names
from dynax.constraints.saddle import apply
from dynax.embedding.flexible import (
    State,
    moving,
    needed,
    reduced,
    state,
)
from dynax.embedding.flexible_composite import composite
from dynax.embedding.flexible_nodes import nodes
from dynax.embedding.flexible_plan import plan
from dynax.model.flexible import FlexibleModel
from dynax.model.kinds import extend
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, setup


def rows_of(model: FlexibleModel, at: State, s: Setup, kin: Parts, q: jax.Array, v: jax.Array | None) -> Rows:
    """The conditions by the model's own freedoms, for the skeleton's kinematics, with accelerations if it moves."""
    skeleton = model.skeleton
    tree = dataclasses.replace(skeleton, structure=dataclasses.replace(skeleton.structure, conditions=()))
    rows = constraint_rows(tree, s, kin, None if v is None else at.v)
    columns = at.columns[:, :, :, None]
    matrix = jnp.swapaxes(reduced(model, at.bodies, columns, jnp.swapaxes(rows.matrix, 0, 1)), 0, 1)
    parts = [rows._replace(matrix=matrix, entries=None, places=None)]
    parts += [condition_rows(model, condition, q, v) for condition in skeleton.structure.conditions]
    whole = jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    return whole._replace(entries=whole.matrix.reshape(-1, *whole.matrix.shape[2:]))


@extend(rows_at, FlexibleModel)
def _(model, q, v=None):
    at, still = state(model, q, v), v is None
    s = setup(model.skeleton, at.q, None if still else at.v)
    bias = None if still else at.drift
    kin = kinematics(model.skeleton, s, at.v, bias, positions=True, accelerations=not still, gravity=not still)
    return rows_of(model, at, s, kin, q, v)


@extend(moving_tree, FlexibleModel)
def _(model, q, v, a=None, external=None):
    at = state(model, q, v)
    m = moving(model, at, a, external)
    static = plan(model.skeleton.topology, model.members, False)
    rows = rows_of(model, at, m.setup, m.kin, q, v)
    return Tree(
        rows if a is None else accelerated(model.skeleton.structure, rows, a),
        lambda: needed(model, at, m, a),
        lambda: factorized(nodes(model, at, m.setup, m.kin, m.inertias, static)),
    )


@extend(impulse, FlexibleModel)
def _(model, q, v):
    return apply(composite(model, q), v)


@extend(constraint_names, FlexibleModel)
def _(model):
    return dict(names(model.skeleton.structure))


# What is made of these alone is the same function.
for _function in (
    constraint_residual, constraint_jacobian, constraint_rate, constraint_bias, assemble, admissible_velocity,
    constrained_dynamics,
):  # fmt: skip
    extend(_function, FlexibleModel)(_function.__wrapped__)
