"""The nodes of an embedded model (Jain, EMBED-ABA, eqs. 50 to 57), and forward dynamics by the recursion over them.

A node is some bodies that move together. Each is a port: with respect to the body that carries the node, member `m`
moves by `U_m x` for the node's independent velocities `x`, and by `b_m` when none of them accelerates.

Arrays have the axes of the batch last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.articulated import Tree, recursion
from dynax.algorithms.factor import Factor
from dynax.algorithms.frames import root_offsets
from dynax.algorithms.mean_velocity import Place as Spot
from dynax.algorithms.mean_velocity import place
from dynax.algorithms.rnea import project, transmitted
from dynax.bodies.base import free_bases
from dynax.bodies.node import Node
from dynax.constraints.residual import rows_at
from dynax.constraints.rows import Rows, constraint_rows
from dynax.embedding.coefficients import (
    Chart,
    Elimination,
    Embedding,
    NodePlan,
    NodeRows,
    coefficients,
    dependents,
    elimination,
    expanded,
    pick,
    plan_of,
    reduced,
)
from dynax.model import Model
from dynax.model.flexible import FlexibleModel, skeleton_of
from dynax.model.kinds import for_models
from dynax.model.structure import Structure
from dynax.spatial import Motion, Vec3
from dynax.sweep import take_rows
from dynax.sweep.sums import summed
from dynax.tree.bodies import net_forces, passive_force, per_velocity, world_inertias
from dynax.tree.freedoms import freedoms
from dynax.tree.kinematics import kinematics, moved
from dynax.tree.layout import Parts
from dynax.tree.nodes import Load
from dynax.tree.setup import Setup, setup


class Coordinates(NamedTuple):
    """How the tree moves with the embedded velocities at a configuration."""

    plan: NodePlan
    x: jax.Array
    """`X` by freedom of the tree and place, `(nv, r)`."""
    elimination: Elimination


def coordinates(rows: Rows, p: NodePlan, chart: Chart | None = None) -> Coordinates:
    """From the conditions at a configuration."""
    entries = rows.entries
    assert entries is not None
    solved = elimination(p, entries, chart and chart.columns)
    return Coordinates(p, coefficients(p, solved, entries), solved)


class Place(NamedTuple):
    """A configuration: everything that does not depend on velocity."""

    coordinates: Coordinates
    moving: Motion
    """Each freedom of a member's path, at the member's joint, axes (row, member, freedom of the path)."""
    tree: Tree


@for_models
def at(
    model: Model, q: jax.Array, embedding: Embedding, execution: str = "levels", chart: Chart | None = None
) -> Place:
    """The nodes of the embedded model at `q`: their ports are the members. `"automatic"`: by the walk over the bodies
    that is best in one kernel, the nodes by levels."""
    p = plan_of(model, embedding, "levels" if execution == "automatic" else execution)
    s = setup(model, q, execution=execution)
    kin = kinematics(model, s, positions=True)
    c = coordinates(constraint_rows(model, s, kin), p, chart)
    return Place(c, *placed(model, s, kin, p.rows, c.x, world_inertias(s, kin)))


def placed(model: Model, s: Setup, kin: Parts, p: NodeRows, x: jax.Array, inertias: Parts) -> tuple[Motion, Tree]:
    """How freedoms move the members of their nodes, and the tree of nodes, for `X` by freedom and place."""
    position = s.layout.body_order(Parts(kin.roots.position, kin.rows.position))
    places = position, root_offsets(model, s)
    above = jax.tree.map(_with_zero(s), places)
    rows, tree = freedoms(model, s, kin), model.topology.body_of_velocity
    column, joint = pick((rows.column, (rows.position, take_rows(places[1], tree))), p.path)
    member, carrier = pick(places, p.body), take_rows(above, p.carrier % (model.num_bodies + 1))
    moving = column.shift(_offset(jax.tree.map(lambda a: a[:, :, None], member), joint))
    weights = pick(x, p.path)
    columns = summed(jax.tree.map(lambda a: a[:, :, :, None] * weights, moving), 2)
    held = _static(p.body >= 0, s)
    offset = _offset(member, jax.tree.map(lambda a: a[:, None], carrier)) * held
    inertia = pick(s.layout.body_order(inertias), p.body)
    rotor = per_velocity(model.armature, jnp.zeros((model.nv, *s.batch), s.dtype))
    own, along = pick(x, p.freedom), pick(rotor, p.freedom)
    reflected = summed((own * along[:, :, None])[:, :, :, None] * own[:, :, None])
    unit = _static((p.velocity < 0)[:, :, None] * np.eye(p.velocity.shape[1]), s)
    nodes = Node(offset, columns, reflected + unit, _static(p.port, s))
    which = np.searchsorted(model.topology.free_roots, np.array(p.tree.bases, dtype=int))
    return moving, Tree(p.order, nodes, inertia, free_bases(model, s, inertias, which))


def _static(known: np.ndarray, s: Setup) -> jax.Array:
    """A known array with axes of length one for the batch."""
    return jnp.asarray(known.reshape(*known.shape, *(1,) * len(s.batch)), s.dtype)


def _with_zero(s: Setup):
    """With a row for the world."""
    return lambda a: jnp.concatenate([jnp.broadcast_to(a, (len(a), *s.batch)), jnp.zeros((1, *s.batch), s.dtype)])


def _offset(end: tuple[Vec3, Vec3], start: tuple[Vec3, Vec3]) -> Vec3:
    """Between places `(position in the tree, of the tree)`: the two differ separately, so that no digits are lost."""
    return (end[0] - start[0]) + (end[1] - start[1])


def tree_velocity(model: Model | FlexibleModel, q: jax.Array, c: Coordinates, v: jax.Array) -> jax.Array:
    """The tree's velocities `X v + x_0`; `x_0` is what conditions that depend on time ask for."""
    plain = expanded(c.plan, c.x, v)
    if not rheonomic(skeleton_of(model).structure):
        return plain
    rate = rows_at(model, q, plain).rate
    assert rate is not None
    return plain - dependents(c.plan, c.elimination, rate)


