"""The actuators of a model: laws on transmissions, with what they feel in a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from dynax.actuate.law import AbstractActuator
from dynax.actuate.transmission import (
    AbstractTransmission,
    CoupledTransmission,
    FrameTransmission,
    JointTransmission,
)
from dynax.algorithms.rnea import gravity_force
from dynax.contact.scene import Scene
from dynax.embedding.meanings import tree_motion
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.model import Model
from dynax.model.kinds import AnyModel
from dynax.operators.pytree import pytree_dataclass

System = TypeVar("System")


@pytree_dataclass("names", "rows")
class Actuators:
    """What drives a model: groups of a law and a transmission. A pytree: laws, gears and limits are leaves.

    Made by `on_joints`, `on_frames`, `coupled`, joined by `together`, read from an MJCF by `dx.load_actuators`.
    """

    laws: tuple[AbstractActuator, ...]
    transmissions: tuple[AbstractTransmission, ...]
    names: tuple[str, ...]
    """In the order of commands."""
    rows: tuple[tuple[int, ...], ...]
    """Of each group, among the commands."""
    start: Any = None
    """The state at the beginning, where it is not that of the laws."""
    effort_limits: Any = None
    """What a joint gets from all its actuators together is between these, shape `(nv, 2)`; `None`: whatever it is."""
    compensation: Any = None
    """The part of each body's weight that is carried for it, shape `(n,)`; `None` for none."""

    @property
    def size(self) -> int:
        """The number of commands."""
        return len(self.names)

    def index(self, name: str) -> int:
        """Where the command of an actuator stands; `KeyError` if there is none of this name."""
        return row_of(self.names, name)

    def initial(self, dtype: Any = None) -> Any:
        """The state before the first step: for each group that of its law."""
        dtype = jnp.result_type(float) if dtype is None else dtype
        if self.start is not None:
            return jax.tree.map(lambda x: jnp.asarray(x, dtype), self.start)
        return tuple(law.initial(len(rows), dtype) for law, rows in zip(self.laws, self.rows, strict=True))

    def starting(self, state: Any) -> Actuators:
        """The same from another state, such as the last row of `Trajectory.actuators`."""
        if jax.tree.structure(state) != (own := jax.tree.structure(self.initial())):
            raise ValueError(f"`state` is {jax.tree.structure(state)}, expected {own}")
        return dataclasses.replace(self, start=state)

    def with_effort_limits(self, limits: ArrayLike) -> Actuators:
        """With limits of what joints get, shape `(nv,)` or `(nv, 2)`, such as `model.effort_limits`.

        Raises `ValueError` for another shape, and where a lower one is above the upper, as for a negative effort.
        """
        limits = _floating(limits)
        if not limits.ndim or (limits.ndim > 1 and limits.shape[-1] != 2):
            raise ValueError(f"effort limits have shape {limits.shape}, expected (nv,) or (nv, 2)")
        limits = jnp.stack([-limits, limits], 1) if limits.ndim == 1 else limits
        if not isinstance(limits, Tracer):
            crossed = np.argwhere(np.asarray(limits[..., 0] > limits[..., 1]))
            if len(crossed):
                low, high = np.asarray(limits)[tuple(crossed[0])]
                raise ValueError(f"effort limit {crossed[0][-1]} is from {low:g} to {high:g}: none is between")
        return dataclasses.replace(self, effort_limits=limits)

    def with_gravity_compensation(self, fraction: ArrayLike) -> Actuators:
        """With a part of each body's weight carried, a number or shape `(n,)`: 1 holds the body in any pose."""
        return dataclasses.replace(self, compensation=_floating(fraction))

    def __repr__(self) -> str:
        parts = (f"{len(rows)} {type(law).__name__}" for law, rows in zip(self.laws, self.rows, strict=True))
        return f"Actuators({', '.join(parts)})"


class Actuation(NamedTuple):
    """What actuators do at a moment."""

    force: jax.Array
    """Of each, along its transmission, shape `(size,)` [N, N m]."""
    tau: jax.Array
    """What the joints get, shape `(nv,)`."""
    rate: Any
    """Of the state."""
    length: jax.Array
    """Shape `(size,)`."""
    velocity: jax.Array
    """Shape `(size,)`."""


