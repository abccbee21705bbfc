"""The state of a model with bodies that bend, and the forces of its motion (Jain and Rodriguez, FLEX-ID). What
eliminates its freedoms is in `flexible_nodes`, its mass matrix in `flexible_composite`.

Arrays have the axes of the batch last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.rnea import project, transmitted
from dynax.bodies.flexible import FlexibleBodies, Modal, Places
from dynax.compile.fence import apart
from dynax.model.flexible import FlexibleModel
from dynax.spatial import Motion
from dynax.sweep import take_rows
from dynax.sweep.sums import summed
from dynax.tree.bodies import (
    body_force,
    external_forces,
    passive_force,
    per_velocity,
    world_inertias,
)
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, setup


class State(NamedTuple):
    """The skeleton where the modes place it, and its velocity."""

    bodies: FlexibleBodies
    q: jax.Array
    """Of the skeleton."""
    eta: jax.Array
    moves: Motion
    """The velocities of the displaced places by each mode of their bodies, axes (place, mode)."""
    v: jax.Array
    """Of the skeleton."""
    rate: jax.Array
    drift: jax.Array
    """`Xdot v`: the skeleton's accelerations while `v` stays."""

    @property
    def columns(self) -> jax.Array:
        """The velocities of all places by each mode of their bodies, `(places, 6, m, *batch)`."""
        return take_rows(jnp.stack(jnp.broadcast_arrays(*jax.tree.leaves(self.moves)), axis=1), self.bodies.row)


def state(model: FlexibleModel, q: jax.Array, v: jax.Array | None = None) -> State:
    """For trailing batch axes; at rest without `v`."""
    v = jnp.zeros((model.nv, *q.shape[1:]), q.dtype) if v is None else v
    bodies, at = FlexibleBodies(model, q), model.places
    eta, rate = bodies.modes(q, at.modes_q), bodies.modes(v, at.modes_v)
    return state_of(model, bodies, q, v, eta, rate, bodies.places(eta, rate))


def state_of(model: FlexibleModel, bodies: FlexibleBodies, q, v, eta, rate, places: Places) -> State:
    """The same from what is known of the places."""
    at, (pose, columns, drift) = model.places, places
    own = take_rows(rate, bodies.owner[bodies.displaced])
    speed = jax.tree.map(lambda a: apart(summed(a * own)), columns)
    whole = bodies.on_skeleton(q, pose, at.q, undeformed=True)
    drift = bodies.on_skeleton(jnp.zeros_like(v), drift, at.v)
    return State(bodies, whole, eta, columns, bodies.on_skeleton(v, speed, at.v), rate, drift)


def of_skeleton(own: jax.Array, of_places: jax.Array, place: np.ndarray) -> jax.Array:
    """A vector of the skeleton from one of the model and what its places have, `(places, 6 or 7, *batch)`."""
    flat = of_places.reshape(-1, *of_places.shape[2:])
    return take_rows(jnp.concatenate([own, jnp.broadcast_to(flat, (len(flat), *own.shape[1:]))]), place)


def expanded(model: FlexibleModel, bodies: FlexibleBodies, columns: jax.Array, v: jax.Array) -> jax.Array:
    """`X v`."""
    rate = bodies.of_owner(bodies.modes(v, model.places.modes_v))
    return of_skeleton(v, summed(columns * rate[:, None], 2), model.places.v)


def reduced(model: FlexibleModel, bodies: FlexibleBodies, columns: jax.Array, force: jax.Array) -> jax.Array:
    """`X^T force`."""
    at = model.places
    by_place = summed(columns * take_rows(force, at.freedoms)[:, :, None])
    by_body = jnp.stack(
        [summed(take_rows(by_place, np.flatnonzero(bodies.owner == k)), 0) for k in range(len(model.members))]
    )
    return take_rows(force, at.own_v) + on_modes(model, by_body)


def passive(model: FlexibleModel, at: State) -> jax.Array:
    """What joints need against damping, friction and springs, a vector like `v`: places have none."""
    own = model.places.own_v
    joints = np.unique(model.skeleton.topology.body_of_velocity[own[own >= 0]])
    found = passive_force(model.skeleton, at.q, at.v, joints)
    return take_rows(found, np.where(own >= 0, np.cumsum(own >= 0) - 1, -1))


def on_modes(model: FlexibleModel, force: jax.Array) -> jax.Array:
    """A vector like `v` with forces on modes `(bodies, m, *batch)`, and zeros."""
    return take_rows(force.reshape(-1, *force.shape[2:]), _mode_of_velocity(model))


def _mode_of_velocity(model: FlexibleModel) -> np.ndarray:
    """For each entry of `v` which mode of all bodies it is, counted with padding, -1 for none."""
    table = model.places.modes_v
    which = np.full(model.nv, -1)
    which[table[table >= 0]] = np.flatnonzero(table.reshape(-1) >= 0)
    return which


def at_frames(model: FlexibleModel, s: Setup, parts: Parts):
    """Quantities of bodies at the frames of those that bend."""
    return take_rows(s.layout.body_order(parts), frames(model))


def frames(model: FlexibleModel) -> np.ndarray:
    return np.array([member.frame for member in model.members], dtype=int)


def on_frames(model: FlexibleModel, s: Setup, own) -> Parts:
    """Quantities at the frames of bodies that bend, zeros at all other bodies."""
    return on_bodies(model, s, frames(model), own)


def on_bodies(model: FlexibleModel, s: Setup, bodies: np.ndarray, own) -> Parts:
    """Quantities of some bodies, zeros at all others."""
    where = np.full(model.num_bodies, -1)
    where[bodies] = np.arange(len(bodies))
    # What is computed stays so: behind a look-up it would be computed for all bodies.
    full = jax.tree.map(lambda a: apart(jnp.broadcast_to(a, (a.shape[0], *s.batch))), own)
    return s.layout.split(take_rows(full, where))


