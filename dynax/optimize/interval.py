"""An interval of a collocation as a step: its equation is solved by Newton's method, and differentiated there.

    z1 = h sum_i w_i g(z_i, u_i)      dz1 = -(dF/dz)^-1 dF      of what the equation misses, F(x, u, z)

Newton's steps need the Jacobian of the rates `g`, which holds the derivatives of the step as well: both come from one
call of the dynamics, which for loops are most of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from dynax.linear.matrices import product
from dynax.linear.solve import solve
from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.inverse_plant import InversePlant
from dynax.optimize.plant import FunctionPlant, Linearized, ModelPlant, by_directions, landed
from dynax.optimize.tangents import jacobian, rates
from dynax.simulate.newton import corrected, implicit_root

METHODS = ("trapezoid", "hermite_simpson", "midpoint")
# Newton's steps for the equation of an interval.
STEPS = 20


@pytree_dataclass("method", "rate", "free")
class CollocatedPlant:
    """An interval as a step of knots `[x, u]`, or `[x, u, s]` with a free final time; made by `collocation`."""

    base: FunctionPlant | ModelPlant | InversePlant
    """Whose states and tangents these are."""
    method: str
    rate: Callable | None
    """`rate(x, u, params)`, the velocity of the state in its tangents, or that of the model."""
    free: bool
    """Whether the lengths of all intervals are to be multiplied by `s`."""

    @property
    def nx(self) -> int:
        return self.base.nx + self.base.nu + self.free

    @property
    def ndx(self) -> int:
        return self.base.ndx + self.base.nu + self.free

    @property
    def nu(self) -> int:
        return self.width + self.free

    @property
    def width(self) -> int:
        """How many controls are chosen in an interval."""
        return 2 * self.base.nu if self.method == "hermite_simpson" else self.base.nu

    def scale(self, x: jax.Array) -> jax.Array:
        """`s`, the factor of all lengths."""
        return x[-1] if self.free else jnp.ones((), x.dtype)

    def kept(self, x: jax.Array, chosen: jax.Array, h: jax.Array) -> jax.Array:
        """What follows the state in the next knot: the control, and `s`, which is chosen where `h` is zero."""
        end = chosen[self.width - self.base.nu : self.width]
        return jnp.append(end, jnp.where(h > 0, x[-1], chosen[-1])) if self.free else end

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        n, m = self.base.nx, self.base.ndx
        return jnp.concatenate([self.base.integrate(x[:n], dx[:m]), x[n:] + dx[m:]])

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        n = self.base.nx
        return jnp.concatenate([self.base.difference(x0[:n], x1[:n]), x1[n:] - x0[n:]])

    def points(self, x: jax.Array, chosen: jax.Array) -> tuple[jax.Array, ...]:
        """The state, and the controls at the beginning, in the middle and at the end of an interval."""
        n, m = self.base.nx, self.base.nu
        start, end = x[n : n + m], chosen[self.width - m : self.width]
        if self.method == "midpoint":
            return x[:n], end, end, end
        return x[:n], start, chosen[:m] if self.method == "hermite_simpson" else 0.5 * (start + end), end

    def rates(self, x: jax.Array) -> jax.Array:
        """As the function `rates` of plants."""
        n = self.base.nx
        return jax.scipy.linalg.block_diag(rates(self.base, x[:n]), jnp.eye(len(x) - n, dtype=x.dtype))

    @property
    def pulled(self) -> Callable | None:
        """As that of the base's, whose state stands first."""
        n, pull = self.base.nx, getattr(self.base, "pulled", None)
        return None if pull is None else lambda x, slope: jnp.concatenate([pull(x[:n], slope[:n]), slope[n:]])

    def velocity(self, x: jax.Array, u: jax.Array, params: Any) -> jax.Array:
        """Of the state, in its tangents."""
        if self.rate is not None:
            return jnp.asarray(self.rate(x, u, params)).astype(x.dtype)
        base: Any = self.base
        return jnp.concatenate([x[base.nx - base.ndx // 2 :], base.acceleration(x, u)])

    def along(self, x: jax.Array, z: jax.Array, u: jax.Array, params: Any) -> jax.Array:
        """`g(z, u)`: the rate of the coordinates about `x`."""
        now = self.base.integrate(x, z)
        return self._turned(x, z, now, self.velocity(now, u, params))

    def _turned(self, x: jax.Array, z: jax.Array, now: jax.Array, velocity: jax.Array) -> jax.Array:
        """A velocity at `now`, which is `x` moved by `z`, as a rate of the coordinates.

        For a model `v + [z, v] / 2 + [z, [z, v]] / 12`, which is as exact as the rules and more (Munthe-Kaas 1999,
        "High order Runge-Kutta methods on manifolds"), and whose derivatives are short.
        """
        if not isinstance(self.base, FunctionPlant):
            turned = self.base.bracket(z, velocity)
            return velocity + 0.5 * turned + self.base.bracket(z, turned) / 12.0
        zero = jnp.zeros_like(z)
        return jax.jvp(lambda w: self.base.difference(x, self.base.integrate(now, w)), (zero,), (velocity,))[1]

    def _along_and_slopes(self, x: jax.Array, z: jax.Array, u: jax.Array, params: Any) -> tuple[jax.Array, jax.Array]:
        """`along`, and its Jacobian by tangents of `x`, by `z` and `u`, from one call of the dynamics."""
        base, m, dtype = self.base, self.base.ndx, x.dtype
        eye = jnp.eye(m, dtype=dtype)
        if isinstance(base, FunctionPlant):
            ways = rates(base, x).T, eye, jnp.eye(base.nu, dtype=dtype)
            along = lambda x, z, u: self.along(x, z, u, params)  # noqa: E731
            sizes = [len(way) for way in ways]
            ways = [jnp.pad(w, ((sum(sizes[:k]), sum(sizes[k + 1 :])), (0, 0))) for k, w in enumerate(ways)]
            return jax.vmap(lambda *d: jax.jvp(along, (x, z, u), d), out_axes=(None, 1))(*ways)
        now = base.integrate(x, z)
        if isinstance(base, ModelPlant):
            a, slopes = base.acceleration_and_slopes(now, u)
            velocity = jnp.concatenate([now[base.nx - m // 2 :], a])
            slopes = jnp.concatenate([jnp.eye(m // 2, m + base.nu, m // 2, dtype=dtype), slopes])
        else:
            velocity, slopes = jacobian(base, lambda x, u: self.velocity(x, u, params), now, u)
        turn = lambda z, v: self._turned(x, z, now, v)  # noqa: E731
        g, by_z = jax.vmap(lambda d: jax.jvp(lambda z: turn(z, velocity), (z,), (d,)), out_axes=(None, 1))(eye)
        turned = jax.vmap(partial(turn, z), in_axes=1, out_axes=1)(slopes)
        _, to_x, to_z = landed(base, x, z, now)
        by_now = turned[:, :m]
        return g, jnp.concatenate([product(by_now, to_x), by_z + product(by_now, to_z), turned[:, m:]], axis=1)

    def ends(self, x: jax.Array, chosen: jax.Array, z: jax.Array, params: Any) -> jax.Array:
        """The rates at the beginning and at the end, by one function of both, shape `(2, ndx of the states)`."""
        start, first, _, end = self.points(x, chosen)
        at = jnp.stack([jnp.zeros_like(z), z]), jnp.stack([first, end])
        return jax.vmap(lambda z, u: self.along(start, z, u, params))(*at)

    def middle(self, x: jax.Array, chosen: jax.Array, z: jax.Array, params: Any, h: jax.Array) -> jax.Array:
        """The coordinates of the middle of an interval that ends at `z`; its length is `h s`."""
        if self.method == "midpoint":
            return 0.5 * z
        return _halfway(z, h * self.scale(x) * self.ends(x, chosen, z, params))

    def defect(
        self, x: jax.Array, chosen: jax.Array, z: jax.Array, params: Any, h: jax.Array, middle: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """What the equation of the interval misses, shape `(ndx of the states,)`, and the coordinates of its middle,
        by Hermite's rule also where `middle` is put in their place."""
        start, _, mid, _ = self.points(x, chosen)
        h = h * self.scale(x)
        if self.method == "midpoint":
            return z - h * self.along(start, 0.5 * z, mid, params), 0.5 * z
        g = h * self.ends(x, chosen, z, params)
        halfway = _halfway(z, g)
        if self.method == "hermite_simpson":
            between = h * self.along(start, halfway if middle is None else middle, mid, params)
            g = jnp.stack([g[0], between, g[1]])
        return z - self._sum(g), halfway

    def _sum(self, g: jax.Array) -> jax.Array:
        """The rule's, of what rates at its points give in the whole length."""
        weights = {"midpoint": (1.0,), "trapezoid": (0.5, 0.5), "hermite_simpson": (1 / 6, 4 / 6, 1 / 6)}[self.method]
        return reduce(jnp.add, [w * own for w, own in zip(weights, g, strict=True)])

    def _system(
        self, x: jax.Array, chosen: jax.Array, y: jax.Array, params: Any, h: jax.Array, alone: bool
    ) -> tuple[jax.Array, jax.Array]:
        """What the equations of the interval miss at `y`, and their Jacobian by tangents of `x`, by what is chosen and
        by `y`, or by `y` `alone`. `y` is `z`, and where Hermite's rule gives a middle `[z, zm]`: then the rates at all
        points are those of one function, called once. Numbers stand first in a row with their derivatives.
        """
        m, size = self.base.ndx, self.ndx + self.nu
        skip = size if alone else 0
        ways = jnp.eye(size + len(y), dtype=x.dtype)[:, skip:]
        both = lambda value, way: jnp.concatenate([value[:, None], way], axis=1)  # noqa: E731
        n = self.base.nx
        knot = both(x, jnp.concatenate([jnp.zeros((n, ways.shape[1]), x.dtype), ways[m : self.ndx]]))
        _, first, mid, end = self.points(knot, both(chosen, ways[self.ndx : size]))
        found = both(y, ways[size:])
        z, still = found[:m], jnp.zeros_like(found[:m])
        zs, us = {
            "midpoint": ([0.5 * z], [mid]),
            "trapezoid": ([still, z], [first, end]),
            "hermite_simpson": ([still, found[m:], z], [first, mid, end]),
        }[self.method]

        def rate(z: jax.Array, u: jax.Array) -> jax.Array:
            g, J = self._along_and_slopes(x[:n], z[:, 0], u[:, 0], params)
            return both(g, product(J, jnp.concatenate([ways[:m], z[:, 1:], u[:, 1:]])))

        # One point is no batch of one, which would be a larger program.
        g = rate(zs[0], us[0])[None] if len(zs) == 1 else jax.vmap(rate)(jnp.stack(zs), jnp.stack(us))
        length = h * (knot[-1] if self.free else jnp.eye(1, knot.shape[1], dtype=x.dtype)[0])
        g = length[0] * g + g[:, :, :1] * length.at[0].set(0.0)
        missed = z - self._sum(g)
        if self.method == "hermite_simpson":
            missed = jnp.concatenate([missed, found[m:] - _halfway(z, g)])
        return missed[:, 0], missed[:, 1:]

    def _solved(
        self, x: jax.Array, chosen: jax.Array, near: jax.Array, params: Any, h: jax.Array, alone: bool
    ) -> tuple[jax.Array, jax.Array]:
        """`y` of `_system`, and where not `alone` its Jacobian by tangents of `x` and by what is chosen.

        Newton's method starts where the interval ends at `near`: long intervals have several solutions, or none far
        from there, and along a search each continues the one before."""
        n, m, middles = self.base.nx, self.base.ndx, self.method == "hermite_simpson"
        z = self.base.difference(x[:n], near[:n])
        start = jnp.concatenate([z, 0.5 * z]) if middles else z
        size = len(start)

        def correction(k: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
            missed, J = self._system(x, chosen, y, params, h, alone)
            found = solve(J[:, -size:], jnp.concatenate([missed[:, None], -J[:, :-size]], axis=1))
            # Hermite's middle is a function of `z`: at first it goes where that of `near` has it.
            own = found[:, 0] if not middles else jnp.where(k > 0, found[:, 0], missed.at[:m].set(0.0))
            return own, found[:, 1:]

        return corrected(correction, start, STEPS, least=1 + middles)

    def _middle_of(self, y: jax.Array) -> jax.Array:
        """The coordinates of the middle, where costs ask for it, or their rates."""
        m = self.base.ndx
        return {"midpoint": 0.5 * y, "trapezoid": y[:0], "hermite_simpson": y[m:]}[self.method]

    def passed(
        self, x: jax.Array, u: jax.Array, near: jax.Array, params: tuple, dt: jax.Array
    ) -> tuple[jax.Array, tuple]:
        """`step`, and what integrals over the interval take of it: its end and the coordinates of its middle."""
        y, _ = self._solved(x, u, near, params[0], dt, alone=True)
        end = self.base.integrate(x[: self.base.nx], y[: self.base.ndx])
        return jnp.concatenate([end, self.kept(x, u, dt)]), (end, self._middle_of(y))

    def passed_linearized(
        self, x: jax.Array, u: jax.Array, after: jax.Array, params: tuple, dt: jax.Array
    ) -> tuple[jax.Array, jax.Array, tuple, tuple]:
        """`linearized` without curvature, and what `passed` gives with its rows along all tangents and controls."""
        n, m = self.base.nx, self.base.ndx
        y, J = self._solved(x, u, after, params[0], dt, alone=False)
        end = self.base.integrate(x[:n], y[:m])
        _, by_x, by_z = landed(self.base, x[:n], y[:m], end)
        moved = product(by_z, J[:m]).at[:, :m].add(by_x)
        kept, slopes = jacobian(self, lambda x, u: self.kept(x, u, dt), x, u)
        c = jnp.concatenate([self.base.difference(after[:n], end), kept - after[n:]])
        turn = landed(self.base, end, jnp.zeros(m, x.dtype), after[:n])[1]
        whole = jnp.concatenate([product(turn, moved), slopes])
        ways = product(rates(self.base, end), moved).T, self._middle_of(J).T
        return c, whole, (end, self._middle_of(y)), ways

    def step(self, x: jax.Array, u: jax.Array, params: tuple, dt: jax.Array) -> jax.Array:
        """`params`: the problem's, with the length of the interval."""

        def equation(z: jax.Array) -> tuple[jax.Array, jax.Array]:
            return self.defect(x, u, z, params[0], dt)[0], z[:0]

        def solved(_, start: tuple) -> tuple[jax.Array, jax.Array]:
            return self._solved(x, u, x, params[0], dt, alone=True)[0][: self.base.ndx], start[1]

        z, _ = implicit_root(equation, solved, jnp.zeros(self.base.ndx, x.dtype))
        return jnp.concatenate([self.base.integrate(x[: self.base.nx], z), self.kept(x, u, dt)])

    def linearized(self, x, u, after, params, dt, costate) -> Linearized:
        """As `plant.linearized`: by the Jacobian that Newton's steps have found with the last of them."""
        if costate is not None:
            return by_directions(self, x, u, after, params, dt, costate)
        return *self.passed_linearized(x, u, after, params, dt)[:2], None


def _halfway(z: jax.Array, g: jax.Array) -> jax.Array:
    """Hermite's middle, for what rates at both ends give in the whole length."""
    return 0.5 * z + 0.125 * (g[0] - g[-1])
