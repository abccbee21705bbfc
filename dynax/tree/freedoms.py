"""One row per velocity coordinate: the motion columns in the order of `v`, and what is paired over all of them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.model import Model
from dynax.spatial import Force, Motion, Vec3
from dynax.sweep import take_rows
from dynax.tree.kinematics import columns
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, slot_columns


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


def columns_of(model: Model, s: Setup, kin: Parts, which: np.ndarray) -> Motion:
    """The columns of some freedoms, zeros where `which` is negative."""
    flat, roots = np.reshape(which, -1), len(s.layout.root_velocity)
    place = np.where(flat >= 0, s.layout.order.places[flat], -1)
    slot = np.where(place >= roots, place - roots, -1)
    if model.topology.all_screws:
        own = take_rows(columns(model, s, kin.rows.rotation).motion(), slot)
    else:
        body = np.where(slot >= 0, s.layout.slot_body[slot], -1)
        own = slot_columns(s, model, np.where(slot >= 0, flat, -1)).rotate(take_rows(kin.rows.rotation, body))
    if ((place >= 0) & (place < roots)).any():
        own = own + take_rows(root_columns(s), np.where(place < roots, place, -1))
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (len(flat), *s.batch)).reshape(*which.shape, *s.batch), own)


def root_columns(s: Setup) -> Motion:
    """The six columns of each free root, its own axes in the world, leading axis `6 k`."""
    roots = s.root_rotation
    units = [Vec3(roots.xx, roots.yx, roots.zx), Vec3(roots.xy, roots.yy, roots.zy), Vec3(roots.xz, roots.yz, roots.zz)]
    still = Vec3.zero(roots.xx)
    six = [Motion(u, still) for u in units] + [Motion(still, u) for u in units]
    return jax.tree.map(lambda *a: jnp.stack(a, axis=1).reshape(6 * len(a[0]), *a[0].shape[1:]), *six)


def in_velocity_order(s: Setup, roots, slots):
    """Trees over the roots' freedoms (`6 k`) and the slot rows, in the order of `v`, all at full batch shape."""

    def full(a: jax.Array) -> jax.Array:
        return jnp.broadcast_to(a, (a.shape[0], *s.batch))

    joined = jax.tree.map(lambda a, b: jnp.concatenate([full(a), full(b)]), roots, slots)
    return take_rows(joined, s.layout.order.places)


def per_freedom(s: Setup, parts: Parts):
    """A quantity per body, at each of its freedoms, in the order of `v`."""
    return take_rows(s.layout.body_order(parts), s.layout.topology.body_of_velocity)


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


def diagonal(x: jax.Array) -> jax.Array:
    """A diagonal matrix `(n, n, *batch)` from `(n, *batch)`."""
    eye = jnp.eye(x.shape[0], dtype=x.dtype)
    return eye.reshape(eye.shape + (1,) * (x.ndim - 1)) * x[:, None]


def in_tree(model: Model, position: Vec3) -> Vec3:
    """Positions of freedoms from the first one of their tree: all that a product needs, wherever the tree stands."""
    return jax.tree.map(lambda a: a - a[model.topology.first_of_tree], position)
