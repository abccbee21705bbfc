"""How simulated motions depend on parameters and on where they begin, exactly, with all their steps side by side.

    dz_{k+1} = A_k dz_k + B_k dp        z_{k+1} = step(z_k, u_k; p)        dz along the tangent, [dq; dv]

The motions are simulated first. Then `A_k` and `B_k` do not wait for one another: they are the derivatives of as many
single steps, a batch, in closed form where there is one (`step_slopes`), else in reverse mode, since a step has fewer
results than there are states and parameters together. What is left for the walk through time is a product of small
matrices. A rollout that carries directions along, state by state, computes the same numbers ten times as slowly and
more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.compile.tiles import by_tiles
from dynax.contact.scene import Scene
from dynax.embedding.model import EmbeddedModel
from dynax.identify.step_slopes import slopes_of, step_slopes
from dynax.linear.matrices import product
from dynax.model.configuration import difference, integrate
from dynax.simulate.rollout import step
from dynax.simulate.stepper import AbstractStepper
from dynax.simulate.trajectory import Trajectory

TILE = 256
"""Results times samples that are differentiated at a time on a CPU: for an arm half the time of a whole log at once."""
WIDTH = 64
"""Samples at a time where the derivative has a closed form: an arm with 98 parameters takes 22 ms for 500 steps, with
16 or all at a time three to four times that."""

READINGS = 512
"""Samples at a time of what motions miss, mostly a handful of operations: 500 samples of an arm's angles and speeds at
once take a tenth off the whole Jacobian, beside tiles of 18."""


def by_steps(model: Any) -> bool:
    """Whether a rollout of the model carries nothing but its configuration and velocity from step to step."""
    return not isinstance(model, EmbeddedModel | Scene)


def motion_slopes(
    build: Callable[[jax.Array], Any],
    x: jax.Array,
    begin: jax.Array,
    runs: Trajectory,
    controls: jax.Array,
    dt: ArrayLike,
    stepper: str | AbstractStepper,
) -> jax.Array:
    """The derivative of motions by `[beginning, parameters]`, along the tangent, shape `(S, K + 1, 2 nv, n + p)`.

    **Arguments:** `build`: the model of parameters `x`, `(p,)`; `begin`: the derivative of the first states by what
    they depend on, `(S, 2 nv, n)`; `runs`: the motions, K steps of length `dt` under `controls`, `(S, K, nv)`.
    """
    nv, n, p = runs.v.shape[-1], begin.shape[2], x.size
    slopes, model, length = slopes_of(build, x, stepper), build(x), jnp.asarray(dt, x.dtype)

    def known(k: jax.Array, q: jax.Array, v: jax.Array, tau: jax.Array, after: jax.Array) -> jax.Array:
        assert slopes is not None
        now = model.replace(time=model.time + k * length)
        return step_slopes(now, slopes, q, v, tau, after, length, stepper)

    def one(k: jax.Array, q: jax.Array, v: jax.Array, tau: jax.Array, after: jax.Array) -> jax.Array:
        def ahead(dq: jax.Array, dv: jax.Array, x: jax.Array) -> jax.Array:
            model = build(x)
            now = model.replace(time=model.time + k * length)
            following, speed = step(now, integrate(model, q, dq), v + dv, tau, dt, stepper=stepper)
            return jnp.concatenate([difference(model, after, following), speed])

        return jnp.concatenate(jax.jacrev(ahead, argnums=(0, 1, 2))(jnp.zeros_like(v), jnp.zeros_like(v), x), axis=1)

    count = jnp.broadcast_to(jnp.arange(controls.shape[1], dtype=x.dtype), controls.shape[:2])
    function, width = (one, TILE // (2 * nv)) if slopes is None else (known, WIDTH)
    steps = each(function, width, count, runs.q[:, :-1], runs.v[:, :-1], controls, runs.q[:, 1:])

    def further(slope: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
        by_begin, by_x = slope[..., :n], slope[..., n:]
        along, direct = own[..., : 2 * nv], own[..., 2 * nv :]
        slope = jnp.concatenate([product(along, by_begin), product(along, by_x) + direct], axis=-1)
        return slope, slope

    first = jnp.concatenate([begin, jnp.zeros((len(begin), 2 * nv, p), x.dtype)], axis=-1)
    rest = lax.scan(further, first, jnp.moveaxis(steps, 1, 0))[1]
    return jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, 1)


def residual_slopes(
    build: Callable[[jax.Array], Any],
    missed: Callable[[Any, jax.Array, jax.Array, Any], jax.Array],
    x: jax.Array,
    motion: jax.Array,
    runs: Trajectory,
    measured: Any,
) -> jax.Array:
    """The derivative of what motions miss, from that of the motions, `(S, K + 1, m, n + p)`."""
    nv, p = runs.v.shape[-1], x.size

    def one(q: jax.Array, v: jax.Array, measured: Any) -> jax.Array:
        def said(dq: jax.Array, dv: jax.Array, x: jax.Array) -> jax.Array:
            model = build(x)
            return missed(model, integrate(model, q, dq), v + dv, measured)

        return jnp.concatenate(jax.jacrev(said, argnums=(0, 1, 2))(jnp.zeros_like(v), jnp.zeros_like(v), x), axis=1)

    found = each(one, READINGS, runs.q, runs.v, measured)
    slope = product(found[..., : 2 * nv], motion)
    return slope.at[..., slope.shape[-1] - p :].add(found[..., 2 * nv :])


def each(function: Callable, width: int, *arrays: Any) -> jax.Array:
    """`function` of each sample, arrays with two leading axes, `width` at a time where caches are small."""
    first = jax.tree.leaves(arrays)[0].shape[:2]
    flat = jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), arrays)
    mapped, width = jax.vmap(function), max(1, width)
    whole = jax.default_backend() != "cpu" or width >= first[0] * first[1]
    found = mapped(*flat) if whole else by_tiles(lambda own: mapped(*own), flat, width)
    return found.reshape(*first, *found.shape[1:])
