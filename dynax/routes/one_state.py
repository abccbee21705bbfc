"""Forward dynamics of one state by products of small arrays instead of walks.

Where an algorithm cannot be had in one kernel, a lone call on a CPU costs what its kernels cost to start, not what they
compute. So every line takes all bodies at once, as the 4x4 matrices of `_homogeneous` about the first joint of their
tree, sums over all that carry a body are products with the ancestor relation, and the recursions that remain double
their stretches. With poses `T`, inertias `K` and the twists `S` of the freedoms (Legnani, Casolo, Righettini and Zappa
1996),

    V_b = sum of S_j v_j      A_b = sum of [V_k, S_k v_k] - g      over what carries b
    Q_b = T K T^T             W_b = (A_b + V_b^2) Q_b              (A + V^2) r is the acceleration of the point r of b
    C_j = <S_j, sum of W_b>   M_ij = <S_i sum of Q_b, S_j>         over what j, and i, carry

and `M a = tau - C` by Cholesky's factor. Inertias and forces add up about the joints that carry them: about one point
they would lose two digits in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.compile.one_kernel import available
from dynax.model import Model
from dynax.routes.homogeneous import (
    body_arrays,
    ends,
    joint_arrays,
    times,
    times_transpose,
    turned,
    twists,
)
from dynax.sweep.doubling import combined, path_products, path_totals
from dynax.topology import Topology
from dynax.tree.bodies import passive_force

# Measured on a CPU, float64, in many kernels, microseconds by walks and by this: a quadruped of 13 bodies 51 and 47, a
# hand of 16 32 and 34, two arms of 19 68 and 61, humanoids of 30 to 33 84 and 72, 74 and 72, 98 and 88, 159 and 92.
LEAST_BODIES, MOST_FREEDOMS = 18, 64


def possible(topology: Topology) -> bool:
    """Whether the dynamics of one state can be had this way: nothing driven in time, nothing not holonomic."""
    return topology.nv > 0 and all(joint.holonomic and not joint.rheonomic for joint in topology.joints)


def serves(topology: Topology, dtype) -> bool:
    """Whether this is the best way to the dynamics of one state.

    Walks in one kernel are faster (59 us on a humanoid where this takes 93). In float32 it is not: it solves with the
    mass matrix, and rounding that alone costs several times the error of the walks (90 % of the states of a humanoid
    are below 3e-6 by walks, below 7e-6 by the exact matrix rounded).
    """
    sizes = topology.num_bodies >= LEAST_BODIES and topology.nv <= MOST_FREEDOMS
    return sizes and possible(topology) and jnp.dtype(dtype) == jnp.float64 and not available()


def lone_forward_dynamics(model: Model, q, v, tau, external=None) -> jax.Array:
    """Accelerations of a state without batch axes."""
    t, dtype = model.topology, q.dtype
    own = t.body_of_velocity
    simple = np.array_equal(own, np.arange(t.num_bodies))
    carries = t.support[:, own].T  # [j, b]: freedom j carries body b
    joints, bodies = joint_arrays(model, q, v), body_arrays(model, dtype, external)
    pose = path_products(times, times(bodies.frame, joints.pose), t.parents)
    seat = pose if simple else pose[:, :, own]

    s = twists(seat, joints.columns)
    if simple:
        step = s * v
        velocity = combined(step, carries)
    else:
        of_body = np.equal.outer(own, np.arange(t.num_bodies))
        velocity, step = jnp.split(combined(s * v, np.concatenate([carries, of_body], axis=1)), 2, axis=2)
    change = times(velocity, step) - times(step, velocity)
    if joints.bias is not None:
        change = change + twists(pose, joints.bias)
    gravity = ends(model.gravity.astype(dtype)[:, None])
    acceleration = combined(change, t.support.T) + times(velocity, velocity) - gravity

    axes, position = turned(pose), jnp.pad(pose[:3, 3], ((0, 4), (0, 0)))
    inertia = times_transpose(times(axes, bodies.inertia), axes)
    there = turned(acceleration) + ends(times(acceleration, pose[:, 3:])[:, 0])  # on points as seen from the joint
    force = times(there, inertia)
    if bodies.wrench is not None:
        force = force - times_transpose(times(axes, bodies.wrench), axes)[:3]
    total = path_totals(_about_parent, jnp.concatenate([inertia, force]), position, t.parents)
    total = total if simple else total[:, :, own]

    local = turned(s) + ends(times(seat[:3, :3], joints.columns[3:, None])[:, 0])
    right = tau - passive_force(model, q, v) - jnp.sum(local * total[4:], axis=(0, 1))
    return solve(model, pairs(times(local, total[:4]), local, seat[:3, 3]), right)


def pairs(momentum: jax.Array, s: jax.Array, position: jax.Array) -> jax.Array:
    """`[i, j]`: the momentum of row `i` with the twist of row `j`, both given about their own joints.

    A sum of outer products: a product of matrices this small waits for other threads. Taken to one point for all,
    float32 would lose a digit.
    """
    arm, zero = position[:, :, None] - position[:, None], jnp.zeros((), s.dtype)
    turning = sum((momentum[r, k][:, None] * s[r, k] for r in range(3) for k in range(3)), zero)
    speeds = (sum((s[r, k] * arm[k] for k in range(3)), s[r, 3]) for r in range(3))
    return sum((momentum[r, 3][:, None] * speed for r, speed in enumerate(speeds)), turning)


def _about_parent(x: jax.Array, offset: jax.Array) -> jax.Array:
    """Inertias, and forces below them, about the point that `offset`, three numbers and zeros, leads away from."""
    x = x + x[:, 3:] * offset[:4]
    return x + offset[:, None] * x[3]


def solve(model: Model, powers: jax.Array, right: jax.Array) -> jax.Array:
    """`M^-1 right`, where `M` has `powers[i, j]` for freedoms `j` that carry `i`, and the armature.

    The right side is a last row of `M` with a huge pivot, so that its forward substitution is part of the
    factorisation.
    """
    n, dtype = model.nv, right.dtype
    support = np.pad(model.topology.velocity_support, (0, 1))
    powers, right, armature = (jnp.pad(x, (0, 1)) for x in (powers, right, model.armature.astype(dtype)))
    matrix = jnp.where(support, powers, jnp.where(support.T, powers.T, 0.0))
    last = jnp.asarray(np.arange(n + 1) == n, dtype)
    pivots = armature + last * (0.25 * jnp.finfo(dtype).max)
    bordered = matrix + jnp.eye(n + 1, dtype=dtype) * pivots + last[:, None] * right + last * right[:, None]
    factor = lax.linalg.cholesky(bordered, symmetrize_input=False)
    lower, rest = factor[:n, :n], factor[n, :n, None]
    return lax.linalg.triangular_solve(lower, rest, left_side=True, lower=True, transpose_a=True)[:, 0]
