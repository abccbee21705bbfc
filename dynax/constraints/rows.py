"""All conditions of a model in one system: loops, then gears, then the user's own.

    phi(q) = 0        K v = -dphi/dt        K a = k            (Featherstone 2008, eqs. 3.11, 8.4, 8.14 to 8.20)

A loop's row is a function of the pose of one frame in another, differentiated along their relative motion, so that `K`
and `k` are exactly the first and second derivatives of what `phi` is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.fence import fenced
from dynax.constraints.ends import Ends, in_motion, loop_paths, relative_motion
from dynax.joints import AbstractClosure
from dynax.model import Model
from dynax.model.configuration import rate_rows
from dynax.model.flexible import FlexibleModel
from dynax.model.structure import Condition, Structure
from dynax.spatial import Mat3, Motion, Vec3
from dynax.sweep import take_entries, take_rows
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, lift


class Rows(NamedTuple):
    """The conditions at one state; batch axes trail."""

    residual: jax.Array
    """`phi`, shape `(nc,)`."""
    matrix: jax.Array
    """`K`, shape `(nc, nv)`."""
    rate: jax.Array | None
    """`dphi/dt` along `v`, shape `(nc,)`; it vanishes where the velocity is admissible."""
    bias: jax.Array | None
    """`k`, shape `(nc,)`."""
    entries: jax.Array | None = None
    """The entries of `K` that may not be zero, in a list; `Plan.entry` tells which is where."""
    weights: jax.Array | None = None
    """By what rows count when they are compared, shape `(nc,)`: one over what joints could do to each of them, were all
    directions along it. Turns and shifts, in large and in small mechanisms, are then of the order of one."""
    places: tuple[Ends, list[jax.Array]] | None = None
    """Of the loops: their ends, and for each kind of closure how an error changes as the ends move."""


class Plan(NamedTuple):
    """Where the rows of each kind stand: static."""

    groups: tuple[tuple[AbstractClosure, np.ndarray], ...]
    """Closures and the loops they close."""
    start: np.ndarray
    """The first row of each loop, then the first gear's, then of each condition, then the end."""
    parameter: np.ndarray
    """Where each loop's parameters begin."""
    entry: np.ndarray
    """For each row and each freedom, where its entry stands in what they list, a zero if it always is; `(nc, nv)`."""
    names: dict[str, slice]
    zero: int
    """Where the zero stands among what is listed."""


@lru_cache(maxsize=256)
def plan(structure: Structure) -> Plan:
    topology, loops = structure.topology, structure.loops
    sizes = [loop.closure.rows for loop in loops] + [1] * len(structure.couplings)
    sizes += [condition.size for condition in structure.conditions]
    start = np.cumsum([0, *sizes])
    names = [loop.name for loop in loops] + [gear[0] for gear in structure.couplings]
    names += [condition.name for condition in structure.conditions]
    groups: dict[AbstractClosure, list[int]] = {}
    for k, loop in enumerate(loops):
        groups.setdefault(loop.closure, []).append(k)
    members = tuple((closure, np.array(group)) for closure, group in groups.items())
    simple = int(start[len(loops) + len(structure.couplings)])
    entry, count, paths = np.full((simple, topology.nv), -1), 0, loop_paths(structure).freedom
    for closure, group in members:
        # Entries are listed as (row, loop, freedom of the path).
        own = np.arange(closure.rows * len(group) * paths.shape[1]).reshape(closure.rows, len(group), -1) + count
        for i, k in enumerate(group):
            known = paths[k] >= 0
            for row in range(closure.rows):
                entry[start[k] + row, paths[k][known]] = own[row, i, known]
        count += own.size
    for k, gear in enumerate(structure.couplings):
        for joint in gear:
            freedom = topology.v_start[structure.joint_index[joint]]
            entry[start[len(loops) + k], freedom] = count
            count += 1
    parameter = np.cumsum([0, *(len(loop.closure.parameters) for loop in loops)])
    # The user's conditions list every entry, behind the zero.
    rest = count + 1 + np.arange((int(start[-1]) - simple) * topology.nv).reshape(-1, topology.nv)
    entry = np.concatenate([np.where(entry < 0, count, entry), rest])
    rows = {name: slice(int(a), int(b)) for name, a, b in zip(names, start[:-1], start[1:], strict=True)}
    return Plan(members, start, parameter, entry, rows, count)