def rheonomic(structure: Structure) -> bool:
    """Whether a condition may depend on time: one closed by a driven joint, or a user's own."""
    return bool(structure.conditions) or any(loop.closure.rheonomic for loop in structure.loops)


class State(NamedTuple):
    """The tree at the velocity that the embedded one gives it, each pose and each column computed once."""

    coordinates: Coordinates
    spot: Spot
    """What the configuration decides by itself, with positions."""
    setup: Setup
    kin: Parts
    """The same in motion, with the bias accelerations of the tree."""
    v: jax.Array
    drift: jax.Array
    """`Xdot y` (and the rate of `x_0`): the tree's accelerations while the independent velocities stay, `(nv,)`."""
    conditions: Rows
    """Of the configuration alone, with the places of the loops' ends."""


class Moving(NamedTuple):
    """The tree's motion, without the nodes."""

    coordinates: Coordinates
    v: jax.Array
    drift: jax.Array
    """As in `State`."""


@for_models
def motion_of(model: Model, q: jax.Array, v: jax.Array, embedding: Embedding, chart: Chart | None = None) -> Moving:
    """From embedded velocities."""
    found = in_motion(model, q, v, plan_of(model, embedding), chart, "levels")
    return Moving(found.coordinates, found.v, found.drift)


def in_motion(model: Model, q: jax.Array, v: jax.Array, p: NodePlan, chart: Chart | None, execution: str) -> State:
    """From embedded velocities."""
    spot = place(model, q, execution, positions=True)
    at = constraint_rows(model, spot.setup, spot.kin)
    c = coordinates(at, p, chart)
    whole = expanded(c.plan, c.x, v)
    if rheonomic(model.structure):
        rate = constraint_rows(model, *spot.moving(model, whole), whole, at=at).rate
        assert rate is not None
        whole = whole - dependents(c.plan, c.elimination, rate)
    s, kin = spot.moving(model, whole)
    bias = constraint_rows(model, s, kin, whole, at=at).bias
    assert bias is not None
    return State(c, spot, s, kin, whole, dependents(c.plan, c.elimination, bias), at)


