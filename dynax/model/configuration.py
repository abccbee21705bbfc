"""The configuration manifold: integrate, difference, normalize, neutral, random."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.batching import batch_last
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.model.model import Model
from dynax.sweep import take_entries, take_rows


def by_joint_kind(
    model: Model,
    function: Callable[..., Sequence],
    starts: Sequence[np.ndarray],
    sizes: Sequence[str],
    *arrays: jax.Array,
    bodies: np.ndarray | None = None,
) -> jax.Array:
    """Apply `function(kind, parameters, *coordinates)` to all joints of each kind and put the results in body order.

    `starts[k]` says where each body's part of `arrays[k]` begins and `sizes[k]` names its length on the joint
    (`"nq"` or `"nv"`); the last of both describe the result. Arrays have any trailing batch axes. With `bodies`, the
    results are those of their joints alone.
    """
    topology = model.topology
    batch = jnp.broadcast_shapes(*(a.shape[1:] for a in arrays))
    parameters = model.joint_parameters.astype(arrays[0].dtype)
    parameters = parameters.reshape(parameters.shape + (1,) * (1 + len(batch) - parameters.ndim))
    pieces, positions = [], []
    for kind, members in topology.groups.items():
        group = members if bodies is None else members[np.isin(members, bodies)]
        if not getattr(kind, sizes[-1]) or not len(group):
            continue
        own = take_entries(parameters, topology.parameter_start[group], len(kind.parameters))
        parts = [
            take_entries(a, start[group], getattr(kind, size))
            for a, start, size in zip(arrays, starts, sizes, strict=False)
        ]
        for k, component in enumerate(function(kind, own, *parts)):
            pieces.append(jnp.broadcast_to(jnp.asarray(component, arrays[0].dtype), (len(group), *batch)))
            positions.append(starts[-1][group] + k)
    if not pieces:
        return jnp.zeros((0, *batch), arrays[0].dtype)
    order = np.argsort(np.concatenate(positions))
    return take_rows(jnp.concatenate(pieces), order)


def _each(
    model: Model,
    function: Callable[..., Sequence],
    sizes: Sequence[str],
    *arrays: jax.Array,
    bodies: np.ndarray | None = None,
) -> jax.Array:
    """`by_joint_kind` on vectors of the model itself."""
    t = model.topology
    starts = {"nq": t.q_start[:-1], "nv": t.v_start[:-1]}
    return by_joint_kind(model, function, [starts[n] for n in sizes], sizes, *arrays, bodies=bodies)


@for_models
def difference_rows(model: Model, q0: jax.Array, q1: jax.Array) -> jax.Array:
    """`difference` for trailing batch axes."""
    return differences_of(model, None, q0, q1)


def differences_of(model: Model, bodies: np.ndarray | None, q0: jax.Array, q1: jax.Array) -> jax.Array:
    """The same for the joints of some bodies, in the order of all."""
    return _each(model, lambda kind, _, a, b: kind.difference(a, b), ("nq", "nq", "nv"), q0, q1, bodies=bodies)


def difference_rate_rows(model: Model, q0: jax.Array, q1: jax.Array, v: jax.Array) -> jax.Array:
    """The rate of `difference(q0, q1)` while `q1` moves with the velocity `v`, for trailing batch axes."""
    sizes = "nq", "nq", "nv", "nv"
    return _each(model, lambda kind, p, a, b, v: kind.difference_rate(a, b, v, p), sizes, q0, q1, v)


def carried_rows(model: Model, q: jax.Array, dv: jax.Array, v: jax.Array) -> jax.Array:
    """The velocity of `integrate(q, dv)` while `q` moves with the velocity `v`, for trailing batch axes."""
    return _each(model, lambda kind, p, a, b, v: kind.carried(a, b, v, p), ("nq", "nv", "nv", "nv"), q, dv, v)


def integrate_rate_rows(model: Model, q: jax.Array, dv: jax.Array, change: jax.Array) -> jax.Array:
    """The velocity of `integrate(q, dv)` while `dv` changes at this rate, for trailing batch axes."""
    sizes = "nq", "nv", "nv", "nv"
    return _each(model, lambda kind, p, a, b, c: kind.integrate_rate(a, b, c, p), sizes, q, dv, change)


@for_models
def integrate_rows(model: Model, q: jax.Array, dv: jax.Array) -> jax.Array:
    """`integrate` for trailing batch axes."""
    return _each(model, lambda kind, p, a, b: kind.integrate(a, b, p), ("nq", "nv", "nq"), q, dv)


@for_models
def rate_rows(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    """`configuration_rate` for trailing batch axes."""
    t = model.topology
    if t.all_screws and not len(t.free_roots):
        return v
    return _each(model, lambda kind, p, a, b: kind.rate(a, b, p), ("nq", "nv", "nq"), q, v)


@for_models
def tangent_rows(model: Model, q: jax.Array, dq: jax.Array) -> jax.Array:
    """The velocity that moves `q` at the rate `dq`: the inverse of `rate_rows`, for trailing batch axes.

    A rate that would change the length of a quaternion counts for nothing.
    """
    t = model.topology
    if t.all_screws and not len(t.free_roots):
        return dq
    return _each(model, lambda kind, _, a, b: kind.tangent(a, b), ("nq", "nq", "nv"), q, dq)


@for_models
def bracket_rows(model: Model, a: jax.Array, b: jax.Array) -> jax.Array:
    """`[a, b]` of two tangent vectors, joint by joint, for trailing batch axes."""
    t = model.topology
    if t.all_screws and not len(t.free_roots):
        return jnp.zeros_like(a)
    return _each(model, lambda kind, _, a, b: kind.bracket(a, b), ("nv",) * 3, a, b)


def _mapped(rows: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """One of the above for a state: rotations in a kernel, and their derivatives in another; sums need none."""
    of_rotations, plain = batch_last(rows), jax.jit(rows)

    def mapped(model: Model, *states: jax.Array) -> jax.Array:
        turning = isinstance(model, Model) and not model.topology.all_add
        return (of_rotations if turning else plain)(model, *states)

    return mapped


_integrate, _difference = _mapped(integrate_rows), _mapped(difference_rows)
_rate = jax.jit(rate_rows)


@jax.jit
def _normalize(model: Model, q: jax.Array) -> jax.Array:
    return _each(model, lambda kind, _, a: kind.normalize(a), ("nq", "nq"), q)


@for_models
def neutral(model: Model) -> jax.Array:
    """The configuration in which every joint is at its identity, shape `(nq,)`; unit quaternions, zeros elsewhere."""
    values = [value for joint in model.joints for value in joint.neutral()]
    return jnp.asarray(values, model.mass.dtype)


@for_models
def random_configuration(model: Model, key: jax.Array) -> jax.Array:
    """A random configuration, shape `(nq,)`.

    Coordinates with two finite limits are uniform between them; other angles are uniform over a turn, lengths over
    (-1, 1) m, rotations over all orientations.
    """
    dtype = model.mass.dtype
    uniform = jax.random.uniform(key, (model.nq,), dtype, -1.0, 1.0)
    free = _each(model, lambda kind, _, u: kind.sample(u), ("nq", "nq"), uniform)
    lower, upper = model.position_limits[:, 0], model.position_limits[:, 1]
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
    low, high = jnp.where(bounded, lower, 0.0), jnp.where(bounded, upper, 0.0)
    return jnp.where(bounded, low + 0.5 * (uniform + 1.0) * (high - low), free)


@for_models
def integrate(model: Model, q: jax.Array, dv: jax.Array) -> jax.Array:
    """The configuration reached from `q` by moving with the velocity `dv` for one unit of time.

    **Arguments:** `q`: shape `(nq,)`; `dv`: shape `(nv,)`, a velocity times a duration. Each joint follows the
    exponential of its group; quaternions come back at unit length. `difference(model, q, integrate(model, q, dv)) ==
    dv` for rotations of less than half a turn.
    """
    return _integrate(model, *as_state(model, q=q, v=dv))


@for_models
def difference(model: Model, q0: jax.Array, q1: jax.Array) -> jax.Array:
    """The velocity that leads from `q0` to `q1` in one unit of time, shape `(nv,)`; the inverse of `integrate`."""
    return _difference(model, *as_state(model, q=q0, q1=q1))


@for_models
def normalize(model: Model, q: jax.Array) -> jax.Array:
    """The nearest valid configuration: quaternions scaled to unit length (RBDA section 4.5)."""
    return _normalize(model, *as_state(model, q=q))


@for_models
def configuration_rate(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    """The time derivative of `q` when the system moves with `v` (`qdfn`, RBDA eq. 3.7), shape `(nq,)`; linear in
    `v`."""
    return _rate(model, *as_state(model, q=q, v=v))
