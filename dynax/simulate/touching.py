"""Steps of models that touch: impulses that keep shapes apart, with friction, at the velocity of the step's end."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.algorithms.crba import mass_matrix
from dynax.contact.alart_curnier import Remembered
from dynax.contact.placing import placed
from dynax.contact.scene import Scene
from dynax.contact.smoothed import FeltFrom, RelaxedBy, Surrogate, after_as
from dynax.contact.solving import after, many
from dynax.derivatives.mean_velocity import accelerations
from dynax.derivatives.rule import closed_form
from dynax.model import Model
from dynax.model.configuration import difference, integrate
from dynax.simulate.euler import SemiImplicitEuler
from dynax.simulate.gradients import Bundle, Exact, FromDistance, Gradient, Smoothed
from dynax.simulate.stepper import AbstractStepper, State, closed
from dynax.simulate.touching_begin import where
from dynax.simulate.touching_end import Touched, ended, of_chosen
from dynax.simulate.touching_problem import Numbers, problem
from dynax.simulate.touching_tree import asked, step_of_tree
from dynax.simulate.trajectory import TouchReport
from dynax.simulate.turning import Turning


@dataclass(frozen=True)
class Touching(AbstractStepper):
    """The semi-implicit step of a `Scene`: its velocity is the one nearest to that without contact, in the metric of
    the mass matrix, that leaves no shapes overlapping and pays for friction (`contact.coulomb`).

        q+ = integrate(q, dt v+)        gap + dt n . u >= 0        impulse in the cone of friction

    Bases that turn are seen along the axes where the step begins, in which impulses and weight are in balance, and
    their centres of mass move straight (`simulate.turning`).

    Shapes that would meet within the step meet at its end, and turn back then and there if they bounce. So when they
    meet is known to a step only, and derivatives do not know it at all: of a ball that bounces back from a wall, the
    derivative by where it started has the wrong sign at any `dt`. And where shapes just touch, the derivative by `q`
    has two sides, `1 / dt` outside and `1 / (dt + relaxation)` inside, of which it is one. What touches and presses
    nothing, to the last digit, is free to leave.

    Limits of joints, cones and ropes are contacts without friction.
    """

    relaxation: float = 0.02
    """Time in which shapes that overlap come apart [s]; none, they would jump."""
    softness: tuple[float, float] = (1e-3, 1e-6)
    """Compliance of a contact as a part of its mobility, in float32 and in float64: of a change of velocity this part
    is missing, so that what rests gives, and what sticks creeps, by `softness g dt`."""
    most: int | None = None
    """Contacts that take part in a step, the nearest of all candidates; default twice the number of freedoms, but not
    less than 32. Limits and other stops take part, whatever their number."""
    gradient: Gradient = field(default_factory=Exact)
    """Which derivatives steps have: `Exact()`, `Smoothed(kappa)`, `FromDistance(reach)`, `Bundle(count, spread)`."""

    def __post_init__(self) -> None:
        if not isinstance(self.gradient, Gradient):
            raise ValueError(f"`gradient` is {self.gradient!r}, expected one such as dx.simulate.Smoothed(1e-3)")

    def prepared(self, scene: Scene) -> tuple[Scene, Touching]:
        """With the number of its derivatives in the scene, where it may be traced."""
        if not isinstance(self.gradient, Smoothed) or self.gradient.kappa is None:
            return scene, self
        scene = dataclasses.replace(scene, kappa=jnp.asarray(self.gradient.kappa))
        return scene, dataclasses.replace(self, gradient=Smoothed(None))

    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        if not isinstance(model, Scene):
            raise ValueError(f"Touching takes a contact.Scene, not a {type(model).__name__}")
        found = self.touched(model, q, v, tau, dt)
        return found.q, found.v

    def touched(
        self,
        scene: Scene,
        q: jax.Array,
        v: jax.Array,
        tau: jax.Array,
        dt: jax.Array,
        before: Remembered | None = None,
    ) -> Touched:
        """The step with what happened in it. `before`: what was `remembered` of the step before, from where it is
        solved sooner."""
        if isinstance(self.gradient, Bundle):
            exact = dataclasses.replace(self, gradient=Exact())
            return _bundled(exact, self.gradient, scene, q, v, tau, dt, before)
        model = cast(Model, scene.model)
        if closed(model):
            raise ValueError(
                f"model {model.name!r} has loops, gears or conditions, which a step with contact does not keep; "
                "use a scene of the model with the loops embedded: dx.embed(model, q)"
            )
        dt, numbers = jnp.asarray(dt, q.dtype), self._numbers(scene.nv, q.dtype)
        touching, surrogate = _can_touch(scene), self._surrogate(scene, dt)
        if not isinstance(model, Model):
            at, (free, stiff) = placed(scene, q), SemiImplicitEuler().velocity(model, q, v, tau, dt)
            inertia = mass_matrix(stiff, q)
            axes = Turning.of_any(model, inertia, dt)
            free = axes.begun(free, 0.5 * (v + free))
            chosen = problem(scene, numbers, q, at, v, free, inertia, axes, dt)
        elif closed_form(model) and touching:
            count = min(len(scene.candidates), numbers.most)  # as many as take part
            return step_of_tree(numbers, many(count))(scene, q, v, tau, dt, before, surrogate).touched
        else:
            (stiff, force), own = SemiImplicitEuler().evaluated(model, q, v, tau, dt)
            own = accelerations(stiff, q, v, force, 0.5 * dt, own)
            chosen, axes = asked(scene, numbers, q, v, own, where(model, q), mass_matrix(stiff, q), dt)
        before = of_chosen(chosen, before)
        if surrogate is None or not touching:
            return ended(scene, q, chosen, axes, after(chosen.problem, before))
        return ended(scene, q, chosen, axes, after_as(chosen.problem, surrogate, before))

    def _numbers(self, nv: int, dtype: Any) -> Numbers:
        most = max(32, 2 * nv) if self.most is None else self.most
        return Numbers(self.relaxation, self.softness[int(dtype == jnp.float64)], most)

    def _surrogate(self, scene: Scene, dt: jax.Array) -> Surrogate | None:
        """Of which the derivatives are, if not the step's own."""
        match self.gradient:
            case Smoothed(kappa):
                kappa = scene.kappa if kappa is None else kappa
                if kappa is None:
                    raise ValueError(
                        "Smoothed has no `kappa`, and the scene has none: give one, such as Smoothed(1e-3)"
                    )
                return RelaxedBy(jnp.asarray(kappa, dt.dtype))
            case FromDistance(reach):
                return FeltFrom(reach / dt)
        return None


