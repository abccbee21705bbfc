"""Sensors of contact: what a step with contact did, as functions of a `Moment` of a scene.

Forces are those of the step before: impulses by its length, or those of surfaces that yield. At the beginning of a
rollout there are none.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.actuate.sensor import AbstractSensor, Moment
from dynax.contact.material import Material
from dynax.contact.motion import Touch, candidate_bodies, candidate_materials, contacts
from dynax.contact.scene import Scene
from dynax.operators.pytree import pytree_dataclass


class FrictionState(IntEnum):
    """Of a candidate or a pair."""

    APART = 0
    STICKING = 1
    SLIDING = 2


class Felt(NamedTuple):
    """The contacts of a moment."""

    scene: Scene
    touch: Touch
    forces: jax.Array
    """On the second body of each candidate, in world axes, shape `(k, 3)` [N]."""

    @property
    def normal(self) -> jax.Array:
        """Forces along the normals, shape `(k,)` [N]."""
        return jnp.sum(self.touch.normal * self.forces, axis=1)

    def of_pair(self, first: str, second: str) -> tuple[np.ndarray, float]:
        """The candidates of two colliders, and the sign that makes their forces those on the second of the names."""
        names = self.scene.names
        for name in (first, second):
            if name not in names:
                raise ValueError(f"no collider is called {name!r}")
        pair = names.index(first), names.index(second)
        rows = [k for k, own in enumerate(self.scene.candidates) if own in (pair, pair[::-1])]
        if not rows:
            raise ValueError(f"{first!r} and {second!r} are no pair of the scene: they may not touch")
        return np.array(rows), 1.0 if self.scene.candidates[rows[0]] == pair else -1.0


def felt(at: Moment) -> Felt:
    """What touches at a moment; `ValueError` where nobody said."""
    if at.scene is None or at.forces is None:
        raise ValueError(
            "a sensor feels contact: give it a rollout of a contact.Scene, or `forces=` of one, shape (candidates, 3)"
        )
    return Felt(at.scene, contacts(at.scene, at.q), at.forces)


class OfContact(AbstractSensor):
    @property
    def feels_contact(self) -> bool:
        return True


@pytree_dataclass("first", "second")
class ContactForce(OfContact):
    """The force of the collider `first` on the collider `second`, all of their contacts, in world axes [N]."""

    first: str
    second: str

    def value(self, at):
        found = felt(at)
        rows, sign = found.of_pair(self.first, self.second)
        return sign * jnp.sum(found.forces[rows], axis=0)


@pytree_dataclass("frame")
class TouchForce(OfContact):
    """How hard a body is touched: the sum of forces along normals of all its contacts, or of those within a zone about
    a frame on it [N], shape `(1,)`."""

    frame: str
    radii: Any = None
    """Of the zone, an ellipsoid along the frame's axes, shape `(3,)` [m]; default everywhere."""
    half: Any = None
    """In the place of `radii` half the edges of a box."""

    def value(self, at):
        found = felt(at)
        body, _ = at.model.locate(self.frame)
        first, second = candidate_bodies(found.scene)
        own = jnp.asarray((first == body) | (second == body))
        here = at.frame(self.frame)
        local = (found.touch.point - here.position) @ here.rotation
        if self.radii is not None:
            own = own & (jnp.sum((local / jnp.asarray(self.radii)) ** 2, axis=1) <= 1.0)
        if self.half is not None:
            own = own & jnp.all(jnp.abs(local) <= jnp.asarray(self.half), axis=1)
        return jnp.sum(jnp.where(own, found.normal, 0.0))[None]


@pytree_dataclass("first", "second")
class Friction(OfContact):
    """The `FrictionState` of two colliders as a number, shape `(1,)`: sliding if any of their contacts does, that is
    bears all the friction it can to the part `full`."""

    first: str
    second: str
    full: float = 0.999

    def value(self, at):
        found = felt(at)
        rows, _ = found.of_pair(self.first, self.second)
        press, whole = found.normal[rows], found.forces[rows]
        along = jnp.sum(whole * whole, axis=1) - press * press
        material: Material = candidate_materials(found.scene, press.dtype)
        most = material.friction[rows] * press
        slides = (press > 0) & (along >= (self.full * most) ** 2)
        state = jnp.where(jnp.any(slides), FrictionState.SLIDING, FrictionState.STICKING)
        return jnp.where(jnp.any(press > 0), state, FrictionState.APART).astype(press.dtype)[None]
