"""Search by samples, where slopes do not exist or lead nowhere, and many starts of any solver.

Controls are smooth curves `u_k = sum_j b_j(k) w_j`, uniform cubic B-splines: they keep to the limits that their weights
keep to, and few numbers say a long motion. Around the weights of the last round samples `w + s e` are drawn, rolled out
side by side and weighed by what they cost, violated constraints by the square of what they miss. Then

    predictive sampling   w+ = the best of them, the last one included (Howell et al. 2022, "Predictive sampling")
    cross entropy         w+ = mean, s+ = deviation of the best tenth (Rubinstein & Kroese 2004)
    path integral         w+ = mean weighed by exp(-(cost - least) / temperature) (Williams et al. 2017, "MPPI")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dynax.linear.matrices import product
from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.problem import Problem, penalised, total_cost
from dynax.optimize.result import Status
from dynax.optimize.shooting import rollout
from dynax.sweep.scan import settled

# Of the samples, those whose mean and deviation are taken.
ELITE = 10


@pytree_dataclass()
class Sampled:
    """What samples have found; a guess for `solve`, which knows what is left to gain."""

    controls: jax.Array
    """Shape `(N, nu)`."""
    states: jax.Array
    """Those they lead to, shape `(N + 1, nx)`."""
    cost: jax.Array
    """Without what penalises constraints."""
    status: jax.Array
    """`NOT_FINITE` where no sample was finite, else `ITERATIONS`: samples do not tell an optimum."""
    history: jax.Array
    """The least cost of each round, with what penalises constraints; shape `(rounds,)`."""


def splines(N: int, knots: int) -> np.ndarray:
    """Values of the cubic B-splines at the `N` controls, shape `(N, knots)`; rows add up to one."""
    if knots < 4:
        raise ValueError(f"`knots` is {knots}, expected at least 4, as curves of third order have")
    t = np.linspace(0.0, knots - 3.0, N)
    first = np.minimum(t.astype(int), knots - 4)
    s = (t - first)[:, None]
    parts = [(1 - s) ** 3, 3 * s**3 - 6 * s**2 + 4, -3 * s**3 + 3 * s**2 + 3 * s + 1, s**3]
    found = np.zeros((N, knots))
    np.put_along_axis(found, first[:, None] + np.arange(4), np.concatenate(parts, axis=1) / 6.0, axis=1)
    return found


def random_controls(problem: Problem, key: jax.Array, spread: ArrayLike, *, knots: int = 8) -> jax.Array:
    """Smooth random controls about zero, within the limits, shape `(N, nu)`; `spread`: their deviation, a scalar or
    `(nu,)`. For many, `jax.vmap` over keys."""
    w = jnp.asarray(spread) * jax.random.normal(key, (knots, problem.plant.nu), problem.x0.dtype)
    return _curve(problem, w)


def _curve(problem: Problem, w: jax.Array) -> jax.Array:
    u = product(jnp.asarray(splines(problem.knots, len(w)), w.dtype), w)
    return u if problem.limits is None else jnp.clip(u, *problem.limits)


class Round(NamedTuple):
    """What is drawn from."""

    w: jax.Array
    spread: jax.Array


Update = Callable[[Round, jax.Array, jax.Array], Round]
"""The next round from samples of weights `(samples, knots, nu)` and their costs."""


def predictive_sampling(problem: Problem, controls: ArrayLike, key: jax.Array, spread: ArrayLike, **options) -> Sampled:
    """The best of the samples, round after round. Arguments as of `cross_entropy`."""
    return _search(problem, controls, key, spread, lambda r, ws, costs: r._replace(w=ws[jnp.argmin(costs)]), **options)


def cross_entropy(problem: Problem, controls: ArrayLike, key: jax.Array, spread: ArrayLike, **options) -> Sampled:
    """Mean and deviation of the best tenth of the samples, round after round.

    **Arguments:** `controls`: the first guess, shape `(N, nu)`, of which the nearest spline is taken; `key`: of
    `jax.random`; `spread`: the deviation of the first samples, a scalar or `(nu,)`; `samples=256` of each of
    `rounds=20`; `knots=8` weights for each control; `penalty=1e3` of violated constraints.

    **Returns:** `Sampled`, the best that was seen. Under `jax.vmap` over keys many searches.
    """

    def update(_: Round, ws: jax.Array, costs: jax.Array) -> Round:
        best = ws[jnp.argsort(costs)[: max(len(ws) // ELITE, 2)]]
        return Round(jnp.mean(best, axis=0), jnp.std(best, axis=0))

    return _search(problem, controls, key, spread, update, **options)


def path_integral(
    problem: Problem, controls: ArrayLike, key: jax.Array, spread: ArrayLike, *, temperature: ArrayLike = 0.1, **options
) -> Sampled:
    """Means weighed by the exponential of costs (MPPI), round after round. Arguments as of `cross_entropy`;
    `temperature`: in parts of the mean of what samples cost more than the best."""

    def update(r: Round, ws: jax.Array, costs: jax.Array) -> Round:
        finite = jnp.isfinite(costs)
        above = jnp.where(finite, costs - jnp.min(costs), 0.0)
        scale = jnp.asarray(temperature) * jnp.sum(above) / jnp.maximum(jnp.sum(finite), 1)
        weights = jnp.where(finite, jnp.exp(-above / jnp.where(scale > 0, scale, 1.0)), 0.0)
        total = jnp.sum(weights)
        mean = jnp.sum(weights[:, None, None] * ws, axis=0) / jnp.where(total > 0, total, 1.0)
        return r._replace(w=jnp.where(total > 0, mean, r.w))

    return _search(problem, controls, key, spread, update, **options)


def _search(
    problem: Problem, controls: ArrayLike, key: jax.Array, spread: ArrayLike, update: Update,
    *, samples: int = 256, rounds: int = 20, knots: int = 8, penalty: ArrayLike = 1e3,
) -> Sampled:  # fmt: skip
    N, nu, dtype = problem.knots, problem.plant.nu, problem.x0.dtype
    u = jnp.asarray(controls, dtype)
    if u.shape != (N, nu):
        raise ValueError(f"`controls` has shape {u.shape}, expected ({N}, {nu}); for a batch use jax.vmap over keys")
    nearest = jnp.asarray(np.linalg.pinv(splines(N, knots)), dtype)
    first = Round(product(nearest, u), jnp.broadcast_to(jnp.asarray(spread, dtype), (knots, nu)))

    def cost(w: jax.Array) -> jax.Array:
        u = _curve(problem, w)
        found = penalised(problem, rollout(problem, u), u, jnp.asarray(penalty, dtype))
        return jnp.where(jnp.isfinite(found), found, jnp.inf)

    def round_(state: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
        now, best, least = state
        noise = jax.random.normal(key, (samples - 1, knots, nu), dtype)
        ws = jnp.concatenate([now.w[None], now.w + now.spread * noise])
        costs = jax.vmap(cost)(ws)
        own = jnp.argmin(costs)
        better = costs[own] < least
        return (update(now, ws, costs), jnp.where(better, ws[own], best), jnp.minimum(least, costs[own])), costs[own]

    start = settled(lambda state: round_(state, key)[0], (first, first.w, jnp.asarray(jnp.inf, dtype)))
    (_, w, least), history = lax.scan(round_, start, jax.random.split(key, rounds))
    u = _curve(problem, w)
    x = rollout(problem, u)
    status = jnp.where(jnp.isfinite(least), int(Status.ITERATIONS), int(Status.NOT_FINITE))
    return Sampled(u, x, total_cost(problem, x, u), status, history)


class Starts(NamedTuple):
    """What many starts have found."""

    best: Any
    """The result of least cost among those that have converged, or, where none has, of those that violate least."""
    results: Any
    """All of them."""
    found: jax.Array
    """How many have converged."""
    spread: jax.Array
    """By how much the costs of those differ at most: whether there are several optima."""


def multi_start(solver: Callable[[Any], Any], guesses: Any) -> Starts:
    """`solver(guess)`, such as `lambda u: o.solve(problem, u)`, from every row of `guesses`, a tree of arrays, or from
    every key for a search by samples, side by side."""
    results = jax.vmap(solver)(guesses)
    sampled = isinstance(results, Sampled)
    good = results.status == (Status.ITERATIONS if sampled else Status.CONVERGED)
    costs = jnp.where(good, results.cost, jnp.inf)
    found = jnp.sum(good)
    last_resort = results.cost if sampled else results.violation + results.gap
    last_resort = jnp.where(jnp.isfinite(last_resort), last_resort, jnp.inf)
    own = jnp.where(found > 0, jnp.argmin(costs), jnp.argmin(last_resort))
    spread = jnp.max(jnp.where(good, results.cost, -jnp.inf)) - jnp.min(costs)
    return Starts(jax.tree.map(lambda x: x[own], results), results, found, jnp.where(found > 0, spread, jnp.nan))
