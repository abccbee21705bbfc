"""Mechanisms with closed loops: embedded in the tree, and by the methods that solve for the constraint forces too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

import dynax as dx
from benchmarks.case import Case
from benchmarks.check import Mismatch
from benchmarks.jax_calls import CHECKED, Call, as_type, use_precision
from benchmarks.timing import Contender

ENGINE = "dynax"
METHODS = ("recursive", "kkt", "multipliers", "null_space")
HINGE = dx.Revolute((0.0, 0.0, 1.0))


class Mechanism(NamedTuple):
    model: dx.Model
    q: np.ndarray
    """Assembled."""


def contenders(case: Case, options: Mapping[str, Any] | None = None) -> list[Contender]:
    """Every route of a mechanism, compared with one another in float64 before any is timed."""
    jax.config.update("jax_enable_x64", True)
    found = mechanism(case.robot)
    embedded = dx.embed(found.model, found.q)
    rng = np.random.default_rng(0)
    q = jax.jit(jax.vmap(lambda d: dx.integrate(embedded, found.q, d)))(
        0.1 * rng.normal(size=(case.batch, embedded.nv))
    )
    v = 0.5 * rng.normal(size=(case.batch, embedded.nv))
    whole = jax.jit(jax.vmap(lambda q, v: dx.embedding_matrix(embedded, q) @ v))(q, v)
    tau = np.zeros((case.batch, found.model.nv))
    tau[:, embedded.independent] = rng.normal(size=v.shape)
    free = np.asarray(tau[:, embedded.independent])
    routes: dict[str, tuple[Callable, dx.Model | dx.EmbeddedModel, tuple]] = {
        "embedded": (dx.forward_dynamics, embedded, (q, v, free))
    }
    if case.robot.startswith("legs"):
        routes |= {method: (_solved(method), found.model, (q, whole, tau)) for method in METHODS}
    _agree(case, routes, list(embedded.independent))
    jax.clear_caches()  # what was traced with 64-bit integers is of no use without
    use_precision(case.double)
    return [
        _timed(case, route, function, *as_type((model, states), case.dtype), options)
        for route, (function, model, states) in routes.items()
    ]


def _solved(method: str) -> Callable:
    return lambda model, q, v, tau: dx.constrained_dynamics(model, q, v, tau, method=method).a


def _timed(case: Case, route: str, function: Callable, model, states, options) -> Contender:
    call = Call(dx.batch(function), (model, *states), case.double, options)
    return Contender(ENGINE, route, call.block(), None, case.batch, first=call.first)


def _agree(case: Case, routes: Mapping[str, tuple], independent: list[int]) -> None:
    answers = {}
    for route, (function, model, states) in routes.items():
        few = tuple(np.asarray(x)[:CHECKED] for x in states)
        a = np.asarray(jax.jit(jax.vmap(function, in_axes=(None, 0, 0, 0)))(model, *few))
        answers[route] = a if route == "embedded" else a[:, independent]
    reference = answers["embedded"]
    for route, a in answers.items():
        error = float(np.abs(a - reference).max() / np.abs(reference).max())
        if not error < 1e-8:
            raise Mismatch(f"{case}: {route} differs from the embedded model by {error:.1e}")


def mechanism(name: str) -> Mechanism:
    """`legs8`: a floating trunk on so many legs of a four-bar each; `four-bars16`: so many, each on the one before."""
    match = re.fullmatch(r"(legs|four-bars)(\d+)", name)
    if match is None:
        raise ValueError(f"there is no mechanism {name!r}")
    builder, q = {"legs": _legs, "four-bars": _four_bars}[match[1]](int(match[2]))
    model = builder.build()
    return Mechanism(model, np.asarray(dx.assemble(model, np.array(q)).q))


def _at(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> dx.Transform:
    return dx.Transform.from_translation((x, y, z))


def _rod(mass: float, length: float, along=(1.0, 0.0, 0.0)) -> dx.SpatialInertia:
    """Some 1 cm thick."""
    axis = np.asarray(along)
    slim = mass * length**2 / 12 * (np.eye(3) - np.outer(axis, axis)) + mass * 1e-4 * np.eye(3)
    return dx.SpatialInertia(mass, 0.5 * length * axis, slim)


def _legs(count: int) -> tuple[dx.ModelBuilder, list[float]]:
    """Thigh, two parallel bars on it, and a foot that they carry: four bodies and two freedoms a leg."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name=f"robot of {count} legs")
    builder.body("trunk", joint=dx.Free(), inertia=dx.SpatialInertia(8.0, (0.02, 0.0, 0.01), (0.2, 0.3, 0.25)))
    q = [0.1, 0.4, -0.2, 1.0, 0.0, 0.0, 0.0]
    for k in range(count):
        hip = _at(0.2 * (k // 2) - 0.3, 0.0, 0.15 * (-1.0) ** k)
        names = [f"{part}{k}" for part in ("thigh", "driver", "support", "foot")]
        thigh, driver, support, foot = names
        builder.body(thigh, parent="trunk", joint=HINGE, placement=hip, inertia=_rod(0.23, 0.07))
        builder.body(driver, parent=thigh, joint=HINGE, placement=_at(0.011), inertia=_rod(0.05, 0.096))
        builder.body(support, parent=thigh, joint=HINGE, placement=_at(0.042), inertia=_rod(0.22, 0.096))
        builder.body(foot, parent=driver, joint=HINGE, placement=_at(0.096), inertia=_rod(0.02, 0.127))
        ends = {"predecessor_placement": _at(0.096), "successor_placement": _at(0.031)}
        builder.loop(f"knee{k}", predecessor=support, successor=foot, joint=HINGE, **ends)
        q += [0.3, -1.1, -1.1, 1.1]
    return builder, q


def _four_bars(count: int) -> tuple[dx.ModelBuilder, list[float]]:
    """Parallelograms in a row, each on the coupler of the one before."""
    builder, carrier, q = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name=f"{count} four-bars"), "world", []
    up = (0.0, 1.0, 0.0)
    for k in range(count):
        foot, crank, beam, rocker = 0.1 * (k > 0), f"crank{k}", f"beam{k}", f"rocker{k}"
        builder.body(crank, parent=carrier, joint=HINGE, placement=_at(foot), inertia=_rod(1.0, 0.5, up))
        builder.body(beam, parent=crank, joint=HINGE, placement=_at(0.0, 0.5), inertia=_rod(1.0, 0.3))
        builder.body(rocker, parent=carrier, joint=HINGE, placement=_at(foot + 0.3), inertia=_rod(1.0, 0.5, up))
        ends = {"predecessor_placement": _at(0.3), "successor_placement": _at(0.0, 0.5)}
        builder.loop(f"close{k}", predecessor=beam, successor=rocker, joint=HINGE, **ends)
        angle = 0.5 * np.cos(1.3 * k)
        carrier, q = beam, [*q, angle, -angle, angle]
    return builder, q
