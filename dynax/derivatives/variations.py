"""How a joint's own motion changes with its own coordinates and rates: what no other joint can know.

With `S v + sigma` the joint velocity and `S a + b` the joint acceleration in successor axes, along each freedom `j`:

    e_j = d(S v + sigma)/dq_j      g_j = d(S a + b)/dq_j      beta_j = db/dv_j      (dS_i/dq_j) . F

Derivatives along `q` are along the tangent that `integrate` follows. They vanish where columns are fixed in the
successor, as for every screw and for the ball.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.model import Model
from dynax.spatial import Force, Mat3, Motion
from dynax.sweep import take_entries, take_rows
from dynax.tree.setup import Setup, lift


class Variations(NamedTuple):
    """Per freedom in the order of `v`, world axes about its joint."""

    velocity: Motion
    """`e`"""
    acceleration: Motion
    """`g`"""
    bias: Motion
    """`beta`"""
    force: jax.Array
    """`(dS_i/dq_j) . F` at `[i, k]`, `j` the `k`-th freedom of the joint of `i`; shape `(nv, k, *batch)`."""


def variations(model: Model, s: Setup, v: jax.Array, a: jax.Array, rotation: Mat3, force: Force) -> Variations | None:
    """The variations of all joints, or `None` where they all vanish.

    `rotation` and `force` (on the successor, world axes about the joint) are given per freedom.
    """
    topology = model.topology
    joints = [(kind, bodies) for kind, bodies, _ in s.motions if kind.nv and kind.screw is None]
    if not joints:
        return None
    own = force.rotate_back(rotation)
    parameters, time = (lift(x, n, len(s.batch), s.dtype) for x, n in ((model.joint_parameters, 1), (model.time, 0)))
    motions, products = [], []
    for kind, bodies in joints:
        start = topology.v_start[bodies]
        q = take_entries(s.q, topology.q_start[bodies], kind.nq)
        rates, ups = (tuple(x[start + k] for k in range(kind.nv)) for x in (v, a))
        constants = take_entries(parameters, topology.parameter_start[bodies], len(kind.parameters))
        clock = jnp.broadcast_to(time, q[0].shape)

        def local(q, rates, kind=kind, ups=ups, constants=constants, clock=clock):
            motion = kind.motion(q, rates, constants, clock)
            bias = Motion.zero() if motion.bias is None else motion.bias
            acceleration = sum((c * up for c, up in zip(motion.columns, ups, strict=True)), bias)
            results = motion.velocity, acceleration, bias, motion.columns
            # Constant entries are Python numbers, which a derivative cannot see.
            return jax.tree.map(partial(jnp.add, jnp.zeros_like(q[0])), results)

        def along(unit, kind=kind, local=local, q=q, rates=rates, constants=constants):
            by_q = jax.jvp(lambda q: local(q, rates), (q,), (kind.rate(q, unit, constants),))[1]
            by_v = jax.jvp(lambda rates: local(q, rates)[2], (rates,), (unit,))[1]
            return by_q, by_v

        (velocity, acceleration, _, columns), bias = jax.vmap(along)(units(rates))
        rows = start + np.arange(kind.nv)[:, None]
        motions.append((rows.reshape(-1), jax.tree.map(_flat, (velocity, acceleration, bias))))
        for i, column in enumerate(columns):
            products.append((start + i, column.dot(jax.tree.map(lambda x, rows=start + i: x[rows], own))))
    e, g, beta = _in_order(motions, topology.nv)
    e, g, beta = (x.rotate(rotation) for x in (e, g, beta))
    return Variations(e, g, beta, _block(model, products))


def units(like: tuple) -> tuple:
    """The unit vectors of a joint's velocity, on a new leading axis."""
    eye = np.eye(len(like))
    return tuple(jnp.stack([jnp.full_like(x, eye[i, k]) for i in range(len(like))]) for k, x in enumerate(like))


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _in_order(parts: list, count: int):
    """Trees per group of rows, joined and put in order, zeros in the rows of nobody."""
    where = np.full(count, -1)
    rows = np.concatenate([rows for rows, _ in parts])
    where[rows] = np.arange(len(rows))
    return take_rows(jax.tree.map(lambda *x: jnp.concatenate(x), *(tree for _, tree in parts)), where)


def _block(model: Model, parts: list[tuple[np.ndarray, jax.Array]]) -> jax.Array:
    """`(nv, k, *batch)` from groups of rows, each with its `(k, rows, *batch)`; `k` is that of the largest joint."""
    nv, width = model.nv, max(joint.nv for joint in model.topology.joints)
    entries = [((rows * width + np.arange(len(x))[:, None]).reshape(-1), _flat(x)) for rows, x in parts]
    return _in_order(entries, nv * width).reshape(nv, width, *parts[0][1].shape[2:])


def spring_variations(model: Model, q: jax.Array) -> jax.Array:
    """The rates of the spring forces along each joint's own freedoms, shape `(nv, k, *batch)` as in `Variations`."""
    topology, batch_ndim = model.topology, q.ndim - 1
    reference = lift(model.spring_reference, 1, batch_ndim, q.dtype) + jnp.zeros_like(q)
    stiffness = lift(model.stiffness, 1, batch_ndim, q.dtype)
    parameters = lift(model.joint_parameters, 1, batch_ndim, q.dtype)
    parts = []
    for kind, bodies in topology.groups.items():
        start = topology.v_start[bodies]
        here, rest = (take_entries(x, topology.q_start[bodies], kind.nq) for x in (q, reference))
        if kind.screw is not None:
            parts.append((start, (stiffness[start] + jnp.zeros_like(here[0]))[None]))
        elif kind.nv:
            constants = take_entries(parameters, topology.parameter_start[bodies], len(kind.parameters))

            along = jax.vmap(partial(kind.difference_rate, rest, here, parameters=constants))
            like = (jnp.zeros_like(here[0]),) * kind.nv
            for i, rate in enumerate(along(units(like))):
                parts.append((start + i, stiffness[start + i] * rate))
    return _block(model, parts)


def within_joints(model: Model, block: jax.Array) -> jax.Array:
    """A matrix `(nv, nv, *batch)` from its entries within joints `(nv, k, *batch)`, zero elsewhere."""
    topology = model.topology
    joint = topology.body_of_velocity
    column = np.arange(topology.nv) - topology.v_start[:-1][joint]
    same = joint[:, None] == joint[None, :]
    shape = same.shape + (1,) * (block.ndim - 2)
    total = jnp.zeros((), block.dtype)
    for k in range(block.shape[1]):
        total = jnp.where((same & (column == k)[None, :]).reshape(shape), block[:, k, None], total)
    return total
