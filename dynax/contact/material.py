"""What shapes are made of."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

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


def pair_of(a: Material, b: Material, dtype: Any) -> Material:
    """What holds between two."""

    def one(name: str) -> Any:
        given = [jnp.asarray(x, dtype) for x in (getattr(a, name), getattr(b, name)) if x is not None]
        if len(given) < 2:
            return given[0] if given else jnp.asarray(DEFAULTS[name], dtype)
        product = given[0] * given[1]
        if name in ("friction", "restitution"):
            some = product > 0  # the root has no slope at zero
            return jnp.where(some, jnp.sqrt(jnp.where(some, product, 1.0)), 0.0)
        return product / (given[0] + given[1])

    return Material(*map(one, DEFAULTS))