def on_joints(
    model: AnyModel,
    joints: Sequence[str],
    law: AbstractActuator,
    *,
    gear: ArrayLike = 1.0,
    names: Sequence[str] | None = None,
) -> Actuators:
    """A law on each of some joints of one freedom. `gear`: turns of the actuator for one of the joint, a number or
    one each; `names`: default those of the joints."""
    _check_joints(model, joints)
    return _one(law, JointTransmission(_floating(gear), tuple(joints)), joints if names is None else names)


def coupled(
    model: AnyModel, joints: Sequence[str], matrix: ArrayLike, law: AbstractActuator, *, names: Sequence[str]
) -> Actuators:
    """A law on each of some sums of joint coordinates, `length = matrix q[joints]`: a fixed tendon, a differential."""
    _check_joints(model, joints)
    matrix = _floating(matrix)
    if matrix.shape[-2:] != (len(names), len(joints)):
        raise ValueError(f"`matrix` has shape {matrix.shape}, expected ({len(names)}, {len(joints)}): names by joints")
    return _one(law, CoupledTransmission(matrix, tuple(joints)), names)


def on_frames(
    model: AnyModel,
    frames: Sequence[str],
    law: AbstractActuator,
    *,
    wrench: ArrayLike,
    names: Sequence[str] | None = None,
) -> Actuators:
    """A law on each of some bodies or frames, which it pushes: thrusters.

    `wrench`: `[moment; force]` in the frame's axes for a unit of force, shape `(6,)` or one for each frame.
    """
    tree = _tree(model)
    for name in as_names(frames, "frames"):
        tree.locate(name)
    wrench = _floating(wrench)
    if wrench.shape[-1:] != (6,):
        raise ValueError(f"`wrench` has shape {wrench.shape}, expected (6,) or ({len(frames)}, 6): [moment; force]")
    wrench = jnp.broadcast_to(wrench, (len(frames), 6)) if wrench.ndim == 1 else wrench
    return _one(law, FrameTransmission(wrench, tuple(frames)), frames if names is None else names)


def together(*parts: Actuators) -> Actuators:
    """All of some actuators; commands stand one part after the other."""
    names, rows, start = [], [], 0
    for part in parts:
        refuse_others(part)
        rows += [tuple(start + row for row in group) for group in part.rows]
        names += part.names
        start += part.size
    _check_names(names)
    limited = [part.effort_limits for part in parts if part.effort_limits is not None]
    carried = [part.compensation for part in parts if part.compensation is not None]
    if len(limited) > 1 or len(carried) > 1:
        raise ValueError("effort limits and gravity compensation are of all actuators together: give them afterwards")
    return Actuators(
        tuple(law for part in parts for law in part.laws),
        tuple(transmission for part in parts for transmission in part.transmissions),
        tuple(names),
        tuple(rows),
        None if all(part.start is None for part in parts) else tuple(s for part in parts for s in part.initial()),
        *(found[0] if found else None for found in (limited, carried)),
    )


def gravity_compensation(model: Model, q: ArrayLike, fraction: ArrayLike = 1.0) -> jax.Array:
    """The joint forces that carry a part of each body's weight, shape `(nv,)`. `fraction`: a number or shape `(n,)`."""
    part = jnp.asarray(fraction, model.mass.dtype)
    if part.shape not in ((), model.mass.shape):
        raise ValueError(f"`fraction` has shape {part.shape}, expected () or {model.mass.shape}: one for each body")
    first = model.first_moment * jnp.broadcast_to(part, model.mass.shape)[:, None]
    return gravity_force(model.replace(mass=model.mass * part, first_moment=first), q)