def constraint_rows(model: Model, s: Setup, kin: Parts, v: jax.Array | None = None, *, at: Rows | None = None) -> Rows:
    """The rows for trailing batch axes; with `v`, `kin` must have velocities, and accelerations with gravity; `at` are
    the rows of the same places, if they are known."""
    p, structure = plan(model.structure), model.structure
    batch, dtype, places = s.batch, s.dtype, None
    residual, rate, bias, entries, sizes = [], [], [], [], []
    if structure.loops:
        if at is None or at.places is None:
            ends, slopes = fenced(relative_motion(model, s, kin, moving=v is not None), batch), [None] * len(p.groups)
        else:
            ends, slopes = at.places
            new = in_motion(model, s, kin, ends)
            ends = ends._replace(**fenced({"velocity": new.velocity, "bias": new.bias}, batch))
        parameters = lift(model.loop_parameters, 1, len(batch), dtype)
        order, used = [], []
        for (closure, group), slope in zip(p.groups, slopes, strict=True):
            own = take_entries(parameters, p.parameter[group], len(closure.parameters))
            found = _closed(closure, take_rows(ends, group), own, lift(model.time, 0, len(batch), dtype), slope)
            for parts, values in zip((residual, entries, rate, bias, sizes, used), found, strict=True):
                parts.append(values)
            order.append(p.start[group][None] + np.arange(closure.rows)[:, None])
        back = np.argsort(np.concatenate([o.reshape(-1) for o in order]))
        residual, rate, bias, sizes = ([take_rows(_flat(parts, batch), back)] if parts[0] is not None else []
                                       for parts in (residual, rate, bias, sizes))  # fmt: skip
        entries, places = [_flat(entries, batch)], (ends, used)
    ratio_at = 0
    ratio = lift(model.coupling_ratio, 1, len(batch), dtype)
    offset = lift(model.coupling_offset, 1, len(batch), dtype)
    for k, (gear, function) in enumerate(zip(structure.couplings, structure.coupling_functions, strict=True)):
        count = len(gear) - 1 if function is None else 1
        own = _gear(model, s.q, v, gear, function, ratio[ratio_at : ratio_at + count])
        ratio_at += count
        residual.append((own.residual - offset[k])[None])
        entries.append(own.matrix)
        sizes.append(_longest(own.matrix[None]))
        if own.rate is not None and own.bias is not None:
            rate.append(own.rate[None])
            bias.append(own.bias[None])
    entries.append(jnp.zeros((1, *batch), dtype))
    for condition in structure.conditions:
        own = condition_rows(model, condition, s.q, v)
        residual.append(own.residual)
        entries.append(own.matrix)
        assert own.weights is not None
        sizes.append(1.0 / own.weights)
        if own.rate is not None and own.bias is not None:
            rate.append(own.rate)
            bias.append(own.bias)
    none = jnp.zeros((0, *batch), dtype)

    def joined(parts: list) -> jax.Array:
        return jnp.concatenate([jnp.broadcast_to(x, (x.shape[0], *batch)) for x in parts]) if parts else none

    moving = v is not None
    listed = _flat(entries, batch)
    rates = (joined(rate), joined(bias)) if moving else (None, None)
    return Rows(joined(residual), take_rows(listed, p.entry), *rates, listed, 1.0 / joined(sizes), places)


def accelerated(structure: Structure, rows: Rows, a: jax.Array) -> Rows:
    """Rows whose bias is what is missing of `K a`, where loops have been seen to accelerate by `a` and gears and
    conditions have not."""
    first = int(plan(structure).start[len(structure.loops)])
    assert rows.bias is not None
    if first == len(rows.bias):
        return rows
    along = jnp.sum(rows.matrix[first:] * a[None], axis=1)
    return rows._replace(bias=jnp.concatenate([rows.bias[:first], rows.bias[first:] - along]))


