"""Compliant contact: surfaces that yield (chapter 11.8).

Between two bodies lies a patch of surface without mass, on a spring `K` and a damper `D`. It is pushed in by `z` and
sheared by `x`, and goes back by itself where nothing holds it (11.73, 11.76):

    z' = -(K z + f_n) / D        f_n = max(0, -K z - D p')  while p <= z, else 0
    x' = -(K x + f_t) / D        f_t = -K x - D u, but at most mu f_n

with the gap `p` of the shapes and the velocity `u` with which they slide, of those points of the bodies that are just
there. Both bodies may move; two surfaces that yield lie one behind the other, as one. There are no impulses and no
problem to solve: this is an ordinary differential equation, and a stiff one.

Where a material has a `dissipation` `c` the damper grows with the dent `d = max(-p, 0)` (Hunt & Crossley 1975),

    f_n = K d^n max(0, 1 + c d')        K_t = n K d^(n-1) for the shear

and the surface is back at once, with no state along the normal. Stops are patches that are not sheared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.contact.coulomb import positive
from dynax.contact.material import Material
from dynax.contact.motion import (
    Touch,
    candidate_materials,
    carried,
    contacts_at,
    growing,
    jacobian_at,
    relative_motion,
)
from dynax.contact.placing import placed
from dynax.contact.scene import Scene
from dynax.contact.stops import Stops, filled, of_each_stop, stop_materials, stops_at
from dynax.model.checks import as_state

NEAR = 1e-3
"""What part of the dent the patch may be away and still touch: in contact `p` is `z` but for errors of steps."""


class Patch(NamedTuple):
    """The state of surfaces, of each candidate of a scene."""

    normal: jax.Array
    """`z`, negative where they are pushed in, and after the candidates those of stops, shape `(k + l,)` [m, rad]; where
    Hunt and Crossley's law holds it stays what it is."""
    tangent: jax.Array
    """`x`, how the second is displaced along the first, in world axes, shape `(k, 3)` [m]."""

    @classmethod
    def fitting(cls, scene: Scene, q: Any) -> Patch:
        """The surfaces of shapes that are where they are, and nothing is sheared: how a motion begins."""
        (q,) = as_state(scene.model, q=q)
        at = placed(scene, q)
        touch, stops = contacts_at(scene, at), stops_at(scene, q, at)
        gap = jnp.concatenate([touch.gap, stops.gap])
        return cls(-positive(-gap), jnp.zeros_like(touch.point))


class Yielding(NamedTuple):
    """Compliant contact at a state."""

    forces: jax.Array
    """On the second body of each candidate, in world axes, shape `(k, 3)` [N]."""
    stops: jax.Array
    """Of stops along their coordinates, in the order of `scene.limited` and `scene.stops`, shape `(l,)` [N, N m];
    negative at upper limits, of cones and of ropes."""
    tau: jax.Array
    """All of them as joint forces, shape `(nv,)`, to be added to those of forward dynamics."""
    rate: Patch
    """Of the patch [m/s]."""


