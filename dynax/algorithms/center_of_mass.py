"""The centre of mass of all bodies, whose derivative is its Jacobian (Featherstone 2008, sections 2.13 and 9.5).

A freedom moves what it carries, of mass `m` and moment `m c` about the joint, with the momentum `m v + w x m c` of its
column `[w; v]`; by the whole mass, that is the centre's velocity.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.momentum import about_world, com_of
from dynax.algorithms.places import Columns, with_jacobian
from dynax.compile.batching import trailing, walking
from dynax.linear.row_products import components
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Motion, Scalar, Vec3
from dynax.tree.bodies import world_inertias
from dynax.tree.freedoms import root_columns
from dynax.tree.kinematics import columns, kinematics
from dynax.tree.setup import setup


def _at(model: Model, q: jax.Array, *, execution: str = "automatic") -> Vec3:
    s = setup(model, q, execution=execution)
    return com_of(*about_world(model, s, kinematics(model, s, positions=True)))


def _columns(model: Model, q: jax.Array) -> tuple[Vec3, Columns]:
    """The centre, and the columns of its Jacobian: those of the free roots, then of the slots."""
    s = setup(model, q, execution="automatic")
    kin = kinematics(model, s)
    inertias = world_inertias(s, kin)

    def momentum(mass: Scalar, moment: Vec3, column: Motion) -> Vec3:
        return column.linear * mass + column.angular.cross(moment)

    def step(handed: tuple[Scalar, Vec3], x: tuple) -> tuple[tuple[Scalar, Vec3], Vec3]:
        own, column, offset = x
        mass, moment = jax.tree.map(jnp.add, handed, own)
        return (mass, moment + offset * mass), momentum(mass, moment, column.motion())

    def full(a: jax.Array) -> jax.Array:
        return jnp.broadcast_to(a, (a.shape[0], *s.batch))

    own = jax.tree.map(full, (inertias.rows.mass, inertias.rows.moment))
    offset = s.layout.to_slots(kin.rows.offset, s.layout.slot_first)
    xs = s.layout.to_slots(own, s.layout.slot_last), columns(model, s, kin.rows.rotation), offset
    nothing = jax.tree.map(lambda a: jnp.zeros(s.batch, s.dtype), own)
    handed, slots = s.layout.slots.gather(step, nothing, xs)
    own = inertias.roots.mass, inertias.roots.moment
    masses, moments = jax.tree.map(lambda a, b: full(a) + b[1:], own, handed)
    six_masses, six_moments = jax.tree.map(lambda a: jnp.repeat(a, 6, axis=0), (masses, moments))
    at_roots = momentum(six_masses, six_moments, root_columns(s))

    def total(standing: jax.Array, floating: jax.Array) -> jax.Array:
        return standing[0] + floating.sum(0)

    mass, moment = jax.tree.map(total, handed, (masses, moments + s.root_position * masses))
    return moment / mass, (components(at_roots) / mass, components(slots) / mass)


def _moved(center: Vec3, motion: jax.Array) -> Vec3:
    return Vec3(*motion)


def _pulled(center: Vec3, bar: Vec3) -> jax.Array:
    return components(bar)


_center = with_jacobian(_at, walking(trailing)(_at), _columns, _moved, _pulled)


@jax.jit
def _center_of_mass(model: Model, q: jax.Array) -> jax.Array:
    return _center(model, q).array


@for_models
def center_of_mass(model: Model, q: ArrayLike) -> jax.Array:
    """The centre of mass of all moving bodies in the world [m], shape `(3,)`; NaN where none of them weighs anything.

    The derivative by `q` is its Jacobian in closed form.
    """
    return _center_of_mass(model, *as_state(model, q=q))
