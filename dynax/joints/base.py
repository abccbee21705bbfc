"""What a joint is: a pose, motion columns, a bias and a manifold. Algorithms know nothing else about joints.

A joint connects a frame on its predecessor (the parent body) with a frame on its successor (the body it carries). Every
joint is written in its canonical frame, hinge along z, exactly as in Featherstone (2008), table 4.1; `frame` turns that
frame into the user's axes. The functions here work on components (see `dynax.spatial.components`): `q`, `v` and
`parameters` are tuples with one entry per coordinate, each an array over all joints of the type and any batch.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dynax.joints.nearest import borne_error, forces_borne, gauss_newton
from dynax.spatial import Force, Mat3, Motion, Scalar, Vec3

Coordinates = tuple[Scalar, ...]


class JointMotion(NamedTuple):
    """The motion of successors relative to predecessors, for all joints of one type.

    `rotation` turns successor components into predecessor components, `translation` is the successor's origin in
    predecessor axes; `columns` (one per freedom), `velocity = S v + sigma` and `bias = S_ring v + sigma_ring` are in
    successor axes about the successor's origin. A `bias` of `None` is structurally zero.
    """

    rotation: Mat3
    translation: Vec3
    columns: tuple[Motion, ...]
    velocity: Motion
    bias: Motion | None

    def along(self, v: Coordinates) -> Motion:
        """`S v` for any rates."""
        return combine(self.columns, v)


class AbstractJoint(abc.ABC):
    """A joint type. To write one's own, give `nq`, `nv` and `pose`; if `nq == nv`, the rest follows by differentiation.

    Subclasses are frozen, hashable dataclasses whose fields are what the user chooses (axes, pitch, radius). What
    varies continuously is handed to the model as `parameters`, which are differentiable leaves, and as `frame`.
    """

    nq: ClassVar[int]
    nv: ClassVar[int]
    #: Whether the pose depends on `time` too. Then velocity and bias have a part of their own, `sigma` (section 3.5).
    rheonomic: ClassVar[bool] = False
    #: Whether velocities lead to every configuration nearby, so that those of `q` and `v` have equally many directions.
    holonomic: ClassVar[bool] = True
    #: Where `v` is along axes that turn with the successor: which of its entries are the angular velocity, x, y, z, and
    #: which the linear one, -1 for none.
    turning: ClassVar[tuple[int, ...]] = ()

    #: How far one unit of the coordinate turns about z and moves along z, for joints that are screws along z.
    @property
    def screw(self) -> tuple[float, float] | None:
        return None

    @property
    def frame(self) -> np.ndarray:
        """The canonical frame in the user's axes, a rotation matrix: its z column is the hinge."""
        return np.eye(3)

    @property
    def parameters(self) -> tuple[float, ...]:
        """Continuous parameters other than axes (pitch, radius)."""
        return ()

    @property
    def canonical(self) -> AbstractJoint:
        """The joint without its continuous parameters and axes: what is static about it."""
        return self

    @abc.abstractmethod
    def pose(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Mat3, Vec3]:
        """Rotation (successor to predecessor) and translation (of the successor's origin, predecessor axes)."""

    def columns(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        """The motion columns `S`, in successor axes: by default the derivatives of the pose."""
        if self.nq != self.nv:
            raise NotImplementedError(f"{type(self).__name__}: nq != nv, so `columns` must be given")
        return tuple(self.pose_rate(q, unit, parameters, time) for unit in _units(q))

    def bias(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> Motion | None:
        """`S_ring v`, in successor axes: by default the derivative of the columns along the motion."""
        if self.nv == 0:
            return None
        return combine(self.column_rates(q, v, parameters, time), v)

    def column_rates(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Motion, ...]:
        """`S_ring`: the rate of each column in successor axes while the joint moves."""
        dtype, shape = jnp.result_type(*q), jnp.broadcast_shapes(*(jnp.shape(x) for x in q))

        def columns(q: Coordinates):
            # Constant columns hold Python numbers, which a derivative cannot see.
            return jax.tree.map(
                lambda a: jnp.broadcast_to(jnp.asarray(a, dtype), shape), self.columns(q, parameters, time)
            )

        return jax.jvp(columns, (q,), (self.rate(q, v, parameters),))[1]

    def motion(self, q: Coordinates, v: Coordinates, parameters: Coordinates, time: Scalar) -> JointMotion:
        """Everything an algorithm asks of the joint."""
        rotation, translation = self.pose(q, parameters, time)
        columns = self.columns(q, parameters, time) if self.nv else ()
        if not self.rheonomic:
            return JointMotion(rotation, translation, columns, combine(columns, v), self.bias(q, v, parameters, time))
        tick = jnp.ones_like(time)

        def velocity(q: Coordinates, time: Scalar) -> Motion:
            pose, rates = jax.jvp(lambda t: self.pose(q, parameters, t), (time,), (tick,))
            sigma = body_velocity(pose[0], *rates)
            return sigma + combine(self.columns(q, parameters, time), v) if self.nv else sigma

        rate = self.rate(q, v, parameters) if self.nv else ()
        return JointMotion(rotation, translation, columns, *jax.jvp(velocity, (q, time), (rate, tick)))

    def pose_rate(self, q: Coordinates, rate: Coordinates, parameters: Coordinates, time: Scalar) -> Motion:
        """The velocity of the successor, in its axes, when the coordinates change at `rate`."""
        (rotation, _), rates = jax.jvp(lambda q: self.pose(q, parameters, time), (q,), (rate,))
        return body_velocity(rotation, *rates)

    def rate(self, q: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        """The derivative of `q` when the joint moves with velocity `v` (`qdfn`, eq. 3.7)."""
        zero = tuple(jnp.zeros_like(x) for x in v)
        return jax.jvp(lambda dv: self.integrate(q, dv, parameters), (zero,), (v,))[1]

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        """The velocity with which `q` changes at this rate: the inverse of `rate`. A rate that would change the length
        of a quaternion counts for nothing."""
        return jax.jvp(lambda x: self.difference(q, x), (q,), (rate,))[1]

    def neutral(self) -> tuple[float, ...]:
        """The configuration in which the two frames coincide (where the joint has one)."""
        return (0.0,) * self.nq

    def integrate(self, q: Coordinates, dv: Coordinates, parameters: Coordinates) -> Coordinates:
        """The configuration reached from `q` by the tangent vector `dv`."""
        return tuple(a + b for a, b in zip(q, dv, strict=True))

    @property
    def adds(self) -> bool:
        """Whether `integrate` adds, so that two steps are one by their sum."""
        return type(self).integrate is AbstractJoint.integrate

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        """The tangent vector that leads from `q0` to `q1`."""
        return tuple(b - a for a, b in zip(q0, q1, strict=True))

    def difference_rate(self, q0: Coordinates, q1: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        """The rate of `difference(q0, q1)` while the joint at `q1` moves with velocity `v`."""
        rate = self.rate(q1, v, parameters)
        return jax.jvp(lambda q: self.difference(q0, q), (q1,), (rate,))[1]

    def carried(self, q: Coordinates, dv: Coordinates, v: Coordinates, parameters: Coordinates) -> Coordinates:
        """The velocity of `integrate(q, dv)` while the joint at `q` moves with velocity `v`."""
        move = lambda q: self.integrate(q, dv, parameters)  # noqa: E731
        return self.tangent(*jax.jvp(move, (q,), (self.rate(q, v, parameters),)))

    def integrate_rate(
        self, q: Coordinates, dv: Coordinates, change: Coordinates, parameters: Coordinates
    ) -> Coordinates:
        """The velocity of `integrate(q, dv)` while `dv` changes at this rate."""
        return self.tangent(*jax.jvp(lambda dv: self.integrate(q, dv, parameters), (dv,), (change,)))

    def bracket(self, a: Coordinates, b: Coordinates) -> Coordinates:
        """`[a, b]` of two tangent vectors: what is left of turning by one after the other, in the limit of small ones.
        Zero where `integrate` adds."""
        return tuple(jnp.zeros_like(x) for x in a)

    def normalize(self, q: Coordinates) -> Coordinates:
        """The nearest valid configuration."""
        return q

    def sample(self, uniform: Coordinates) -> Coordinates:
        """A configuration from `nq` numbers uniform in (-1, 1)."""
        return uniform

    def nearest(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> Coordinates:
        """The configuration whose pose is nearest to the given one; exact where the joint can reach it.

        By default from the neutral configuration, by Gauss-Newton steps on the error of the pose.
        """
        return gauss_newton(self, rotation, translation, parameters, time)

    def gap(self, rotation: Mat3, translation: Vec3, parameters: Coordinates, time: Scalar) -> tuple[Scalar, ...]:
        """How far a pose is from what the joint allows, `6 - nv` entries (section 8.3).

            X = X_J(q) X_err      q the coordinates nearest to X      X_err = exp(d)      delta = T(q)^T d

        To first order; near what is allowed it changes at the rate `T^T v_J` (eq. 8.27).
        """
        return borne_error(self, rotation, translation, parameters, time)

    def complement(self, q: Coordinates, parameters: Coordinates, time: Scalar) -> tuple[Force, ...]:
        """The forces `T` the joint bears, in successor axes: `6 - nv` of them, `T^T S = 0` (section 3.5)."""
        return forces_borne(self, q, parameters, time)

    def __repr__(self) -> str:
        return type(self).__name__


def body_velocity(rotation: Mat3, rotation_rate: Mat3, translation_rate: Vec3) -> Motion:
    """The velocity in body axes of a frame whose pose changes at the given rates."""
    w = rotation.T @ rotation_rate
    angular = Vec3(w.zy - w.yz, w.xz - w.zx, w.yx - w.xy) * 0.5
    return Motion(angular, rotation.transpose_apply(translation_rate))


def combine(columns: Sequence[Motion], v: Coordinates) -> Motion:
    """`S v`."""

    def total(*entries: Scalar) -> Scalar:
        # Columns that are constant hold Python numbers, most of them zeros.
        terms = [(c, x) for c, x in zip(entries, v, strict=True) if not (isinstance(c, float) and c == 0.0)]
        products = [x if isinstance(c, float) and c == 1.0 else c * x for c, x in terms]
        return reduce(operator.add, products) if products else jnp.zeros_like(v[0])

    return jax.tree.map(total, *columns)


def constant_columns(indices: Sequence[int]) -> tuple[Motion, ...]:
    """Unit columns: `e_0 .. e_2` angular, `e_3 .. e_5` linear."""

    def unit(index: int) -> Motion:
        entries = [float(k == index) for k in range(6)]
        return Motion(Vec3(*entries[:3]), Vec3(*entries[3:]))

    return tuple(unit(index) for index in indices)


def _units(q: Coordinates) -> list[Coordinates]:
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in q))
    dtype = jnp.result_type(*q)
    return [tuple(jnp.full(shape, float(j == k), dtype) for j in range(len(q))) for k in range(len(q))]


def unit_vector(axis: Sequence[float], what: str) -> tuple[float, float, float]:
    """`axis` scaled to length one; an axis that is none raises."""
    try:
        a = np.asarray(axis, dtype=np.float64)
    except (TypeError, ValueError):  # a name, or rows of different lengths
        a = np.empty(0)
    if a.shape != (3,) or not np.all(np.isfinite(a)):
        raise ValueError(f"{what} must be three finite numbers, for example (0, 0, 1), got {axis!r}")
    largest = np.max(np.abs(a))
    if largest == 0.0:
        raise ValueError(f"{what} is zero: it must point along the joint, for example (0, 0, 1)")
    a = a / largest
    x, y, z = (float(x) for x in a / np.linalg.norm(a))
    return (x, y, z)


def check_perpendicular(joint: AbstractJoint, first: str, second: str) -> None:
    """Two unit vectors, attributes of `joint` of these names, must be perpendicular."""
    a, b = getattr(joint, first), getattr(joint, second)
    if abs(np.dot(a, b)) > 1e-6:
        raise ValueError(f"{type(joint).__name__}: `{first}` {a} and `{second}` {b} must be perpendicular")


def finite_number(value: float, what: str) -> float:
    """`value` as a Python float; anything but one finite number raises."""
    number = np.asarray(value, dtype=np.float64)
    if number.shape != () or not np.isfinite(number):
        raise ValueError(f"{what} must be one finite number, got {value!r}")
    return float(number)


def frame_along(axis: ArrayLike, first: ArrayLike | None = None) -> np.ndarray:
    """A rotation matrix whose third column is `axis`; its first is `first` where given, else any perpendicular one."""
    z = np.asarray(axis, dtype=np.float64)
    if first is None and z[2] == 1.0:
        return np.eye(3)
    # Through y, so that the matrix is orthogonal even where `first` is only nearly perpendicular.
    y = np.cross(z, np.eye(3)[int(np.argmin(np.abs(z)))] if first is None else np.asarray(first, dtype=np.float64))
    y /= np.linalg.norm(y)
    return np.stack([np.cross(y, z), y, z], axis=1)


@dataclass(frozen=True, repr=False)
class AxisJoint(AbstractJoint):
    """A joint about or along one axis, fixed in both bodies.

    **Arguments:**

    - `axis`: its direction in the body's axes; scaled to unit length, zero raises `ValueError`.
    """

    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)

    def __post_init__(self):
        object.__setattr__(self, "axis", unit_vector(self.axis, f"{type(self).__name__}: `axis`"))

    @property
    def frame(self) -> np.ndarray:
        return frame_along(self.axis)

    @property
    def canonical(self) -> AbstractJoint:
        return type(self)()
