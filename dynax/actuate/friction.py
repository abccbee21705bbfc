"""Friction of a drive, beyond what a joint's `damping` and `friction_loss` say. Each wraps the law of the drive.

    Stribeck      s(v) (c + (f - c) exp(-(v / v_S)^2)) + d v             s(v) = tanh(v / softness), the sign made smooth
    asymmetric    s(v) c(v) + d(v) v, with numbers of its own for each direction
    LuGre         s0 z + s1 z' + d v,   z' = v - s0 |v| z / g(v),   g(v) = c + (f - c) exp(-(v / v_S)^2)
                                                        (Canudas de Wit, Olsson, Astrom & Lischinsky 1995)

All take energy at any velocity but LuGre's bristles, which store some, and have derivatives at rest.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dynax.actuate.limits import Wrapper
from dynax.operators.pytree import pytree_dataclass


def _stribeck(coulomb: Any, static: Any, stribeck_velocity: Any, velocity: jax.Array) -> jax.Array:
    """What dry friction can hold at a velocity: `static` at rest, `coulomb` far from it."""
    return coulomb + (static - coulomb) * jnp.exp(-((velocity / stribeck_velocity) ** 2))


@pytree_dataclass()
class StribeckFriction(Wrapper):
    """Friction that is greater at rest than in motion: `static` there, `coulomb` beyond `stribeck_velocity`, and
    `viscous` times the velocity (Armstrong-Helouvry, Dupont & Canudas de Wit 1994)."""

    law: Any
    coulomb: Any
    """[N, N m]."""
    static: Any
    stribeck_velocity: Any
    """[m/s, rad/s]."""
    viscous: Any = 0.0
    softness: Any = 1e-2
    """The velocity about which the sign is made smooth: a load creeps at a part of it."""

    def __call__(self, state, command, length, velocity):
        force, rate = self.law(state, command, length, velocity)
        held = _stribeck(self.coulomb, self.static, self.stribeck_velocity, velocity)
        return force - jnp.tanh(velocity / self.softness) * held - self.viscous * velocity, rate


@pytree_dataclass()
class AsymmetricFriction(Wrapper):
    """Coulomb's and viscous friction with other numbers forwards than backwards, as gears have."""

    law: Any
    forward: Any
    """`[Coulomb, viscous]` for positive velocities, shape `(2,)` or `(2, k)`."""
    backward: Any
    softness: Any = 1e-2
    """As in `StribeckFriction`."""

    def __call__(self, state, command, length, velocity):
        force, rate = self.law(state, command, length, velocity)
        sign = jnp.tanh(velocity / self.softness)
        part = 0.5 * (1.0 + sign)
        forward, backward = jnp.asarray(self.forward), jnp.asarray(self.backward)
        coulomb, viscous = (part * one + (1.0 - part) * other for one, other in zip(forward, backward, strict=True))
        return force - sign * coulomb - viscous * velocity, rate


@pytree_dataclass()
class LuGreFriction(Wrapper):
    """Friction as bristles that bend and slip: it holds a load at rest where it is, gives way like a spring before it
    slides, lags behind the velocity, and makes stick and slip. The state is `(z, that of the law)`, the bend `z`
    beginning at zero.

    A step takes `z` exactly for the velocity at its beginning, and the bend at its end as linear in the velocity there,
    by `d z+ / d v+ = dt (1 - e^-w) / w` with `w = s0 |v| dt / g(v)`: bristles are stable however stiff they are, and
    what they stop stays where it is. What begins in motion is braked by no more than `g`, also by bristles not yet
    bent. What has neither `coulomb` nor `static` has no bristles, and is only braked by `viscous`.
    """

    law: Any
    stiffness: Any
    """Of the bristles, `s0` [N/m, N m/rad]."""
    coulomb: Any
    static: Any
    stribeck_velocity: Any
    damping: Any = 0.0
    """Of the bristles, `s1`."""
    viscous: Any = 0.0

    def _held(self, velocity: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """`g(v)`, whether there is any, and a number to divide by: `g`, or one where its square would not be a number
        to divide derivatives by."""
        held = _stribeck(self.coulomb, self.static, self.stribeck_velocity, velocity)
        rubs = held > jnp.finfo(held.dtype).tiny ** 0.5
        return held, rubs, jnp.where(rubs, held, 1.0)

    def __call__(self, state, command, length, velocity):
        z, inner = state
        force, rate = self.law(inner, command, length, velocity)
        _, rubs, divisor = self._held(velocity)
        bending = jnp.where(rubs, velocity - self.stiffness * jnp.abs(velocity) / divisor * z, 0.0)
        return force - self.stiffness * z - self.damping * bending - self.viscous * velocity, (bending, rate)

    def initial(self, size, dtype):
        return jnp.zeros(size, dtype), self.law.initial(size, dtype)

    def advance(self, state, command, length, velocity, dt):
        bent = self._bent(state[0], velocity, dt)[0]
        return bent, self.law.advance(state[1], command, length, velocity, dt)

    def slopes(self, state, command, length, velocity, dt):
        force, stiffness, damping = self.law.slopes(state[1], command, length, velocity, dt)
        # `z` is one step behind the place, which has moved by the velocity at its end.
        now, _ = self._bent(state[0], velocity, dt)
        later, share = self._bent(now, velocity, dt)
        pull = self.stiffness * later + self.damping * (later - now) / dt
        # What slips is held too, by the secant `g / |v|`: a force that stays `g` in the step that brings a block to
        # rest turns it round, step after step. Damping ends where bristles slip. Its share would jump where the
        # velocity changes sign, and goes over within what bristles that stick would resist by `g`.
        _, rubs, divisor = self._held(velocity)
        way = jnp.tanh((self.stiffness * dt + self.damping) * velocity / divisor)
        sticking = jnp.maximum(1.0 - self.stiffness * now / divisor * way, 0.0)
        own = jnp.where(rubs, (self.stiffness * dt + self.damping * sticking) * share, 0.0)
        return force - pull - self.viscous * velocity, stiffness, damping + own + self.viscous

    def _bent(self, z: jax.Array, velocity: jax.Array, dt: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The bend after a step of one velocity, and `(1 - e^-w) / w` where bristles slip by `w = s0 |v| dt / g`."""
        held, rubs, divisor = self._held(velocity)
        slipped = self.stiffness * jnp.abs(velocity) / divisor * dt
        some = slipped > 1e-4
        share = -jnp.expm1(-jnp.where(some, slipped, 1.0)) / jnp.where(some, slipped, 1.0)
        share = jnp.where(some, share, 1.0 - slipped / 2.0 + slipped**2 / 6.0)
        bent = z * jnp.exp(-slipped) + dt * velocity * share
        # The limit of `bent`: zero, with the derivative by the first bit of friction.
        none = held * jnp.sign(velocity) / jnp.where(self.stiffness > 0.0, self.stiffness, 1.0)
        return jnp.where(rubs, bent, none), share
