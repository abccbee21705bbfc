"""The mass matrix from composite inertias (Featherstone 2008, section 6.2; Jain, CRB-ALG).

    inward    I_i^c = I_i + sum over children of phi I_j^c phi*      f_i = I_i^c s_i
    pairs     M_ij = f_i . s_j            for body j carrying (or being) body i, both about the joint of j

The pairs are one masked product over all freedoms: no walk, no gather, exact zeros off the support. Few freedoms: one
elementwise kernel, about the joint of each column. Many: a product of matrices, with all rows taken to a joint at the
base of their tree.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms._batching import batch_last, trailing
from dynax.algorithms._bodies import carried_sums, per_velocity, world_inertias
from dynax.algorithms._kinematics import columns, kinematics
from dynax.algorithms._layout import Parts
from dynax.algorithms._products import batch_leading, batch_trailing, components, in_tree, materialized, product
from dynax.algorithms._setup import Setup, setup
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Force, Motion, RigidInertia, Vec3
from dynax.sweep import take_rows

# Freedoms up to which the pairs are elementwise, which one kernel can hold; and in float32 XLA's product of matrices
# smaller than 8 by 8 takes longer on a CPU than all the rest of a batch of arms. From 8 on it is the faster one.
ELEMENTWISE = 7


class Freedoms(NamedTuple):
    """One row per velocity coordinate: its column in world axes, about the joint at `position`."""

    column: Motion
    position: Vec3


def freedoms(model: Model, s: Setup, kin: Parts) -> Freedoms:
    """All motion columns in the order of `v`; positions relative to the tree's free root."""
    slot = columns(model, s, kin.rows.rotation).motion()
    at_slot = s.layout.to_slots(kin.rows.position, s.layout.slot_body)
    root = root_columns(s)
    return in_velocity_order(s, Freedoms(root, Vec3.zero(root.angular.x)), Freedoms(slot, at_slot))


def root_columns(s: Setup) -> Motion:
    """The six columns of each free root, its own axes in the world, leading axis `6 k`."""
    roots = s.root_rotation
    units = [Vec3(roots.xx, roots.yx, roots.zx), Vec3(roots.xy, roots.yy, roots.zy), Vec3(roots.xz, roots.yz, roots.zz)]
    still = Vec3.zero(roots.xx)
    six = [Motion(u, still) for u in units] + [Motion(still, u) for u in units]
    return jax.tree.map(lambda *a: jnp.stack(a, axis=1).reshape(-1, *a[0].shape[1:]), *six)


def in_velocity_order(s: Setup, roots, slots):
    """Trees over the roots' freedoms (`6 k`) and the slot rows, in the order of `v`, all at full batch shape."""

    def full(a: jax.Array) -> jax.Array:
        return jnp.broadcast_to(a, (a.shape[0], *s.batch))

    joined = jax.tree.map(lambda a, b: jnp.concatenate([full(a), full(b)]), roots, slots)
    return take_rows(joined, s.layout._from_slots)


def per_freedom(s: Setup, parts: Parts):
    """A quantity per body, at each of its freedoms, in the order of `v`."""
    return take_rows(s.layout.body_order(parts), s.layout.topology.body_of_velocity)


def composites(s: Setup, kin: Parts, inertias: Parts) -> Parts:
    """The inertia of everything each body carries, itself included, in world axes about its joint."""
    return carried_sums(s, kin, inertias)[0]


def pair(left: Force, right: Motion, at_left: Vec3, at_right: Vec3) -> jax.Array:
    """`[i, j]`: the force of row `i` about `at_left`, paired with the motion of row `j` about `at_right`."""
    f = jax.tree.map(lambda a: a[:, None], left)
    m = jax.tree.map(lambda a: a[None, :], right)
    offset = jax.tree.map(lambda a, b: a[:, None] - b[None, :], at_left, at_right)
    return m.dot(f.shift_to_parent(offset))


def on_support(model: Model, below: jax.Array, above: jax.Array | None = None) -> jax.Array:
    """`below[i, j]` where freedom `j` carries (or shares the joint of) `i`, `above[i, j]` where `i` carries `j`,
    else 0.

    Without `above` the result is symmetric.
    """
    mask = model.topology.velocity_support
    upper = jnp.swapaxes(below, 0, 1) if above is None else above
    shape = mask.shape + (1,) * (below.ndim - 2)
    zero = jnp.zeros((), below.dtype)
    return jnp.where(mask.reshape(shape), below, jnp.where(mask.T.reshape(shape), upper, zero))


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


# A function of its own within `crba`, which one kernel can hold; the products that follow it cannot be in one.
_walked = trailing(walked)


def crba(model: Model, q: jax.Array) -> jax.Array:
    """The mass matrix `(nv, nv, *batch)`."""
    batch = q.shape[1:]
    armature = per_velocity(model.armature, jnp.zeros((model.nv, *batch), q.dtype))
    if model.nv <= ELEMENTWISE:
        force, rows = walked(model, q)
        return on_support(model, pair(force, rows.column, rows.position, rows.position)) + diagonal(armature)
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
    armature = batch_leading(jnp.broadcast_to(armature, (model.nv, *batch))[:, None])
    return batch_trailing(matrix + jnp.eye(model.nv, dtype=q.dtype) * armature, batch)


def diagonal(x: jax.Array) -> jax.Array:
    """A diagonal matrix `(n, n, *batch)` from `(n, *batch)`."""
    eye = jnp.eye(x.shape[0], dtype=x.dtype)
    return eye.reshape(eye.shape + (1,) * (x.ndim - 1)) * x[:, None]


_crba = batch_last(crba)


@for_models
def mass_matrix(model: Model, q) -> jax.Array:
    """The joint-space inertia matrix, symmetric positive definite, shape `(nv, nv)`; armature on its diagonal.

    Composite rigid bodies, Featherstone (2008), section 6.2. Entries of freedoms that do not carry one another are
    exactly zero (branch-induced sparsity, section 6.4).

    **Arguments:** `q`: configuration, shape `(nq,)`.
    """
    return _crba(model, *as_state(model, q=q))
