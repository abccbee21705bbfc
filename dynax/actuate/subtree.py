"""Sensors of a body with all it carries: centre of mass, its velocity, angular momentum about it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.actuate.sensor import AbstractSensor, Moment
from dynax.model.inertias import body_inertias
from dynax.operators.pytree import pytree_dataclass
from dynax.spatial.components import Mat3, Vec3
from dynax.spatial.inertia import RigidInertia
from dynax.spatial.motion import Force, Motion


class Carried(NamedTuple):
    """Of the body and all it carries together, about the world's origin in its axes."""

    inertia: RigidInertia
    momentum: Force

    @property
    def center(self) -> Vec3:
        return self.inertia.moment / self.inertia.mass


def carried(at: Moment, body: str) -> Carried:
    model = at.model
    rows = np.flatnonzero(model.topology.support[:, model.body_index(body)])
    own = jax.tree.map(lambda x: x[rows], body_inertias(model, at.q.dtype))
    turn, origin = Mat3.from_array(at.poses.rotation[rows]), Vec3.from_array(at.poses.translation[rows])
    momentum = own @ Motion.from_array(at.velocities[rows])
    each = Carried(own.rotate(turn).shift_to_parent(origin), momentum.rotate(turn).shift_to_parent(origin))
    return jax.tree.map(lambda x: jnp.sum(x, 0), each)


@pytree_dataclass("body")
class SubtreeCenter(AbstractSensor):
    """The centre of mass of a body and all it carries, in the world, shape `(3,)` [m]."""

    body: str

    def value(self, at):
        return carried(at, self.body).center.array


@pytree_dataclass("body")
class SubtreeVelocity(AbstractSensor):
    """The velocity of that centre along the world's axes, shape `(3,)` [m/s]."""

    body: str

    def value(self, at):
        found = carried(at, self.body)
        return (found.momentum.linear / found.inertia.mass).array


@pytree_dataclass("body")
class SubtreeAngularMomentum(AbstractSensor):
    """The angular momentum about that centre along the world's axes, shape `(3,)` [N m s]."""

    body: str

    def value(self, at):
        found = carried(at, self.body)
        return found.momentum.shift(found.center).angular.array
