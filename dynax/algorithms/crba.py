"""The mass matrix from composite inertias (Featherstone 2008, section 6.2; Jain, CRB-ALG).

    inward    I_i^c = I_i + sum over children of phi I_j^c phi*      f_i = I_i^c s_i
    pairs     M_ij = f_i . s_j            for body j carrying (or being) body i, both about the joint of j

Entries off the support are exact zeros. Few freedoms: all pairs in one elementwise kernel, about the joint of each
column. Many: those on the support alone, one after another, with all rows taken to a joint at the base of their tree;
for derivatives, all pairs in one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.compile.batching import batch_last, trailing
from dynax.compile.fence import apart
from dynax.compile.zeros import along_moving
from dynax.linear.row_products import batch_leading, batch_trailing, components, materialized, product
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Force, RigidInertia
from dynax.sweep import take_rows
from dynax.topology import Topology
from dynax.tree.bodies import carried_sums, per_velocity, world_inertias
from dynax.tree.freedoms import Freedoms, diagonal, freedoms, in_tree, in_velocity_order, on_support, pair, root_columns
from dynax.tree.kinematics import columns, kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, setup

# Freedoms up to which walks and all pairs are one kernel; and in float32 XLA's product of matrices smaller than 8 by 8
# takes longer on a CPU than all the rest of a batch of arms.
ELEMENTWISE = 7


def composites(s: Setup, kin: Parts, inertias: Parts) -> Parts:
    """The inertia of everything each body carries, itself included, in world axes about its joint."""
    return carried_sums(s, kin, inertias)[0]


def column_forces(model: Model, s: Setup, kin: Parts, inertias: Parts) -> Force:
    """`I^c s` for each freedom, in the order of `v`, in world axes about its joint.

    Formed within the walk: XLA would compute what comes after it once for every partner in a product.
    """
    column = columns(model, s, kin.rows.rotation)

    def step(handed: RigidInertia, x: tuple) -> tuple[RigidInertia, Force]:
        inertia, own, offset = x
        total = handed + inertia
        return total.shift_to_parent(offset), total @ own.motion()

    rows = jax.tree.map(lambda a: jnp.broadcast_to(a, (a.shape[0], *s.batch)), inertias.rows)
    xs = s.layout.to_slots(rows, s.layout.slot_last), column, s.layout.to_slots(kin.rows.offset, s.layout.slot_first)
    nothing = jax.tree.map(lambda a: jnp.zeros(s.batch, s.dtype), rows)
    handed, forces = s.layout.slots.gather(step, nothing, xs)
    carried = jax.tree.map(lambda a, b: a + b[1:], inertias.roots, handed)
    at_roots = jax.tree.map(lambda a: jnp.repeat(a, 6, axis=0), carried) @ root_columns(s)
    return in_velocity_order(s, at_roots, forces)


def walked(model: Model, q: jax.Array) -> tuple[Force, Freedoms]:
    """All that walks find: `I^c s` and the columns, each about its joint."""
    s = setup(model, q, execution="automatic")
    kin = kinematics(model, s, positions=True)
    return column_forces(model, s, kin, world_inertias(s, kin)), freedoms(model, s, kin)


def pairs_at(model: Model, s: Setup, kin: Parts, inertias: Parts) -> jax.Array:
    """What `of_pairs` makes the mass matrix of, where the rest of a kernel knows places and inertias already."""
    force, rows = column_forces(model, s, kin, inertias), freedoms(model, s, kin)
    if model.nv <= ELEMENTWISE:
        return on_support(model, pair(force, rows.column, rows.position, rows.position))
    left, right = map(apart, _to_base(model, force, rows))
    return _on_support_alone(model.topology, left, right)


@trailing
def of_pairs(model: Model, pairs: jax.Array, armature: jax.Array) -> jax.Array:
    """The mass matrix, for `armature` of shape `(nv, *batch)`."""
    matrix = pairs if model.nv <= ELEMENTWISE else _in_matrix(model.topology, pairs)
    return matrix + diagonal(armature.astype(pairs.dtype))


def crba(model: Model, q: jax.Array) -> jax.Array:
    """The mass matrix `(nv, nv, *batch)`."""
    if model.nv > ELEMENTWISE:
        return _of_many(model, q)
    force, rows = walked(model, q)
    pairs = pair(force, rows.column, rows.position, rows.position)
    return on_support(model, pairs) + diagonal(_armature(model, q))


def _along_support(model: Model, q: jax.Array) -> jax.Array:
    pairs = _support_pairs(model.topology)((), *_walked_to_base(model, q))
    return _in_matrix(model.topology, pairs) + diagonal(_armature(model, q))


def _at_base(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _to_base(model, *walked(model, q))


def _to_base(model: Model, force: Force, rows: Freedoms) -> tuple[jax.Array, jax.Array]:
    """`I^c s` and the columns, about a joint at the base of their tree, each `(6, nv, *batch)`."""
    base = in_tree(model, rows.position)
    return components(force.shift_to_parent(base)), components(rows.column.shift(-base))


def _on_support_alone(topology: Topology, force: jax.Array, column: jax.Array) -> jax.Array:
    below, above = np.nonzero(np.tril(topology.velocity_support))
    return sum((force[k, below] * column[k, above] for k in range(1, 6)), force[0, below] * column[0, above])


def _in_matrix(topology: Topology, pairs: jax.Array) -> jax.Array:
    below, above = np.nonzero(np.tril(topology.velocity_support))
    place = np.full(topology.velocity_support.shape, -1)
    place[below, above] = place[above, below] = np.arange(len(below))
    return take_rows(pairs, place)


def _like_columns(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of the shapes of `_at_base`."""
    rows = jnp.zeros((6, model.nv, *q.shape[1:]), q.dtype)
    return rows, rows