def _can_touch(scene: Scene) -> bool:
    return any(map(len, (scene.candidates, scene.limited, scene.stops)))


class _Told(NamedTuple):
    """A step, with numbers of the report that are no integers, so that all have a derivative."""

    touched: Touched

    @classmethod
    def of(cls, found: Touched) -> _Told:
        return cls(found._replace(report=jax.tree.map(lambda x: x.astype(found.q.dtype), found.report)))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _together(method: Touching, bundle: Bundle, scene: Scene, q, v, tau, dt, before: Remembered | None) -> _Told:
    return _Told.of(method.touched(scene, q, v, tau, dt, before))


@_together.defjvp
def _together_rate(method: Touching, bundle: Bundle, primals: tuple, tangents: tuple) -> tuple[_Told, _Told]:
    found = _together(method, bundle, *primals)
    normal = np.random.default_rng(0).normal(size=(bundle.count, 2, primals[0].nv))

    def one(away: jax.Array) -> _Told:
        def step(scene: Scene, q, v, tau, dt, before: Remembered | None) -> _Told:
            model = cast(Model, scene.model)
            told = _Told.of(method.touched(scene, integrate(model, q, away[0]), v + away[1], tau, dt, before)).touched
            # The derivative of where it ends, seen from where the step itself ends.
            moved = difference(model, lax.stop_gradient(told.q), told.q)
            return _Told(told._replace(q=integrate(model, found.touched.q, moved)))

        return jax.jvp(step, primals, tangents)[1]

    rates = jax.vmap(one)(jnp.asarray(bundle.spread * normal, found.touched.q.dtype))
    return found, jax.tree.map(lambda x: jnp.mean(x, axis=0), rates)


def _bundled(method: Touching, bundle: Bundle, scene: Scene, q, v, tau, dt, before: Remembered | None) -> Touched:
    told = _together(method, bundle, scene, q, v, tau, dt, before).touched
    like = TouchReport.none(q.dtype)
    report = jax.tree.map(lambda x, kind: lax.stop_gradient(x).astype(kind.dtype), told.report, like)
    return told._replace(report=report)