def _longest(rows: jax.Array) -> jax.Array:
    """How large gears and conditions of the user's own are, in their own units: nothing else is known of them."""
    return jnp.maximum(jnp.max(jnp.abs(lax.stop_gradient(rows)), axis=1), 1.0)


def _flat(parts: list, batch: tuple[int, ...]) -> jax.Array:
    sizes = [int(np.prod(x.shape[: x.ndim - len(batch)])) for x in parts]
    return jnp.concatenate([jnp.broadcast_to(x.reshape(n, *x.shape[x.ndim - len(batch):]), (n, *batch))
                            for x, n in zip(parts, sizes, strict=True)])  # fmt: skip


def _closed(closure: AbstractClosure, ends: Ends, parameters: tuple, time: jax.Array, slope: jax.Array | None):
    """Residual `(rows, loops)`, entries `(rows, loops, w)`, if the ends move the rate and the bias, how large the
    entries of each row could be, and `slope`, the residual's by the ends' motion, `(6, rows, loops)`, if not known."""
    shape = ends.rotation.xx.shape
    error = stacked_error(closure, parameters, shape)

    now = jnp.broadcast_to(time, shape)
    tick = jnp.full(shape, float(closure.rheonomic), now.dtype)
    at = ends.rotation, ends.translation, now

    def along(unit: jax.Array) -> jax.Array:
        twist = Motion(Vec3(*unit[:3]), Vec3(*unit[3:]))
        return jax.jvp(error, at, (*moved(ends.rotation, twist), jnp.zeros_like(now)))[1]

    if slope is None:
        units = jnp.broadcast_to(jnp.eye(6, dtype=now.dtype).reshape(6, 6, *(1,) * len(shape)), (6, 6, *shape))
        slope = jax.vmap(along)(units)
    columns = _six(ends.columns)  # (6, loops, w)
    entries = sum(slope[k][:, :, None] * columns[k][None] for k in range(6))
    residual = error(*at)
    turning, shifting = (_longest_of(lax.stop_gradient(columns[k : k + 3])) for k in (0, 3))
    angular, linear = (_length(lax.stop_gradient(slope[k : k + 3])) for k in (0, 3))
    possible = angular * turning + linear * shifting
    size = jnp.where(possible > 0.0, possible, 1.0)
    if ends.velocity is None or ends.bias is None:
        return residual, entries, None, None, size, slope
    twist = ends.velocity

    def rate(rotation: Mat3, translation: Vec3, now: jax.Array) -> jax.Array:
        return jax.jvp(error, (rotation, translation, now), (*moved(rotation, twist), tick))[1]

    first, second = jax.jvp(rate, at, (*moved(ends.rotation, twist), tick))
    acceleration = _six(ends.bias)
    second = second + sum(slope[k] * acceleration[k][None] for k in range(6))
    return residual, entries, first, -second, size, slope


def stacked_error(closure: AbstractClosure, parameters: tuple, shape: tuple[int, ...]) -> Callable[..., jax.Array]:
    """The closure's error as a function `(rotation, translation, time)`, shape `(rows, *shape)`."""

    def error(rotation: Mat3, translation: Vec3, time: jax.Array) -> jax.Array:
        found = closure.error(rotation, translation, parameters, time)
        return jnp.stack([jnp.broadcast_to(x, shape) for x in found])

    return error


def moved(rotation: Mat3, twist: Motion) -> tuple[Mat3, Vec3]:
    """The rates of a pose that moves by `twist`, which is in its own axes about its origin."""
    x, y, z = (row.cross(twist.angular) for row in rotation.rows)
    return Mat3(x.x, x.y, x.z, y.x, y.y, y.z, z.x, z.y, z.z), rotation @ twist.linear


def _length(parts) -> jax.Array:
    return jnp.sqrt(sum(x * x for x in parts))


def _longest_of(columns) -> jax.Array:
    """Of the columns `(loops, w)` of each loop, for each of its rows."""
    return jnp.max(_length(columns), axis=1)[None]


