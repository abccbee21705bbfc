"""What shapes are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dynax.errors import ModelError
from dynax.operators.pytree import pytree_dataclass


@pytree_dataclass()
class Material:
    """What is `None` is left to what it touches, and if that has none either, to the default.

    The root of a product has no slope where it is zero: derivatives by a friction or restitution of zero are zero, but
    for those of a material of `pairs`, or of the only one of the two that has it.
    """

    friction: Any = None
    """Coulomb's coefficient, default 0.5; of a pair the root of the product."""
    restitution: Any = None
    """Newton's coefficient, default 0; of a pair the root of the product. Hits of a step that would gain energy by it
    bounce by less."""
    stiffness: Any = None
    """Of the surface, for compliant contact [N/m], default 1e5; two of a pair stand one behind the other."""
    damping: Any = None
    """Of the surface [N s/m], default 500; likewise."""
    dissipation: Any = None
    """Of Hunt and Crossley's law, which holds in compliant contact for pairs that have one [s/m]."""
    exponent: Any = None
    """In that law, of the dent, default 1; 1.5 for round bodies by Hertz, and `stiffness` in N/m^1.5. Of a pair the
    larger one."""


DEFAULTS = {"friction": 0.5, "restitution": 0.0, "stiffness": 1e5, "damping": 500.0}
GROWING = {"dissipation": 0.0, "exponent": 1.0}
"""The same of Hunt and Crossley's law."""


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

    found = Material(*map(one, DEFAULTS))
    if not any(m.dissipation is not None or m.exponent is not None for m in materials):
        none = jnp.zeros(len(first), dtype)
        return dataclasses.replace(found, dissipation=none, exponent=none + 1.0)
    return _growing(found, materials, first, second, dtype)


def _growing(found: Material, materials: Sequence[Material], first: Any, second: Any, dtype: Any) -> Material:
    """Two surfaces bear one force, `K_i d_i^n (1 + c_i d_i')`, and their dents add up. So each has the part
    `s_i = (K / K_i)^(1/n)` of it, with `K^(-1/n) = K_1^(-1/n) + K_2^(-1/n)`, and `c = s_1^2 c_1 + s_2^2 c_2` where the
    damper is small or the surfaces are the same."""

    def of(name: str, side: np.ndarray) -> tuple[np.ndarray, jax.Array]:
        given = [getattr(material, name) for material in materials]
        known = np.array([x is not None for x in given], bool)
        return known[side], jnp.stack([jnp.asarray(0.0 if x is None else x, dtype) for x in given])[side]

    powers = [jnp.where(*of("exponent", side), 1.0) for side in (first, second)]
    power = jnp.maximum(*powers)
    (stiff_a, a), (stiff_b, b) = (of("stiffness", side) for side in (first, second))
    both = stiff_a & stiff_b & (a > 0) & (b > 0)
    soft_a, soft_b = (jnp.where(both, x, 1.0) ** (-1.0 / power) for x in (a, b))
    whole = soft_a + soft_b
    part_a, part_b = (jnp.where(both, x / whole, 1.0) for x in (soft_a, soft_b))
    damps_a, damps_b = (jnp.where(*of("dissipation", side), 0.0) for side in (first, second))
    return dataclasses.replace(
        found,
        stiffness=jnp.where(both, whole**-power, found.stiffness),
        dissipation=part_a**2 * damps_a + part_b**2 * damps_b,
        exponent=power,
    )


def growing_pairs(materials: Sequence[Material], pairs: np.ndarray, between: Sequence[Material]) -> np.ndarray:
    """Which pairs have Hunt and Crossley's law."""
    known = np.array([m.dissipation is not None for m in materials], bool)
    found = known[pairs[:, 0]] | known[pairs[:, 1]]
    return found | np.array([m.dissipation is not None for m in between], bool) if between else found


def of_stops(given: Sequence[Material], dtype: Any) -> Material:
    """Of limits, cones and ropes, an entry for each; they do not rub, and by default they do not bounce."""
    others = {"friction": 0.0, "restitution": 0.0, "stiffness": 0.0, "damping": 0.0} | GROWING

    def one(name: str, default: float) -> jax.Array:
        own = [getattr(material, name) for material in given]
        if all(x is None for x in own):
            return jnp.full(len(own), default, dtype)
        return jnp.stack([jnp.asarray(default if x is None else x, dtype) for x in own])

    return Material(**{name: one(name, default) for name, default in others.items()})


def check_material(material: Material, element: str) -> None:
    """`ModelError` for numbers that are none."""
    if not isinstance(material, Material):
        raise ModelError(f"its material is {material!r}, expected a Material", element=element)
    for part in (*DEFAULTS, *GROWING):
        value = getattr(material, part)
        if value is None or isinstance(value, Tracer):
            continue
        least, most = 1 if part == "exponent" else 0, 1 if part == "restitution" else np.inf
        if not np.all(np.isfinite(value) & (np.asarray(value) >= least) & (np.asarray(value) <= most)):
            allowed = "from 0 to 1" if part == "restitution" else f"{least} or more, and finite"
            raise ModelError(f"its {part} is {value}, expected {allowed}", element=element)


def instead(found: Material, given: Sequence[Material]) -> Material:
    """With what is given for some, a material for each entry of those found, or none at all."""

    def one(name: str) -> Any:
        values = getattr(found, name)
        own = [getattr(material, name) for material in given]
        known = np.array([x is not None for x in own], bool)
        if not known.any():
            return values
        return jnp.where(known, jnp.stack([jnp.asarray(0.0 if x is None else x, values.dtype) for x in own]), values)

    return Material(*map(one, (*DEFAULTS, *GROWING)))
