"""Steps of models whose surfaces yield."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.contact.compliant import Patch, Yielding, near
from dynax.contact.scene import Scene
from dynax.model import Model
from dynax.model.configuration import integrate
from dynax.simulate.euler import SemiImplicitEuler
from dynax.simulate.runge_kutta import CLASSICAL
from dynax.simulate.stepper import AbstractStepper, State, acceleration, kept, later
from dynax.simulate.trajectory import TouchReport, TouchStatus

METHODS = ("semi_implicit", "rk4")


class Yielded(NamedTuple):
    """A step with compliant contact."""

    q: jax.Array
    v: jax.Array
    patch: Patch
    report: TouchReport


@dataclass(frozen=True)
class Compliant(AbstractStepper):
    """Steps of a `Scene` whose surfaces yield, `contact.compliant_forces`. A rollout begins with surfaces that fit the
    shapes and are not sheared, and `Trajectory.patch` has their state.

    Contact is explicit: `dt` of `sqrt(m / K) / 10` is accurate, with `m` the mass that a contact feels and `K` its
    stiffness; more than some `2 sqrt(m / K)` or `m / D` is unstable, and with `"rk4"` more than `2 D / K`.

    `"semi_implicit"`: the patch makes an implicit step of its own. The force does not jump when shapes meet, so that
    derivatives know when they do, to first order in `dt`. `"rk4"`: all is one differential equation. Where a damper
    meets a body its force jumps, and derivatives do not know when.
    """

    method: str = "semi_implicit"
    """Or `"rk4"`."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"`method` is {self.method!r}, expected one of {', '.join(map(repr, METHODS))}")

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        raise ValueError(
            "a step with compliant contact goes on from the state of surfaces, which `step` does not know; use "
            "`dx.rollout`, or `Compliant().yielded(scene, q, v, patch, tau, dt)`"
        )

    def yielded(self, scene: Scene, q: jax.Array, v: jax.Array, patch: Patch, tau: jax.Array, dt: jax.Array) -> Yielded:
        """A step of the configuration, the velocity and the state of surfaces."""
        found = (_semi_implicit if self.method == "semi_implicit" else _rk4)(scene, q, v, patch, tau, dt)
        end = later(cast(Model, scene.model), dt)
        q, v = kept(end, (found.q, found.v))
        return found._replace(q=q, v=v)


def _semi_implicit(scene: Scene, q, v, patch: Patch, tau: jax.Array, dt: jax.Array) -> Yielded:
    model = cast(Model, scene.model)
    here = near(scene, q, v)
    found = here.after(patch, dt)
    after, _ = SemiImplicitEuler().velocity(model, q, v, tau + found.tau, dt)
    patch = jax.tree.map(lambda x, rate: x + dt * rate, patch, found.rate)
    report = _report(after, jnp.stack([dt * here.power(found, after - v), *_watched(here.touch.gap, found)]))
    return Yielded(integrate(model, q, dt * after), after, patch, report)


def _rk4(scene: Scene, q, v, patch: Patch, tau: jax.Array, dt: jax.Array) -> Yielded:
    """Of `x = (v, patch, work)`, with two entries more whose rates are what the report tells of the beginning."""
    sizes = (scene.nv, len(patch.normal), patch.tangent.size)
    places = np.cumsum(sizes)

    def rate(q: jax.Array, x: jax.Array, delay: jax.Array) -> jax.Array:
        now, (v, normal, tangent, _) = later(scene, delay), jnp.split(x, places)
        here = near(now, q, v)
        found = here.law(Patch(normal, tangent.reshape(-1, 3)))
        a = acceleration(cast(Model, now.model), q, v, tau + found.tau)
        told = jnp.stack([here.power(found, jnp.zeros_like(v)), *_watched(here.touch.gap, found)])
        return jnp.concatenate([a, found.rate.normal, found.rate.tangent.ravel(), told])

    begin = jnp.concatenate([v, patch.normal, patch.tangent.ravel(), jnp.zeros(3, q.dtype)])
    q, end, first = CLASSICAL.flow(cast(Model, scene.model), q, begin, rate, dt)
    v, normal, tangent, told = jnp.split(end, places)
    report = _report(v, jnp.concatenate([told[:1], first[-2:]]))
    return Yielded(q, v, Patch(normal, tangent.reshape(-1, 3)), report)


def _watched(gap: jax.Array, found: Yielding) -> tuple[jax.Array, jax.Array]:
    """How many press, and how deep."""
    pressing = jnp.sum(jnp.any(found.forces != 0, axis=1), dtype=gap.dtype) + jnp.sum(found.stops != 0, dtype=gap.dtype)
    return lax.stop_gradient((pressing, jnp.max(-gap, initial=0.0)))


def _report(v: jax.Array, told: jax.Array) -> TouchReport:
    work, pressing, depth = told
    good = jnp.all(jnp.isfinite(v))
    status = jnp.where(good, int(TouchStatus.SOLVED), int(TouchStatus.NOT_FINITE)).astype(jnp.int32)
    found = TouchReport(pressing.astype(jnp.int32), depth, work, jnp.zeros_like(work), status)
    return lax.stop_gradient(found)
