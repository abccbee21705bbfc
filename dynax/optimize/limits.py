"""The limits of a model: as constraints of a problem, and as the room that a configuration leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dynax.embedding.model import EmbeddedModel
from dynax.joints import AbstractJoint, Reversed
from dynax.linear.matrices import product
from dynax.model import Model
from dynax.model.flexible import FlexibleModel
from dynax.optimize.plant import ModelPlant
from dynax.optimize.problem import Problem, Term, inequality


def with_limits(problem: Problem) -> Problem:
    """The problem with the limits of its model: `position_limits` and `velocity_limits` at every knot, and
    `effort_limits` of what joints are driven by.

    Limits of efforts are those of the controls, kept exactly, where controls are joint forces, and constraints where
    `actuation` mixes them. Constraints count in parts of the range, so that one penalty
    fits all. Where a problem has limits of its own, the narrower ones hold. A start outside is infeasible.

    `ValueError` for a plant that has no such limits, and where nothing is left between two limits of a control.
    """
    plant = problem.plant
    if not (isinstance(plant, ModelPlant) and isinstance(plant.moving, Model)):
        raise ValueError("the plant of `problem` has no limits: give it `lower`, `upper` and `constraints`")
    model, limits = plant.moving, problem.limits
    position, velocity, effort = (
        np.asarray(x, float) for x in (model.position_limits, model.velocity_limits, model.effort_limits)
    )
    states = _within(np.concatenate([position, np.stack([-velocity, velocity], axis=1)]), lambda x, *_: x)
    stages = (*problem.constraints, *states)
    if plant.actuation is None:
        lower, upper = (-jnp.inf, jnp.inf) if limits is None else limits
        most = jnp.broadcast_to(jnp.asarray(effort, problem.x0.dtype), (problem.knots, plant.nu))
        limits = jnp.maximum(lower, -most), jnp.minimum(upper, most)
        if np.any(np.asarray(limits[0] > limits[1])):
            raise ValueError("`lower` or `upper` of `problem` lies beyond `effort_limits` of the model")
    else:
        matrix = plant.actuation
        stages += _within(np.stack([-effort, effort], axis=1), lambda x, u, *_: product(matrix.astype(u.dtype), u))
    ends = (*problem.end_constraints, *states)
    return dataclasses.replace(problem, constraints=stages, end_constraints=ends, limits=limits)


def _within(limits: np.ndarray, of: Callable) -> tuple[Term, ...]:
    """`lower <= of(...) <= upper` of what is finite."""
    lower, upper = limits.T
    low, high = np.flatnonzero(np.isfinite(lower)), np.flatnonzero(np.isfinite(upper))
    if not len(low) + len(high):
        return ()
    both = np.isfinite(lower) & np.isfinite(upper) & (lower < upper)
    spans = np.where(both, np.where(both, upper, 1.0) - np.where(both, lower, 0.0), 1.0)
    index, bound = np.concatenate([low, high]), np.concatenate([lower[low], upper[high]])
    scale = np.concatenate([-np.ones(len(low)), np.ones(len(high))]) / spans[index]

    def beyond(*args: Any) -> jax.Array:
        found = of(*args)[index]
        return scale.astype(found.dtype) * (found - bound.astype(found.dtype))

    return (inequality(beyond),)


def room(model: Any, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How far each freedom may go from `q`, down and up, as `position_limits` leave it, shape `(nv,)` each; zero on a
    limit. Of an embedded model the freedoms that are independent."""
    limits, own, place = _coordinates(model)
    low, high = (
        jnp.append(x.astype(q.dtype), free)[own] for x, free in zip(limits.T, (-jnp.inf, jnp.inf), strict=True)
    )
    now = jnp.append(q, 0.0)[place]
    return low - now, high - now


def _coordinates(model: Any) -> tuple[jax.Array, np.ndarray, np.ndarray]:
    """The limits of a model's tree; for each freedom its row of these, and where its coordinate stands in `q`: the last
    of all where it has none that adds."""
    tree = getattr(model, "tree", model)
    row = _rows(tree)
    if isinstance(model, FlexibleModel):
        row = np.where(model.places.own_v >= 0, row[model.places.own_v], tree.nq)
        return tree.position_limits, row, np.append(model.places.q, model.nq)[row]
    row = row[list(model.independent)] if isinstance(model, EmbeddedModel) else row
    return tree.position_limits, row, row


def _rows(tree: Model) -> np.ndarray:
    """For each freedom the coordinate that it adds to, `nq` where there is none, as in a quaternion."""
    topology, row = tree.topology, np.full(tree.nv, tree.nq)
    for kind, bodies in topology.groups.items():
        own = kind.joint if isinstance(kind, Reversed) else kind
        if type(own).integrate is AbstractJoint.integrate:
            for k in range(own.nv):
                row[topology.v_start[bodies] + k] = topology.q_start[bodies] + k
    return row


def refuse_uneven(model: Any) -> None:
    """`ValueError` for limits, where they are known, of coordinates which velocities do not simply add to."""
    tree = getattr(model, "tree", model)
    if isinstance(tree.position_limits, Tracer):
        return
    others = np.setdiff1d(np.arange(tree.nq), _rows(tree))
    limited = others[np.isfinite(np.asarray(tree.position_limits)[others]).any(axis=1)]
    if len(limited):
        body = int(np.searchsorted(tree.topology.q_start, limited[0], side="right")) - 1
        raise ValueError(
            f"{tree.joint_names[body]!r} of model {tree.name!r} has position_limits, which cannot be kept for a joint "
            f"of kind {tree.joints[body]!r}: set them to infinity, or make it of hinges and slides"
        )
