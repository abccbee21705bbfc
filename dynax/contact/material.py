"""What shapes are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from dynax.operators.pytree import pytree_dataclass


@pytree_dataclass()
class Material:
    """What is `None` is left to what it touches, and if that has none either, to the default."""

    friction: Any = None
    """Coulomb's coefficient, default 0.5; of a pair the root of the product."""
    restitution: Any = None
    """Newton's coefficient, default 0; of a pair the root of the product."""
    stiffness: Any = None
    """Of the surface, for compliant contact [N/m], default 1e5; two of a pair stand one behind the other."""
    damping: Any = None
    """Of the surface [N s/m], default 500; likewise."""


DEFAULTS = {"friction": 0.5, "restitution": 0.0, "stiffness": 1e5, "damping": 500.0}


def of_pairs(materials: Sequence[Material], first: np.ndarray, second: np.ndarray, dtype: Any) -> Material:
    """What holds between two, the materials numbered `first` and `second`, an entry for each pair."""

    def one(name: str) -> Any:
        given = [getattr(material, name) for material in materials]
        known = np.array([x is not None for x in given], bool)
        values = jnp.stack([jnp.asarray(0.0 if x is None else x, dtype) for x in given])
        a, b = values[first], values[second]
        product = a * b
        if name in ("friction", "restitution"):
            some = product > 0  # the root has no slope at zero
            joined = jnp.where(some, jnp.sqrt(jnp.where(some, product, 1.0)), 0.0)
        else:
            some = a + b > 0
            joined = jnp.where(some, product / jnp.where(some, a + b, 1.0), 0.0)
        alone = jnp.where(known[first], a, jnp.where(known[second], b, jnp.asarray(DEFAULTS[name], dtype)))
        return jnp.where(known[first] & known[second], joined, alone)

    return Material(*map(one, DEFAULTS))


def instead(found: Material, given: Sequence[Material]) -> Material:
    """With what is given for some, a material for each entry of those found, or none at all."""

    def one(name: str) -> Any:
        values = getattr(found, name)
        own = [getattr(material, name) for material in given]
        known = np.array([x is not None for x in own], bool)
        if not known.any():
            return values
        return jnp.where(known, jnp.stack([jnp.asarray(0.0 if x is None else x, values.dtype) for x in own]), values)

    return Material(*map(one, DEFAULTS))
