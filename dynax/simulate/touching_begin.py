"""What a step with contact of a tree begins with: the motion without contact, where everything is, and the mass matrix.

All three ask for the same places and inertias, so they are one kernel. Derivatives know the first, and find the others
again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.algorithms.crba import pairs_at
from dynax.algorithms.mean_velocity import Place, place
from dynax.compile.batching import trailing
from dynax.compile.zeros import along_moving
from dynax.contact.placing import Places, places_at
from dynax.model import Model
from dynax.simulate.friction import Stepped, settled
from dynax.simulate.turning import centres


class Where(NamedTuple):
    places: Places
    centres: jax.Array
    """`turning.centres`."""


class Beginning(NamedTuple):
    stepped: Stepped
    where: Where
    pairs: jax.Array
    """Of the mass matrix without armature, as `crba.of_pairs` takes them."""


def _at(model: Model, x: Place) -> Where:
    places = places_at(model, x.setup.q, x.setup, x.kin)
    return Where(places, centres(model, places))


@trailing
def where(model: Model, q: jax.Array) -> Where:
    return _at(model, place(model, q, positions=True))


def _found(model: Model, q: jax.Array) -> tuple[Where, jax.Array]:
    x = place(model, q, positions=True)
    return _at(model, x), pairs_at(model, *x)


def _rate(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    found = where_and_pairs(*primals)
    return found, (along_moving(where, primals, tangents)[1], jnp.zeros_like(found[1]))


# The pairs of the mass matrix, as in `Beginning`, without derivatives.
where_and_pairs = trailing(_found, _rate)


@lru_cache
def begun(count: int) -> Callable[..., Beginning]:
    """The function `(model, q, v, tau, dt)`, of `count` evaluations."""

    def core(model: Model, q, v, tau, dt) -> Beginning:
        x = place(model, q, positions=True)
        return Beginning(settled(model, x, v, tau, dt, count), _at(model, x), pairs_at(model, *x))

    return trailing(core)
