"""Where a tree is, in world axes: what contacts ask of a configuration."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.frames import body_poses, root_offsets
from dynax.compile.batching import trailing
from dynax.contact.scene import Scene
from dynax.embedding.meanings import tree_configuration
from dynax.model import Model
from dynax.spatial import Mat3, Motion, Vec3
from dynax.sweep import take_rows
from dynax.tree.freedoms import freedoms
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, lift, setup


class Placed(NamedTuple):
    """A tree at a configuration, in world axes."""

    rotation: jax.Array
    """Axes of the bodies, and of the world as the last row, which -1 stands for, shape `(n + 1, 3, 3)`."""
    origin: jax.Array
    """Shape `(n + 1, 3)`."""
    turns: jax.Array
    """What a unit of each freedom turns by, shape `(nv, 3)`."""
    shifts: jax.Array
    """And shifts by, the points at `places`, shape `(nv, 3)`."""
    places: jax.Array
    moments: jax.Array
    """First moments of the bodies about their origins, shape `(n, 3)`."""


class Places(NamedTuple):
    """The same by components, without the world."""

    rotation: Mat3
    origin: Vec3
    column: Motion
    place: Vec3
    moment: Vec3


def places_at(model: Model, q: jax.Array, s: Setup, kin: Parts) -> Places:
    own = freedoms(model, s, kin)
    root = take_rows(root_offsets(model, s), model.topology.body_of_velocity)
    rotation, origin = body_poses(model, s, kin)
    mass, com, moment = (
        lift(x, n, q.ndim - 1, q.dtype) for x, n in ((model.mass, 1), (model.com, 2), (model.first_moment, 2))
    )
    moments = rotation @ Vec3(*(mass * com[:, k] + moment[:, k] for k in range(3)))
    return Places(rotation, origin, own.column, root + own.position, moments)


def stacked(at: Places) -> Placed:
    rotation = jnp.stack(at.rotation.components, axis=1)
    vectors = (
        jnp.stack([v.x, v.y, v.z], axis=1)
        for v in (at.origin, at.column.angular, at.column.linear, at.place, at.moment)
    )
    return Placed(rotation.reshape(len(rotation), 3, 3, *rotation.shape[2:]), *vectors)


@trailing
def places(model: Model, q: jax.Array) -> Places:
    s = setup(model, q, execution="automatic")
    return places_at(model, q, s, kinematics(model, s, positions=True))


def tree_placed(model: Model, q: jax.Array) -> Placed:
    """Of a tree, without the world."""
    return stacked(places(model, q))


def placed(scene: Scene, q: jax.Array) -> Placed:
    return with_world(tree_placed(scene.tree, tree_configuration(scene.model, q)))


def with_world(at: Placed) -> Placed:
    dtype = at.origin.dtype
    return at._replace(
        rotation=jnp.concatenate([at.rotation, jnp.eye(3, dtype=dtype)[None]]),
        origin=jnp.concatenate([at.origin, jnp.zeros((1, 3), dtype)]),
    )
