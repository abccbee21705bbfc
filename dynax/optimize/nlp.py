"""A problem of optimal control as a nonlinear program, for codes that want all of it: f, g, their sparse derivatives.

    min f(y)     lower <= y <= upper     constraint_lower <= g(y) <= constraint_upper

`y` holds tangents of the states and changes of the controls about a guess, `[dx_0, du_0, dx_1, du_1, ..., dx_N]`; `g`
the first state, what each step misses, constraints along the path and at the end. A step ties neighbours alone, so
that Jacobian and Hessian are block-banded: dense blocks of `(x_k, u_k, x_k+1)`, by `vmap` over the knots (Betts 2010,
section 4.6). In the separated form of Hermite and Simpson's rule the middle of an interval is a variable, after its
controls, and Hermite's equation a constraint, after its defect: more variables, and equations of fewer dynamics within
each other (Kelly 2017, section 4.1).

Names of methods are those that IPOPT's interface `cyipopt` asks for, which takes the program as its `problem_obj`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.optimize.interval import CollocatedPlant
from dynax.optimize.problem import Problem, one_sided, stacked, value


def missed(
    plant: Any, x: jax.Array, u: jax.Array, mid: jax.Array, after: jax.Array, known: Any, dt: jax.Array
) -> tuple[jax.Array, Any]:
    """What a step misses, shape `(ndx,)`, and what costs get to know; of a collocation the defect itself, with nothing
    solved for, and the end and the middle of the interval, of which its costs are integrals. Where `mid` is not empty
    it is that middle, and what it misses stands last."""
    if not isinstance(plant, CollocatedPlant):
        return plant.difference(after, plant.step(x, u, known, dt)), known
    n, own, apart = plant.base.nx, known[0], len(mid) > 0
    z = plant.base.difference(x[:n], after[:n])
    defect, middle = plant.defect(x, u, z, own, dt, mid if apart else None)
    gap = -jnp.concatenate([defect, after[n:] - plant.kept(x, u, dt)])
    return (jnp.concatenate([gap, middle - mid]), (*known, after, mid)) if apart else (gap, (*known, after, middle))


class NonlinearProgram:
    """Made by `as_nlp`; its functions take NumPy arrays and return them."""

    def __init__(self, problem: Problem, controls: jax.Array, states: jax.Array, middles: jax.Array):
        self._known = problem, states, controls, middles
        plant, N, apart = problem.plant, problem.knots, middles.shape[1]
        n, m = plant.ndx, plant.nu + apart
        path, end = _kinds(problem)
        steps = n + N * (n + apart)
        self.n, self.m = N * (n + m) + n, steps + N * len(path) + len(end)
        lower = np.full((N, n + m), -np.inf)
        upper = -lower
        if problem.limits is not None:
            own = slice(n, n + plant.nu)
            lower[:, own], upper[:, own] = (np.asarray(limit - controls) for limit in problem.limits)
        none = np.full(n, np.inf)
        self.lower, self.upper = np.append(lower, -none), np.append(upper, none)
        kinds = np.concatenate([np.zeros(steps, bool), np.tile(path, N), end])
        self.constraint_lower, self.constraint_upper = np.where(kinds, -np.inf, 0.0), np.zeros(self.m)

        start = (n + m) * np.arange(N)[:, None]
        block = start + np.arange(n + m + n)  # the variables of each step
        last = N * (n + m) + np.arange(n)
        rows = np.arange(n, steps).reshape(N, -1), steps + np.arange(N * len(path)).reshape(N, -1)
        ends = steps + N * len(path) + np.arange(len(end))
        parts = [_pairs(np.arange(n), np.arange(n)), *(_pairs(r, c) for r, c in zip(rows[0], block, strict=True)),
                 *(_pairs(r, c[: n + m]) for r, c in zip(rows[1], block, strict=True)), _pairs(ends, last)]  # fmt: skip
        self._jacobian = np.concatenate(parts, axis=1)
        below = np.tril_indices(n + m + n), np.tril_indices(n)
        self._below = below
        parts = [*(np.stack([c[below[0][0]], c[below[0][1]]]) for c in block),
                 np.stack([last[below[1][0]], last[below[1][1]]])]  # fmt: skip
        self._hessian = np.concatenate(parts, axis=1)

    def trajectory(self, y: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """`controls, states` at `y`, as `o.solve` takes them."""
        x, u, _ = _moved(*self._known, jnp.asarray(y))
        return u, x

    def objective(self, y: ArrayLike) -> float:
        return float(_objective(*self._known, jnp.asarray(y)))

    def gradient(self, y: ArrayLike) -> np.ndarray:
        return np.asarray(_gradient(*self._known, jnp.asarray(y)))

    def constraints(self, y: ArrayLike) -> np.ndarray:
        return np.asarray(_constraints(*self._known, jnp.asarray(y)))

    def jacobianstructure(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of what `jacobian` gives."""
        return self._jacobian[0], self._jacobian[1]

    def jacobian(self, y: ArrayLike) -> np.ndarray:
        parts = _jacobian(*self._known, jnp.asarray(y))
        return np.concatenate([np.ravel(part) for part in parts])

    def hessianstructure(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the lower triangle; what stands at a place twice is added."""
        return self._hessian[0], self._hessian[1]

    def hessian(self, y: ArrayLike, multipliers: ArrayLike, factor: float = 1.0) -> np.ndarray:
        """Of `factor f + multipliers' g`."""
        weights = jnp.asarray(multipliers), jnp.asarray(factor, float)
        stages, end = (np.asarray(part) for part in _hessian(*self._known, jnp.asarray(y), *weights))
        return np.append(stages[:, *self._below[0]], end[self._below[1]])


def _pairs(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return np.stack([np.repeat(rows, len(columns)), np.tile(columns, len(rows))])


def as_nlp(problem: Problem, controls: ArrayLike, states: ArrayLike, *, separated: bool = False) -> NonlinearProgram:
    """The problem as a nonlinear program about a guess, whose numbers must be known.

    **Arguments:** `controls`, shape `(N, nu)`; `states`, shape `(N + 1, nx)`, as for `o.solve`; of a collocation those
    of `o.guess`. `separated`: with the middles of intervals as variables, by Hermite and Simpson's rule alone; its
    optima are the same.
    """
    u, x = jnp.asarray(controls, problem.x0.dtype), jnp.asarray(states, problem.x0.dtype)
    N, plant = problem.knots, problem.plant
    for name, given, shape in (("controls", u, (N, plant.nu)), ("states", x, (N + 1, plant.nx))):
        if given.shape != shape:
            raise ValueError(f"`{name}` has shape {given.shape}, expected {shape}")
    if not separated:
        return NonlinearProgram(problem, u, x, jnp.zeros((N, 0), x.dtype))
    if not isinstance(plant, CollocatedPlant) or plant.method != "hermite_simpson":
        raise ValueError("`separated` is for o.collocation with `method` 'hermite_simpson', which has middles")
    return NonlinearProgram(problem, u, x, _middles(problem, x, u))


@jax.jit
def _middles(problem: Problem, states: jax.Array, controls: jax.Array) -> jax.Array:
    """Those of Hermite's rule, shape `(N, ndx of the states)`."""
    plant: Any = problem.plant
    n = plant.base.nx

    def middle(x: jax.Array, u: jax.Array, after: jax.Array, row: Any, dt: jax.Array) -> jax.Array:
        return plant.middle(x, u, plant.base.difference(x[:n], after[:n]), row[0], dt)

    rows = states[:-1], controls, states[1:], problem.known_rows(end=False), problem.dt
    return jax.vmap(middle, (0, 0, 0, problem.known_axes, 0))(*rows)


def _kinds(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Which constraints are inequalities, along the path and at the end."""
    x, u = problem.x0, jnp.zeros(problem.plant.nu, problem.x0.dtype)
    rows, end = problem.known_rows(end=False), problem.known_rows(end=True)
    row = rows if problem.per_knot is None else (rows[0], jax.tree.map(lambda x: x[0], rows[1]))
    found = one_sided(problem.constraints, (x, u, row)), one_sided(problem.end_constraints, (x, end))
    return np.asarray(found[0]), np.asarray(found[1])


def _split(problem: Problem, middles: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Changes of the states, shape `(N + 1, ndx)`, of the controls and of the middles."""
    n, m, N = problem.plant.ndx, problem.plant.nu, problem.knots
    rows = y[: N * (n + m + middles.shape[1])].reshape(N, -1)
    return jnp.concatenate([rows[:, :n], y[None, -n:]]), rows[:, n : n + m], rows[:, n + m :]


def _moved(problem: Problem, states, controls, middles, y) -> tuple[jax.Array, jax.Array, jax.Array]:
    dx, du, dm = _split(problem, middles, y)
    return jax.vmap(problem.plant.integrate)(states, dx), controls + du, middles + dm


def _stage(problem: Problem, z: jax.Array, at: tuple) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Cost, what the step misses, and constraints of a knot, by the changes of its state, control, middle and next
    state."""
    x, u, mid, after, row, dt = at
    plant, n, m = problem.plant, problem.plant.ndx, problem.plant.nu
    dx, du, dm, later = z[:n], z[n : n + m], z[n + m : len(z) - n], z[len(z) - n :]
    x, u, mid, after = plant.integrate(x, dx), u + du, mid + dm, plant.integrate(after, later)
    one, nothing = jnp.ones((), x.dtype), jnp.zeros(0, x.dtype)
    gap, seen = missed(plant, x, u, mid, after, row, dt)
    cost = value(problem.costs, (), (x, u, seen), nothing, one)
    return cost, gap, stacked(problem.constraints, (x, u, row))


def _end(problem: Problem, z: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    args = problem.plant.integrate(x, z), problem.known_rows(end=True)
    one, nothing = jnp.ones((), x.dtype), jnp.zeros(0, x.dtype)
    return value(problem.end_costs, (), args, nothing, one), stacked(problem.end_constraints, args)


def _over_knots(problem: Problem, states, controls, middles, y, function, *more) -> Any:
    """`function(z, at, *more)` of each knot, and the changes there."""
    dx, du, dm = _split(problem, middles, y)
    z = jnp.concatenate([dx[:-1], du, dm, dx[1:]], axis=1)
    rows = states[:-1], controls, middles, states[1:], problem.known_rows(end=False), problem.dt
    axes = 0, 0, 0, 0, problem.known_axes, 0
    return jax.vmap(function, (0, axes, *(0 for _ in more)))(z, rows, *more)


@jax.jit
def _objective(problem: Problem, states, controls, middles, y) -> jax.Array:
    stages = _over_knots(problem, states, controls, middles, y, lambda z, at: _stage(problem, z, at)[0])
    return jnp.sum(stages) + _end(problem, y[-problem.plant.ndx :], states[-1])[0]


_gradient = jax.jit(jax.grad(_objective, argnums=4))


@jax.jit
def _constraints(problem: Problem, states, controls, middles, y) -> jax.Array:
    _, gaps, path = _over_knots(problem, states, controls, middles, y, partial(_stage, problem))
    plant, n = problem.plant, problem.plant.ndx
    first = plant.difference(problem.x0, plant.integrate(states[0], y[:n]))
    return jnp.concatenate([first, jnp.ravel(gaps), jnp.ravel(path), _end(problem, y[-n:], states[-1])[1]])


@jax.jit
def _jacobian(problem: Problem, states, controls, middles, y) -> tuple[jax.Array, ...]:
    plant, n = problem.plant, problem.plant.ndx
    first = jax.jacfwd(lambda z: plant.difference(problem.x0, plant.integrate(states[0], z)))(y[:n])
    slope = jax.jacfwd(lambda z, at: _stage(problem, z, at)[1:])
    gaps, path = _over_knots(problem, states, controls, middles, y, slope)
    end = jax.jacfwd(lambda z: _end(problem, z, states[-1])[1])(y[-n:])
    return first, gaps, path[:, :, : path.shape[-1] - n], end


@jax.jit
def _hessian(problem: Problem, states, controls, middles, y, multipliers, factor) -> tuple[jax.Array, jax.Array]:
    plant, N, n = problem.plant, problem.knots, problem.plant.ndx
    count = n + N * (n + middles.shape[1])
    steps, (path, end) = multipliers[n:count].reshape(N, -1), _kinds_sizes(problem, multipliers[count:])

    def stage(z: jax.Array, at: tuple, own: jax.Array, pressing: jax.Array) -> jax.Array:
        cost, gap, found = _stage(problem, z, at)
        return factor * cost + jnp.sum(own * gap) + jnp.sum(pressing * found)

    def last(z: jax.Array) -> jax.Array:
        cost, found = _end(problem, z, states[-1])
        return factor * cost + jnp.sum(end * found)

    def first(z: jax.Array) -> jax.Array:
        return jnp.sum(multipliers[:n] * plant.difference(problem.x0, plant.integrate(states[0], z)))

    stages = _over_knots(problem, states, controls, middles, y, jax.hessian(stage), steps, path)
    stages = stages.at[0, :n, :n].add(jax.hessian(first)(y[:n]))
    return stages, jax.hessian(last)(y[-n:])


def _kinds_sizes(problem: Problem, rest: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Multipliers along the path, a row for each knot, and at the end."""
    size = len(rest) - len(jax.eval_shape(lambda x: _end(problem, jnp.zeros(problem.plant.ndx), x)[1], problem.x0))
    return rest[:size].reshape(problem.knots, size // problem.knots), rest[size:]
