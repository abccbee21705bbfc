"""Bodies that bend, as nodes of a tree: the motion of their places, their inertia and what it asks for (Jain and
Rodriguez, FLEX-KIN, FLEX-MM, FLEX-BM).

All bodies at once: those of one level are stacked on a first batch axis, modes that one lacks are zeros. Quantities are
in the axes of the body's frame, about its origin.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dynax.compile.fence import apart
from dynax.flexible import FlexibleBody
from dynax.flexible.polynomials import Deformed, Polynomials
from dynax.model.flexible import FlexibleModel
from dynax.spatial import Exponential, Force, Mat3, Motion, Quaternion, RigidInertia, Sym3, Vec3
from dynax.sweep import take_rows
from dynax.sweep.sums import summed

# Each leaf's axes without those of a batch, and which of them run over modes.
_AXES = {
    "node_position": (2, ()), "node_translation": (3, (2,)), "node_rotation": (3, (2,)),
    "node_foreshortening": (4, (1, 2)), "mass": (0, ()), "first_moment": (1, ()), "inertia": (2, ()),
    "translation_coupling": (2, (1,)), "rotation_coupling": (2, (1,)), "rotation_coupling_rate": (3, (0, 2)),
    "inertia_first": (3, (0,)), "inertia_second": (4, (0, 1)), "foreshortening": (3, (0, 1)),
    "foreshortening_moment": (4, (0, 1)), "modal_mass": (2, (0, 1)), "stiffness": (2, (0, 1)), "damping": (2, (0, 1)),
}  # fmt: skip


_OPPOSITE = Mat3(-1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0)


class Modal(NamedTuple):
    """The inertia of the bodies that bend, over the motion of their frames and their modes."""

    inertia: RigidInertia
    """Components of shape `(bodies, *batch)`."""
    coupling: Force
    """The momentum of each mode, axes (body, mode)."""
    mass: jax.Array
    """Shape `(bodies, m, m, *batch)`."""

    def momentum(self, velocity: Motion, rate: jax.Array | None) -> tuple[Force, jax.Array]:
        """Of the frames, and of the modes, which rest where they have no `rate`."""
        frames, modes = self.inertia @ velocity, self.coupling.dot(jax.tree.map(lambda a: a[:, None], velocity))
        if rate is None:
            return frames, modes
        return frames + summed(self.coupling * rate), modes + summed(self.mass * rate[:, None], 2)


class Places(NamedTuple):
    """Where the displaced places of bodies that bend stand in what they hang on, as joints of six freedoms."""

    pose: tuple[Vec3, Quaternion]
    """Coordinates of a free joint."""
    columns: Motion
    """The velocities by each mode, in their own axes; axes (place, mode)."""
    drift: Motion
    """The accelerations while the modes keep their rates."""


class Group(NamedTuple):
    """What bodies of one level are at any state; the stacked axis is the last before those of a batch."""

    polynomials: Polynomials
    modal_mass: jax.Array
    stiffness: jax.Array
    damping: jax.Array


@dataclass(frozen=True)
class Stacked:
    """All bodies of a model, as the kernels of the recursion take them."""

    groups: tuple[Group, ...]
    nodes: dict[str, jax.Array]
    """Those of displaced places, by the names in `FlexibleBody`; without foreshortening where no level has it."""
    still: jax.Array
    """Positions of those of the others."""
    rows: tuple[tuple[int, ...], ...]
    """Which bodies each group has."""


jax.tree_util.register_dataclass(Stacked, ["groups", "nodes", "still"], ["rows"])


def displaced(model: FlexibleModel) -> np.ndarray:
    """Which places modes move, of each body its frame, which hangs on the first node, then the other nodes; all where
    none does."""
    still = [m.clamped and k == 0 for m in model.members for k in range(1 + len(m.nodes))]
    return np.arange(len(still)) if all(still) else np.flatnonzero(~np.array(still))


def stacked(model: FlexibleModel, dtype: Any) -> FlexibleModel:
    """The model with its bodies stacked: what is the same for all states is worked out before the kernels that it is
    given to. In a rollout that is once for all steps."""
    if isinstance(model.bodies, Stacked):
        return model
    bodies: Any = _before(model, dtype)
    return dataclasses.replace(model, bodies=bodies)


def prepared(model: FlexibleModel, q: jax.Array) -> FlexibleModel:
    """The model for a kernel of its own: `stacked` where the compiler knows the numbers of the bodies, and works that
    out. Others are stacked in the kernel, in less time than more kernels take to start."""
    known = not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(model.bodies))
    return stacked(model, q.dtype) if known and isinstance(q, Tracer) else model


def stack(model: FlexibleModel, dtype: Any, axes: int = 0) -> Stacked:
    """The bodies, whose leaves have `axes` trailing axes of a batch."""
    most = max(member.modes for member in model.members)
    padded = [_padded(body, most, dtype, axes) for body in model.bodies]
    levels = dict.fromkeys(body.level for body in model.bodies)
    rows = [tuple(k for k, body in enumerate(model.bodies) if body.level == level) for level in levels]
    groups = []
    for own in rows:
        leaves = {
            name: jnp.stack(jnp.broadcast_arrays(*(padded[k][name] for k in own)), axis=ndim)
            for name, (ndim, _) in _AXES.items()
            if not name.startswith("node")
        }
        body = dataclasses.replace(model.bodies[own[0]], **leaves)
        groups.append(Group(body.polynomials, body.modal_mass, body.stiffness, body.damping))
    names = ("node_position", "node_translation", "node_rotation")
    names += ("node_foreshortening",) if "consistent" in levels else ()
    nodes = {name: jnp.concatenate(_broadcast([leaves[name] for leaves in padded], _AXES[name][0])) for name in names}
    moved, position = displaced(model), nodes["node_position"]
    still = np.delete(np.arange(len(position)), moved)
    return Stacked(tuple(groups), take_rows(nodes, moved), take_rows(position, still), tuple(rows))


_before = jax.jit(stack, static_argnames=("dtype",))


def _padded(body: FlexibleBody, most: int, dtype: Any, axes: int) -> dict[str, jax.Array]:
    """All leaves with as many modes and batch axes as the others have."""
    leaves = {}
    for name, (ndim, modes) in _AXES.items():
        leaf = getattr(body, name).astype(dtype)
        leaf = leaf.reshape(leaf.shape + (1,) * (ndim + axes - leaf.ndim))
        pads = [(0, most - body.num_modes if axis in modes else 0) for axis in range(leaf.ndim)]
        leaves[name] = jnp.pad(leaf, pads) if modes else leaf
    if body.level != "consistent":
        leaves["node_foreshortening"] = jnp.zeros_like(leaves["node_foreshortening"])
    return leaves


class FlexibleBodies:
    """The bodies of a model for a state with trailing batch axes; modes have shape `(bodies, m, *batch)`."""

    def __init__(self, model: FlexibleModel, like: jax.Array):
        self.model, self.batch, self.dtype = model, like.shape[1:], like.dtype
        if isinstance(model.bodies, Stacked):
            found = model.bodies
        else:
            found = stack(model, self.dtype, len(self.batch))
            # Computed once: what they are made of would be fused into every sum over modes.
            found = dataclasses.replace(found, groups=jax.tree.map(apart, found.groups))
        self.groups = [(list(rows), group) for rows, group in zip(found.rows, found.groups, strict=True)]
        self._order = np.argsort([row for rows, _ in self.groups for row in rows])
        self.owner = np.array([k for k, m in enumerate(model.members) for _ in range(1 + len(m.nodes))], dtype=int)
        self.first = np.array([k == 0 for m in model.members for k in range(1 + len(m.nodes))])
        self.displaced = displaced(model)
        self.row = np.full(len(self.owner), -1)
        """Of each place among these."""
        self.row[self.displaced] = np.arange(len(self.displaced))
        self.nodes, self.still = found.nodes, found.still

    def modes(self, x: jax.Array, table: np.ndarray) -> jax.Array:
        """The modal entries of a vector, by a table of `model.places`."""
        return take_rows(x, table.reshape(-1)).reshape(*table.shape, *x.shape[1:])

    def inertia(self, eta: jax.Array) -> Modal:
        """`M_m(eta)` (eqs. 23 to 25)."""
        return Modal(*self._each(lambda own, eta: _modal(own, own.polynomials.at(eta)), eta))

    def moving(self, eta: jax.Array, rate: jax.Array, velocity: Motion) -> tuple[Modal, Force, jax.Array]:
        """`M_m(eta)`, and `b_m` (eqs. 33 and 39) on the frames and on the modes."""

        def own(group: Group, eta: jax.Array, *x) -> tuple:
            here = group.polynomials.at(eta)
            return _modal(group, here), group.polynomials.gyroscopic(here, *x)

        spin, speed = ((v.x, v.y, v.z) for v in (velocity.angular, velocity.linear))
        modal, (own_modes, angular, linear) = self._each(own, eta, rate, spin, speed)
        return Modal(*modal), Force(Vec3(*angular), Vec3(*linear)), own_modes

    def elastic(self, eta: jax.Array, rate: jax.Array) -> jax.Array:
        """`K eta + D etad`."""

        def own(group: Group, eta: jax.Array, rate: jax.Array) -> jax.Array:
            return summed(group.stiffness * eta[None] + group.damping * rate[None])

        return self._each(own, eta, rate)

    def _each(self, function, *arrays):
        """A function of the stacked bodies of each level, results in body order with bodies in front."""
        found = []
        for rows, group in self.groups:
            front = jax.tree.map(lambda a, rows=rows: take_rows(a, np.array(rows)), arrays)
            own = function(group, *jax.tree.map(lambda a: jnp.moveaxis(a, 0, a.ndim - len(self.batch) - 1), front))
            found.append(jax.tree.map(lambda a: jnp.moveaxis(a, a.ndim - len(self.batch) - 1, 0), own))
        every = jax.tree.map(lambda *a: jnp.concatenate(_broadcast(a, a[0].ndim - len(self.batch))), *found)
        return take_rows(every, self._order)

    def places(self, eta: jax.Array, rate: jax.Array) -> Places:
        """The frames in their first nodes, and the other nodes in their frames, those that are displaced.

        With `a = Pi_w eta`, `p` the displaced position and `J` of `Exponential`, angular velocities in own axes are

            node    J(-a) da/dt            its linear one    exp(-a) dp/dt
            frame  -J(a) da/dt = w                           p x w - dp/dt

        the exact rates: `Pi_w` itself is right to first order only.
        """
        nodes = self.nodes
        x, own = take_rows(eta, self.owner[self.displaced]), take_rows(rate, self.owner[self.displaced])
        slope, shortening, gain = jnp.swapaxes(nodes["node_translation"], 1, 2), nodes.get("node_foreshortening"), None
        secant = slope  # (node, mode, 3)
        if shortening is not None:
            drawn = apart(summed(shortening * x[:, None, :, None], 2))
            slope, secant = slope + drawn, slope + 0.5 * drawn
            gain = _vec(summed(summed(shortening * own[:, None, :, None], 2) * own[:, :, None]))
        position = nodes["node_position"] + summed(secant * x[:, :, None])
        angle = summed(nodes["node_rotation"] * x[:, None], 2)
        speed = summed(slope * own[:, :, None])
        turning, moving = _vec(nodes["node_rotation"]), _vec(jnp.swapaxes(slope, 1, 2))
        angle, p, speed = (_vec(apart(a)) for a in (angle, position, speed))

        frame = self.first[self.displaced].reshape(-1, *(1,) * len(self.batch))
        frames = bool(frame.any())  # where all are clamped, what is special about them is left out
        if frames:
            sign = jnp.asarray(np.where(frame, 1.0, -1.0), self.dtype)
            angle, turning = angle * sign, turning * -sign[:, None]
        else:
            angle = -angle
        turned = summed(jax.tree.map(lambda a: a * own, turning))
        exponential = jax.tree.map(apart, Exponential.of(angle, 6))
        rotating = exponential.jacobian(), exponential.jacobian_rate(-turned, turned)
        jacobian, bias = jax.tree.map(apart, rotating)
        pose = jax.tree.map(apart, exponential.quaternion().conjugate)
        back = pose.matrix().T
        onto = jax.tree.map(apart, _chosen(frame, _OPPOSITE, back) if frames else back)
        angular = _each_mode(jacobian) @ turning
        columns = Motion(angular, _each_mode(onto) @ moving)
        spin = jacobian @ turned
        ahead = _chosen(frame, speed, onto @ speed) if frames else onto @ speed
        around = ahead.cross(spin)
        drift = Motion(bias, around if gain is None else onto @ gain + around)
        place = _chosen(frame, -back.transpose_apply(p), p) if frames else p
        if frames:
            arm = jax.tree.map(apart, _chosen(frame, p, Vec3(0.0, 0.0, 0.0)))
            columns = columns + Motion(Vec3.zero(angular.x), _each_mode(arm).cross(angular))
            drift = drift + Motion(Vec3.zero(bias.x), arm.cross(bias))
        seven = Vec3(place.x, place.y, place.z), pose
        return jax.tree.map(apart, Places(seven, columns, drift))

    def on_skeleton(self, own: jax.Array, parts: Any, place: np.ndarray, undeformed: bool = False) -> jax.Array:
        """A vector of the skeleton from one of the model and what displaced places have, by `model.places`; for others
        zeros, or how they stand in the undeformed body.

        Components one after another: on an inner axis XLA on a CPU would choose between them number by number.
        """
        count, leaves, row = len(self.displaced), jax.tree.leaves(parts), self.row
        rows = [own, *(jnp.broadcast_to(a, (count, *self.batch)) for a in leaves)]
        still = len(self.still)
        if undeformed and still:
            x, y, z = (-a for a in jnp.unstack(self.still, axis=1))
            one = jnp.ones((still, *self.batch), self.dtype)
            rows += [x * one, y * one, z * one, one, *(0.0 * one,) * 3]
        at, part = np.divmod(np.maximum(place - len(own), 0), len(leaves))
        index = len(own) + part * count + row[at]
        fixed = len(own) + len(leaves) * count + part * still + (np.cumsum(row < 0) - 1)[at] if undeformed else -1
        index = np.where(place < len(own), place, np.where(row[at] < 0, fixed, index))
        return take_rows(jnp.concatenate(rows), index)

    def of_owner(self, x: jax.Array) -> jax.Array:
        """Quantities of bodies at each of their places."""
        return take_rows(x, self.owner)


def _modal(own: Group, here: Deformed) -> tuple:
    inertia = RigidInertia(own.polynomials.mass, Vec3(*here.first_moment), Sym3(*here.inertia))
    return inertia, Force(Vec3(*here.rotation), Vec3(*here.translation)), own.modal_mass


def _vec(a: jax.Array) -> Vec3:
    """Of an array whose axis 1 has length 3."""
    return Vec3(*jnp.unstack(a, axis=1))


def _each_mode(tree):
    """Quantities of places, with an axis for modes."""
    return jax.tree.map(lambda a: a[:, None], tree)


def _chosen(mask: np.ndarray, a, b):
    return jax.tree.map(lambda a, b: jnp.where(mask, a, b), a, b)


def _broadcast(leaves, ndim: int) -> list[jax.Array]:
    """With equal axes of a batch, which come after the first `ndim`."""
    batch = jnp.broadcast_shapes(*(leaf.shape[ndim:] for leaf in leaves))
    return [jnp.broadcast_to(leaf, (*leaf.shape[:ndim], *batch)) for leaf in leaves]
