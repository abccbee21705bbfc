"""Inverse kinematics: a configuration in which frames, and the centre of mass, are where they should be, within the
limits of the joints.

    min 1/2 sum |w r(pose of a frame)|^2      limits of q      loops closed

by `least_squares`. What a target asks is a residual of one pose; several stand below each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpy.typing import ArrayLike

from dynax.algorithms.center_of_mass import center_of_mass
from dynax.algorithms.frame_pose import frame_pose
from dynax.constraints.residual import rows_at
from dynax.embedding.model import EmbeddedModel
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.configuration import integrate
from dynax.model.flexible import FlexibleModel
from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.elsewhere import Elsewhere, refuse_change, taken
from dynax.optimize.equilibrium import held_freedoms
from dynax.optimize.least_squares import Fit, Functions, least_squares
from dynax.optimize.limits import refuse_uneven, room
from dynax.simulate.stepper import closed
from dynax.spatial import Rotation, Transform


@pytree_dataclass("function", "frame")
class Target:
    """What a frame should do: `function(pose, data)`, a vector, zero; `pose` is a `dx.Transform` in the world, that of
    the centre of mass, with the world's axes, where `frame` is `None`.

    Made by `position_target` and its like, or of a function of one's own; numbers belong in `data`, a pytree, so that
    others compile nothing anew and can be differentiated by."""

    function: Callable[[Transform, Any], jax.Array]
    frame: str | None
    data: Any


def pose_target(frame: str, pose: Transform, *, length: float = 1.0) -> Target:
    """A frame at a pose; `length` [m]: what counts as much as a radian."""
    goal = _numbers("pose", (pose.rotation, (3, 3)), (pose.translation, (3,)), (length, ()))
    if not isinstance(goal[0], Tracer):
        matrix = np.asarray(goal[0], np.float64)
        if np.max(np.abs(matrix @ matrix.T - np.eye(3))) > 1e-3 or np.linalg.det(matrix) < 0:
            raise ValueError(f"`pose` for {frame!r}: its rotation is no rotation matrix, {matrix.tolist()}")
    return Target(_pose, frame, goal)


def position_target(frame: str, position: ArrayLike, *, point: ArrayLike = (0.0, 0.0, 0.0)) -> Target:
    """A `point` of a frame (in its axes) at a `position` in the world [m]."""
    return Target(_position, frame, _numbers("position", (position, (3,)), (point, (3,))))


def orientation_target(frame: str, rotation: Rotation) -> Target:
    """The axes of a frame turned as `rotation`, from its axes to the world's."""
    return Target(_orientation, frame, _numbers("rotation", (rotation.matrix, (3, 3))))


def direction_target(frame: str, axis: ArrayLike, direction: ArrayLike) -> Target:
    """An `axis` of a frame along a `direction` in the world; how the frame turns about it is left open."""
    axis, direction = _numbers("direction", (axis, (3,)), (direction, (3,)))
    return Target(_direction, frame, (_unit("axis", axis), _unit("direction", direction)))


def line_target(frame: str, through: ArrayLike, direction: ArrayLike, *, point: ArrayLike = (0.0, 0.0, 0.0)) -> Target:
    """A `point` of a frame (in its axes) somewhere on a line of the world."""
    through, direction, point = _numbers("line", (through, (3,)), (direction, (3,)), (point, (3,)))
    return Target(_line, frame, (through, _unit("direction", direction), point))


def plane_target(frame: str, through: ArrayLike, normal: ArrayLike, *, point: ArrayLike = (0.0, 0.0, 0.0)) -> Target:
    """A `point` of a frame (in its axes) somewhere on a plane of the world."""
    through, normal, point = _numbers("plane", (through, (3,)), (normal, (3,)), (point, (3,)))
    return Target(_plane, frame, (through, _unit("normal", normal), point))


