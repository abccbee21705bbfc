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

from dynax.algorithms._setup import Setup, lift
from dynax.model import Model
from dynax.model.configuration import difference_rows, rate_rows
from dynax.spatial import Force, Mat3, Motion
from dynax.sweep import take_rows


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
    parameters, clock = (
        lift(model.joint_parameters, 1, len(s.batch), s.dtype),
        lift(model.time, 0, len(s.batch), s.dtype),
    )
    motions, products = [], []
    for kind, bodies in joints:
        q = tuple(s.q[topology.q_start[bodies] + k] for k in range(kind.nq))
        rates, ups = (tuple(x[topology.v_start[bodies] + k] for k in range(kind.nv)) for x in (v, a))
        constants = tuple(parameters[topology.parameter_start[bodies] + k] for k in range(len(kind.parameters)))
        time = jnp.broadcast_to(clock, q[0].shape)

        def local(q, rates, kind=kind, ups=ups, constants=constants, time=time):
            motion = kind.motion(q, rates, constants, time)
            bias = Motion.zero() if motion.bias is None else motion.bias
            acceleration = sum((c * up for c, up in zip(motion.columns, ups, strict=True)), bias)
            results = motion.velocity, acceleration, bias, motion.columns
            # Constant entries are Python numbers, which a derivative cannot see.
            return jax.tree.map(partial(jnp.add, jnp.zeros_like(q[0])), results)

        still = tuple(jnp.zeros_like(x) for x in q), tuple(jnp.zeros_like(x) for x in rates)
        for k in range(kind.nv):
            unit = tuple(x + float(i == k) for i, x in enumerate(still[1]))
            at = topology.v_start[bodies] + k
            along_q = jax.jvp(local, (q, rates), (kind.rate(q, unit, constants), still[1]))[1]
            along_v = jax.jvp(local, (q, rates), (still[0], unit))[1]
            motions.append((at, (along_q[0], along_q[1], along_v[2])))
            for i, column in enumerate(along_q[3]):
                row = topology.v_start[bodies] + i
                products.append((row, k, column.dot(jax.tree.map(lambda x, row=row: x[row], own))))
    e, g, beta = _in_order(motions, topology.nv)
    width = most_freedoms(model)
    block = _in_order([(row * width + k, x) for row, k, x in products], topology.nv * width)
    e, g, beta = (x.rotate(rotation) for x in (e, g, beta))
    return Variations(e, g, beta, block.reshape(topology.nv, width, *s.batch))


def _in_order(parts: list, count: int):
    """Trees per group of rows, joined and put in order, zeros in the rows of nobody."""
    where = np.full(count, -1)
    rows = np.concatenate([rows for rows, _ in parts])
    where[rows] = np.arange(len(rows))
    return take_rows(jax.tree.map(lambda *x: jnp.concatenate(x), *(tree for _, tree in parts)), where)


def most_freedoms(model: Model) -> int:
    """The freedoms of the joint that has most."""
    return max((joint.nv for joint in model.topology.joints), default=0)


def spring_variations(model: Model, q: jax.Array) -> jax.Array:
    """The rates of the spring forces along each joint's own freedoms, shape `(nv, k, *batch)` as in `Variations`."""
    topology, reference = model.topology, lift(model.spring_reference, 1, q.ndim - 1, q.dtype) + jnp.zeros_like(q)
    stiffness = lift(model.stiffness, 1, q.ndim - 1, q.dtype)
    column = np.arange(topology.nv) - topology.v_start[:-1][topology.body_of_velocity]
    rates = []
    for k in range(most_freedoms(model)):
        seed = jnp.asarray(column == k, q.dtype).reshape((-1,) + (1,) * (q.ndim - 1)) + jnp.zeros(q.shape[1:], q.dtype)
        rate = rate_rows(model, q, seed)
        rates.append(stiffness * jax.jvp(lambda q: difference_rows(model, reference, q), (q,), (rate,))[1])
    return jnp.stack(rates, axis=1)


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
