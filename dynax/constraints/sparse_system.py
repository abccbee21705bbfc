"""The sparse-matrix method: all bodies and all joints at once, for any graph (Featherstone 2008, section 8.13).

    [I        P T_a A, P T] [ a     ]   [P T_a tau - p ]
    [T_a^T P^T   -1       ] [ qdd   ] = [0             ]        (eq. 8.64, with rotor inertias A)
    [T^T P^T            0 ] [-lambda]   [k             ]

A 6x6 block for each body and each joint, those of the tree and those that close loops alike. Blocks are eliminated in
an order made once from the graph, with the right side; nothing is ever formed that the order does not fill in. For
trees and for loops that follow one another, as in a ladder, the cost is O(n), where a spanning tree leaves O(n^2)
entries in the mass matrix.

Accelerations are those on top of velocities and gravity, as in `routes.handles`, so that the joints of the tree have
zeros on the right.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dynax.constraints.elimination import Plan, elimination
from dynax.constraints.ends import relative_motion
from dynax.constraints.independent import independent
from dynax.constraints.residual import rows_at
from dynax.constraints.rows import _closed
from dynax.constraints.rows import plan as row_plan
from dynax.linear.matrices import product, shifts, turned
from dynax.linear.solve import inverse as inverse_of
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.model.structure import Structure
from dynax.routes.handles import _turns, bodies, times
from dynax.spatial import Motion
from dynax.sweep import take_entries, take_rows
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import setup


class SparseMotion(NamedTuple):
    """What `sparse_constrained_dynamics` finds."""

    a: jax.Array
    """Accelerations, shape `(nv,)`."""
    multipliers: jax.Array
    """One per row of `constraint_residual`, shape `(nc,)`."""
    redundant: jax.Array
    """How many conditions repeat others, an integer: the rest holds only where it is zero."""


def system_plan(structure: Structure) -> Plan:
    """The order of elimination and the fill: `operations` counts products of 6x6 blocks."""
    tree = tuple((parent, body) for body, parent in enumerate(structure.topology.parents))
    return elimination(len(tree), tree + tuple((loop.predecessor, loop.successor) for loop in structure.loops))


class _Loops(NamedTuple):
    """Rows of all loops, padded to six, `(l, 6, 6)` by the motions of their bodies, and their right sides."""

    predecessor: jax.Array
    successor: jax.Array
    padding: jax.Array
    """Ones for rows that are none, `(l, 6)`."""
    right: jax.Array


def _loop_rows(model: Model, q: jax.Array, v: jax.Array, settle: jax.Array | None) -> _Loops:
    s = setup(model, q, v)
    kin = kinematics(model, s, v, positions=True, accelerations=True, gravity=True)
    ends, p, count = relative_motion(model, s, kin, moving=True), row_plan(model.structure), len(model.structure.loops)
    units = Motion.from_array(jnp.broadcast_to(jnp.eye(6, dtype=q.dtype), (count, 6, 6)))
    ends = ends._replace(columns=units)
    slopes, right = jnp.zeros((count, 6, 6), q.dtype), jnp.zeros((count, 6), q.dtype)
    padding = np.ones((count, 6))
    for closure, group in p.groups:
        parameters = model.loop_parameters.astype(q.dtype)
        own = take_entries(parameters, p.parameter[group], len(closure.parameters))
        found = _closed(closure, take_rows(ends, group), own, model.time.astype(q.dtype), None)
        residual, entries, rate, bias = (jnp.swapaxes(jnp.asarray(part), 0, 1) for part in found[:4])
        if settle is not None:
            bias = bias - 2.0 / settle * rate - residual / settle**2
        at = np.arange(closure.rows)
        slopes = slopes.at[group[:, None], at].set(entries)
        right = right.at[group[:, None], at].set(bias)
        padding[group[:, None], at] = 0.0
    assert ends.axes is not None
    assert ends.from_joints is not None
    turn = turned(_turns(ends.axes))
    below, above = (product(slopes, product(turn, shifts(offset))) for offset in ends.from_joints)
    return _Loops(below, above, jnp.asarray(padding, q.dtype), right)


def solve_blocks(plan: Plan, blocks: jax.Array, right: jax.Array) -> jax.Array:
    """The solution for a matrix stored by the slots of a plan, `(slots + 1, k, k)`, and a right side `(m + 1, k)`.

    The last of each is padding, zero.
    """
    scanned = jax.tree.map(jnp.asarray, (plan.order, plan.later, plan.left, plan.right, plan.pairs))
    diagonal = jnp.asarray(np.array([plan.slots[int(node), int(node)] for node in plan.order]))

    def eliminate(carry: tuple, row: tuple) -> tuple[tuple, tuple]:
        blocks, right = carry
        (node, later, left, across, pairs), own = row
        inverse = inverse_of(blocks[own])
        beside = blocks[across]
        factor = product(blocks[left], inverse)
        change = product(factor[:, None], beside[None])
        mine = right[node]
        carry = blocks.at[pairs].add(-change), right.at[later].add(-times(factor, mine))
        return carry, (inverse, beside, mine)

    _, (inverse, beside, mine) = lax.scan(eliminate, (blocks, right), (scanned, diagonal))

    def substitute(x: jax.Array, row: tuple) -> tuple[jax.Array, None]:
        node, later, inverse, beside, mine = row
        return x.at[node].set(times(inverse, mine - jnp.sum(times(beside, x[later]), axis=0))), None

    xs = (scanned[0], scanned[1], inverse, beside, mine)
    return lax.scan(substitute, jnp.zeros_like(right), xs, reverse=True)[0][:-1]


@jax.jit
def _sparse(model: Model, q, v, tau, external, settle) -> SparseMotion:
    structure, n, dtype = model.structure, model.num_bodies, q.dtype
    p, b = system_plan(structure), bodies(model, q, v, tau, external)
    parents, count = np.array(model.parents, dtype=int), len(structure.loops)
    blocks = jnp.zeros((len(p.slots) + 1, 6, 6), dtype)

    def put(blocks: jax.Array, rows: Any, columns: Any, values: jax.Array) -> jax.Array:
        """`values` at blocks of nodes, for those that are not the ground's."""
        known = [k for k, (i, j) in enumerate(zip(rows, columns, strict=True)) if i >= 0 and j >= 0]
        slots = np.array([p.slots[int(rows[k]), int(columns[k])] for k in known], dtype=int)
        return blocks.at[slots].add(values[np.array(known, dtype=int)])

    own, joint, eye = np.arange(n), n + np.arange(n), jnp.eye(6, dtype=dtype)
    # Rotor inertias stand in the columns alone, so that they may be zero.
    force, row = b.space.forces * b.space.armature[:, None, :], turned(b.space.forces)
    blocks = put(blocks, own, own, b.inertia)
    blocks = put(blocks, own, joint, product(turned(b.back), force))
    blocks = put(blocks, parents, joint, -force)
    blocks = put(blocks, joint, own, product(row, b.back))
    blocks = put(blocks, joint, parents, -row)
    blocks = put(blocks, joint, joint, -eye * b.space.free[:, None, :])
    right = jnp.zeros((2 * n + count + 1, 6), dtype).at[own].set(times(turned(b.back), b.active) - b.bias)
    carried = np.flatnonzero(parents >= 0)
    right = right.at[parents[carried]].add(-b.active[carried])
    if count:
        loops, node = _loop_rows(model, q, v, settle), 2 * n + np.arange(count)
        above = [loop.successor for loop in structure.loops]
        below = [loop.predecessor for loop in structure.loops]
        blocks = put(blocks, above, node, turned(loops.successor))
        blocks = put(blocks, below, node, -turned(loops.predecessor))
        blocks = put(blocks, node, above, loops.successor)
        blocks = put(blocks, node, below, -loops.predecessor)
        blocks = put(blocks, node, node, -eye * loops.padding[:, None, :])
        right = right.at[node].set(loops.right)
    x = solve_blocks(p, blocks, right)
    body, start = model.topology.body_of_velocity, model.topology.v_start
    a = x[n + body, np.arange(model.nv) - start[body]]
    rows = [(2 * n + k, i) for k, loop in enumerate(structure.loops) for i in range(loop.closure.rows)]
    at = np.array(rows, dtype=int).reshape(-1, 2)
    redundant = len(at) - independent(structure, rows_at(model, q)).rank
    return SparseMotion(a, -x[at[:, 0], at[:, 1]], redundant)


@for_models
def sparse_constrained_dynamics(
    model: Model, q: ArrayLike, v: ArrayLike, tau: ArrayLike, external: ArrayLike | None = None, *, settle=None
) -> SparseMotion:
    """What `constrained_dynamics` gives, from the sparse system of all bodies and joints.

    For mechanisms with many loops: the cost follows how they are connected, O(n) for trees and for ladders. It refuses
    what has no unique solution: conditions must not repeat each other (see `mobility`), and every body, or what it
    carries by its loops, needs an invertible inertia. Where conditions do repeat each other, `redundant` says so, and
    the accelerations are wrong. (To tell that takes more than O(n); under `jit` only where it is looked at.)

    **Arguments:** as for `constrained_dynamics`. Raises `ValueError` for a model with gears or conditions of the user's
    own.
    """
    if model.structure.couplings or model.structure.conditions:
        raise ValueError("the sparse method closes loops only: for gears and conditions use constrained_dynamics")
    q, v, tau, external = as_state(model, q=q, v=v, tau=tau, external=external)
    return _sparse(model, q, v, tau, external, None if settle is None else jnp.asarray(settle, q.dtype))
