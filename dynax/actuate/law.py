"""What an actuator is: what it does to its transmission, and how its own state changes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dynax.operators.pytree import pytree_dataclass


class Numbered:
    """A pytree whose fields may be given as lists of numbers: these become arrays, and are not taken apart."""

    def __post_init__(self):
        for name, value in vars(self).items():
            if isinstance(value, list):
                object.__setattr__(self, name, jnp.asarray(value, float))


class AbstractActuator(Numbered, abc.ABC):
    """A law `(state, command, length, velocity) -> (force, rate)` of `k` actuators of one kind at once.

    Commands, lengths, velocities and forces have shape `(k,)`, and each actuator knows its own alone. A length is what
    the transmission makes of `q`, for a joint its coordinate times the gear [rad, m]; a force is along it [N m, N].
    States are pytrees of arrays whose last axis is `k`; those without one have `()`.

    To write one's own, give `__call__`, and `initial` where there is a state; make the class a pytree, as with
    `jax.tree_util.register_dataclass`. Numbers are leaves: arrays of shape `(k,)`, or one for all.
    """

    @abc.abstractmethod
    def __call__(self, state: Any, command: jax.Array, length: jax.Array, velocity: jax.Array) -> tuple[jax.Array, Any]:
        """The force, shape `(k,)`, and the rate of the state."""

    def initial(self, size: int, dtype: Any) -> Any:
        """The state at the beginning."""
        return ()

    def advance(self, state: Any, command: jax.Array, length: jax.Array, velocity: jax.Array, dt: jax.Array) -> Any:
        """The state after a step in which command, length and velocity stay what they are: Euler's, unless a law knows
        better."""
        rate = self(state, command, length, velocity)[1]
        return jax.tree.map(lambda x, rate: x + dt * rate, state, rate)

    def slopes(
        self, state: Any, command: jax.Array, length: jax.Array, velocity: jax.Array, dt: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The force as a step of `dt` takes it, its stiffness `-dF/dlength` and its damping `-dF/dvelocity`, shapes
        `(k,)`: by differentiating the law, unless it knows better."""

        def of(length: jax.Array, velocity: jax.Array) -> jax.Array:
            return self(state, command, length, velocity)[0]

        one, none = jnp.ones_like(length), jnp.zeros_like(length)
        force, along = jax.linearize(of, length, velocity)
        return force, -along(one, none), -along(none, one)


@pytree_dataclass()
class Direct(AbstractActuator):
    """The force is the command times a gain."""

    gain: Any = 1.0

    def __call__(self, state, command, length, velocity):
        return self.gain * command, ()


@pytree_dataclass()
class PositionServo(AbstractActuator):
    """A drive that holds a commanded position: `stiffness (command - length) - damping velocity`."""

    stiffness: Any
    damping: Any = 0.0

    def __call__(self, state, command, length, velocity):
        return self.stiffness * (command - length) - self.damping * velocity, ()


@pytree_dataclass()
class VelocityServo(AbstractActuator):
    """A drive that holds a commanded velocity: `damping (command - velocity)`."""

    damping: Any

    def __call__(self, state, command, length, velocity):
        return self.damping * (command - velocity), ()


@pytree_dataclass()
class Affine(AbstractActuator):
    """`(g0 + g1 length + g2 velocity) command + b0 + b1 length + b2 velocity`: MuJoCo's `general`."""

    gain: Any
    """Shape `(3,)` or `(3, k)`."""
    bias: Any

    def __call__(self, state, command, length, velocity):
        (g0, g1, g2), (b0, b1, b2) = jnp.asarray(self.gain), jnp.asarray(self.bias)
        return (g0 + g1 * length + g2 * velocity) * command + (b0 + b1 * length + b2 * velocity), ()


@pytree_dataclass()
class DCMotor(AbstractActuator):
    """A motor on a voltage, its inductance neglected: `torque = stall_torque (command - velocity / no_load_speed)`.

    The command is the voltage as a part of the rated one. With the winding's resistance `R` and the motor constant `k`,
    stall torque is `k V / R` and no-load speed `V / k`, both at the output of the gear. Its power is greatest at half
    the no-load speed, `stall_torque no_load_speed / 4` (Spong, Hutchinson & Vidyasagar 2006, section 6.1).
    """

    stall_torque: Any
    no_load_speed: Any

    def __call__(self, state, command, length, velocity):
        return self.stall_torque * (command - velocity / self.no_load_speed), ()


@pytree_dataclass()
class Learned(AbstractActuator):
    """A law of one's own: `function(command, length, velocity) -> force`, any callable, best a pytree whose leaves are
    its weights; or, with a `start`, `function(state, command, length, velocity) -> (force, next state)`, asked once in
    a step, as recurrent nets are.

    Its force is held over a step: a net may know all actuators at once, and its slopes mean nothing.
    """

    function: Callable
    start: Any = ()

    def __post_init__(self):
        if any(leaf is self.function for leaf in jax.tree.leaves(self.function)) and callable(self.function):
            object.__setattr__(self, "function", jax.tree_util.Partial(self.function))  # no leaf, but structure

    def __call__(self, state, command, length, velocity):
        force = self._said(state, command, length, velocity)[0]
        return force, jax.tree.map(jnp.zeros_like, state)

    def initial(self, size, dtype):
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self.start)

    def advance(self, state, command, length, velocity, dt):
        return self._said(state, command, length, velocity)[1]

    def slopes(self, state, command, length, velocity, dt):
        none = jnp.zeros_like(length)
        return self(state, command, length, velocity)[0], none, none

    def _said(self, state, command, length, velocity):
        if jax.tree.leaves(self.start):
            return self.function(state, command, length, velocity)
        return self.function(command, length, velocity), state