def actuation(
    actuators: Actuators, model: AnyModel, q: jax.Array, v: jax.Array, state: Any, command: ArrayLike
) -> Actuation:
    """The forces at a state under a command, shape `(size,)`, and how the actuators' own state changes."""
    command = _command(actuators, command, q.dtype)
    x, groups = _groups(actuators, model, q, v)
    laid, rates = [], []
    for (law, rows, moment, length, velocity), own in zip(groups, state, strict=True):
        with _named(actuators, law, rows):
            force, rate = law(own, command[rows], length, velocity)
            force = jnp.broadcast_to(force, length.shape)
        laid.append((rows, force, length, velocity, moment.T @ force))
        rates.append(rate)
    total = sum((each[-1] for each in laid), jnp.zeros(_tree(model).nv, q.dtype))
    if actuators.effort_limits is not None:
        total = jnp.clip(total, *_bounds(actuators, len(total), q.dtype))
    total = total + _carried(actuators, model, q)
    tau = total if x is None else x.T @ total
    force, length, velocity = (_in_order(actuators, [(e[0], e[k]) for e in laid], q.dtype) for k in (1, 2, 3))
    return Actuation(force, tau, tuple(rates), length, velocity)


def stepped(
    actuators: Actuators, model: System, q: jax.Array, v: jax.Array, state: Any, command: jax.Array, dt: jax.Array
) -> tuple[System, jax.Array, Any]:
    """What a step takes in the place of the model, its joint forces, and the actuators' state after it.

    A force is taken linear in what it depends on, and as it will be at the end of the step where it resists:

        F+ = F - K dt l' - (D + dt K) (l'+ - l')        l'+ = G v+

    with the stiffness `K` and the damping `D` of the law where it has any that are positive. Then the step is stable
    whatever these are (the linearly implicit Euler method, Hairer & Wanner 1996, IV.7; with one evaluation of the
    stepper `semi_implicit` MuJoCo's integrator `discrete`). A stepper has damping of joints alone, so that where
    transmissions couple joints, `G^T c G` has a diagonal matrix put above it, the sums of the rows' magnitudes: as
    stable, and as exact to first order.
    """
    x, groups = _groups(actuators, model, q, v)
    tree = _tree(model)
    nothing = jnp.zeros(tree.nv, q.dtype)
    now, held, slope, following = nothing, nothing, nothing, []
    for (law, rows, moment, length, velocity), own in zip(groups, state, strict=True):
        with _named(actuators, law, rows):
            following.append(law.advance(own, command[rows], length, velocity, dt))
            forces = law.slopes(own, command[rows], length, velocity, dt)
            force, stiffness, damping = (jnp.broadcast_to(c, length.shape) for c in forces)
        stiffness, damping = (jnp.maximum(c, 0.0) for c in (stiffness, damping))
        reach = jnp.abs(moment)
        now = now + moment.T @ force
        held = held + moment.T @ (force - dt * stiffness * velocity)
        slope = slope + reach.T @ ((damping + dt * stiffness) * jnp.sum(reach, 1))
    vt = v if x is None else tree_motion(model, q, v).v
    if actuators.effort_limits is None:
        total = held + slope * vt
    else:
        low, high = _bounds(actuators, len(vt), q.dtype)
        free = (now > low) & (now < high)
        slope = jnp.where(free, slope, 0.0)
        total = jnp.where(free, held + slope * vt, jnp.clip(now, low, high))
    total = total + _carried(actuators, model, q)
    stiff: Any = model
    stiff = stiff.replace(damping=tree.damping.astype(q.dtype) + slope)
    return stiff, total if x is None else x.T @ total, tuple(following)


# What is shared.


def _tree(model: Any) -> Model:
    """The tree of rigid bodies whose joints and frames have the names."""
    own = model.model if isinstance(model, Scene) else model
    own = tree_of(own)
    if not isinstance(own, Model):
        raise ValueError(
            f"actuators are for trees of rigid bodies, and model {own.name!r} is a {type(own).__name__}: "
            "give its rollout joint forces, or a policy that returns them"
        )
    return own


