"""Bodies that bend, as nodes of a tree: the motion of their places, their inertia and what it asks for (Jain and
Rodriguez, FLEX-KIN, FLEX-MM, FLEX-BM).

All bodies at once: those of one level are stacked on a first batch axis, modes that one lacks are zeros. Quantities are
in the axes of the body's frame, about its origin.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.compile.fence import apart
from dynax.flexible import FlexibleBody
from dynax.linear.sums import summed
from dynax.model.flexible import FlexibleModel
from dynax.spatial import Force, Mat3, Motion, Quaternion, RigidInertia, Sym3, Vec3, exp_translation
from dynax.sweep import take_rows

# Each leaf's axes without those of a batch, and which of them run over modes.
_AXES = {
    "node_position": (2, ()), "node_translation": (3, (2,)), "node_rotation": (3, (2,)),
    "node_foreshortening": (4, (1, 2)), "mass": (0, ()), "first_moment": (1, ()), "inertia": (2, ()),
    "translation_coupling": (2, (1,)), "rotation_coupling": (2, (1,)), "rotation_coupling_rate": (3, (0, 2)),
    "inertia_first": (3, (0,)), "inertia_second": (4, (0, 1)), "foreshortening": (3, (0, 1)),
    "foreshortening_moment": (4, (0, 1)), "modal_mass": (2, (0, 1)), "stiffness": (2, (0, 1)), "damping": (2, (0, 1)),
}  # fmt: skip


_SIX = ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (0, 2))


class Modal(NamedTuple):
    """The inertia of the bodies that bend, over the motion of their frames and their modes."""

    inertia: RigidInertia
    """Components of shape `(bodies, *batch)`."""
    coupling: Force
    """The momentum of each mode, axes (body, mode)."""
    mass: jax.Array
    """Shape `(bodies, m, m, *batch)`."""

    def momentum(self, velocity: Motion, rate: jax.Array) -> tuple[Force, jax.Array]:
        """Of the frames, and of the modes."""
        along = summed(self.coupling * rate)
        own = summed(self.mass * rate[:, None], 2)
        return self.inertia @ velocity + along, own + self.coupling.dot(jax.tree.map(lambda a: a[:, None], velocity))


class FlexibleBodies:
    """The bodies of a model for a state with trailing batch axes; modes have shape `(bodies, m, *batch)`."""

    def __init__(self, model: FlexibleModel, like: jax.Array):
        self.model, self.batch, self.dtype = model, like.shape[1:], like.dtype
        self.most = max(member.modes for member in model.members)
        padded = [self._padded(body) for body in model.bodies]
        levels = dict.fromkeys(body.level for body in model.bodies)
        self.groups: list[tuple[list[int], FlexibleBody]] = []
        for level in levels:
            rows = [k for k, body in enumerate(model.bodies) if body.level == level]
            leaves = {
                name: jnp.stack(jnp.broadcast_arrays(*(padded[k][name] for k in rows)), axis=ndim)
                for name, (ndim, _) in _AXES.items()
                if not name.startswith("node")
            }
            # Computed once: what they are made of would be fused into every sum over modes.
            body = jax.tree.map(apart, dataclasses.replace(model.bodies[rows[0]], **leaves).gathered())
            self.groups.append((rows, body))
        self._order = np.argsort([row for rows, _ in self.groups for row in rows])
        # Nodes: of each body the first, which its frame hangs on, then the others.
        self.owner = np.array([k for k, m in enumerate(model.members) for _ in range(1 + len(m.nodes))], dtype=int)
        self.nodes = {
            name: jnp.concatenate(_broadcast([leaves[name] for leaves in padded], _AXES[name][0]))
            for name in ("node_position", "node_translation", "node_rotation", "node_foreshortening")
        }

    def _padded(self, body: FlexibleBody) -> dict[str, jax.Array]:
        """All leaves with as many modes and batch axes as the others have."""
        leaves = {}
        for name, (ndim, modes) in _AXES.items():
            leaf = getattr(body, name).astype(self.dtype)
            leaf = leaf.reshape(leaf.shape + (1,) * (ndim + len(self.batch) - leaf.ndim))
            pads = [(0, self.most - body.num_modes if axis in modes else 0) for axis in range(leaf.ndim)]
            leaves[name] = jnp.pad(leaf, pads) if modes else leaf
        if body.level != "consistent":
            leaves["node_foreshortening"] = jnp.zeros_like(leaves["node_foreshortening"])
        return leaves

    def modes(self, x: jax.Array, table: np.ndarray) -> jax.Array:
        """The modal entries of a vector, by a table of `model.places`."""
        return take_rows(x, table.reshape(-1)).reshape(*table.shape, *x.shape[1:])

    def inertia(self, eta: jax.Array) -> Modal:
        """`M_m(eta)` (eqs. 23 to 25)."""

        def own(body: FlexibleBody, eta: jax.Array) -> tuple:
            coupling, j = map(apart, body.couplings_at(eta)), apart(body.inertia_at(eta))
            inertia = RigidInertia(body.mass, Vec3(*apart(body.first_moment_at(eta))), Sym3(*(j[k] for k in _SIX)))
            return inertia, Force(*(Vec3(*six) for six in coupling)), body.modal_mass

        return Modal(*self._each(own, eta))

    def elastic(self, eta: jax.Array, rate: jax.Array) -> jax.Array:
        """`K eta + D etad`."""

        def own(body: FlexibleBody, eta: jax.Array, rate: jax.Array) -> jax.Array:
            return summed(body.stiffness * eta[None] + body.damping * rate[None])

        return self._each(own, eta, rate)

    def gyroscopic(self, eta: jax.Array, rate: jax.Array, velocity: Motion) -> tuple[Force, jax.Array]:
        """`b_m` (eqs. 33 and 39): on the frames, and on the modes."""

        def own(body: FlexibleBody, *x) -> tuple:
            return body.gyroscopic_parts(*x)

        modal, angular, linear = self._each(
            own, eta, rate, *(((v.x, v.y, v.z)) for v in (velocity.angular, velocity.linear))
        )
        return Force(Vec3(*angular), Vec3(*linear)), modal

    def _each(self, function, *arrays):
        """A function of the stacked bodies of each level, results in body order with bodies in front."""
        found = []
        for rows, body in self.groups:
            front = jax.tree.map(lambda a, rows=rows: take_rows(a, np.array(rows)), arrays)
            own = function(body, *jax.tree.map(lambda a: jnp.moveaxis(a, 0, a.ndim - len(self.batch) - 1), front))
            found.append(jax.tree.map(lambda a: jnp.moveaxis(a, a.ndim - len(self.batch) - 1, 0), own))
        return jax.tree.map(lambda *a: jnp.concatenate(_broadcast(a, a[0].ndim - len(self.batch)))[self._order], *found)

    def poses(self, eta: jax.Array) -> jax.Array:
        """Where nodes stand in the frames, as coordinates of a free joint, `(nodes, 7, *batch)`."""
        angle, shift, _ = self._displaced(eta)
        turn = Quaternion.exp(angle)
        place = Vec3(*(self.nodes["node_position"][:, k] for k in range(3))) + shift
        seven = jnp.broadcast_arrays(place.x, place.y, place.z, turn.w, turn.x, turn.y, turn.z)
        return jnp.stack([apart(a) for a in seven], axis=1)

    def columns(self, eta: jax.Array) -> jax.Array:
        """The velocities of nodes by each mode, in their own axes, `(nodes, 6, m, *batch)`.

        The angular ones are the exact rates of `exp(Pi_w eta)`: `Pi_w` itself is right to first order only.
        """
        angle, _, slope = self._displaced(eta)
        turning = Vec3(*(self.nodes["node_rotation"][:, k] for k in range(3)))
        return _seen(angle, turning, slope)

    def drifts(self, eta: jax.Array, rate: jax.Array) -> jax.Array:
        """The accelerations of nodes while the modes keep their rates, `(nodes, 6, *batch)`."""
        own = self.of_owner(rate)
        turning = Vec3(*(summed(self.nodes["node_rotation"][:, k] * own) for k in range(3)))

        def velocities(x: jax.Array) -> jax.Array:
            angle, _, slope = self._displaced(x)
            return _seen(angle, turning, summed(slope * own))

        return jax.jvp(velocities, (eta,), (rate,))[1]

    def of_owner(self, x: jax.Array) -> jax.Array:
        """Quantities of bodies at each of their nodes."""
        return x[self.owner]

    def _displaced(self, eta: jax.Array) -> tuple[Vec3, Vec3, Vec3]:
        """`Pi_w eta`, the displacement, and its slopes by the modes, axes (node, mode)."""
        x = self.of_owner(eta)
        drawn = apart(summed(self.nodes["node_foreshortening"] * x[:, None, :, None], 2))  # (node, mode, 3)
        slope = jnp.swapaxes(self.nodes["node_translation"], 1, 2) + drawn
        shift = apart(summed((slope - 0.5 * drawn) * x[:, :, None]))
        angle = apart(summed(self.nodes["node_rotation"] * x[:, None], 2))
        return (
            Vec3(*(angle[:, k] for k in range(3))),
            Vec3(*(shift[:, k] for k in range(3))),
            Vec3(*(slope[:, :, k] for k in range(3))),
        )


def _seen(angle: Vec3, turning: Vec3, slope: Vec3) -> jax.Array:
    """Velocities in axes that have turned by `angle`, from rates of the angle and of the place, on axis 1."""
    # What depends on the angle alone is computed once for all modes.
    units = [Vec3(*(jnp.full_like(angle.x, j == k) for j in range(3))) for k in range(3)]
    spin = Mat3.from_columns(*(exp_translation(-angle, unit) for unit in units))
    spin, turn = jax.tree.map(apart, (spin, Quaternion.exp(-angle).matrix()))
    if slope.x.ndim > angle.x.ndim:
        spin, turn = jax.tree.map(lambda a: a[:, None], (spin, turn))
    angular, linear = spin @ turning, turn @ slope
    six = jnp.broadcast_arrays(angular.x, angular.y, angular.z, linear.x, linear.y, linear.z)
    return jnp.stack([apart(a) for a in six], axis=1)


def _broadcast(leaves, ndim: int) -> list[jax.Array]:
    """With equal axes of a batch, which come after the first `ndim`."""
    batch = jnp.broadcast_shapes(*(leaf.shape[ndim:] for leaf in leaves))
    return [jnp.broadcast_to(leaf, (*leaf.shape[:ndim], *batch)) for leaf in leaves]
