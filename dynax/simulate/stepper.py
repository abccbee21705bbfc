"""What a stepper is: one step of `q' = v, M(q) v' + bias(q, v) = tau` on the configuration manifold.

A configuration never moves but by `integrate`, the exact flow of a constant velocity on each joint's group, so angles,
quaternions and rolling contacts need no care of their own and quaternions come back at unit length from every step.
"""

from __future__ import annotations

import abc

import jax
import jax.numpy as jnp

from dynax.algorithms._aba import forward_dynamics
from dynax.model import Model

State = tuple[jax.Array, jax.Array]
"""Configuration and velocity."""


class AbstractStepper(abc.ABC):
    """A method of integration. To write one's own, give `step`; make the class a frozen dataclass, which hashes."""

    @abc.abstractmethod
    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        """Configuration and velocity at `model.time + dt`, from those at `model.time`.

        **Arguments:** `q`: shape `(nq,)`; `v`: shape `(nv,)`; `tau`: joint forces, held over the step, shape `(nv,)`;
        `dt`: a scalar [s], which may be traced and negative.
        """


def later(model: Model, delay: jax.Array) -> Model:
    """The model with its driven joints where they stand after `delay` [s]."""
    return model.replace(time=model.time.astype(delay.dtype) + delay)


def acceleration(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, delay: jax.Array | float = 0.0) -> jax.Array:
    """`v'` at `delay` [s] after the beginning of the step."""
    return forward_dynamics(later(model, jnp.asarray(delay, q.dtype)), q, v, tau)