def _groups(actuators: Actuators, model: Any, q: jax.Array, v: jax.Array) -> tuple[jax.Array | None, list]:
    """What makes the tree's velocities of the model's own, `None` for a tree; for each group its law, rows, moment,
    lengths and velocities."""
    tree = _tree(model)
    own = model.model if isinstance(model, Scene) else model
    x, vt = None, v
    if isinstance(own, EmbeddedModel):
        motion = tree_motion(own, q, v)
        x, vt = motion.x, motion.v
    groups = []
    for law, transmission, rows in zip(actuators.laws, actuators.transmissions, actuators.rows, strict=True):
        law, transmission = typed((law, transmission), q.dtype)
        with _named(actuators, transmission, rows):
            moment, length = transmission.moment(tree, q), transmission.length(tree, q)
        groups.append((law, np.array(rows, int), moment, length, moment @ vt))
    return x, groups


def _floating(given: ArrayLike) -> jax.Array:
    array = jnp.asarray(given)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


def typed(tree: Any, dtype: Any) -> Any:
    """Numbers in one floating type: those of an array of integers stay what they are."""

    def one(x: Any) -> Any:
        plain = isinstance(x, int | float) and not isinstance(x, bool)
        return jnp.asarray(x, dtype) if plain or jnp.issubdtype(jnp.result_type(x), jnp.inexact) else x

    return jax.tree.map(one, tree)


def _carried(actuators: Actuators, model: Any, q: jax.Array) -> jax.Array:
    tree = _tree(model)
    if actuators.compensation is None:
        return jnp.zeros(tree.nv, q.dtype)
    return gravity_compensation(tree, q, actuators.compensation)


def _bounds(actuators: Actuators, nv: int, dtype: Any) -> tuple[jax.Array, jax.Array]:
    limits = jnp.asarray(actuators.effort_limits, dtype)
    if limits.shape != (nv, 2):
        raise ValueError(f"`effort_limits` has shape {limits.shape}, expected ({nv}, 2): a row for each freedom")
    return limits[:, 0], limits[:, 1]


def _in_order(actuators: Actuators, found: list, dtype: Any) -> jax.Array:
    whole = jnp.zeros(actuators.size, dtype)
    for rows, values in found:
        whole = whole.at[rows].set(values)
    return whole


def _command(actuators: Actuators, command: ArrayLike, dtype: Any) -> jax.Array:
    array = jnp.asarray(command, dtype)
    if array.shape != (actuators.size,):
        raise ValueError(f"the command has shape {array.shape}, expected ({actuators.size},): one for each actuator")
    return array


def _one(law: AbstractActuator, transmission: AbstractTransmission, names: Sequence[str]) -> Actuators:
    if not isinstance(law, AbstractActuator):
        raise ValueError(
            f"`law` is {law!r}, expected an actuator, such as `actuate.Direct()`; a function is one in `Learned`"
        )
    _check_names(names)
    return Actuators((law,), (transmission,), tuple(names), (tuple(range(len(names))),))


def refuse_others(actuators: Any) -> None:
    """A law alone has no joints."""
    if not isinstance(actuators, Actuators):
        raise ValueError(
            f"a {type(actuators).__name__} is given for actuators, expected those of `actuate.on_joints` and its like"
        )


@contextmanager
def _named(actuators: Actuators, part: Any, rows: Sequence[int]) -> Iterator[None]:
    """Says whose law it was that raised."""
    try:
        yield
    except Exception as error:
        names = ", ".join(repr(actuators.names[row]) for row in rows)
        error.add_note(f"in {type(part).__name__} of the actuators {names}, whose numbers are one for all or one each")
        raise


def row_of(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise KeyError(f"no actuator named {name!r}; there are {', '.join(map(repr, names)) or 'none'}")
    return names.index(name)


def as_names(names: Sequence[str], what: str) -> tuple[str, ...]:
    """A name alone would be taken for its letters."""
    if isinstance(names, str):
        raise ValueError(f"`{what}` is {names!r}: give a list of names, [{names!r}]")
    return tuple(names)


def _check_names(names: Sequence[str]) -> None:
    as_names(names, "names")
    twice = [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
    if twice:
        raise ValueError(f"there are two actuators {twice[0]!r}; give `names`")


def _check_joints(model: AnyModel, joints: Sequence[str]) -> None:
    tree = _tree(model)
    for name in as_names(joints, "joints"):
        if tree.joints[tree.joint_index(name)].nv != 1:
            raise ValueError(f"joint {name!r} has more than one freedom, or none: an actuator moves one")