# Two functions of their own, each of which one kernel can hold: in one, XLA would form both rows anew for every pair.
_walked_to_base = trailing(_at_base, like=_like_columns)


@lru_cache(maxsize=512)
def _support_pairs(topology: Topology) -> Callable[..., jax.Array]:
    return trailing(lambda _, force, column: _on_support_alone(topology, force, column))


def _by_product(model: Model, q: jax.Array) -> jax.Array:
    batch = q.shape[1:]
    force, rows = _walked(model, q)
    base = in_tree(model, rows.position)
    force, column = (
        batch_leading(x)
        for x in materialized(
            lambda x: (components(x[0].shift_to_parent(x[2])), components(x[1].shift(-x[2]))),
            (force, rows.column, base),
        )
    )
    pairs = product(force, column)
    below = np.tril(model.topology.velocity_support)
    matrix = jnp.where(below, pairs, jnp.where(below.T, jnp.swapaxes(pairs, 1, 2), jnp.zeros((), q.dtype)))
    armature = batch_leading(jnp.broadcast_to(_armature(model, q), (model.nv, *batch))[:, None])
    return batch_trailing(matrix + jnp.eye(model.nv, dtype=q.dtype) * armature, batch)


_walked = trailing(walked)


def _armature(model: Model, q: jax.Array) -> jax.Array:
    return per_velocity(model.armature, jnp.zeros((model.nv, *q.shape[1:]), q.dtype))


def _differentiated(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    # The transpose of a product is a product, that of fetching rows a loop over them on a CPU.
    return along_moving(_by_product, primals, tangents)


def like_matrix(model: Model, q: jax.Array) -> jax.Array:
    """Of the shape of `crba`."""
    return jnp.zeros((model.nv, model.nv, *q.shape[1:]), q.dtype)


_of_many = trailing(_along_support, _differentiated, like=like_matrix)
_crba = batch_last(crba, like=like_matrix)


@for_models
def mass_matrix(model: Model, q: ArrayLike) -> jax.Array:
    """The joint-space inertia matrix, symmetric positive definite, shape `(nv, nv)`; armature on its diagonal.

    Composite rigid bodies, Featherstone (2008), section 6.2. Entries of freedoms that do not carry one another are
    exactly zero (branch-induced sparsity, section 6.4).

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _crba(model, *as_state(model, q=q))
