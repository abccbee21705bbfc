"""What floats alone and is hit turns on as a free body does, with the velocity that it has from there.

A step knows the gyroscopic torques of the motion before it, which without a hit are those of the step. But what is hit
may turn a hundred times as fast. With `w0` the angular velocity before a step of the length `h`, and `w` found by it,

    d = h (m(w - h m(w0)) - m(w0))        m(w) = a(w + h m(w) / 2)        I a(w) = (I w) x w

is what `w` lacks in the end, and half of it in the mean of the step. So a capsule that is sent spinning about its own
axis, and about the vertical, stays on the ground, where an end of it went round with the spin and in by a hundredth of
its size; and a hit keeps angular momentum but for `h^2`. Bodies of legs and arms are not asked.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dynax.model import Model
from dynax.simulate.euler import SemiImplicitEuler
from dynax.spatial import Sym3, Vec3
from dynax.spatial.components import outer_square
from dynax.sweep import take_rows
from dynax.tree.setup import body_constants, lift


def precession(model: Model, bodies: np.ndarray, before: Vec3, found: Vec3, dt: jax.Array) -> tuple[Vec3, Vec3]:
    """By how much angular and linear velocities of some bodies change, shape `(k, *batch)`; of the angular velocities
    before a step and found by it."""
    batch, dtype = before.x.ndim - 1, before.x.dtype
    own = take_rows(body_constants(model, batch, dtype).inertia, bodies)
    per_mass = _inverse(own.mass)
    inertia = own.inertia - outer_square(own.moment, own.moment) * per_mass
    topology = model.topology
    rows = np.array([topology.v_start[body] + np.array(topology.joints[body].turning[:3]) for body in bodies])
    armature = take_rows(lift(model.armature, 1, batch, dtype), rows)
    rate = _free(inertia, inertia + Sym3.diagonal(*jnp.unstack(armature, axis=1)))

    def mean(w: Vec3) -> Vec3:
        """As often evaluated as without contact, so that what is not hit lacks nothing."""
        found = rate(w)
        for _ in range(SemiImplicitEuler().evaluations - 1):
            found = rate(w + found * (0.5 * dt))
        return found

    counted = mean(before) * dt
    turned = mean(found - counted) * dt - counted
    # The centre of mass goes on as it was hit.
    return turned, (own.moment * per_mass).cross(turned)


def _free(inertia: Sym3, weight: Sym3) -> Callable[[Vec3], Vec3]:
    """`a`, where `weight` with the armature stands for `I` on its left; of what has none about an axis zero."""
    scale = _inverse(weight.trace)  # the determinant of a millimetre's inertia has no digits in float32
    x, y, z = (weight * scale).rows
    columns = y.cross(z), z.cross(x), x.cross(y)
    per_determinant = _inverse(x.dot(columns[0])) * scale

    def rate(w: Vec3) -> Vec3:
        torque = (inertia @ w).cross(w) * per_determinant
        return Vec3(*(column.dot(torque) for column in columns))

    return rate


def _inverse(x: jax.Array) -> jax.Array:
    """`1 / x`, of what is not positive zero."""
    some = x > 0
    return jnp.where(some, 1.0 / jnp.where(some, x, 1.0), 0.0)