class Resisted(NamedTuple):
    """Forces `force + slope u` against the joints of the tree, for the velocities `u` that these have at the embedded
    `v`: in a step, those of its beginning, whatever the velocity at which accelerations are asked for."""

    v: jax.Array
    slope: jax.Array
    """Shape `(tree nv,)`."""
    force: jax.Array

    def against(self, p: NodePlan, x: jax.Array, whole: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The forces, and `u`, where the tree moves by `whole` at the embedded `v`."""
        u = whole + expanded(p, x, self.v - v)
        return self.force + self.slope * u, u


@for_models
def solved(
    model: Model, q, v, tau, external, embedding: Embedding, execution: str = "levels", chart: Chart | None = None
) -> tuple[jax.Array, Factor]:
    """Embedded accelerations and the factor of the mass matrix, for trailing batch axes; `q` is the tree's
    configuration, `v` and `tau` are embedded."""
    found = moved_by(model, q, v, tau, external, embedding, execution, chart)
    return found.a, found.factor


class MovedBy(NamedTuple):
    """What forces do to an embedded model."""

    a: jax.Array
    factor: Factor
    whole: jax.Array
    """The accelerations of the tree, `X a + Xdot v`."""
    u: jax.Array
    """The velocities of the tree that resistance is against; without any, those of the motion."""


def moved_by(
    model: Model,
    q,
    v,
    tau,
    external,
    embedding: Embedding,
    execution: str = "levels",
    chart: Chart | None = None,
    resisted: Resisted | None = None,
) -> MovedBy:
    """Forward dynamics, for trailing batch axes."""
    x = in_motion(model, q, v, plan_of(model, embedding, execution), chart, execution)
    return moved_in(model, x, q, v, tau, external, chart, resisted)


def moved_in(
    model: Model, x: State, q, v, tau, external, chart: Chart | None = None, resisted: Resisted | None = None
) -> MovedBy:
    """The same where the motion is known."""
    c, spot, s, kin, whole, drift, _ = x
    moving, tree = placed(model, spot.setup, spot.kin, c.plan.rows, c.x, spot.inertias)
    rows = c.plan.rows
    forces = s.layout.body_order(net_forces(s, kin, spot.inertias, external))
    along = pick(drift, rows.path)
    bias = jax.tree.map(lambda a: summed(a * along, 2), moving)
    needed, u = passive_force(model, q, whole) + per_velocity(model.armature, drift) * drift, whole
    if resisted is not None:
        against, u = resisted.against(c.plan, c.x, whole, v)
        needed = needed + against
    rest = tau - reduced(c.plan, c.x, needed if chart is None else needed - chart.force)
    on_bases = take_rows(forces, np.array(rows.tree.bases, dtype=int))
    found = recursion(tree, Load(pick(forces, rows.body), bias=bias), on_bases, rest)
    factor = Factor(tree.order, tree.bases.rotation, tree.nodes, found.gains, found.roots)
    return MovedBy(found.a, factor, drift + expanded(c.plan, c.x, found.a), u)


@for_models
def inverse(
    model: Model,
    q,
    v,
    a,
    external,
    embedding: Embedding,
    chart: Chart | None = None,
    execution: str = "automatic",
    resisted: Resisted | None = None,
) -> jax.Array:
    """Embedded forces for trailing batch axes: those of the tree at its motion, `X^T tau`."""
    c, spot, s, kin, tree_v, drift, _ = in_motion(model, q, v, plan_of(model, embedding), chart, execution)
    whole = drift if a is None else drift + expanded(c.plan, c.x, a)
    change = moved(model, s, kin, whole)
    kin = Parts(*(k._replace(acceleration=k.acceleration + d) for k, d in zip(kin, change, strict=True)))
    forces = transmitted(s, kin, net_forces(s, kin, spot.inertias, external))
    needed = project(model, s, kin, forces) + passive_force(model, q, tree_v)
    needed = needed + per_velocity(model.armature, whole) * whole
    if resisted is not None:
        needed = needed + resisted.against(c.plan, c.x, tree_v, v)[0]
    return reduced(c.plan, c.x, needed if chart is None else needed - chart.force)
