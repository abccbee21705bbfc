"""Where a tree is, in world axes, and how all of it moves with the configuration.

A velocity `v` of the freedoms `j` that carry a body turns it by `w` and moves its point `x` by `u(x)`,

    w = sum turns_j v_j        u(x) = sum (shifts_j + turns_j x (x - places_j)) v_j

and what is found here is fixed to bodies, as long as the columns of joints are constant:

    R' = w x R        origin' = u(origin)        moment' = w x moment        turns', shifts', places' likewise

So the derivative takes sums over the bodies that a freedom carries and nothing of how they were found. There and
transposed each is one kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from dynax.algorithms.crba import pairs_at
from dynax.algorithms.frames import body_poses, root_offsets
from dynax.algorithms.mean_velocity import place
from dynax.compile.batching import linear, trailing
from dynax.contact.scene import Scene
from dynax.embedding.model import tree_of
from dynax.linear.sums import weighted
from dynax.model import Model
from dynax.model.configuration import tangent_rows
from dynax.spatial import Mat3, Motion, Vec3
from dynax.sweep import take_rows
from dynax.tree.freedoms import freedoms
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, group_motions, lift, setup


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

    @classmethod
    def of(cls, at: Placed) -> Places:
        """From arrays with trailing batch axes."""
        matrix = Mat3(*(at.rotation[:, i, j] for i in range(3) for j in range(3)))
        origin, turns, shifts, place, moment = (Vec3(x[:, 0], x[:, 1], x[:, 2]) for x in at[1:])
        return cls(matrix, origin, Motion(turns, shifts), place, moment)


def places_at(model: Model, q: jax.Array, s: Setup, kin: Parts) -> Places:
    own = freedoms(model, s, kin)
    root = take_rows(root_offsets(model, s), model.topology.body_of_velocity)
    rotation, origin = body_poses(model, s, kin)
    mass, com, moment = (
        lift(x, n, q.ndim - 1, q.dtype) for x, n in ((model.mass, 1), (model.com, 2), (model.first_moment, 2))
    )
    moments = rotation @ Vec3(*(mass * com[:, k] + moment[:, k] for k in range(3)))
    return Places(rotation, origin, own.column, root + own.position, moments)


def _columns_are_constant(model: Model, q: jax.Array) -> bool:
    """In the axes of their bodies, those of all joints: what is fixed to bodies moves with them alone."""

    def changing(model: Model, q: jax.Array) -> list:
        every = group_motions(
            model, q, jnp.zeros((model.nv, *q.shape[1:]), q.dtype), list(range(len(model.topology.joints)))
        )
        return [motion.bias for _, _, motion in every]

    holonomic = all(joint.holonomic for joint in model.topology.joints)
    return holonomic and not jax.tree.leaves(jax.eval_shape(changing, model, q))


def _roots(model: Model) -> np.ndarray:
    """Of each body the first of its tree, about whose origin moments are taken, wherever the tree stands."""
    return np.argmax(model.topology.support, axis=1)


def _there(model: Model, q: jax.Array, arrays: Placed, dq: jax.Array) -> Places:
    at, v = Places.of(arrays), tangent_rows(model, q, dq)
    root, body = _roots(model), model.topology.body_of_velocity
    turns, shifts = at.column.angular, at.column.linear
    arm = take_rows(at.origin, root[body]) - at.place
    own = turns * v, (shifts + turns.cross(arm)) * v
    w, u = weighted(model.topology.support[:, body].T, own)
    w_freedom, u_freedom = take_rows((w, u), body)
    x, y, z = (w.cross(axis) for axis in at.rotation.columns)
    return Places(
        Mat3.from_columns(x, y, z),
        u + w.cross(at.origin - take_rows(at.origin, root)),
        Motion(w_freedom.cross(turns), w_freedom.cross(shifts)),
        u_freedom - w_freedom.cross(arm),
        w.cross(at.moment),
    )


def _back(model: Model, q: jax.Array, arrays: Placed, bars: Placed) -> jax.Array:
    at, bar = Places.of(arrays), Places.of(bars)
    root, body = _roots(model), model.topology.body_of_velocity
    turns, shifts = at.column.angular, at.column.linear
    arm = take_rows(at.origin, root[body]) - at.place
    couple = at.moment.cross(bar.moment) + (at.origin - take_rows(at.origin, root)).cross(bar.origin)
    for axis, own in zip(at.rotation.columns, bar.rotation.columns, strict=True):
        couple = couple + axis.cross(own)
    turned = turns.cross(bar.column.angular) + shifts.cross(bar.column.linear) - arm.cross(bar.place)
    carries = model.topology.support[:, body]
    moment, force = jax.tree.map(
        jnp.add, weighted(carries, (couple, bar.origin)), weighted(carries[body], (turned, bar.place))
    )
    along = turns.dot(moment + arm.cross(force)) + shifts.dot(force)
    return jax.vjp(lambda dq: tangent_rows(model, q, dq), jnp.zeros_like(q))[1](along)[0]


def stacked(at: Places) -> Placed:
    rotation = jnp.stack(at.rotation.components, axis=1)
    vectors = (
        jnp.stack([v.x, v.y, v.z], axis=1)
        for v in (at.origin, at.column.angular, at.column.linear, at.place, at.moment)
    )
    return Placed(rotation.reshape(len(rotation), 3, 3, *rotation.shape[2:]), *vectors)


_moved, _ = linear(
    lambda *given: stacked(_there(*given)),
    _back,
    lambda *given: stacked(_there(*given)),
    lambda model, q, at, dq: at,
)


@trailing
def _places(model: Model, q: jax.Array) -> Places:
    s = setup(model, q, execution="automatic")
    return places_at(model, q, s, kinematics(model, s, positions=True))


@trailing
def _with_pairs(model: Model, q: jax.Array) -> tuple[Places, jax.Array]:
    x = place(model, q, positions=True)
    return places_at(model, q, x.setup, x.kin), pairs_at(model, *x)


@jax.custom_jvp
def tree_placed(model: Model, q: jax.Array) -> Placed:
    """Of a tree, without the world."""
    return stacked(_places(model, q))


def _rate(primals: tuple, tangents: tuple) -> tuple[Placed, Placed]:
    found = tree_placed(*primals)
    return found, moved_with(found, primals, tangents)


@jax.custom_jvp
def placed_with_pairs(model: Model, q: jax.Array) -> tuple[Placed, jax.Array]:
    """The same, and the mass matrix as `crba.pairs_at` has it, of which no derivative is taken."""
    at, pairs = _with_pairs(model, q)
    return stacked(at), pairs


def _rate_with_pairs(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    found, pairs = placed_with_pairs(*primals)
    return (found, pairs), (moved_with(found, primals, tangents), jnp.zeros_like(pairs))


def moved_with(found: Placed, primals: tuple, tangents: tuple) -> Placed:
    """How `found` moves with `(model, q)`, of which tangents may be symbols for zero."""
    leaves, structure = jax.tree.flatten(primals)
    rates = jax.tree.leaves(tangents, is_leaf=lambda x: isinstance(x, SymbolicZero))
    moving = [k for k, rate in enumerate(rates) if not isinstance(rate, SymbolicZero)]
    if not moving:
        return jax.tree.map(jnp.zeros_like, found)
    # The closed form of a change of a quaternion's length is another one: not where there are any.
    plain = primals[0].topology.nq == primals[0].topology.nv
    if plain and moving == [len(leaves) - 1] and _columns_are_constant(*primals):
        return _moved(*primals, found, rates[-1])

    def of_moving(*values: jax.Array) -> Placed:
        current = list(leaves)
        for k, value in zip(moving, values, strict=True):
            current[k] = value
        return stacked(_places(*structure.unflatten(current)))

    return jax.jvp(of_moving, [leaves[k] for k in moving], [rates[k] for k in moving])[1]


tree_placed.defjvp(_rate, symbolic_zeros=True)
placed_with_pairs.defjvp(_rate_with_pairs, symbolic_zeros=True)


def placed(scene: Scene, q: jax.Array) -> Placed:
    return with_world(tree_placed(tree_of(scene.model), q))


def with_world(at: Placed) -> Placed:
    dtype = at.origin.dtype
    return at._replace(
        rotation=jnp.concatenate([at.rotation, jnp.eye(3, dtype=dtype)[None]]),
        origin=jnp.concatenate([at.origin, jnp.zeros((1, 3), dtype)]),
    )