class Near(NamedTuple):
    """What compliant contact needs of a configuration."""

    touch: Touch
    stops: Stops
    material: Material
    """Of candidates and stops, entries of shape `(k + l,)`."""
    grows: np.ndarray
    """Whether damping grows with the dent, shape `(k + l,)`."""
    jacobian: jax.Array
    """Of the velocity of the second body relative to the first, shape `(k, 3, nv)`."""
    velocity: jax.Array
    """That velocity itself, shape `(k, 3)`."""
    opening: jax.Array
    """The rate of each gap, shape `(k + l,)`."""
    spin: jax.Array
    """How fast the two turn about the normal, the mean of them, shape `(k,)`: what is sheared turns with them."""

    @property
    def gap(self) -> jax.Array:
        return jnp.concatenate([self.touch.gap, self.stops.gap])

    def law(self, patch: Patch) -> Yielding:
        """The forces at a state, and the rate of the patch."""
        gap, k, d = self.gap, self.material.stiffness, self.material.damping
        # In contact `p` is `z`. It is `p` that is known, and so the dent has no error of its own.
        push = jnp.where(gap <= (1.0 - NEAR) * patch.normal, positive(-k * gap - d * self.opening), 0.0)
        push = self._growing(push)
        back = jnp.where(d > 0, 1.0 / jnp.where(d > 0, d, 1.0), 0.0)
        normal = jnp.where(self.grows, 0.0, -back * (k * patch.normal + push))
        k, d, back = self.shear, self._of_candidates(d), self._of_candidates(back)
        rub = self._rub(patch.tangent, push, k, d)
        turning = self.spin[:, None] * jnp.cross(self.touch.normal, patch.tangent)
        return self._yielding(push, rub, normal, turning - back[:, None] * (k[:, None] * patch.tangent + rub))

    def after(self, patch: Patch, dt: jax.Array) -> Yielding:
        """The same by an implicit step of the patch, which ends here: `f = -K z+ - D (z+ - z) / dt`, where `p` is `z+`
        in contact. In the step in which shapes meet the force is that of the part in which they touch, and so it does
        not jump: its derivatives know when they meet."""
        gap, k, d = self.gap, self.material.stiffness, self.material.damping
        push = self._growing(positive(-k * gap - d * (gap - patch.normal) / dt))
        whole = jnp.where(k * dt + d > 0, k * dt + d, 1.0)
        normal = jnp.where(self.grows, patch.normal, (d * patch.normal - dt * push) / whole)
        k, d = self.shear, self._of_candidates(d)
        turned = patch.tangent + dt * self.spin[:, None] * jnp.cross(self.touch.normal, patch.tangent)
        rub = self._rub(turned, push, k, d + k * dt)
        whole = jnp.where(k * dt + d > 0, k * dt + d, 1.0)
        tangent = (d[:, None] * turned - dt * rub) / whole[:, None]
        return self._yielding(push, rub, (normal - patch.normal) / dt, (tangent - patch.tangent) / dt)

    def power(self, found: Yielding, change: jax.Array) -> jax.Array:
        """Of forces that stay what they are, along the mean velocity, if `v` changes by `change`."""
        by_contacts = jnp.sum(found.forces * (self.velocity + 0.5 * (self.jacobian @ change)))
        along = self.stops.sign * (self.opening[len(self.touch.gap) :] + 0.5 * self.stops.rows.times(change))
        return by_contacts + jnp.sum(found.stops * along)

    @property
    def shear(self) -> jax.Array:
        """The stiffness along the surface, shape `(k,)`."""
        k = self.material.stiffness
        if not self.grows.any():
            return self._of_candidates(k)
        n, dent = self.material.exponent, positive(-self.gap)
        return self._of_candidates(jnp.where(self.grows, n * k * _power(dent, n - 1.0), k))

    def _growing(self, push: jax.Array) -> jax.Array:
        """With Hunt and Crossley's law where it holds."""
        if not self.grows.any():
            return push
        dent = positive(-self.gap)
        damped = positive(1.0 - self.material.dissipation * self.opening)
        grown = jnp.where(dent > 0, self.material.stiffness * _power(dent, self.material.exponent) * damped, 0.0)
        return jnp.where(self.grows, grown, push)

    def _rub(self, tangent: jax.Array, push: jax.Array, stiffness: jax.Array, damping: jax.Array) -> jax.Array:
        """What resists the slip, within the cone of friction."""
        stick = -stiffness[:, None] * tangent - damping[:, None] * self.velocity
        stick = stick - _dot(self.touch.normal, stick)[:, None] * self.touch.normal
        most, size = self._of_candidates(self.material.friction * push), _dot(stick, stick)
        slides = size >= most * most  # as what rests in the air
        some = slides & (size > 0)
        return jnp.where(slides, most / jnp.sqrt(jnp.where(some, size, 1.0)), 1.0)[:, None] * stick

    def _of_candidates(self, x: jax.Array) -> jax.Array:
        return x[: len(self.touch.gap)]

    def _yielding(self, push: jax.Array, rub: jax.Array, normal: jax.Array, tangent: jax.Array) -> Yielding:
        forces = self._of_candidates(push)[:, None] * self.touch.normal + rub
        tau = jnp.einsum("kij,ki->j", self.jacobian, forces)
        held = push[len(self.touch.gap) :]
        if len(held):
            tau = tau + self.stops.rows.push(held)
        return Yielding(forces, self.stops.sign * held, tau, Patch(normal, tangent))


def _power(x: jax.Array, n: jax.Array) -> jax.Array:
    """`x^n` for `x >= 0`, with finite derivatives at zero."""
    some = x > 0
    return jnp.where(some, jnp.where(some, x, 1.0) ** n, jnp.where(n == 0, 1.0, 0.0))


def near(scene: Scene, q: jax.Array, v: jax.Array) -> Near:
    scene = filled(scene)
    at = placed(scene, q)
    touch, stops = contacts_at(scene, at), stops_at(scene, q, at)
    turning, velocity = relative_motion(scene, touch.point, at, q, v)
    jacobian = jacobian_at(scene, touch.point, carried(scene), q, at)
    materials = candidate_materials(scene, q.dtype), stop_materials(scene, q.dtype)
    material = jax.tree.map(lambda *x: jnp.concatenate(x), *materials)
    grows = np.concatenate([growing(scene), np.array([m.dissipation is not None for m in of_each_stop(scene)], bool)])
    opening = jnp.concatenate([_dot(touch.normal, velocity), stops.rows.times(v)])
    return Near(touch, stops, material, grows, jacobian, velocity, opening, 0.5 * _dot(touch.normal, turning))


def compliant_forces(scene: Scene, q: Any, v: Any, patch: Patch) -> Yielding:
    """Forces of surfaces and of stops that yield, with the rate of their state; Featherstone (2008), eqs. 11.73 to
    11.79, and Hunt & Crossley (1975).

    For any integrator: `forward_dynamics(scene.model, q, v, tau + found.tau)` is the rate of `v`, `found.rate` that of
    the patch, which begins as `Patch.fitting(scene, q)`. Stiffness, damping and friction are those of the
    materials; without damping there is nothing that a surface remembers, and nothing that rubs. Where the normal of a
    candidate turns, what of the shear points along it dies out with the time `D / K`. A stop of unknown stiffness takes
    the one of `contact.filled(scene)`; call that once where many states are asked.

    **Arguments:** `q`: shape `(nq,)`; `v`: shape `(nv,)`; `patch`: the state of the surfaces.
    """
    q, v = as_state(scene.model, q=q, v=v)
    return near(scene, q, v).law(patch)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * b, axis=1)
