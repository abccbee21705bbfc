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

    A step takes `z` exactly for the velocity at its beginning, and the bristles' stiffness implicitly: it is stable
    however stiff they are. Where it begins in motion let the bristles be bent, `z = g(v) sign(v) / s0`, by
    `Actuators.starting`: from zero they are taken to bend all of the first step, which then brakes far too much. What
    has neither `coulomb` nor `static` has no bristles, and is only braked by `viscous`.
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
        z, inner = state
        held, rubs, divisor = self._held(velocity)
        slipped = self.stiffness * jnp.abs(velocity) / divisor * dt
        some = slipped > 1e-4
        share = -jnp.expm1(-jnp.where(some, slipped, 1.0)) / jnp.where(some, slipped, 1.0)
        share = jnp.where(some, share, 1.0 - slipped / 2.0 + slipped**2 / 6.0)
        bent = z * jnp.exp(-slipped) + dt * velocity * share
        # The limit of `bent`: zero, with the derivative by the first bit of friction.
        none = held * jnp.sign(velocity) / jnp.where(self.stiffness > 0.0, self.stiffness, 1.0)
        return jnp.where(rubs, bent, none), self.law.advance(inner, command, length, velocity, dt)

    def slopes(self, state, command, length, velocity):
        force, stiffness, damping = super().slopes(state, command, length, velocity)
        # Bristles bend with the motion as far as they do not slip.
        _, rubs, divisor = self._held(velocity)
        sticking = jnp.clip(1.0 - self.stiffness * jnp.sign(velocity) * state[0] / divisor, 0.0, 1.0)
        sticking = jnp.where(rubs, sticking, 0.0)
        # Twice, for the bend follows the velocity before the step: with once, a load on bristles that are stiff for the
        # step swings for ever (the map's determinant is 1), with twice its swing is half as much after each step.
        return force, stiffness + 2.0 * self.stiffness * sticking, damping
