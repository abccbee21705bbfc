"""Limits of the controls at all knots at once: the linear-quadratic problem by an interior point.

    min  LQ(x, u)     low <= u <= high          multiplier * room = mu -> 0   at each limit

At each knot `box` chooses as if what comes after had no limits but those that hold it now. Where controls jump between
limits, as for least fuel or least time, the last knots then promise to do it all, and not even the model lets them. So
limits get multipliers here, and a Newton step in all that is unknown is one more linear-quadratic problem, with

    R + multiplier / room     r - multiplier / room u -+ mu / room

(Rao, Wright & Rawlings 1998, "Application of interior-point methods to model predictive control"; Nocedal & Wright
2006, section 16.6). A direction is wanted, no vertex: it ends where limits cost a hundredth of what is promised, and
`box` finds the last digits. It begins beside the motion that is known, since from further inside, where constraints
that were met cost a thousand times what there is to win, multipliers of that size do not find back.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dynax.linear.matrices import product
from dynax.optimize.lqr import LQ, Descent, descent
from dynax.sweep.scan import settled

ITERATIONS = 30
# How near to a limit a step may go, and how much of `mu` the next leaves at least.
EDGE, CENTRED = 0.99, 0.05
# What limits may cost of what is promised.
LEFT = 1e-2
# How far inside it begins, as a part of what `box` would do or of the room there is.
INSIDE = 1e-3
# By which part of what `box` would do limits are wider, so that there is room between those which are the same.
WIDER = 1e-6


class Inside(NamedTuple):
    """A motion within the limits."""

    x: jax.Array
    """That which `u` leads to, once steps have been whole."""
    u: jax.Array
    z: jax.Array
    """Multipliers of lower and upper limits, shape `(2, N, m)`, zero of those at infinity."""
    size: jax.Array
    """Of the last step."""
    policy: Descent
    convex: jax.Array
    count: jax.Array
    over: jax.Array


def interior(lq: LQ, limits: tuple[jax.Array, jax.Array], policy: Descent, wanted: jax.Array) -> Descent:
    """`policy`, which is that of `box`, and where another is `wanted` that of the best motion within the limits from
    zero; no other where the problem bends the wrong way between them, or none is found."""
    dtype = lq.R.dtype
    way = jnp.asarray([1.0, -1.0], dtype)[:, None, None]
    usual = jnp.max(jnp.abs(policy.k))
    bounds = jnp.stack(limits) - WIDER * usual * way
    ends = jnp.isfinite(bounds)
    number = jnp.maximum(jnp.sum(ends), 1)
    eye = jnp.eye(lq.R.shape[-1], dtype=dtype)

    def room(u: jax.Array) -> jax.Array:
        return jnp.where(ends, way * (u - bounds), 1.0)

    def once(s: Inside) -> Inside:
        space = room(s.u)
        mu = jnp.maximum(CENTRED, (1.0 - s.size) ** 2) * jnp.sum(s.z * space) / number
        pull, stiff = jnp.where(ends, mu / space, 0.0), s.z / space
        steep = jnp.sum(stiff, axis=0)
        r = lq.r - steep * s.u - jnp.sum(way * pull, axis=0)
        own = descent(lq._replace(R=lq.R + steep[..., None] * eye, r=r))
        du = own.u - s.u
        dz = pull - s.z - stiff * way * du
        now, later = jnp.stack([space, s.z]), jnp.stack([way * du, dz])
        falls = ends & (later < 0)
        size = jnp.minimum(1.0, EDGE * jnp.min(jnp.where(falls, now / jnp.where(falls, -later, 1.0), jnp.inf)))
        x, u, z = s.x + size * (own.x - s.x), s.u + size * du, s.z + size * dz
        promised = -(jnp.sum(lq.q * x) + jnp.sum(lq.r * u))
        convex = jnp.all(own.convex) & jnp.isfinite(promised)
        over = ~convex | ((size > 0.9) & (jnp.sum(z * room(u)) <= LEFT * promised))
        return Inside(x, u, z, size, own, convex, s.count + 1, over)

    edge = INSIDE * jnp.minimum(bounds[1] - bounds[0], usual)
    u = jnp.clip(jnp.zeros_like(edge), bounds[0] + edge, bounds[1] - edge)
    z = jnp.where(ends, -jnp.sum(policy.promise) / number / room(u), 0.0)
    none = jnp.zeros((), dtype)
    start = Inside(jnp.zeros_like(lq.q), u, z, none, policy, jnp.ones((), bool), jnp.zeros((), int), ~wanted)
    s = jax.lax.while_loop(lambda s: ~s.over & (s.count < ITERATIONS), once, settled(once, start))
    # Through the motion, which is not where the last step would have ended.
    k = s.u - product(s.policy.K, s.x[:-1, :, None])[..., 0]
    slope = jnp.sum(lq.q * s.x) + jnp.sum(lq.r * s.u)
    found = s.policy._replace(x=s.x, u=s.u, k=k, promise=jnp.zeros_like(policy.promise).at[0].set(slope))
    return jax.tree.map(lambda new, old: jnp.where(wanted & s.convex & s.over, new, old), found, policy)
