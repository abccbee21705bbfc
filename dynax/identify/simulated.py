"""Parameters from forces alone: the motion is that of a model under the robot's own controller (Gautier, Janot &
Vandanjon 2013, "A new closed-loop output error method for parameter identification of robot dynamics", DIDIM).

    x <- argmin |Y(motion of x) x - tau|

The motion of a controlled robot hardly depends on its parameters, since the controller sees to that; so the regressor
of a simulated one, which has no noise, is nearly right from the first round on, and a few rounds settle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from dynax.identify.estimate import Estimate, compress, least_squares


class SimulatedFit(NamedTuple):
    """The estimate of the last round, and whether the rounds came to rest."""

    estimate: Estimate
    moved: jax.Array
    """How far the last round moved the parameters, the most of them, in deviations: far below one if they rest."""


def simulated_least_squares(
    simulated: Callable[[jax.Array], ArrayLike],
    forces: ArrayLike,
    start: ArrayLike,
    *,
    noise: ArrayLike = 1.0,
    rounds: int = 8,
) -> SimulatedFit:
    """The parameters whose own motion under the robot's controller explains the forces best, under `jit` and `vmap`.

    **Arguments:**

    - `simulated(values)`: the regressor of the motion that a robot with these parameters makes, shape `(..., p)`, as
      `regressor` along a `rollout` with the controller for a policy, filtered as the forces are. Its columns must be
      independent: those of a base.
    - `forces`: as measured, shape `(...)`; `noise`: as for `compress`.
    - `start`: shape `(p,)`, near enough for the controller to hold the robot.
    """

    def fit(values: jax.Array) -> Estimate:
        return least_squares(compress(simulated(values), forces, noise=noise))

    def again(values: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return fit(values).values, values

    before, _ = lax.scan(again, jnp.asarray(start), length=rounds - 1)
    found = fit(before)
    return SimulatedFit(found, jnp.max(jnp.abs(found.values - before) / found.deviations))
