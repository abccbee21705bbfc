"""How simulated motions depend on parameters and on where they begin, exactly, with all their steps side by side.

    dz_{k+1} = A_k dz_k + B_k dp        z_{k+1} = step(z_k, u_k; p)        dz along the tangent, [dq; dv]

The motions are simulated first. Then `A_k` and `B_k` do not wait for one another: they are the derivatives of as many
single steps, a batch, in closed form where there is one (`step_slopes`), else in reverse mode, since a step has fewer
results than there are states and parameters together. What is left for the walk through time is a product of small
matrices, in one kernel where these are few. A rollout that carries directions along, state by state, computes the same
numbers ten times as slowly and more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.compile.batching import trailing
from dynax.compile.tiles import by_tiles
from dynax.contact.scene import Scene
from dynax.embedding.model import EmbeddedModel
from dynax.identify.step_slopes import euler, slopes_of, step_slopes
from dynax.linear.matrices import product
from dynax.model.configuration import difference, integrate
from dynax.simulate.friction import Stepped
from dynax.simulate.motion import simulated
from dynax.simulate.rollout import rollout, step
from dynax.simulate.stepper import AbstractStepper
from dynax.simulate.trajectory import Trajectory

TILE = 256
"""Results times samples that are differentiated at a time on a CPU: for an arm half the time of a whole log at once."""
WIDTH = 64
"""Samples at a time where the derivative has a closed form: an arm with 98 parameters takes 22 ms for 500 steps, with
16 or all at a time three to four times that."""
WRITTEN_OUT = 24
"""Rows of the slopes up to which the walk through time is one kernel on a CPU, one motion after another: with 14 rows
and 20 parameters half the time of as many products of matrices, with 24 the same, with 36 more."""
READINGS = 512
"""Samples at a time of what motions miss, mostly a handful of operations: 500 samples of an arm's angles and speeds at
once take a tenth off the whole Jacobian, beside tiles of 18."""


def by_steps(model: Any) -> bool:
    """Whether a rollout of the model carries nothing but its configuration and velocity from step to step."""
    return not isinstance(model, EmbeddedModel | Scene)


def motion_slopes(
    build: Callable[[jax.Array], Any],
    x: jax.Array,
    q: jax.Array,
    v: jax.Array,
    begin: jax.Array,
    controls: jax.Array,
    dt: ArrayLike,
    stepper: str | AbstractStepper,
) -> tuple[Trajectory, jax.Array]:
    """Motions, and their derivative by `[beginning, parameters]`, along the tangent, `(S, K + 1, 2 nv, n + p)`.

    **Arguments:** `build`: the model of parameters `x`, `(p,)`; `q`, `v`: where the motions begin, `(S, nq)` and
    `(S, nv)`; `begin`: the derivative of that by what it depends on, `(S, 2 nv, n)`; `controls`: joint forces of K
    steps of length `dt`, `(S, K, nv)`.
    """
    p, nv = x.size, v.shape[1]
    slopes, model, length = slopes_of(build, x, stepper), build(x), jnp.asarray(dt, x.dtype)

    def known(k: jax.Array, q: jax.Array, v: jax.Array, found: Stepped, after: jax.Array) -> jax.Array:
        assert slopes is not None
        now = model.replace(time=model.time + k * length)
        return step_slopes(now, slopes, q, v, found, after, length, stepper)

    def one(k: jax.Array, q: jax.Array, v: jax.Array, tau: jax.Array, after: jax.Array) -> jax.Array:
        def ahead(dq: jax.Array, dv: jax.Array, x: jax.Array) -> jax.Array:
            model = build(x)
            now = model.replace(time=model.time + k * length)
            following, speed = step(now, integrate(model, q, dq), v + dv, tau, dt, stepper=stepper)
            return jnp.concatenate([difference(model, after, following), speed])

        return jnp.concatenate(jax.jacrev(ahead, argnums=(0, 1, 2))(jnp.zeros_like(v), jnp.zeros_like(v), x), axis=1)

    def free(q: jax.Array, v: jax.Array, controls: jax.Array) -> Trajectory:
        return rollout(model, q, v, controls, dt, stepper=stepper, checkpoint=False)

    def seen(q: jax.Array, v: jax.Array, controls: jax.Array) -> tuple[Trajectory, Stepped]:
        method = euler(stepper)
        assert method is not None
        return simulated(model, q, v, controls, length, method)

    count = jnp.broadcast_to(jnp.arange(controls.shape[1], dtype=x.dtype), controls.shape[:2])
    if slopes is None:
        run, function, width, told = jax.vmap(free)(q, v, controls), one, TILE // (2 * nv), controls
    else:
        jax.eval_shape(jax.vmap(free), q, v, controls)  # refuses what does not fit
        run, told = jax.vmap(seen)(q, v, controls)
        function, width = known, WIDTH
    steps = each(function, width, count, run.q[:, :-1], run.v[:, :-1], told, run.q[:, 1:])

    first = jnp.concatenate([begin, jnp.zeros((len(begin), 2 * nv, p), x.dtype)], axis=-1)
    if jax.default_backend() == "cpu" and 2 * nv <= WRITTEN_OUT:
        rest = lax.map(lambda own: _in_one_kernel((), *own), (first, steps))
    else:
        rest = jax.vmap(partial(_carried, product))(first, steps)
    return run, jnp.concatenate([first[:, None], rest], axis=1)


def _carried(times: Callable, first: jax.Array, steps: jax.Array) -> jax.Array:
    """The slopes after each step, from the first, `(2 nv, n + p)`, and those of steps, `(K, 2 nv, 2 nv + p)`; `times`
    is the product of two matrices."""
    size = len(first)
    n = first.shape[1] + size - steps.shape[2]

    def further(slope: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
        direct = jnp.concatenate([jnp.zeros((size, n, *own.shape[2:]), own.dtype), own[:, size:]], axis=1)
        slope = times(own[:, :size], slope) + direct
        return slope, slope

    return lax.scan(further, first, steps)[1]


def _written_out(a: jax.Array, b: jax.Array) -> jax.Array:
    """The product, as no library has it: a kernel can hold it."""
    return sum((a[:, j, None] * b[j] for j in range(1, len(b))), a[:, :1] * b[0])


_in_one_kernel = trailing(lambda _, first, steps: _carried(_written_out, first, steps))


def residual_slopes(
    build: Callable[[jax.Array], Any],
    missed: Callable[[Any, jax.Array, jax.Array, Any], jax.Array],
    x: jax.Array,
    motion: jax.Array,
    runs: Trajectory,
    measured: Any,
) -> jax.Array:
    """The derivative of what motions miss, from that of the motions, `(S, K + 1, m, n + p)`."""

    def one(q: jax.Array, v: jax.Array, measured: Any) -> tuple[jax.Array, jax.Array]:
        def said(dq: jax.Array, dv: jax.Array, x: jax.Array) -> jax.Array:
            model = build(x)
            return missed(model, integrate(model, q, dq), v + dv, measured)

        by_q, by_v, by_x = jax.jacrev(said, argnums=(0, 1, 2))(jnp.zeros_like(v), jnp.zeros_like(v), x)
        return jnp.concatenate([by_q, by_v], axis=1), by_x

    # Apart: what a state misses mostly has no parameters in it, and zeros are not added.
    by_state, by_x = each(one, READINGS, runs.q, runs.v, measured)
    begun = motion.shape[-1] - x.size
    return product(by_state, motion) + jnp.pad(by_x, [(0, 0)] * 3 + [(begun, 0)])


def each(function: Callable, width: int, *arrays: Any) -> Any:
    """`function` of each sample, arrays with two leading axes, `width` at a time where caches are small."""
    first = jax.tree.leaves(arrays)[0].shape[:2]
    flat = jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), arrays)
    mapped, width = jax.vmap(function), max(1, width)
    whole = jax.default_backend() != "cpu" or width >= first[0] * first[1]
    found = mapped(*flat) if whole else by_tiles(lambda own: mapped(*own), flat, width)
    return jax.tree.map(lambda y: y.reshape(*first, *y.shape[1:]), found)
