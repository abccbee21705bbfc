"""Steps of models that touch: impulses that keep shapes apart, with friction, at the velocity of the step's end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.algorithms.crba import mass_matrix
from dynax.contact.convex import Impact, after
from dynax.contact.scene import Scene, candidate_materials, contact_jacobian, contacts
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.model.configuration import integrate
from dynax.simulate.euler import SemiImplicitEuler
from dynax.simulate.friction import dry_friction, kick
from dynax.simulate.stepper import AbstractStepper, State, closed


class Touched(NamedTuple):
    """A step with contact."""

    q: jax.Array
    v: jax.Array
    impulses: jax.Array
    """On the second body of each candidate, in world axes, shape `(k, 3)` [N s]."""
    unbalanced: jax.Array
    """Of the momentum, as a part of what there is: 1e-9 where the step was solved, in float32 1e-3."""


@dataclass(frozen=True)
class Touching(AbstractStepper):
    """The semi-implicit step of a `Scene`: its velocity is the one nearest to that without contact, in the metric of
    the mass matrix, that leaves no shapes overlapping and pays for friction (`contact.convex`).

        q+ = integrate(q, dt v+)        gap + dt n . u >= 0        impulse in the cone of friction

    Shapes that would meet within the step meet at its end, and turn back then and there if they bounce. So when they
    meet is known to a step only, and derivatives do not know it at all: of a ball that bounces back from a wall, the
    derivative by where it started has the wrong sign at any `dt`. And where shapes just touch, the derivative by `q`
    has two sides, `1 / dt` outside and `1 / (dt + relaxation)` inside, of which it is one.
    """

    relaxation: float = 0.02
    """Time in which shapes that overlap come apart [s]; none, they would jump."""
    softness: tuple[float, float] = (1e-3, 1e-6)
    """Compliance of a contact as a part of its mobility, in float32 and in float64: of a change of velocity this part
    is missing, so that what rests gives, and what sticks creeps, by `softness g dt`."""

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        if not isinstance(model, Scene):
            raise ValueError(f"Touching takes a contact.Scene, not a {type(model).__name__}")
        found = self.touched(model, q, v, tau, dt)
        return found.q, found.v

    def touched(self, scene: Scene, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> Touched:
        """The step with what happened in it."""
        model = cast(Model, scene.model)
        if closed(model):
            raise ValueError(
                f"model {model.name!r} has loops, gears or conditions, which a step with contact does not keep; "
                "use a scene of the model with the loops embedded: dx.embed(model, q)"
            )
        _, free = SemiImplicitEuler().step(model, q, v, tau, dt)
        stiff = kick(model, q, v, tau, dt, dry_friction(model, q, v, tau, dt)).model
        problem, frames = self.problem(scene, q, v, free, mass_matrix(stiff, q), dt)
        found = after(problem)
        world = jnp.einsum("kia,ki->ka", frames, found.impulses)
        return Touched(integrate(model, q, dt * found.v), found.v, world, found.unbalanced)

    def problem(
        self, scene: Scene, q: jax.Array, v: jax.Array, free: jax.Array, inertia: jax.Array, dt: jax.Array
    ) -> tuple[Impact, jax.Array]:
        """What is to be solved, and the frames of the contacts as rows, the normal last, shape `(k, 3, 3)`."""
        touch = contacts(scene, q)
        material = candidate_materials(scene, q.dtype)
        frames = jax.vmap(frame)(touch.normal)
        jacobian = jnp.einsum("kia,kaj->kij", frames, contact_jacobian(scene, touch, q))
        normals = jacobian[:, 2]
        mobility = jnp.sum(normals * solve(inertia, normals.T).T, axis=1)
        # What does not move takes no part; where nothing can, there is nothing to solve.
        mobility = jnp.where(mobility > 0, mobility, 1.0)
        compliance = jnp.tile(self.softness[int(q.dtype == jnp.float64)] * mobility[:, None], (1, 2))
        before = normals @ v
        apart = -touch.gap / (dt + jnp.where(touch.gap < 0, self.relaxation, 0.0))
        bounce = lax.stop_gradient((touch.gap + dt * (normals @ free) < 0) & (before < 0) & (material.restitution > 0))
        target = jnp.where(bounce, jnp.maximum(apart, -material.restitution * before), apart)
        target = target[:, None] * np.array([0, 0, 1], q.dtype)
        return Impact(inertia, free, v, jacobian, target, compliance, mobility, material.friction), frames


def frame(normal: jax.Array) -> jax.Array:
    """A rotation whose last row is the normal; smooth but where its z is 0 (Duff et al. 2017)."""
    x, y, z = normal
    sign = jnp.where(z < 0, -1.0, 1.0).astype(normal.dtype)
    a = -1.0 / (sign + z)
    b = x * y * a
    one = jnp.stack([1.0 + sign * x * x * a, sign * b, -sign * x])
    other = jnp.stack([b, sign + y * y * a, -y])
    return jnp.stack([one, other, normal])
