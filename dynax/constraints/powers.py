"""The power of constraint forces along given rates, differentiated by the configuration without any walk.

    P(q, u) = sum of lambda . K(q) z + mu . (K(q) a - k(q, u))        lambda, z, mu, a stay

In the axes of a loop's successor frame the columns `J_j` of the freedoms on its path say everything. A displacement
along freedom `k` moves the pose by `J_k`, and turns each column that it carries otherwise than it carries the frame:

    dJ_j / dq_k = c_kj J_k x J_j        c_kj = s_k ([k carries j] - [k carries the successor])

with `s_k = -1` on the predecessor's branch. So the rates along `q` follow from those along the pose and the columns,
for columns that stand still in their bodies (screws and free bases).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.constraints.ends import Ends, loop_paths
from dynax.constraints.rows import moved, plan, stacked_error
from dynax.model import Model
from dynax.model.structure import Structure
from dynax.spatial import Force, Mat3, Motion, Vec3
from dynax.sweep import take_entries, take_rows
from dynax.tree.setup import lift


class Bent(NamedTuple):
    """Accelerations `a` at velocities `u` of the tree, and what `K a - k` is paired with."""

    multipliers: jax.Array
    a: jax.Array
    u: jax.Array


class Turns(NamedTuple):
    """Static numbers of the paths."""

    carries: np.ndarray
    """`c`, shape `(loops, w, w)`."""
    spread: np.ndarray
    """For each freedom of the tree the entries of all paths that are it, -1 for padding."""


def in_closed_form(structure: Structure) -> bool:
    """Whether the columns of the tree stand still in their bodies, and conditions depend on poses and `q` linearly."""
    gears = all(function is None for function in structure.coupling_functions)
    still = not any(loop.closure.rheonomic for loop in structure.loops)
    return structure.topology.all_screws and gears and still and not structure.conditions


@lru_cache(maxsize=256)
def _turns(structure: Structure) -> Turns:
    topology, paths = structure.topology, loop_paths(structure)
    known = paths.freedom >= 0
    body = topology.body_of_velocity[np.maximum(paths.freedom, 0)]
    carried = topology.support[body[:, None, :], body[:, :, None]].astype(float)
    carries = paths.sign[:, :, None] * (carried - (paths.sign > 0)[:, :, None]) * (known[:, :, None] & known[:, None])
    listed = [np.flatnonzero(paths.freedom.reshape(-1) == j) for j in range(topology.nv)]
    spread = np.full((topology.nv, max([1, *map(len, listed)])), -1)
    for row, own in zip(spread, listed, strict=True):
        row[: len(own)] = own
    return Turns(carries, spread)


class _Loops:
    """The loops of a model at one place, and how rates of its freedoms move their ends."""

    def __init__(self, model: Model, ends: Ends) -> None:
        self.structure, self.ends = model.structure, ends
        self.plan, self.freedom = plan(model.structure), loop_paths(model.structure).freedom
        self.batch, self.dtype = ends.translation.x.shape[1:], ends.translation.x.dtype
        own = len(self.batch), self.dtype
        self.parameters, self.time = lift(model.loop_parameters, 1, *own), lift(model.time, 0, *own)

    def on_paths(self, z: jax.Array) -> jax.Array:
        """Of the freedoms of each path, `(loops, w)`, from those of the tree."""
        return _picked(z, self.freedom)

    def turned(self, motions: Any) -> Any:
        """`sum_j c_kj` of what is given for each freedom `j` of the paths."""
        c = _turns(self.structure).carries
        c = jnp.asarray(c.reshape(*c.shape, *(1,) * len(self.batch)), self.dtype)
        return jax.tree.map(lambda a: jnp.sum(c * a[:, None], axis=2), motions)

    def changes(self, columns: Motion, z: jax.Array, along: jax.Array) -> Motion:
        """How the motion at rates `z` changes along others; both `(loops, w)`."""
        return _total(columns.cross(self.turned(columns * z)), along)

    def groups(self) -> Iterator[tuple[np.ndarray, np.ndarray, Callable[..., jax.Array]]]:
        """For each kind of closure the loops, their rows, and the rate of the error as a function
        `(rotation, translation, twist)`."""
        for closure, group in self.plan.groups:
            shape = (len(group), *self.batch)
            parameters = take_entries(self.parameters, self.plan.parameter[group], len(closure.parameters))
            error, now = stacked_error(closure, parameters, shape), jnp.broadcast_to(self.time, shape)

            def rate(rotation: Mat3, translation: Vec3, twist: Motion, error=error, now=now) -> jax.Array:
                pose, along = (rotation, translation), moved(rotation, twist)
                return jax.jvp(lambda *pose: error(*pose, now), pose, along)[1]

            yield group, self.plan.start[group][None] + np.arange(closure.rows)[:, None], rate


def _picked(z: jax.Array, index: np.ndarray) -> jax.Array:
    return take_rows(z, index.reshape(-1)).reshape(*index.shape, *z.shape[1:])


def _total(motions: Any, rates: jax.Array) -> Motion:
    return jax.tree.map(lambda c: jnp.sum(c * rates, axis=1), motions)


def _along(rate: Callable, pose: tuple, by: Motion, twist: Motion) -> jax.Array:
    """How a rate of the error at a twist that stays changes as the pose moves."""
    return jax.jvp(lambda *pose: rate(*pose, twist), pose, moved(pose[0], by))[1]


def rate_change(model: Model, ends: Ends, z: jax.Array, dq: jax.Array) -> jax.Array:
    """`d(K z)` along the tangent `dq` for rates `z` that stay, shape `(nc, *batch)`."""
    loops = _Loops(model, ends)
    columns, rates, along = ends.columns, loops.on_paths(z), loops.on_paths(dq)
    twist, by, change = _total(columns, rates), _total(columns, along), loops.changes(columns, rates, along)
    found, order = [jnp.zeros((1, *loops.batch), loops.dtype)], np.full(loops.plan.start[-1], -1)
    for group, rows, rate in loops.groups():
        rotation, translation = take_rows((ends.rotation, ends.translation), group)
        own = _along(rate, (rotation, translation), take_rows(by, group), take_rows(twist, group))
        own = own + rate(rotation, translation, take_rows(change, group))
        order[rows.reshape(-1)] = sum(map(len, found)) + np.arange(rows.size)
        found.append(own.reshape(rows.size, *loops.batch))
    return take_rows(jnp.concatenate(found), np.maximum(order, 0))


def power_slopes(
    model: Model, ends: Ends, pairs: Sequence[tuple[jax.Array, jax.Array]], bent: Bent | None = None
) -> tuple[jax.Array, jax.Array | None]:
    """The rates of `P` along the tangent of `q` and along `u`, each `(nv, *batch)`.

    **Arguments:** `ends`: of the loops at `q`; `pairs`: of `lambda` and `z`, shapes `(nc, *batch)` and `(nv, *batch)`;
    gears, whose rows do not change, have entries in `lambda` all the same.
    """
    loops = _Loops(model, ends)

    def power(rotation: Mat3, translation: Vec3, columns: Motion, rates: jax.Array | None) -> jax.Array:
        along = [(multipliers, _total(columns, loops.on_paths(z))) for multipliers, z in pairs]
        twist = None
        if bent is not None:
            assert rates is not None
            twist, bias = _total(columns, rates), loops.changes(columns, rates, rates)
            along.append((bent.multipliers, _total(columns, loops.on_paths(bent.a)) + bias))
        found = jnp.zeros(loops.batch, loops.dtype)
        for group, rows, rate in loops.groups():
            pose = take_rows((rotation, translation), group)
            for multipliers, motion in along:
                own = _picked(multipliers, rows) * rate(*pose, take_rows(motion, group))
                found = found + jnp.sum(own, axis=(0, 1))
            if bent is not None and twist is not None:
                own = take_rows(twist, group)
                second = _picked(bent.multipliers, rows) * _along(rate, pose, own, own)
                found = found + jnp.sum(second, axis=(0, 1))
        return found

    columns, rates = ends.columns, None if bent is None else loops.on_paths(bent.u)
    value, pull = jax.vjp(power, ends.rotation, ends.translation, columns, rates)
    by_rotation, by_translation, by_columns, by_rates = pull(jnp.ones_like(value))
    turn = sum(
        (b.cross(r) for b, r in zip(by_rotation.rows, ends.rotation.rows, strict=True)), Vec3.zero(ends.translation.x)
    )
    pose = Force(turn, ends.rotation.transpose_apply(by_translation))
    pushed = loops.turned(columns.cross(Force(by_columns.angular, by_columns.linear)))
    along_q = columns.dot(jax.tree.map(lambda a, b: a[:, None] + b, pose, pushed))

    def spread(entries: jax.Array) -> jax.Array:
        flat = entries.reshape(-1, *entries.shape[2:])
        return jnp.sum(_picked(flat, _turns(model.structure).spread), axis=1)

    return spread(along_q), None if by_rates is None else spread(by_rates)
