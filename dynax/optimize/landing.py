"""Where a step of `integrate` lands, and how that curves: all of it within joints.

    y = integrate(q, w)     c = difference(after, y)     along a tangent d of q, and with w:  y moves by  A d + J dw

Curves of `integrate` are exponentials, so that one through `q` leads to one through `y`, with the same `A` all along.
With the slope `s` of `costate . c` along the tangents of `y`, and its rates `N` along them, the curvature is

    (A d)' N A d + 2 (J dw)' N A d + (J dw)' N J dw + dw' K dw      K = d(s' J)/dw at constant s

along a straight line of `(d, dw)`. Where `integrate` adds there is none.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.batching import trailing
from dynax.derivatives.variations import within_joints
from dynax.linear.matrices import product, symmetric
from dynax.model import Model
from dynax.model.configuration import difference_rows, integrate_rows, rate_rows, tangent_rows


@trailing
def landing(model: Model, q: jax.Array, w: jax.Array, after: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`difference(after, integrate(q, w))`, shape `(nv, *batch)`, and how it changes within each joint: along the `k`
    freedoms of the joint and with its `k` entries of `w`, shape `(nv, 2 k, *batch)`."""

    def along(way: jax.Array) -> tuple[jax.Array, jax.Array]:
        dq, dw = _ways(way, w)
        apart = lambda q, w: difference_rows(model, after, integrate_rows(model, q, w))  # noqa: E731
        return jax.jvp(apart, (q, w), (rate_rows(model, q, dq), dw))

    return jax.vmap(along, out_axes=(None, 1))(jnp.asarray(_one_by_one(model, q.dtype)))


def landing_curvature(
    model: Model, q: jax.Array, w: jax.Array, after: jax.Array, costate: jax.Array, push: jax.Array
) -> jax.Array:
    """Of `costate . difference(after, integrate(q, w))`, shape `(m, m)`, along directions of which the first `nv` move
    `q`, and all move `w` by `push`, shape `(nv, m)`."""
    own = np.flatnonzero([not model.topology.joints[body].adds for body in model.topology.body_of_velocity])
    if not own.size:
        return jnp.zeros((push.shape[1],) * 2, q.dtype)
    parts = _bent(model, q, w, after, costate)
    A, J, N, K = (within_joints(model, part)[own][:, own] for part in parts)
    pushed, early = push[own], product(A, jnp.eye(push.shape[1], dtype=q.dtype)[own])
    moved = early + product(J, pushed)
    # What moves `q` goes before what moves `w`: of their product `N` itself counts, not its symmetric part.
    bent = product(N, moved) + product(N - N.T, early), product(K, pushed)
    return symmetric(product(jnp.concatenate([moved, pushed]).T, jnp.concatenate(bent)))


@trailing
def _bent(model: Model, q: jax.Array, w: jax.Array, after: jax.Array, costate: jax.Array) -> tuple[jax.Array, ...]:
    """`A`, `J`, `N` and `K` within joints, each of shape `(nv, k, *batch)`, `k` the width of the widest joint."""
    units = jnp.asarray(_one_by_one(model, q.dtype))

    def arriving(way: jax.Array) -> jax.Array:
        dq, dw = _ways(way, w)
        y, rate = jax.jvp(lambda q, w: integrate_rows(model, q, w), (q, w), (rate_rows(model, q, dq), dw))
        return tangent_rows(model, y, rate)

    def slope(y: jax.Array) -> jax.Array:
        by_y = jax.grad(lambda y: jnp.sum(costate * difference_rows(model, after, y)))(y)
        return jax.linear_transpose(lambda d: rate_rows(model, y, d), w)(by_y)[0]

    y = integrate_rows(model, q, w)
    s = slope(y)

    def pressing(w: jax.Array) -> jax.Array:
        y, back = jax.vjp(lambda w: integrate_rows(model, q, w), w)
        return back(*jax.linear_transpose(lambda rate: tangent_rows(model, y, rate), y)(s))[0]

    def along(way: jax.Array) -> tuple[jax.Array, jax.Array]:
        d, _ = _ways(way, w)
        return jax.jvp(slope, (y,), (rate_rows(model, y, d),))[1], jax.jvp(pressing, (w,), (d,))[1]

    k = len(units) // 2
    arrival = jax.vmap(arriving, out_axes=1)(units)
    return arrival[:, :k], arrival[:, k:], *jax.vmap(along, out_axes=1)(units[:k])


def _one_by_one(model: Model, dtype: Any) -> np.ndarray:
    """Directions along the first freedom of each joint, the second, ..., then with the entries of `w`."""
    own, nv = within(model), model.nv
    units = (own == np.arange(max(own, default=0) + 1)[:, None]).astype(dtype)
    return np.concatenate([np.pad(units, ((0, 0), (0, nv))), np.pad(units, ((0, 0), (nv, 0)))])


def _ways(way: jax.Array, like: jax.Array) -> tuple[jax.Array, ...]:
    """The halves of a direction, with the batch of another array."""
    rows = (d.reshape(-1, *(1 for _ in like.shape[1:])) for d in jnp.split(way, 2))
    return tuple(jnp.broadcast_to(d, like.shape) for d in rows)


def within(model: Model) -> np.ndarray:
    """Which freedom of its joint each is, shape `(nv,)`."""
    t = model.topology
    return np.arange(t.nv) - t.v_start[:-1][t.body_of_velocity]
