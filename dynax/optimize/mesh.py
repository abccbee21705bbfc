"""Trajectories at the nodes of a collocation: guesses, results, and finer meshes where the result errs."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.optimize.interval import CollocatedPlant
from dynax.optimize.problem import Problem
from dynax.optimize.result import Result


class Nodes(NamedTuple):
    """A trajectory at the nodes of a collocation."""

    time: jax.Array
    """[s], from zero, shape `(N + 1,)`."""
    states: jax.Array
    """Shape `(N + 1, nx)`."""
    controls: jax.Array
    """Shape `(N + 1, nu)`; by the rule of the midpoint those of each interval, the last twice."""
    middles: jax.Array
    """The controls in the middle of each interval, shape `(N, nu)`."""


def guess(
    problem: Problem, states: ArrayLike, controls: ArrayLike, factor: ArrayLike = 1.0
) -> tuple[jax.Array, jax.Array]:
    """`controls, states` as `o.solve` takes them, of states `(N + 1, nx)` and controls `(N + 1, nu)` at the nodes, and
    the factor of the lengths where the final time is free."""
    plant = problem.plant
    assert isinstance(plant, CollocatedPlant)
    x, u = jnp.asarray(states, problem.x0.dtype), jnp.asarray(controls, problem.x0.dtype)
    for name, given, width in (("states", x, plant.base.nx), ("controls", u, plant.base.nu)):
        if given.shape != (problem.knots, width):
            raise ValueError(f"`{name}` has shape {given.shape}, expected ({problem.knots}, {width}), a row per node")
    before = jnp.concatenate([u[:1], u[:-1]])
    chosen = jnp.concatenate([0.5 * (before + u), u], axis=1) if plant.method == "hermite_simpson" else u
    knots = jnp.concatenate([jnp.concatenate([x[:1], x]), jnp.concatenate([jnp.zeros_like(u[:1]), u])], axis=1)
    if plant.free:
        factors = jnp.full((len(knots), 1), factor, knots.dtype)
        return jnp.concatenate([chosen, factors[1:]], axis=1), jnp.concatenate([knots, factors.at[0].set(1.0)], axis=1)
    return chosen, knots


def nodes(problem: Problem, result: Result) -> Nodes:
    """A result of a collocation at its nodes."""
    plant = problem.plant
    assert isinstance(plant, CollocatedPlant)
    n, m = plant.base.nx, plant.base.nu
    x = result.states[1:]
    time = jnp.concatenate([jnp.zeros(1, x.dtype), jnp.cumsum(problem.dt[1:])]) * plant.scale(x[-1])
    mid = jax.vmap(lambda x, u: plant.points(x, u)[2])(result.states[1:-1], result.controls[1:])
    return Nodes(time, x[:, :n], x[:, n : n + m], mid)


class Refined(NamedTuple):
    """A finer mesh and what is known on it."""

    problem: Problem
    controls: jax.Array
    states: jax.Array
    error: np.ndarray
    """Of each interval of the old mesh: how far its end is from that of two halves, shape `(N,)`."""


def refine(problem: Problem, result: Result, tolerance: float) -> Refined:
    """The problem on a mesh whose intervals are halved where the result errs by more than `tolerance`, with a guess.

    The error of an interval is the largest entry of the tangent between its end and that of two halves with the same
    controls. Not for `jax.jit`, since what it returns depends on numbers; where nothing errs, it is the problem itself.
    """
    plant = problem.plant
    assert isinstance(plant, CollocatedPlant)
    n, found = plant.base.nx, nodes(problem, result)
    lengths = problem.dt[1:]
    whole, chosen = result.states[1:-1], result.controls[1:]

    @jax.vmap
    def halves(x: jax.Array, u: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        _, first, mid, end = plant.points(x, u)
        quarters = (0.375 * first + 0.75 * mid - 0.125 * end, 0.375 * end + 0.75 * mid - 0.125 * first)
        if plant.method != "hermite_simpson":
            first_half, second_half = mid, end
        else:
            first_half, second_half = (jnp.concatenate(pair) for pair in zip(quarters, (mid, end), strict=True))
        if plant.free:
            first_half, second_half = (jnp.append(half, u[-1]) for half in (first_half, second_half))
        known = problem.params, 0.5 * h
        between = plant.step(x, first_half, known, 0.5 * h)
        after, once = plant.step(between, second_half, known, 0.5 * h), plant.step(x, u, (problem.params, h), h)
        return between[:n], mid, jnp.max(jnp.abs(plant.base.difference(once[:n], after[:n])))

    between, mid, error = (np.asarray(part) for part in halves(whole, chosen, lengths))
    rough = np.flatnonzero(~(error <= tolerance))
    if not len(rough):
        return Refined(problem, result.controls, result.states, error)
    steps = np.repeat(np.asarray(lengths), 1 + np.isin(np.arange(len(lengths)), rough))
    steps[rough + np.arange(len(rough))] *= 0.5
    steps[rough + np.arange(len(rough)) + 1] *= 0.5
    states = np.insert(np.asarray(found.states), rough + 1, between[rough], axis=0)
    controls = np.insert(np.asarray(found.controls), rough + 1, mid[rough], axis=0)
    padded = jnp.pad(jnp.asarray(steps, lengths.dtype), 1)
    limits = problem.limits
    if limits is not None:
        limits = tuple(jnp.broadcast_to(limit[0], (len(steps) + 1, plant.nu)) for limit in limits)
    finer = dataclasses.replace(problem, dt=padded[:-1], per_knot=padded, limits=limits)
    return Refined(finer, *guess(finer, states, controls, plant.scale(result.states[-1])), error)
