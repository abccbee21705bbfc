"""What simulated motions miss of measured ones, and how that depends on parameters and on where they begin.

A long motion has derivatives that explode where it is unstable; a log is therefore cut in segments that begin anywhere
(Bock 1983).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from dynax.identify.sensitivity import by_steps, motion_slopes, residual_slopes
from dynax.model.configuration import difference, integrate
from dynax.simulate.rollout import rollout
from dynax.simulate.stepper import AbstractStepper


class Segments(NamedTuple):
    """Motions of one length, side by side."""

    q: jax.Array
    """Where each begins, or about there, shape `(S, nq)`."""
    v: jax.Array
    """Shape `(S, nv)`."""
    controls: jax.Array
    """Joint forces, held over each step, shape `(S, K, nv)` [N, N m]; or commands of actuators."""
    measured: Any
    """What was measured before, between and after the steps: arrays of shape `(S, K + 1, ...)`."""


def segments(q: ArrayLike, v: ArrayLike, controls: ArrayLike, length: int, *, measured: Any = None) -> Segments:
    """A log in segments of `length` steps, no sample in two of them; what is left at the end is not used.

    **Arguments:**

    - `q`, `v`: states, measured or nearly so, from where segments begin, shapes `(T + 1, nq)` and `(T + 1, nv)`.
    - `controls`: joint forces, shape `(T, nv)`, or commands where `build` gives actuators; row `k` is held from state
      `k` to the next.
    - `measured`: a pytree of arrays with `T + 1` rows; left out, the pair of `q` and `v`.
    """
    q, v, controls = jnp.asarray(q), jnp.asarray(v), jnp.asarray(controls)
    measured = jax.tree.map(jnp.asarray, (q, v) if measured is None else measured)
    for name, x in (("v", v), *(("measured", leaf) for leaf in jax.tree.leaves(measured))):
        if len(x) != len(q):
            raise ValueError(f"`{name}` has {len(x)} rows, expected {len(q)}, as `q`")
    if len(controls) != len(q) - 1:
        raise ValueError(f"`controls` has {len(controls)} rows, expected {len(q) - 1}, one from each state to the next")
    if not 1 <= length < len(q):
        raise ValueError(f"`length` is {length}, expected 1 to {len(q) - 1} steps, as many as the log has")
    count = len(q) // (length + 1)

    def cut(x: jax.Array) -> jax.Array:
        return x[: count * (length + 1)].reshape(count, length + 1, *x.shape[1:])

    last = jnp.zeros_like(controls[:1])
    forces = cut(jnp.concatenate([controls, last]))[:, :-1]
    return Segments(cut(q)[:, 0], cut(v)[:, 0], forces, jax.tree.map(cut, measured))


def missed_state(model: Any, q: jax.Array, v: jax.Array, measured: tuple[jax.Array, jax.Array]) -> jax.Array:
    """By how much a state misses the pair of a measured one, along the tangent: `[q; v]`, shape `(2 nv,)`."""
    return jnp.concatenate([difference(model, measured[0], q), v - measured[1]])


Missed = Callable[[Any, jax.Array, jax.Array, Any], jax.Array]
Build = Callable[[Any], Any]


def output_residual(
    build: Build,
    params: Any,
    data: Segments,
    dt: ArrayLike,
    *,
    missed: Missed = missed_state,
    stepper: str | AbstractStepper = "semi_implicit",
) -> jax.Array:
    """What simulated segments miss of the measured ones, shape `(S, K + 1, m)`, such as of a log kept for a check.

    The arguments are those of `output_error`. Differentiable by all that is not a function or the stepper.
    """
    return jax.vmap(partial(_residual, build, missed, stepper, dt, params))(*data)


def output_jacobian(
    build: Build,
    params: Any,
    data: Segments,
    dt: ArrayLike,
    *,
    missed: Missed = missed_state,
    stepper: str | AbstractStepper = "semi_implicit",
) -> jax.Array:
    """The derivative of `output_residual` by the parameters in the order of `ravel_pytree`, `(S, K + 1, m, p)`.

    The same as that of `jax.jacfwd`, but all steps are differentiated side by side: see `sensitivity`.
    """
    x, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
    nothing = jnp.zeros((len(data.q), 0), x.dtype)
    return slopes(lambda x: build(unravel(x)), missed, stepper, x, nothing, data, dt)[0]


def parted(built: Any) -> tuple[Any, Any]:
    """The model and its actuators, `None` where `build` gives a model alone."""
    return built if isinstance(built, tuple) else (built, None)


def _residual(build: Build, missed: Missed, stepper, dt, params: Any, q, v, controls, measured) -> jax.Array:
    model, actuators = parted(build(params))
    run = rollout(model, q, v, controls, dt, stepper=stepper, checkpoint=False, actuators=actuators)
    return jax.vmap(partial(missed, model))(run.q, run.v, measured)


def begin(model: Any, q: jax.Array, v: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where a motion begins, `z` from `q` and `v`, or there itself."""
    return (integrate(model, q, z[: model.nv]), v + z[model.nv :]) if z.size else (q, v)


def begun_at(of: Build, missed: Missed, stepper, dt, x, z, q, v, controls, measured) -> jax.Array:
    q, v = begin(parted(of(x))[0], q, v, z)
    return _residual(of, missed, stepper, dt, x, q, v, controls, measured)


def slopes(of: Build, missed: Missed, stepper, x, z, data: Segments, dt) -> tuple[jax.Array, jax.Array]:
    """The derivative of what segments miss by `[z, x]`, `(S, K + 1, m, n + p)`, and what they miss."""
    (model, actuators), n = parted(of(x)), z.shape[1]
    if actuators is not None or not by_steps(model):

        def carried(z: jax.Array, *own: Any) -> tuple[jax.Array, jax.Array]:
            def missing(both: jax.Array) -> tuple[jax.Array, jax.Array]:
                found = begun_at(of, missed, stepper, dt, both[n:], both[:n], *own)
                return found, found

            return jax.jacfwd(missing, has_aux=True)(jnp.concatenate([z, x]))

        return jax.vmap(carried)(z, *data)

    def start(q: jax.Array, v: jax.Array, z: jax.Array) -> tuple[jax.Array, ...]:
        first = begin(model, q, v, z)

        def near(z: jax.Array) -> jax.Array:
            return missed_state(model, *begin(model, q, v, z), first)

        return *first, jax.jacfwd(near)(z)

    q, v, first = jax.vmap(start)(data.q, data.v, z)
    runs, motion = motion_slopes(of, x, q, v, first, data.controls, dt, stepper)
    J = residual_slopes(of, missed, x, motion, runs, data.measured)
    r = jax.vmap(jax.vmap(partial(missed, model)))(runs.q, runs.v, data.measured)
    return J, r
