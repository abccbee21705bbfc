"""Steps of models that touch: impulses that keep shapes apart, with friction, at the velocity of the step's end."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from dynax.algorithms.crba import mass_matrix
from dynax.contact.alart_curnier import LEFT, TOO_MUCH, UNSOLVED, After, after, solved, told
from dynax.contact.coulomb import Impact
from dynax.contact.motion import Placed, candidate_materials, carried, contacts_at, frame, jacobian_at, placed
from dynax.contact.scene import Scene
from dynax.contact.smoothed import after_from_distance, after_smoothed
from dynax.contact.stops import stop_materials, stops_at
from dynax.derivatives.implicit import KEPT
from dynax.derivatives.mean_velocity import accelerations
from dynax.derivatives.rule import closed_form
from dynax.linear.solve import solve_definite
from dynax.model import Model
from dynax.model.configuration import difference, integrate
from dynax.simulate.euler import SemiImplicitEuler
from dynax.simulate.gradients import Bundle, Exact, FromDistance, Gradient, Smoothed
from dynax.simulate.stepper import AbstractStepper, State, closed
from dynax.simulate.touching_rule import Known, Surfaces, velocity
from dynax.simulate.trajectory import TouchReport, TouchStatus
from dynax.simulate.turning import Turning


class Touched(NamedTuple):
    """A step with contact."""

    q: jax.Array
    v: jax.Array
    impulses: jax.Array
    """On the second body of each candidate, in world axes, shape `(k, 3)` [N s]."""
    stops: jax.Array
    """Of stops along their coordinates, in the order of `scene.limited` and `scene.stops`, shape `(l,)` [N s, N m s];
    negative at upper limits, of cones and of ropes."""
    report: TouchReport


class Chosen(NamedTuple):
    """The problem of a step, and what its rows are."""

    problem: Impact
    frames: jax.Array
    """Of the contacts as rows, the normal last, shape `(c, 3, 3)`."""
    rows: jax.Array
    """The candidates, and after them the stops, that take part, shape `(c,)`."""
    signs: jax.Array
    """Of the stops, as `contact.stops` has them."""
    penetration: jax.Array
    crowded: jax.Array


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
    has two sides, `1 / dt` outside and `1 / (dt + relaxation)` inside, of which it is one.

    Limits of joints, cones and ropes are contacts without friction.
    """

    relaxation: float = 0.02
    """Time in which shapes that overlap come apart [s]; none, they would jump."""
    softness: tuple[float, float] = (1e-3, 1e-6)
    """Compliance of a contact as a part of its mobility, in float32 and in float64: of a change of velocity this part
    is missing, so that what rests gives, and what sticks creeps, by `softness g dt`."""
    most: int | None = None
    """Contacts that take part in a step, the nearest of all candidates; default twice the number of freedoms, but not
    less than 32."""
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

    def touched(self, scene: Scene, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> Touched:
        """The step with what happened in it."""
        if isinstance(self.gradient, Bundle):
            exact = dataclasses.replace(self, gradient=Exact())
            return _bundled(exact, self.gradient, scene, q, v, tau, dt)
        model = cast(Model, scene.model)
        if closed(model):
            raise ValueError(
                f"model {model.name!r} has loops, gears or conditions, which a step with contact does not keep; "
                "use a scene of the model with the loops embedded: dx.embed(model, q)"
            )
        at, dt = placed(scene, q), jnp.asarray(dt, q.dtype)
        if isinstance(model, Model):
            chosen, axes, found = self._of_tree(scene, q, at, v, tau, dt)
        else:
            free, stiff = SemiImplicitEuler().velocity(model, q, v, tau, dt)
            inertia = mass_matrix(stiff, q)
            axes = Turning.of_any(model, inertia, dt)
            free = axes.begun(free, 0.5 * (v + free))
            chosen = self.problem(scene, q, at, v, free, inertia, dt)
            found = self._after(scene, chosen.problem, dt)
        world = jnp.einsum("kia,ki->ka", chosen.frames, found.impulses)
        total = len(scene.candidates) + len(scene.limited) + len(scene.stops)
        impulses = jnp.zeros((total, 3), q.dtype).at[chosen.rows].set(world)
        stops = jnp.zeros(total, q.dtype).at[chosen.rows].set(found.impulses[:, 2])[len(scene.candidates) :]
        q = integrate(model, q, dt * axes.screw(found.v))
        report = _report(chosen, found)
        return Touched(q, axes.turned(found.v), impulses[: len(scene.candidates)], chosen.signs * stops, report)

    def _of_tree(
        self, scene: Scene, q: jax.Array, at: Placed, v: jax.Array, tau: jax.Array, dt: jax.Array
    ) -> tuple[Chosen, Turning, After]:
        """The problem of a step and its solution, of trees."""
        model = cast(Model, scene.model)
        (stiff, force), own = SemiImplicitEuler().evaluated(model, q, v, tau, dt)
        axes = Turning.of_tree(model, at, dt)

        def problem(v: jax.Array, own: jax.Array, inertia: jax.Array) -> Chosen:
            # The Coriolis forces of the last evaluation are those of the one before.
            free = axes.begun(v, v + 0.5 * dt * own[-2]) + dt * own[-1]
            return self.problem(scene, q, at, v, free, inertia, dt)

        count = len(scene.candidates) + len(scene.limited) + len(scene.stops)
        if not (isinstance(self.gradient, Exact) and closed_form(model) and count):
            chosen = problem(v, accelerations(stiff, q, v, force, 0.5 * dt, own), mass_matrix(stiff, q))
            return chosen, axes, self._after(scene, chosen.problem, dt)
        chosen = problem(v, own, mass_matrix(*lax.stop_gradient((stiff, q))))
        known = Known(own, *(checkpoint_name(x, KEPT) for x in solved(chosen.problem)))
        surfaces = Surfaces(chosen.problem.jacobian, chosen.problem.target, chosen.problem.friction)
        end = velocity(stiff, q, v, force, dt, axes, surfaces, known)
        return chosen, axes, told(chosen.problem._replace(compliance=known.compliance), end)

    def _after(self, scene: Scene, problem: Impact, dt: jax.Array) -> After:
        match self.gradient:
            case Smoothed(kappa):
                kappa = scene.kappa if kappa is None else kappa
                if kappa is None:
                    raise ValueError(
                        "Smoothed has no `kappa`, and the scene has none: give one, such as Smoothed(1e-3)"
                    )
                return after_smoothed(problem, jnp.asarray(kappa, dt.dtype))
            case FromDistance(reach):
                return after_from_distance(problem, reach / dt)
        return after(problem)

    def problem(
        self, scene: Scene, q: jax.Array, at: Placed, v: jax.Array, free: jax.Array, inertia: jax.Array, dt: jax.Array
    ) -> Chosen:
        """What is to be solved."""
        touch, ends = contacts_at(scene, at), stops_at(scene, q, at)
        material = candidate_materials(scene, q.dtype)
        gaps = jnp.concatenate([touch.gap, ends.gap])
        rows, crowded = self._nearest(gaps, scene.nv)

        def of(contacts: jax.Array, stops: jax.Array) -> jax.Array:
            """Rows of what takes part, of those of all contacts and limits."""
            return jnp.concatenate([contacts, stops.astype(contacts.dtype)])[rows]

        count = len(ends.gap)
        frames = jax.vmap(frame)(of(touch.normal, jnp.tile(jnp.asarray(np.eye(3)[2:], q.dtype), (count, 1))))
        signs = of(jnp.asarray(carried(scene), q.dtype), jnp.zeros((count, at.places.shape[0]), q.dtype))
        jacobian = jnp.einsum(
            "kia,kaj->kij", frames, jacobian_at(scene, of(touch.point, jnp.zeros((count, 3))), signs, q, at)
        )
        straight = of(jnp.zeros((len(touch.gap), scene.nv), q.dtype), ends.jacobian)
        jacobian = jacobian + np.array([0, 0, 1], q.dtype)[:, None] * straight[:, None]
        friction = of(material.friction, jnp.zeros(count))
        restitution = of(material.restitution, stop_materials(scene, q.dtype).restitution)
        gap = gaps[rows]
        normals = jacobian[:, 2]
        mobility = jnp.sum(normals * solve_definite(inertia, normals.T).T, axis=1)
        # What does not move takes no part; where nothing can, there is nothing to solve.
        mobility = jnp.where(mobility > 0, mobility, 1.0)
        compliance = self.softness[int(q.dtype == jnp.float64)] * mobility
        before = normals @ v
        apart = -gap / (dt + jnp.where(gap < 0, self.relaxation, 0.0))
        bounce = lax.stop_gradient((gap + dt * (normals @ free) < 0) & (before < 0) & (restitution > 0))
        target = jnp.where(bounce, jnp.maximum(apart, -restitution * before), apart)
        target = target[:, None] * np.array([0, 0, 1], q.dtype)
        problem = Impact(inertia, free, v, jacobian, target, compliance, mobility, friction)
        return Chosen(problem, frames, rows, ends.sign, jnp.max(-touch.gap, initial=0.0), crowded)

    def _nearest(self, gaps: jax.Array, freedoms: int) -> tuple[jax.Array, jax.Array]:
        """The contacts that take part, and whether there is no room for some that should."""
        most = max(32, 2 * freedoms) if self.most is None else self.most
        if len(gaps) <= most:
            return jnp.arange(len(gaps)), jnp.zeros((), bool)
        gaps = lax.stop_gradient(gaps)
        rows = lax.top_k(-gaps, most + 1)[1]
        return rows[:-1], gaps[rows[-1]] < 0


class _Told(NamedTuple):
    """A step, with numbers of the report that are no integers, so that all have a derivative."""

    touched: Touched

    @classmethod
    def of(cls, found: Touched) -> _Told:
        return cls(found._replace(report=jax.tree.map(lambda x: x.astype(found.q.dtype), found.report)))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _together(method: Touching, bundle: Bundle, scene: Scene, q, v, tau, dt) -> _Told:
    return _Told.of(method.touched(scene, q, v, tau, dt))


@_together.defjvp
def _together_rate(method: Touching, bundle: Bundle, primals: tuple, tangents: tuple) -> tuple[_Told, _Told]:
    found = _together(method, bundle, *primals)
    normal = np.random.default_rng(0).normal(size=(bundle.count, 2, primals[0].nv))

    def one(away: jax.Array) -> _Told:
        def step(scene: Scene, q, v, tau, dt) -> _Told:
            model = cast(Model, scene.model)
            told = _Told.of(method.touched(scene, integrate(model, q, away[0]), v + away[1], tau, dt)).touched
            # The derivative of where it ends, seen from where the step itself ends.
            moved = difference(model, lax.stop_gradient(told.q), told.q)
            return _Told(told._replace(q=integrate(model, found.touched.q, moved)))

        return jax.jvp(step, primals, tangents)[1]

    rates = jax.vmap(one)(jnp.asarray(bundle.spread * normal, found.touched.q.dtype))
    return found, jax.tree.map(lambda x: jnp.mean(x, axis=0), rates)


def _bundled(method: Touching, bundle: Bundle, scene: Scene, q, v, tau, dt) -> Touched:
    told = _together(method, bundle, scene, q, v, tau, dt).touched
    like = TouchReport.none(q.dtype)
    report = jax.tree.map(lambda x, kind: lax.stop_gradient(x).astype(kind.dtype), told.report, like)
    return told._replace(report=report)


def _report(chosen: Chosen, found: After) -> TouchReport:
    """The impulses change the kinetic energy by `gamma . (u* + u) / 2`, since `H (v - v*) = J^T gamma`."""
    problem, (v, impulses, unbalanced, gives) = chosen.problem, found
    mean = 0.5 * (problem.local(v) + problem.local(problem.free))
    wrong = (
        (~jnp.all(jnp.isfinite(v)), TouchStatus.NOT_FINITE),
        (gives > TOO_MUCH, TouchStatus.TOO_SOFT),
        (chosen.crowded, TouchStatus.CROWDED),
        (unbalanced > UNSOLVED * LEFT[v.dtype.name], TouchStatus.NOT_SOLVED),
    )
    status = jnp.select([case for case, _ in wrong], [int(kind) for _, kind in wrong], int(TouchStatus.SOLVED))
    pressing = jnp.sum(impulses[:, 2] > 0, dtype=jnp.int32)
    told = TouchReport(pressing, chosen.penetration, jnp.sum(impulses * mean), unbalanced, status.astype(jnp.int32))
    return lax.stop_gradient(told)
