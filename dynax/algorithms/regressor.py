"""Inverse dynamics as a linear function of the inertial parameters (Atkeson, An & Hollerbach 1986).

In the axes of a body about its origin, of acceleration `a` and angular velocity `w`, the force it needs is

    f = m a + alpha x h + w x (w x h)        n = I alpha + w x I w + h x a        h = m c

and joint `j`, which moves it by `[s; u]`, feels `s . n + u . f` of that:

    m   u . a        h   a x s + u x alpha + w x (w x u)        I   s alpha^T + (s x w) w^T, paired with I
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dynax.compile.batching import trailing
from dynax.compile.fence import apart
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.spatial import Mat3, Motion, Vec3
from dynax.tree.bodies import public_motion, public_rotation
from dynax.tree.freedoms import freedoms
from dynax.tree.kinematics import Kinematics, kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Constants, Setup, setup


class _Moving(NamedTuple):
    """Bodies in their own axes about their origins."""

    axes: Mat3
    """In the world."""
    origin: Vec3
    """In world axes."""
    velocity: Motion
    acceleration: Motion


def _moving(constants: Constants, k: Kinematics) -> _Moving:
    assert k.position is not None
    assert k.velocity is not None
    assert k.acceleration is not None
    axes = public_rotation(constants, k.rotation)
    both = (public_motion(constants, k.rotation, x) for x in (k.velocity, k.acceleration))
    return _Moving(axes, k.position - axes @ constants.hinge_offset, *both)


def regressor(model: Model, q, v, a) -> tuple[jax.Array, ...]:
    """The regressor, for each of the ten parameters of a body `(n, nv, *batch)`."""
    s = setup(model, q, v, "automatic")
    return regressor_at(model, s, kinematics(model, s, v, a, positions=True, accelerations=True, gravity=True))


def regressor_at(model: Model, s: Setup, kin: Parts) -> tuple[jax.Array, ...]:
    """The same where kinematics are known, with positions, velocities and accelerations."""
    rows = freedoms(model, s, kin)
    bodies = s.layout.body_order(Parts(_moving(s.constants.roots, kin.roots), _moving(s.constants.rows, kin.rows)))

    of = jax.tree.map(lambda x: apart(x)[:, None], bodies)  # [body, freedom]
    column, at = jax.tree.map(lambda x: x[None], (rows.column, rows.position))
    carried = model.topology.support[:, model.topology.body_of_velocity]
    carried = carried.reshape(carried.shape + (1,) * len(s.batch))
    there = column.shift(of.origin - at).rotate_back(of.axes)
    moves, turns = (jax.tree.map(lambda x: apart(jnp.where(carried, x, 0.0)), m) for m in (there.linear, there.angular))

    w, alpha = of.velocity.angular, of.acceleration.angular
    classical = of.acceleration.linear + w.cross(of.velocity.linear)
    around = turns.cross(w)
    first = classical.cross(turns) + moves.cross(alpha) + w.cross(w.cross(moves))
    second = turns.outer(alpha) + around.outer(w)
    products = second.xy + second.yx, second.yz + second.zy, second.xz + second.zx
    return moves.dot(classical), first.x, first.y, first.z, second.xx, second.yy, second.zz, *products


_components = trailing(regressor)


@jax.jit
def _regressor(model: Model, q, v, a) -> jax.Array:
    # Put together outside: in one kernel each entry would choose between the ten.
    ten = jnp.stack(_components(model, q, v, a), axis=-1)
    return jnp.swapaxes(ten, 0, 1).reshape(model.nv, 10 * model.num_bodies)


def along(model: Model, ten: tuple[jax.Array, ...], directions: jax.Array) -> jax.Array:
    """`Y directions`, shape `(nv, p)`, from the ten parts of `regressor`, for `directions` of `(10 n, p)` that are the
    same for all samples: those of a batch stay side by side, where `Y` itself would be turned round for a product of
    many small matrices."""
    own = directions.reshape(model.num_bodies, 10, -1)

    def row(i: int) -> jax.Array:
        """Of the bodies that freedom `i` carries, and what stands between them: half the work for an arm."""
        carried = np.flatnonzero(model.topology.support[:, model.topology.body_of_velocity[i]])
        which = slice(carried[0], carried[-1] + 1)
        both = own[which], jnp.stack([x[which, i] for x in ten])
        return lax.dot_general(*both, (((1, 0), (0, 1)), ((), ())), precision=lax.Precision.HIGHEST)

    return jnp.stack([row(i) for i in range(model.nv)]) if model.nv else jnp.zeros((0, own.shape[2]), own.dtype)


@for_models
def inverse_dynamics_regressor(model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> jax.Array:
    """The matrix `Y` with `Y parameters` the joint forces of the rigid bodies, shape `(nv, 10 n)`.

    Parameters of each body in body order: `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the body's origin in its own
    axes, as `inertial_parameters` gives them. Gravity is included; armature, damping, friction and springs are not.
    """
    return _regressor(model, *as_state(model, q=q, v=v, a=a))
