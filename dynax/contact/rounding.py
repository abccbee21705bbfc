"""Coulomb's law `P` of a contact that gives by its own velocity, with its kinks rounded.

    gamma_n (gamma_n - z_n) = kappa^2        and likewise between sticking and sliding

`contact.alart_curnier` solves `gamma = P(gamma - rho (u - u_hat + R gamma))` with it, by Newton's method.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.contact.coulomb import Impact, and_stops, length_along


class Rounded(NamedTuple):
    """`max(x, 0)` with its kink rounded."""

    value: jax.Array
    other: jax.Array
    """`max(-x, 0)`, of which the product with `value` is `kappa^2`."""

    @classmethod
    def of(cls, x: jax.Array, kappa: jax.Array) -> Rounded:
        large = 0.5 * (jnp.abs(x) + jnp.sqrt(x * x + 4.0 * kappa * kappa))
        small = kappa * (kappa / large)
        return cls(jnp.where(x >= 0, large, small), jnp.where(x >= 0, small, large))

    @property
    def slope(self) -> jax.Array:
        return self.value / (self.value + self.other)


class Secant(NamedTuple):
    """`gamma = offset + stiffness (u_hat - u)`, where `gamma = P(z)` leads from where it is not yet so."""

    offset: jax.Array
    """Shape `(k, 3)`."""
    stiffness: jax.Array
    """Shape `(k, 3, 3)`."""


def rounded(friction: jax.Array, z: jax.Array, kappa: jax.Array) -> jax.Array:
    """`P(z)`."""
    count, press = len(friction), Rounded.of(z[:, 2], kappa).value
    z, most = z[:count], friction * press[:count]
    part = most / (most + Rounded.of(length_along(z) - most, kappa[:count]).value)
    own = jnp.stack([part * z[:, 0], part * z[:, 1], press[:count]], axis=1)
    return and_stops(own, press)


def secant(problem: Impact, z: jax.Array, kappa: jax.Array, rho: jax.Array) -> Secant:
    """Of `P` linearised at `z`, solved for `gamma`: in the direction of `z` along the surface (l), across it (c), and
    along the normal (n). What is one less something is written so that no digits cancel."""
    give = rho * problem.compliance
    normal = Rounded.of(z[:, 2], kappa)
    press, slope = normal.value, normal.slope
    rest = normal.other / (press + normal.other) + give * slope
    k_n, o_n = rho * slope / rest, (press - slope * z[:, 2]) / rest

    count = len(problem.friction)
    pressing = o_n, k_n
    z, kappa, rho, give, press, slope, k_n, o_n = (x[:count] for x in (z, kappa, rho, give, press, slope, k_n, o_n))
    length, most = length_along(z), problem.friction * press
    edge = Rounded.of(length - most, kappa)
    size = most + edge.value
    part, slides, sticks = most / size, edge.slope, edge.other / (edge.value + edge.other)
    along = part * (length * sticks + edge.other) / size
    by_most = (length / size) * (most * slides + edge.value) / size
    rest = (edge.value + part * length * slides) / size + give * along
    gain = by_most * problem.friction * slope
    k_l, k_c = rho * along / rest, rho * part / (edge.value / size + give * part)
    k_ln = gain * ((1.0 - give) * k_n + rho) / rest
    o_l = ((part - along) * length + gain * ((1.0 - give) * o_n - z[:, 2])) / rest

    some = length > 0
    x, y = (jnp.where(some, z[:, k] / jnp.where(some, length, 1.0), 1.0 - k) for k in (0, 1))
    none = jnp.zeros_like(x)
    mixed = (k_l - k_c) * x * y
    rows = [
        [k_l * x * x + k_c * y * y, mixed, k_ln * x],
        [mixed, k_l * y * y + k_c * x * x, k_ln * y],
        [none, none, k_n],
    ]
    own = jnp.stack([o_l * x, o_l * y, o_n], axis=1), jnp.stack([jnp.stack(r, axis=1) for r in rows], axis=1)
    return Secant(*map(and_stops, own, pressing))