def _six(motion: Motion) -> list:
    a, b = motion.angular, motion.linear
    return [a.x, a.y, a.z, b.x, b.y, b.z]


def _gear(model: Model, q: jax.Array, v: jax.Array | None, gear: tuple[str, ...], function, ratio: jax.Array) -> Rows:
    """`q_f - ratio * function(q_s)`: a scalar, its slopes by each joint of the gear, rate and bias."""
    index = [model.joint_index(joint) for joint in gear]
    follower, *sources = (q[model.topology.q_start[k]] for k in index)
    if not sources:  # a joint that is held
        rate = None if v is None else v[model.topology.v_start[index[0]]]
        return Rows(follower, jnp.ones_like(follower)[None], rate, None if rate is None else jnp.zeros_like(rate))

    def driven(*sources: jax.Array) -> jax.Array:
        if function is None:
            return sum((r * x for r, x in zip(ratio, sources, strict=True)), jnp.zeros_like(sources[0]))
        return ratio[0] * jnp.vectorize(function)(*sources)

    slopes = jax.vmap(lambda unit: jax.jvp(driven, tuple(sources), tuple(unit))[1])(_units(sources))
    matrix = jnp.concatenate([jnp.ones_like(slopes[:1]), -slopes])
    residual = follower - driven(*sources)
    if v is None:
        return Rows(residual, matrix, None, None)
    own, *rates = (v[model.topology.v_start[k]] for k in index)
    rates = tuple(rates)
    first, second = jax.jvp(lambda *x: jax.jvp(driven, x, rates)[1], tuple(sources), rates)
    return Rows(residual, matrix, own - first, second)


def _units(like: list) -> jax.Array:
    eye = jnp.eye(len(like), dtype=like[0].dtype)
    return jnp.broadcast_to(eye.reshape(*eye.shape, *(1,) * like[0].ndim), (*eye.shape, *like[0].shape))


def condition_rows(model: Model | FlexibleModel, condition: Condition, q: jax.Array, v: jax.Array | None) -> Rows:
    """A user's own condition, whose function takes one sample."""
    if q.ndim > 1:
        size = q.shape[-1]

        def whole(leaf: jax.Array) -> jax.Array:
            return jnp.broadcast_to(leaf, (*leaf.shape[:-1], size))

        # Leaves have as many batch axes as the state, of length one where they are the same for all.
        plain = jax.tree.map(whole, model) if model.gravity.ndim == q.ndim else model
        axes = -1 if model.gravity.ndim == q.ndim else None
        return jax.vmap(lambda m, *x: condition_rows(m, condition, *x), in_axes=(axes, -1, None if v is None else -1),
                        out_axes=-1)(plain, q, v)  # fmt: skip

    def value(q: jax.Array, time: jax.Array) -> jax.Array:
        found = jnp.asarray(condition.function(model.replace(time=time), q))
        if found.shape not in ((condition.size,), () if condition.size == 1 else (condition.size,)):
            raise ValueError(f"condition {condition.name!r} gave shape {found.shape}, expected ({condition.size},)")
        return found.reshape(condition.size).astype(q.dtype)

    now = model.time.astype(q.dtype)
    still, tick = jnp.zeros_like(now), jnp.ones_like(now)

    def along(unit: jax.Array) -> jax.Array:
        return jax.jvp(value, (q, now), (rate_rows(model, q, unit), still))[1]

    matrix = jax.vmap(along, out_axes=1)(jnp.eye(model.nv, dtype=q.dtype))
    weights = 1.0 / _longest(matrix)
    if v is None:
        return Rows(value(q, now), matrix, None, None, None, weights)

    def rate(q: jax.Array, now: jax.Array) -> jax.Array:
        return jax.jvp(value, (q, now), (rate_rows(model, q, v), tick))[1]

    first, second = jax.jvp(rate, (q, now), (rate_rows(model, q, v), tick))
    return Rows(value(q, now), matrix, first, -second, None, weights)


def names(structure: Structure) -> dict[str, slice]:
    """The rows of each loop, gear (by the joint that follows) and condition."""
    return plan(structure).names
