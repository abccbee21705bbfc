"""Sensors of a body with all it carries: centre of mass, its velocity, angular momentum about it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.actuate.sensor import AbstractSensor, Moment
from dynax.model.inertias import inertial_parameters
from dynax.operators.pytree import pytree_dataclass


class Carried(NamedTuple):
    """World axes, rows of bodies."""

    mass: jax.Array
    first: jax.Array
    """Mass times centre of mass, from the body's origin."""
    origin: jax.Array
    momentum: jax.Array
    angular: jax.Array
    """Angular momentum about the body's origin."""

    @property
    def center(self) -> jax.Array:
        return jnp.sum(self.mass[:, None] * self.origin + self.first, 0) / jnp.sum(self.mass)


def carried(at: Moment, body: str) -> Carried:
    model = at.model
    rows = np.flatnonzero(model.topology.support[:, model.body_index(body)])
    own = inertial_parameters(model).astype(at.q.dtype)[rows]
    m, first, (xx, yy, zz, xy, yz, xz) = own[:, 0], own[:, 1:4], own[:, 4:].T
    inertia = jnp.stack([jnp.stack([xx, xy, xz]), jnp.stack([xy, yy, yz]), jnp.stack([xz, yz, zz])])
    w, u = at.velocities[rows, :3], at.velocities[rows, 3:]
    momentum = m[:, None] * u + jnp.cross(w, first)
    angular = jnp.einsum("ijk,kj->ki", inertia, w) + jnp.cross(first, u)
    turned = (jnp.einsum("kij,kj->ki", at.poses.rotation[rows], x) for x in (first, momentum, angular))
    first, momentum, angular = turned
    return Carried(m, first, at.poses.translation[rows], momentum, angular)


@pytree_dataclass("body")
class SubtreeCenter(AbstractSensor):
    """The centre of mass of a body and all it carries, in the world, shape `(3,)` [m]."""

    body: str

    def value(self, at):
        return carried(at, self.body).center


@pytree_dataclass("body")
class SubtreeVelocity(AbstractSensor):
    """The velocity of that centre along the world's axes, shape `(3,)` [m/s]."""

    body: str

    def value(self, at):
        found = carried(at, self.body)
        return jnp.sum(found.momentum, 0) / jnp.sum(found.mass)


@pytree_dataclass("body")
class SubtreeAngularMomentum(AbstractSensor):
    """The angular momentum about that centre along the world's axes, shape `(3,)` [N m s]."""

    body: str

    def value(self, at):
        found = carried(at, self.body)
        return jnp.sum(found.angular + jnp.cross(found.origin - found.center, found.momentum), 0)
