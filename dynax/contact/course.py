"""The course of an impact at one contact with friction, along the impulse `p` of its normal (Routh 1905, Keller 1986).

    du/dp = M (f, 1)        |f| <= mu, against the slip, or what it takes to stick        W = int u_n dp

`u` is the velocity at the contact, the entry along the normal last, and `M` its mobility. It is pressed until
`u_n = 0`, with the impulse `p_c` and the work `W_c < 0`; what comes back ends the impact (chapter 11.7, Figure 11.9):

    newton       u_n = -e u_n(0)          of what speed there was
    poisson      p = (1 + e) p_c          of the impulse
    energetic    W - W_c = -e^2 W_c       of the work (Stronge 1990), which never gains energy

The slip may stop, or turn, on the way: so the three differ, and Newton's may gain energy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dynax.contact.coulomb import length_along

PARTS = 32
"""Of either phase, each cut where the slip stops. The friction of a part is along the slip at its end: of first order
in its length where the slip changes its direction, and else without error."""
MORE = 4
"""Parts more, for what slides and is pressed in by its own friction until it stops."""
CORRECTIONS = 12
"""By Newton's method, of the friction of a part that slides."""


class Course(NamedTuple):
    """On the way."""

    u: jax.Array
    """Shape `(3,)` [m/s]."""
    impulse: jax.Array
    """Shape `(3,)` [N s]."""
    work: jax.Array
    """Of the normal impulse [J]."""


def pressed(mobility: jax.Array, friction: jax.Array, at: Course, p: jax.Array) -> Course:
    """After `p` more of the normal impulse: where the cone of friction is wide enough it sticks in the end, else

        (M_tt + x 1) f = -b        |f| = mu p        b = u_t + M_tn p

    of which `1 / |f|` is nearly a line in `x >= 0`, on which Newton's method ends from the left.
    """
    little = 16 * float(jnp.finfo(p.dtype).eps) * jnp.trace(mobility)  # for what cannot move along the surface
    mtt = mobility[:2, :2] + little * jnp.eye(2, dtype=p.dtype)
    b, most = at.u[:2] + mobility[:2, 2] * p, friction * p

    def along(x: jax.Array) -> jax.Array:
        (a, c), (_, d) = mtt + x * jnp.eye(2, dtype=x.dtype)
        return -jnp.stack([d * b[0] - c * b[1], a * b[1] - c * b[0]]) / (a * d - c * c)

    def size(x: jax.Array) -> jax.Array:
        return length_along(along(x)[None])[0]

    slides = size(jnp.zeros_like(p)) > most
    some = jnp.where(slides & (most > 0), most, 1.0)

    def nearer(x: jax.Array, _) -> tuple[jax.Array, None]:
        length, slope = jax.jvp(size, (x,), (jnp.ones_like(x),))
        falls = slides & (slope < 0)
        step = length * (length / some - 1.0) / jnp.where(falls, -slope, 1.0)
        return jnp.where(falls & (most > 0), x + step, x), None

    x, _ = lax.scan(nearer, jnp.zeros_like(p), None, length=CORRECTIONS)
    rubs = jnp.where(slides & (most <= 0), 0.0, along(x))
    impulse = jnp.concatenate([rubs, p[None]])
    u = at.u + mobility @ impulse
    return Course(u, at.impulse + impulse, at.work + 0.5 * (at.u[2] + u[2]) * p)


def struck(
    mobility: jax.Array, friction: jax.Array, bounce: jax.Array, u: jax.Array, law: str
) -> tuple[jax.Array, jax.Array]:
    """The impulse `(3,)` of an impact with the velocity `u` before, of the contact's own mobility `(3, 3)`, and whether
    it came to an end."""
    normal = mobility[2, 2]

    def until_it_stops(at: Course) -> jax.Array:
        """The impulse after which what slides would not slide, infinity for never; and for what sticks."""
        length = length_along(at.u[None])[0]
        some = length > 0
        way = at.u[:2] / jnp.where(some, length, 1.0)
        slower = way @ (friction * mobility[:2, :2] @ way - mobility[:2, 2])
        stops = some & (slower > 0)
        return jnp.where(stops, length / jnp.where(stops, slower, 1.0), jnp.inf)

    def step(at: Course, p: jax.Array) -> Course:
        p = jnp.maximum(p, 0.0)
        first = jnp.minimum(p, until_it_stops(at))
        return pressed(mobility, friction, pressed(mobility, friction, at, first), p - first)

    def rate(at: Course, p: jax.Array) -> jax.Array:
        """Of `u_n` by `p`, over that much of it; negative where friction presses in what slides."""
        some = p > 0
        return jnp.where(some, (step(at, p).u[2] - at.u[2]) / jnp.where(some, p, 1.0), normal)

    def risen(at: Course, rise: jax.Array, parts: jax.Array) -> jax.Array:
        """The impulse of a part of what `u_n` has yet to rise; or to the end of the slip that keeps it down."""
        rise = jnp.maximum(rise, 0.0) / parts
        m = rate(at, rise / normal)
        rises = m > 1e-3 * normal
        stop = until_it_stops(at)
        return jnp.where(
            rises, rise / jnp.where(rises, m, 1.0), jnp.where(jnp.isfinite(stop) & (rise > 0), stop, rise / normal)
        )

    def phase(at: Course, part: Callable) -> Course:
        left = np.concatenate([np.arange(PARTS, 0, -1), np.ones(MORE)])
        return lax.scan(lambda at, k: (step(at, part(at, k)), None), at, jnp.asarray(left, u.dtype))[0]

    def worked(at: Course, parts: jax.Array) -> jax.Array:
        """`w = u_n p + 1/2 m p^2` for what is left to do."""
        left = jnp.maximum(-(bounce**2) * middle.work - (at.work - middle.work), 0.0)

        def of(m: jax.Array) -> jax.Array:
            square = at.u[2] ** 2 + 2.0 * m * left
            some = (square > 0) & (left > 0)
            root = jnp.sqrt(jnp.where(some, square, 1.0))
            return jnp.where(some, 2.0 * left / jnp.where(some, root + at.u[2], 1.0), 0.0) / parts

        m = rate(at, of(normal))
        return of(jnp.where(m > 1e-3 * normal, m, normal))

    start = Course(u, jnp.zeros_like(u), jnp.zeros_like(normal))
    middle = phase(start, lambda at, parts: risen(at, -at.u[2], parts))
    back = {
        "newton": lambda at, parts: risen(at, -bounce * u[2] - at.u[2], parts),
        "poisson": lambda at, parts: ((1.0 + bounce) * middle.impulse[2] - at.impulse[2]) / parts,
        "energetic": worked,
    }
    end = phase(middle, back[law])
    done = (jnp.abs(middle.u[2]) <= 1e-3 * jnp.abs(u[2])) & (end.u[2] >= -1e-3 * jnp.abs(u[2]))
    return end.impulse, lax.stop_gradient(done)
