"""What a stepper is: one step of `q' = v, M(q) v' + bias(q, v) = tau` on the configuration manifold.

A configuration never moves but by `integrate`, the exact flow of a constant velocity on each joint's group, so angles,
quaternions and rolling contacts need no care of their own and quaternions come back at unit length from every step.

Where loops, gears and conditions tie the joints together, the acceleration is the constrained one. A step then leaves
the conditions by no more than its own error, and a projection after it takes that out, of position and of velocity; the
order of the method stays (Hairer & Wanner 1996, VII.2).
"""

from __future__ import annotations

import abc
from typing import ClassVar, TypeVar, cast

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dynax.constraints.assembly import assembled
from dynax.constraints.dynamics import constrained_dynamics, settled
from dynax.constraints.independent import LOOSE
from dynax.constraints.residual import constraint_names
from dynax.contact.scene import Scene
from dynax.embedding.flexible_meanings import kept_flexible_dynamics
from dynax.embedding.meanings import kept_dynamics
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.model import Model
from dynax.model.flexible import FlexibleModel
from dynax.routes.forward_dynamics import forward_dynamics, kept_forward_dynamics
from dynax.simulate.geared import allowed, geared, geared_acceleration, on_gears

State = tuple[jax.Array, jax.Array]
"""Configuration and velocity."""
AnyTree = Model | EmbeddedModel | FlexibleModel
AnySystem = AnyTree | Scene
Either = TypeVar("Either", bound=AnySystem)


class AbstractStepper(abc.ABC):
    """A method of integration. To write one's own, give `step`; make the class a frozen dataclass, which hashes."""

    keeps_gears: ClassVar[bool] = False
    """Whether linear gears allow the velocity after a step, whatever that before."""

    @abc.abstractmethod
    def step(self, model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, dt: jax.Array) -> State:
        """Configuration and velocity at `model.time + dt`, from those at `model.time`.

        **Arguments:** `model`: may be an embedded one; `q`: shape `(nq,)`; `v`: shape `(nv,)`; `tau`: joint forces,
        held over the step, shape `(nv,)`; `dt`: a scalar [s], which may be traced and negative.
        """


def closed(model: Model) -> bool:
    """Whether loops, gears or conditions tie the joints together and are not embedded."""
    return isinstance(model, Model | FlexibleModel) and model.constrained


def kept(model: Model, state: State) -> State:
    """The state on the loops, gears and conditions again, which a step has left by its own error."""
    if geared(model):
        q = on_gears(model, state[0])
        return q, allowed(model, q, state[1])
    return settled(model, *state) if closed(model) else state


def refuse_closed(model: Model, stepper: AbstractStepper) -> None:
    """For steppers that take the tree alone, and rigid bodies."""
    if isinstance(tree_of(model), FlexibleModel):
        raise ValueError(
            f"{type(stepper).__name__} does not know the stiffness of modes, which model {model.name!r} has; "
            "use another stepper, such as 'rk4'"
        )
    if closed(model):
        raise ValueError(
            f"{type(stepper).__name__} does not keep the loops, gears and conditions of model {model.name!r}; "
            "use another stepper, such as 'rk4', or a model with the loops embedded: dx.embed(model, q)"
        )


def refuse_open(model: AnySystem, q: jax.Array) -> None:
    """`ValueError` for a beginning with open loops, where the numbers are known: a step would snap them shut."""
    own = tree_of(model.model if isinstance(model, Scene) else model)
    if not own.constrained:
        return
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((own, q))):
        return
    with jax.core.eval_context():  # within a program that is traced for other arguments, too
        rows = assembled(cast(Model, own), q, (False,) * own.nv, 0, None)[1]
    residual, error = np.asarray(rows.residual), np.abs(rows.residual) * np.asarray(rows.weights)
    worst = int(np.argmax(error))
    if error[worst] > LOOSE:
        name = next(name for name, rows in constraint_names(own).items() if rows.start <= worst < rows.stop)
        raise ValueError(
            f"{name!r} of model {own.name!r} is open at the beginning: its residual is {residual[worst]:.3g}; "
            "begin where the loops close: q = dx.assemble(model, q).q"
        )


def later(model: Either, delay: jax.Array) -> Either:
    """The model with its driven joints where they stand after `delay` [s]."""
    return cast(Either, model.replace(time=model.time.astype(delay.dtype) + delay))


def acceleration(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, delay: jax.Array | float = 0.0) -> jax.Array:
    """`v'` at `delay` [s] after the beginning of the step, as loops, gears and conditions allow it."""
    now = later(model, jnp.asarray(delay, q.dtype))
    if isinstance(now, EmbeddedModel) and isinstance(now.tree, Model):
        return kept_dynamics(now, q, v, tau, None)
    if geared(now):
        return geared_acceleration(now, q, v, tau)
    if closed(model):
        return constrained_dynamics(now, q, v, tau).a
    if isinstance(now, Model):
        return kept_forward_dynamics(now, q, v, tau, None)
    if isinstance(now, FlexibleModel):
        return kept_flexible_dynamics(now, q, v, tau, None)
    return forward_dynamics(now, q, v, tau)
