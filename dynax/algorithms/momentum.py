"""Whole-body quantities: momentum and energies (Featherstone 2008, sections 2.12, 2.13, 9.5)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.crba import column_forces
from dynax.algorithms.frames import root_offsets
from dynax.compile.batching import batch_last, batch_last_vectors, trailing, walking
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import difference_rows
from dynax.model.kinds import for_models
from dynax.spatial import Force, RigidInertia, Vec3
from dynax.tree.bodies import per_velocity, world_inertias
from dynax.tree.freedoms import freedoms
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, setup


def about_world(model: Model, s: Setup, kin: Parts) -> tuple[RigidInertia, Vec3]:
    """Each body's inertia in world axes about its joint, and where that joint stands in the world, in body order."""
    inertia = s.layout.body_order(world_inertias(s, kin))
    position = s.layout.body_order(Parts(kin.roots.position, kin.rows.position)) + root_offsets(model, s)
    return inertia, position


def _sum(x):
    return jax.tree.map(lambda a: a.sum(0), x)


def com_of(inertia: RigidInertia, position: Vec3) -> Vec3:
    total = _sum(RigidInertia(inertia.mass, inertia.moment + position * inertia.mass, inertia.inertia))
    return total.moment / total.mass


def _momenta(model: Model, q, v, execution: str) -> tuple[Force, RigidInertia, Vec3]:
    """Each body's momentum about its joint, with inertias and joint positions, world axes, body order."""
    s = setup(model, q, v, execution)
    kin = kinematics(model, s, v, positions=True)
    inertia, position = about_world(model, s, kin)
    velocity = s.layout.body_order(Parts(kin.roots.velocity, kin.rows.velocity))
    return inertia @ velocity, inertia, position


@walking(batch_last_vectors)
def _momentum(model: Model, q, v, *, execution: str) -> Force:
    momentum, _, position = _momenta(model, q, v, execution)
    return _sum(momentum.shift_to_parent(position))


@for_models
def momentum(model: Model, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """The momentum of all bodies `[angular; linear]` about the world's origin in world axes, shape `(6,)`.

    Constant when no external force acts (section 9.5). Armature carries none.
    """
    return _momentum(model, *as_state(model, q=q, v=v))


@walking(batch_last_vectors)
def _centroidal_momentum(model: Model, q, v, *, execution: str) -> Force:
    momentum, inertia, position = _momenta(model, q, v, execution)
    com = com_of(inertia, position)
    return _sum(momentum.shift_to_parent(jax.tree.map(lambda p, c: p - c, position, com)))


@for_models
def centroidal_momentum(model: Model, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """The momentum `[angular; linear]` about the centre of mass in world axes, shape `(6,)`."""
    return _centroidal_momentum(model, *as_state(model, q=q, v=v))


@walking(trailing)
def _momentum_columns(model: Model, q, *, execution: str) -> Force:
    s = setup(model, q, execution=execution)
    kin = kinematics(model, s, positions=True)
    rows = freedoms(model, s, kin)
    force = column_forces(model, s, kin, world_inertias(s, kin))
    com = com_of(*about_world(model, s, kin))
    roots = jax.tree.map(lambda a: a[model.topology.body_of_velocity], root_offsets(model, s))
    offset = jax.tree.map(lambda p, r, c: p + r - c, rows.position, roots, com)
    return force.shift_to_parent(offset)


@jax.jit
def _centroidal_momentum_matrix(model: Model, q) -> jax.Array:
    return _momentum_columns(model, q).array.T


@for_models
def centroidal_momentum_matrix(model: Model, q: ArrayLike) -> jax.Array:
    """The matrix `A` with `A v` the momentum `[angular; linear]` about the centre of mass, world axes, shape `(6,
    nv)`."""
    return _centroidal_momentum_matrix(model, *as_state(model, q=q))


@walking(batch_last)
def _kinetic_energy(model: Model, q, v, *, execution: str) -> jax.Array:
    s = setup(model, q, v, execution)
    kin = kinematics(model, s, v)
    inertias = world_inertias(s, kin)
    bodies = sum(
        inertia.kinetic_energy(k.velocity).sum(0)
        for inertia, k in ((inertias.roots, kin.roots), (inertias.rows, kin.rows))
    )
    return bodies + 0.5 * (per_velocity(model.armature, v) * v * v).sum(0)


@for_models
def kinetic_energy(model: Model, q: ArrayLike, v: ArrayLike) -> jax.Array:
    """The kinetic energy of bodies and rotors [J], a scalar: `v . M v / 2` for a system without driven joints."""
    return _kinetic_energy(model, *as_state(model, q=q, v=v))


@walking(batch_last)
def _potential_energy(model: Model, q, *, execution: str) -> jax.Array:
    s = setup(model, q, execution=execution)
    inertia, position = about_world(model, s, kinematics(model, s, positions=True))
    weight = -(inertia.moment + position * inertia.mass).dot(s.gravity).sum(0)
    reference = per_velocity(model.spring_reference, q) + jnp.zeros_like(q)
    stretch = difference_rows(model, reference, q)
    return weight + 0.5 * (per_velocity(model.stiffness, stretch) * stretch * stretch).sum(0)


@for_models
def potential_energy(model: Model, q: ArrayLike) -> jax.Array:
    """The potential energy of weight and joint springs [J], a scalar; zero weight at the world's origin."""
    return _potential_energy(model, *as_state(model, q=q))
