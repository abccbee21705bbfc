"""Compliant contact: surfaces that yield (chapter 11.8).

Between two bodies lies a patch of surface without mass, on a spring `K` and a damper `D`. It is pushed in by `z` and
sheared by `x`, and goes back by itself where nothing holds it (11.73, 11.76):

    z' = -(K z + f_n) / D        f_n = max(0, -K z - D p')  while p <= z, else 0
    x' = -(K x + f_t) / D        f_t = -K x - D u, but at most mu f_n

with the gap `p` of the shapes and the velocity `u` with which they slide, of those points of the bodies that are just
there. Both bodies may move; two surfaces that yield lie one behind the other, as one. There are no impulses and no
problem to solve: this is an ordinary differential equation, and a stiff one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynax.contact.material import Material
from dynax.contact.motion import (
    Touch,
    candidate_materials,
    carried,
    contacts,
    contacts_at,
    jacobian_at,
    placed,
    relative_motion,
)
from dynax.contact.scene import Scene
from dynax.model.checks import as_state

NEAR = 1e-3
"""What part of the dent the patch may be away and still touch: in contact `p` is `z` but for errors of steps."""


class Patch(NamedTuple):
    """The state of surfaces, of each candidate of a scene."""

    normal: jax.Array
    """`z`, negative where they are pushed in, shape `(k,)` [m]."""
    tangent: jax.Array
    """`x`, how the second is displaced along the first, in world axes, shape `(k, 3)` [m]."""

    @classmethod
    def fitting(cls, scene: Scene, q: Any) -> Patch:
        """The surfaces of shapes that are where they are, and nothing is sheared: how a motion begins."""
        touch = contacts(scene, q)
        return cls(jnp.minimum(touch.gap, 0.0), jnp.zeros_like(touch.point))


class Yielding(NamedTuple):
    """Compliant contact at a state."""

    forces: jax.Array
    """On the second body of each candidate, in world axes, shape `(k, 3)` [N]."""
    tau: jax.Array
    """The same as joint forces, shape `(nv,)`, to be added to those of forward dynamics."""
    rate: Patch
    """Of the patch [m/s]."""


class Near(NamedTuple):
    """What compliant contact needs of a configuration."""

    touch: Touch
    material: Material
    jacobian: jax.Array
    """Of the velocity of the second body relative to the first, shape `(k, 3, nv)`."""
    velocity: jax.Array
    """That velocity itself, shape `(k, 3)`."""
    spin: jax.Array
    """How fast the two turn about the normal, the mean of them, shape `(k,)`: what is sheared turns with them."""

    def law(self, patch: Patch) -> Yielding:
        """The forces at a state, and the rate of the patch."""
        gap, k, d = self.touch.gap, self.material.stiffness, self.material.damping
        closing = _dot(self.touch.normal, self.velocity)
        # In contact `p` is `z`. It is `p` that is known, and so the dent has no error of its own.
        push = jnp.where(gap <= (1.0 - NEAR) * patch.normal, jnp.maximum(-k * gap - d * closing, 0.0), 0.0)
        rub = self._rub(patch, push, d)
        back = jnp.where(d > 0, 1.0 / jnp.where(d > 0, d, 1.0), 0.0)
        turning = self.spin[:, None] * jnp.cross(self.touch.normal, patch.tangent)
        shear = turning - back[:, None] * (k[:, None] * patch.tangent + rub)
        return self._yielding(push, rub, Patch(-back * (k * patch.normal + push), shear))

    def after(self, patch: Patch, dt: jax.Array) -> Yielding:
        """The same by an implicit step of the patch, which ends here: `f = -K z+ - D (z+ - z) / dt`, where `p` is `z+`
        in contact. In the step in which shapes meet the force is that of the part in which they touch, and so it does
        not jump: its derivatives know when they meet."""
        gap, k, d = self.touch.gap, self.material.stiffness, self.material.damping
        push = jnp.maximum(-k * gap - d * (gap - patch.normal) / dt, 0.0)
        turned = patch.tangent + dt * self.spin[:, None] * jnp.cross(self.touch.normal, patch.tangent)
        rub = self._rub(patch._replace(tangent=turned), push, d + k * dt)
        whole = jnp.where(k * dt + d > 0, k * dt + d, 1.0)
        normal, tangent = (d * patch.normal - dt * push) / whole, (d[:, None] * turned - dt * rub) / whole[:, None]
        rate = jax.tree.map(lambda new, old: (new - old) / dt, Patch(normal, tangent), patch)
        return self._yielding(push, rub, rate)

    def _rub(self, patch: Patch, push: jax.Array, damping: jax.Array) -> jax.Array:
        """What resists the slip, within the cone of friction."""
        stick = -self.material.stiffness[:, None] * patch.tangent - damping[:, None] * self.velocity
        stick = stick - _dot(self.touch.normal, stick)[:, None] * self.touch.normal
        most, size = self.material.friction * push, _dot(stick, stick)
        slides = size > most * most
        return jnp.where(slides, most / jnp.sqrt(jnp.where(slides, size, 1.0)), 1.0)[:, None] * stick

    def _yielding(self, push: jax.Array, rub: jax.Array, rate: Patch) -> Yielding:
        forces = push[:, None] * self.touch.normal + rub
        return Yielding(forces, jnp.einsum("kij,ki->j", self.jacobian, forces), rate)


def near(scene: Scene, q: jax.Array, v: jax.Array) -> Near:
    at = placed(scene, q)
    touch = contacts_at(scene, at)
    turning, velocity = relative_motion(scene, touch.point, at, q, v)
    jacobian = jacobian_at(scene, touch.point, carried(scene), q, at)
    spin = 0.5 * _dot(touch.normal, turning)
    return Near(touch, candidate_materials(scene, q.dtype), jacobian, velocity, spin)


def compliant_forces(scene: Scene, q: Any, v: Any, patch: Patch) -> Yielding:
    """Forces of surfaces that yield, with the rate of their state; Featherstone (2008), eqs. 11.73 to 11.79.

    For any integrator: `forward_dynamics(scene.model, q, v, tau + found.tau)` is the rate of `v`, `found.rate` that of
    the patch, which begins as `Patch.fitting(scene, q)`. Stiffness, damping and friction are those of the
    materials; without damping there is nothing that a surface remembers, and nothing that rubs. Where the normal of a
    candidate turns, what of the shear points along it dies out with the time `D / K`.

    **Arguments:** `q`: shape `(nq,)`; `v`: shape `(nv,)`; `patch`: the state of the surfaces.
    """
    q, v = as_state(scene.model, q=q, v=v)
    return near(scene, q, v).law(patch)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * b, axis=1)