def center_of_mass_target(position: ArrayLike, *, along: ArrayLike | None = None) -> Target:
    """The centre of mass of all bodies at a `position` in the world [m]; with `along`, somewhere on the line through it
    in this direction: `(0, 0, 1)` for over it or under it."""
    position, own = _numbers("position", (position, (3,)), (np.zeros(3), (3,)))
    if along is None:
        return Target(_position, None, (position, own))
    (along,) = _numbers("direction", (along, (3,)))
    return Target(_line, None, (position, _unit("along", along), own))


def _numbers(what: str, *given: tuple[Any, tuple[int, ...]]) -> tuple[jax.Array, ...]:
    arrays = []
    for value, shape in given:
        array = jnp.asarray(value)
        array = array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)
        if array.shape != shape:
            raise ValueError(f"a number of the target's {what} has shape {array.shape}, expected {shape}")
        if not isinstance(array, Tracer) and not np.all(np.isfinite(array)):
            raise ValueError(f"the target's {what} is not finite: {np.asarray(array).tolist()}")
        arrays.append(array)
    return tuple(arrays)


def _unit(what: str, x: jax.Array) -> jax.Array:
    length = jnp.sqrt(jnp.sum(x * x))
    if not isinstance(length, Tracer) and not length > 0:
        raise ValueError(f"`{what}` is zero: it must point somewhere, for example (0, 0, 1)")
    return x / length


def _pose(pose: Transform, data: tuple) -> jax.Array:
    rotation, translation, length = data
    turn = Rotation(jnp.asarray(rotation).T @ pose.rotation).log()
    return jnp.concatenate([turn, (pose.translation - translation) / length])


def _position(pose: Transform, data: tuple) -> jax.Array:
    return pose @ data[1] - data[0]


def _orientation(pose: Transform, data: tuple) -> jax.Array:
    return Rotation(data[0].T @ pose.rotation).log()


def _direction(pose: Transform, data: tuple) -> jax.Array:
    return pose.rotation @ data[0] - data[1]


def _line(pose: Transform, data: tuple) -> jax.Array:
    through, direction, point = data
    away = pose @ point - through
    return away - direction * jnp.sum(direction * away)


def _plane(pose: Transform, data: tuple) -> jax.Array:
    through, normal, point = data
    return jnp.sum(normal * (pose @ point - through))[None]


class _Known(NamedTuple):
    model: Any
    targets: tuple[Target, ...]
    limited: jax.Array
    """One where limits are kept, zero where not."""
    held: jax.Array
    """One for freedoms that stay."""


def _place(model: Model | FlexibleModel, q: jax.Array, frame: str | None) -> Transform:
    return Transform(np.eye(3), center_of_mass(model, q)) if frame is None else frame_pose(model, q, frame)


def _residual(known: _Known, q: jax.Array) -> jax.Array:
    parts = []
    for target in known.targets:
        pose = _place(known.model, q, target.frame)
        pose, data = jax.tree.map(lambda x: jnp.asarray(x, q.dtype), (pose, target.data))
        parts.append(jnp.ravel(target.function(pose, data)))
    if closed(known.model):
        parts.append(rows_at(known.model, q).residual)
    return jnp.concatenate(parts)


