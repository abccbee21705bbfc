"""Where a step of `integrate` lands, and how that curves: all of it within joints.

    y = integrate(q, w)     c = difference(after, y)     along a tangent d of q, and with w:  y moves by  A d + J dw

Curves of `integrate` are exponentials, so that one through `q` leads to one through `y`, with the same `A` all along.
With the slope `s` of `costate . c` along the tangents of `y`, and its rates `N` along them, the curvature is

    (A d)' N A d + 2 (J dw)' N A d + (J dw)' N J dw + dw' K dw      K = d(s' J)/dw at constant s

along a straight line of `(d, dw)`. Where `integrate` adds there is none.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.batching import trailing
from dynax.derivatives.variations import within_joints
from dynax.linear.matrices import product, symmetric
from dynax.model import Model
from dynax.model.configuration import (
    carried_rows,
    difference_rate_rows,
    difference_rows,
    integrate_rate_rows,
    integrate_rows,
    rate_rows,
)


@trailing
def landing(model: Model, q: jax.Array, w: jax.Array, after: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`difference(after, integrate(q, w))`, shape `(nv, *batch)`, and how it changes within each joint: along the `k`
    freedoms of the joint and with its `k` entries of `w`, shape `(nv, 2 k, *batch)`."""
    y = integrate_rows(model, q, w)
    turned = lambda v: difference_rate_rows(model, after, y, v)  # noqa: E731
    arrival = jnp.concatenate(_arrival(model, q, w), axis=1)
    return difference_rows(model, after, y), jax.vmap(turned, in_axes=1, out_axes=1)(arrival)


def _arrival(model: Model, q: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`A` and `J` within joints, as `_bent`."""
    along = lambda d: (carried_rows(model, q, w, d), integrate_rate_rows(model, q, w, d))  # noqa: E731
    return jax.vmap(along, out_axes=1)(_one_by_one(model, w))


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

    def slope(y: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda v: difference_rate_rows(model, after, y, v), w)(costate)[0]

    y = integrate_rows(model, q, w)
    s = slope(y)

    def pressing(w: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda change: integrate_rate_rows(model, q, w, change), w)(s)[0]

    def along(d: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(slope, (y,), (rate_rows(model, y, d),))[1], jax.jvp(pressing, (w,), (d,))[1]

    return *_arrival(model, q, w), *jax.vmap(along, out_axes=1)(_one_by_one(model, w))


def _one_by_one(model: Model, like: jax.Array) -> jax.Array:
    """Directions along the first freedom of each joint, the second, ..., with the batch of another array."""
    own = within(model)
    units = (own == np.arange(max(own, default=0) + 1)[:, None]).astype(like.dtype)
    rows = units.reshape(*units.shape, *(1 for _ in like.shape[1:]))
    return jnp.broadcast_to(rows, (len(units), *like.shape))


def within(model: Model) -> np.ndarray:
    """Which freedom of its joint each is, shape `(nv,)`."""
    t = model.topology
    return np.arange(t.nv) - t.v_start[:-1][t.body_of_velocity]
