"""Configurations of models with bodies that bend: joints move as those of the skeleton do, modes add."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dynax.embedding.flexible import of_skeleton, own_bodies
from dynax.model.checks import as_state
from dynax.model.configuration import (
    bracket_rows,
    by_joint_kind,
    configuration_rate,
    difference,
    difference_rows,
    integrate,
    integrate_rows,
    neutral,
    normalize,
    random_configuration,
    rate_rows,
    tangent_rows,
)
from dynax.model.flexible import FlexibleModel
from dynax.model.kinds import extend
from dynax.sweep import take_rows

PLACE = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
"""Of a free joint at its identity."""


def _of_joints(
    model: FlexibleModel, function: Callable, sizes: tuple[str, ...], modes: jax.Array, *x: jax.Array
) -> jax.Array:
    """`by_joint_kind` of the joints, on vectors of the model, and `modes`, a vector like the result that is zero
    elsewhere."""
    at, topology = model.places, model.skeleton.topology
    start = {"nq": np.append(at.q, -1)[topology.q_start[:-1]], "nv": np.append(at.v, -1)[topology.v_start[:-1]]}
    found = by_joint_kind(model.skeleton, function, [start[n] for n in sizes], sizes, *x, bodies=own_bodies(model))
    own = (at.own_q if sizes[-1] == "nq" else at.own_v) >= 0
    return take_rows(found, np.where(own, np.cumsum(own) - 1, -1)) + modes


def _are_screws(model: FlexibleModel) -> bool:
    """Whether coordinates of joints change as `v` says."""
    joints = model.skeleton.topology.joints
    return all(joints[body].screw is not None or not joints[body].nv for body in own_bodies(model))


def _joints(model: FlexibleModel, q: jax.Array) -> jax.Array:
    """A configuration of the skeleton with the places at their identities."""
    places = jnp.asarray(PLACE, q.dtype).reshape(1, 7, *(1,) * (q.ndim - 1))
    return of_skeleton(q, jnp.broadcast_to(places, (len(model.places.freedoms), 7, *q.shape[1:])), model.places.q)


def _rates(model: FlexibleModel, v: jax.Array) -> jax.Array:
    still = jnp.zeros((len(model.places.freedoms), 6, *v.shape[1:]), v.dtype)
    return of_skeleton(v, still, model.places.v)


def _own(whole: jax.Array, modes: jax.Array, own: np.ndarray) -> jax.Array:
    """From a vector of the skeleton, and of one of the model its modal entries, the others zero."""
    return take_rows(whole, own) + modes


def _modes_as(x: jax.Array, source: np.ndarray, target: np.ndarray, size: int) -> jax.Array:
    """The modal entries of a vector in one like `q` or `v`, zeros elsewhere."""
    where = np.full(size, -1)
    held = source >= 0
    where[target[held]] = source[held]
    return take_rows(x, where)


@extend(integrate_rows, FlexibleModel)
def _(model, q, dv):
    at = model.places
    modes = _modes_as(q, at.modes_q, at.modes_q, model.nq) + _modes_as(dv, at.modes_v, at.modes_q, model.nq)
    return _of_joints(model, lambda kind, p, a, b: kind.integrate(a, b, p), ("nq", "nv", "nq"), modes, q, dv)


@extend(difference_rows, FlexibleModel)
def _(model, q0, q1):
    at = model.places
    modes = _modes_as(q1 - q0, at.modes_q, at.modes_v, model.nv)
    return _of_joints(model, lambda kind, _, a, b: kind.difference(a, b), ("nq", "nq", "nv"), modes, q0, q1)


@extend(rate_rows, FlexibleModel)
def _(model, q, v):
    if _are_screws(model):
        return v
    modes = _modes_as(v, model.places.modes_v, model.places.modes_q, model.nq)
    return _of_joints(model, lambda kind, p, a, b: kind.rate(a, b, p), ("nq", "nv", "nq"), modes, q, v)


@extend(bracket_rows, FlexibleModel)
def _(model, a, b):
    at = model.places
    return take_rows(bracket_rows(model.skeleton, _rates(model, a), _rates(model, b)), at.own_v)


@extend(tangent_rows, FlexibleModel)
def _(model, q, dq):
    if _are_screws(model):
        return dq
    modes = _modes_as(dq, model.places.modes_q, model.places.modes_v, model.nv)
    return _of_joints(model, lambda kind, _, a, b: kind.tangent(a, b), ("nq", "nq", "nv"), modes, q, dq)


# What is made of these alone is the same function.
for _function in (integrate, difference, configuration_rate):
    extend(_function, FlexibleModel)(_function.__wrapped__)


@extend(neutral, FlexibleModel)
def _(model):
    return take_rows(neutral(model.skeleton), model.places.own_q)


@extend(random_configuration, FlexibleModel)
def _(model, key):
    """With all bodies undeformed: how far a mode may go depends on its scale."""
    return take_rows(random_configuration(model.skeleton, key), model.places.own_q)


@extend(normalize, FlexibleModel)
def _(model, q):
    (q,) = as_state(model, q=q)
    at = model.places
    modes = _modes_as(q, at.modes_q, at.modes_q, model.nq)
    return _own(normalize(model.skeleton, _joints(model, q)), modes, at.own_q)