def own_bodies(model: FlexibleModel) -> np.ndarray:
    """The bodies of the skeleton which are no places: those with joints of the model."""
    at = {body for m in model.members for body in (m.frame, *m.nodes)}
    return np.array([body for body in range(model.num_bodies) if body not in at], dtype=int)


def heavy_bodies(model: FlexibleModel) -> np.ndarray:
    """The rigid bodies: those of the skeleton which are no places, and the places to which some are welded."""
    light = {body for m in model.members for body in (m.held, m.frame, *m.nodes) if body not in m.loaded}
    return np.array([body for body in range(model.num_bodies) if body not in light], dtype=int)


def joined(a, b):
    """Rows of the one and of the other."""
    batch = jax.tree.leaves(a)[0].shape[1:]
    return jax.tree.map(lambda a, b: jnp.concatenate([a, jnp.broadcast_to(b, (len(b), *batch))]), a, b)


def added(a: Parts, b: Parts) -> Parts:
    return Parts(a.roots + b.roots, a.rows + b.rows)


class Inertias(NamedTuple):
    """Of the bodies that bend, in their frames, and of the rigid ones, in world axes."""

    bending: Modal
    rigid: Parts


def inertias_at(at: State, s: Setup, kin: Parts) -> Inertias:
    return Inertias(at.bodies.inertia(at.eta), world_inertias(s, kin))


class Moving(NamedTuple):
    """The forces of a motion of the skeleton."""

    setup: Setup
    kin: Parts
    forces: Parts
    """What all bodies need, those that bend at their frames, less the wrenches from outside."""
    modal: jax.Array
    """What modes need of their own, `(bodies, m, *batch)`."""
    inertias: Inertias


def moving(model: FlexibleModel, at: State, a, external, execution: str = "levels", *, rest: bool = False) -> Moving:
    """For accelerations `a`, zero if `None`; `rest` leaves out springs and dampers of modes."""
    tree, bodies = model.tree, at.bodies
    whole = at.drift if a is None else at.drift + expanded(model, bodies, at.columns, a)
    s = setup(tree, at.q, at.v, execution, stopped=rest)
    kin = kinematics(tree, s, at.v, whole, positions=True, accelerations=True, gravity=True)
    motion = Parts(*((k.rotation, k.velocity, k.acceleration) for k in kin))
    rotation, velocity, acceleration = at_frames(model, s, motion)
    velocity, acceleration = jax.tree.map(apart, (velocity.rotate_back(rotation), acceleration.rotate_back(rotation)))
    modes = None if a is None else bodies.modes(a, model.places.modes_v)
    bending, more, own = bodies.moving(at.eta, at.rate, velocity)
    force, modal = bending.momentum(acceleration, modes)
    elastic = jnp.zeros_like(modal) if rest else bodies.elastic(at.eta, at.rate)
    force = (force + more).rotate(rotation)
    heavy = heavy_bodies(model)
    rotation, velocity, acceleration = take_rows(s.layout.body_order(motion), heavy)
    inertia = take_rows(s.layout.body_order(s.constants).inertia, heavy).rotate(rotation)
    rigid = body_force(inertia, velocity, acceleration)
    forces = on_bodies(model, s, np.concatenate([frames(model), heavy]), joined(force, rigid))
    if external is not None:
        outside = external_forces(s, kin, external)
        forces = Parts(forces.roots - outside.roots, forces.rows - outside.rows)
    inertias = Inertias(bending, on_bodies(model, s, heavy, inertia))
    return Moving(s, kin, forces, apart(modal + own + elastic), inertias)


def inverse(model: FlexibleModel, q, v, a, external, *, rest: bool = False) -> jax.Array:
    """Forces for trailing batch axes: recursive Newton and Euler over the skeleton, `X^T tau`, and what modes need."""
    at = state(model, q, v)
    return needed(model, at, moving(model, at, a, external, rest=rest), a, rest=rest)


def needed(model: FlexibleModel, at: State, m: Moving, a: jax.Array | None, *, rest: bool = False) -> jax.Array:
    """The forces of freedoms for a motion of the skeleton."""
    tree = model.tree
    tau = project(tree, m.setup, m.kin, transmitted(m.setup, m.kin, m.forces))
    if not rest and a is not None:
        tau = tau + per_velocity(tree.armature, tau) * expanded(model, at.bodies, at.columns, a)
    tau = reduced(model, at.bodies, at.columns, tau) + on_modes(model, m.modal)
    return tau if rest else tau + passive(model, at)


def bending(model: FlexibleModel, own: Inertias, s: Setup, kin: Parts) -> Modal:
    """The inertia of the bodies that bend in world axes."""
    modal, (rotation,) = own.bending, at_frames(model, s, Parts(*((k.rotation,) for k in kin)))
    coupling = modal.coupling.rotate(jax.tree.map(lambda a: a[:, None], rotation))
    return Modal(jax.tree.map(apart, modal.inertia.rotate(rotation)), coupling, modal.mass)


def with_bending(model: FlexibleModel, at: State, s: Setup, kin: Parts) -> tuple[Modal, Parts]:
    """The same, and all bodies' inertia with its rigid part."""
    own = inertias_at(at, s, kin)
    modal = bending(model, own, s, kin)
    return modal, added(own.rigid, on_frames(model, s, modal.inertia))


def flat(tree, axes: int):
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[axes:]), tree)


def at_rest(model: FlexibleModel, q: jax.Array) -> tuple[State, Setup, Parts]:
    """A configuration: everything that does not depend on velocity."""
    at = state(model, q)
    s = setup(model.tree, at.q)
    return at, s, kinematics(model.tree, s, positions=True)
