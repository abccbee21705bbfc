"""What a step with contact of a tree begins with: the motion without contact, where everything is, and the mass matrix.

All three ask for the same places and inertias, so they are one kernel. Where derivatives are taken it is two, since the
first is kept for the way back, and the others are found again there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from dynax.algorithms.crba import pairs_at
from dynax.algorithms.mean_velocity import place
from dynax.compile.batching import KEPT, along_moving, trailing
from dynax.contact.placing import Places, places, places_and_pairs, places_at
from dynax.model import Model
from dynax.simulate.friction import Stepped, settled, stepped


class Beginning(NamedTuple):
    stepped: Stepped
    """Without derivatives."""
    places: Places
    pairs: jax.Array
    """Of the mass matrix without armature, as `crba.of_pairs` takes them; without derivatives."""


@lru_cache
def begun(count: int) -> Callable[..., Beginning]:
    """The function `(model, q, v, tau, dt)`, of `count` evaluations."""

    def core(model: Model, q, v, tau, dt) -> Beginning:
        x = place(model, q, positions=True)
        found = settled(model, x, v, tau, dt, count)
        return Beginning(found, places_at(model, q, x.setup, x.kin), pairs_at(model, *x))

    def rate(primals: tuple, tangents: tuple) -> tuple[Beginning, Beginning]:
        found = Stepped(*(checkpoint_name(x, KEPT) for x in stepped(count)(*lax.stop_gradient(primals))))
        at, pairs = places_and_pairs(*primals[:2])
        still, nothing = jax.tree.map(jnp.zeros_like, (found, pairs))
        moved = along_moving(places, primals[:2], tangents[:2])[1]
        return Beginning(found, at, pairs), Beginning(still, moved, nothing)

    return trailing(core, rate)