def _room(known: _Known, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    low, high = (jnp.where(known.limited > 0, side, free) for side, free in
                 zip(room(known.model, q), (-jnp.inf, jnp.inf), strict=True))  # fmt: skip
    return jnp.where(known.held > 0, 0.0, low), jnp.where(known.held > 0, 0.0, high)


_REACH = Functions(_residual, lambda known, q, z: integrate(known.model, q, z), _room)


class InverseKinematics(NamedTuple):
    """A configuration and how well it meets its targets."""

    q: jax.Array
    """Shape `(nq,)`."""
    error: jax.Array
    """The largest entry of the targets' residuals, and of the loops'."""
    status: jax.Array
    """An `o.Status`: `INFEASIBLE` where nothing near meets the targets better and they are not met: out of reach, or
    a dead end on the way."""
    iterations: jax.Array


def inverse_kinematics(
    model: Model | FlexibleModel,
    targets: Target | Sequence[Target],
    q: ArrayLike,
    *,
    hold: Sequence[str] = (),
    limits: bool = True,
    iterations: int = 100,
    tolerance: ArrayLike | None = None,
) -> InverseKinematics:
    """A configuration near `q` in which frames, and the centre of mass, are where they should be.

    **Arguments:**

    - `model`: loops are kept closed.
    - `targets`: one or several, of `o.pose_target`, `o.position_target`, `o.orientation_target`, `o.direction_target`,
      `o.line_target`, `o.plane_target`, `o.center_of_mass_target`, or an `o.Target`.
    - `q`: a guess, shape `(nq,)`: it chooses among the solutions, and among those of an arm with joints to spare one
      near it is found. For many guesses at once use `jax.vmap`.
    - `hold`: joints that keep their coordinates. `KeyError` with near names for an unknown one.
    - `limits`: keep the model's `position_limits`; the guess is brought into them.
    - `tolerance`: of `error`; default a few units of rounding.

    **Returns:** `InverseKinematics`; look at its `status`. Derivatives by the targets' numbers and the model are of the
    implicit function, for joints to spare those of the least change; NaN where the solver has not come to rest.
    `ValueError` for what does not fit.
    """
    if isinstance(model, EmbeddedModel):
        raise TypeError("dx.inverse_kinematics takes the tree and closes its loops itself: pass `model.tree`")
    wanted = (targets,) if isinstance(targets, Target) else tuple(targets)
    if not wanted:
        raise ValueError("`targets` is empty: give one or more, such as o.position_target('hand', (0.3, 0.0, 0.5))")
    elsewhere: Elsewhere = {}
    for k, target in enumerate(wanted):
        if not isinstance(target, Target):
            raise ValueError(f"`targets[{k}]` is {target!r}, expected one made by o.pose_target and the like")
        if getattr(target.function, "__closure__", ()) is not None:
            found = taken(target.function, Transform(jnp.eye(3), jnp.zeros(3)), target.data)[0]
            elsewhere |= {f"the function of `targets[{k}]`": found} if found else {}
        if target.frame is not None:
            model.locate(target.frame)
        elif not isinstance(model.mass, Tracer) and not np.any(np.asarray(model.mass) > 0):
            raise ValueError(f"`targets[{k}]` is of the centre of mass, and {model.name!r} weighs nothing")
    (q,) = as_state(model, q=q)
    if not model.nv:
        raise ValueError(f"model {model.name!r} has no joint that moves")
    if not isinstance(q, Tracer) and not np.all(np.isfinite(q)):
        raise ValueError(f"`q` is not finite: {np.asarray(q).tolist()}")
    if limits:
        refuse_uneven(model)
    loose = jnp.asarray(float(jnp.finfo(q.dtype).eps) ** 0.75 if tolerance is None else tolerance, q.dtype)
    limited, held = jnp.asarray(bool(limits), q.dtype), jnp.asarray(held_freedoms(model, hold), q.dtype)
    known = _Known(model, wanted, limited, held)
    if elsewhere:
        q = _without_rate(q, elsewhere)
    found = _reached(known, q, loose, int(iterations))
    return InverseKinematics(found.x, found.error, found.status, found.iterations)


@jax.custom_jvp
def _without_rate(q: jax.Array, elsewhere: Elsewhere) -> jax.Array:
    """The guess, by which no solution has a derivative."""
    return q


@partial(_without_rate.defjvp, symbolic_zeros=True)
def _no_rate(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    refuse_change(tangents[1], "give it to o.Target as `data`, which the function is called with")
    return primals[0], jnp.zeros_like(primals[0])


@partial(jax.jit, static_argnums=3)
def _reached(known: _Known, q: jax.Array, loose: jax.Array, iterations: int) -> Fit:
    start = integrate(known.model, q, jnp.clip(jnp.zeros(known.model.nv, q.dtype), *_room(known, q)))
    return least_squares(_REACH, iterations, known, start, loose)
