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
from dynax.compile.batching import KEPT, trailing
from dynax.contact.placing import Placed, moved_with, placed_with_pairs, places_at, stacked
from dynax.model import Model
from dynax.simulate.friction import Stepped, settled, stepped


class Beginning(NamedTuple):
    stepped: Stepped
    """Without derivatives."""
    at: Placed
    """Without the world."""
    pairs: jax.Array
    """Of the mass matrix without armature, as `crba.of_pairs` takes them; without derivatives."""


@lru_cache
def begun(count: int) -> Callable[..., Beginning]:
    """The function `(model, q, v, tau, dt)`, of `count` evaluations."""

    @trailing
    def every(model: Model, q, v, tau, dt):
        x = place(model, q, positions=True)
        found = settled(model, x, v, tau, dt, count)
        return found, places_at(model, q, x.setup, x.kin), pairs_at(model, *x)

    @jax.custom_jvp
    def beginning(model: Model, q, v, tau, dt) -> Beginning:
        found, at, pairs = every(model, q, v, tau, dt)
        return Beginning(found, stacked(at), pairs)

    def rate(primals: tuple, tangents: tuple) -> tuple[Beginning, Beginning]:
        found = stepped(count)(*lax.stop_gradient(primals))
        found = Stepped(*(checkpoint_name(x, KEPT) for x in found))
        at, pairs = placed_with_pairs(*primals[:2])
        still, nothing = jax.tree.map(jnp.zeros_like, (found, pairs))
        return Beginning(found, at, pairs), Beginning(still, moved_with(at, primals[:2], tangents[:2]), nothing)

    beginning.defjvp(rate, symbolic_zeros=True)
    return beginning
