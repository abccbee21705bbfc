"""What methods that assemble articulated bodies start from: bodies and joints as plain matrices, one row per body.

World axes, about each body's joint; a joint stands in the coordinates of the parent's, where bodies are assembled.
Motions, forces and 6x6 matrices are arrays on the last axes. Accelerations are those on top of the bias (velocities,
driven joints and gravity), so that neither the ground nor a joint that does not accelerate contributes any.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.linear.matrices import product, shifts, turned
from dynax.linear.solve import solve
from dynax.model import Model
from dynax.routes.path_kinematics import path_kinematics
from dynax.spatial import Mat3
from dynax.spatial.complement import complement
from dynax.topology import Topology
from dynax.tree.bodies import net_forces, passive_force, world_inertias
from dynax.tree.layout import Parts
from dynax.tree.setup import setup


def times(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return product(matrix, vector[..., None])[..., 0]


class JointSpace(NamedTuple):
    """The forces a joint can transmit, shape `(..., 6, 6)`: active ones `T_a` first, then the constraint's `T`.

    `T_a^T S = 1` and `T^T S = 0` (Featherstone 2008, section 3.5), so that the transpose takes the acceleration across
    the joint to that of its freedoms, and to zeros.
    """

    forces: jax.Array
    armature: jax.Array
    """Rotor inertia of the freedoms, ones for constraint forces, shape `(..., 6)`."""
    free: jax.Array
    """Ones for freedoms, zeros for constraint forces."""

    @staticmethod
    def of(
        columns: jax.Array,
        borne: jax.Array | None = None,
        active: jax.Array | None = None,
        armature: jax.Array | float = 0.0,
    ) -> JointSpace:
        """From motion columns `S (..., 6, k)`.

        **Arguments:** `borne`: a basis `T (..., 6, 6 - k)`, default orthonormal. `active`: `T_a (..., 6, k)`, default
        `S (S^T S)^-1`; it decides what the bearings feel, not how the joint moves. `armature`: `(..., k)`.
        """
        columns = jnp.asarray(columns)
        k, shape = columns.shape[-1], (*columns.shape[:-2], 6)
        if borne is None:
            borne = complement(columns)
        if active is None:
            active = turned(solve(product(turned(columns), columns), turned(columns))) if k else columns
        rotor = jnp.broadcast_to(jnp.asarray(armature, columns.dtype), (*shape[:-1], k))
        ones = jnp.ones((*shape[:-1], 6 - k), columns.dtype)
        free = jnp.broadcast_to(jnp.asarray(np.arange(6) < k, columns.dtype), shape)
        return JointSpace(jnp.concatenate([active, borne], -1), jnp.concatenate([rotor, ones], -1), free)


class Bodies(NamedTuple):
    """All bodies and their joints, in body order."""

    inertia: jax.Array
    """`(n, 6, 6)`."""
    bias: jax.Array
    """The force each body needs for its velocity and gravity, less all that acts on it but constraint forces."""
    shift: jax.Array
    """Motions from the coordinates of the parent to the body's own, `(n, 6, 6)`; its transpose takes forces back."""
    back: jax.Array
    """The inverse of `shift`."""
    space: JointSpace
    """In the coordinates of the parent."""
    active: jax.Array
    """`T_a tau`, the force the joint's motors and springs exert on the body, in the coordinates of the parent."""

    def freedoms(self, topology: Topology, across: jax.Array) -> jax.Array:
        """The joints' accelerations `T_a^T (a_2 - a_1)` in the order of `v`, from the bodies' relative ones."""
        rates = times(turned(self.space.forces), across).reshape(-1)
        body, start = topology.body_of_velocity, topology.v_start
        return rates[6 * body + np.arange(topology.nv) - start[body]]


def in_parent(body: Bodies, phi: jax.Array) -> jax.Array:
    """An inverse inertia in the coordinates of the parent."""
    return product(body.back, product(phi, turned(body.back)))


def bodies(model: Model, q: jax.Array, v: jax.Array, tau: jax.Array, external: jax.Array | None) -> Bodies:
    """The matrices of one state, free roots like all others."""
    s = setup(model, q, v)
    kin = path_kinematics(model, s, v)
    inertias = world_inertias(s, kin)
    forces = net_forces(s, kin, inertias, external)
    rotation, inertia, force, offset = s.layout.body_order(
        Parts(
            (kin.roots.rotation, inertias.roots, forces.roots, kin.roots.offset),
            (kin.rows.rotation, inertias.rows, forces.rows, kin.rows.offset),
        )
    )
    # Nothing is handed to the ground; bodies on it need no coordinates but their own.
    carried = jnp.asarray(np.asarray(model.parents) >= 0, s.dtype)
    offset = offset * carried
    shift = shifts(offset)
    own, active = _joints(model, q, tau - passive_force(model, q, v))
    turn = _turns(rotation)
    to_parent = product(turned(shift), turn)
    space = own._replace(forces=product(to_parent, own.forces))
    return Bodies(inertia.matrix, force.array, shift, shifts(-offset), space, times(to_parent, active))


def _turns(rotation: Mat3) -> jax.Array:
    """The 6x6 matrices of rotations."""
    r = rotation.array
    zero = jnp.zeros_like(r)
    return jnp.concatenate([jnp.concatenate([r, zero], -1), jnp.concatenate([zero, r], -1)], -2)


def _joints(model: Model, q: jax.Array, tau: jax.Array) -> tuple[JointSpace, jax.Array]:
    """The spaces of all joints and the forces of their motors, in the joints' own axes."""
    topology, dtype = model.topology, q.dtype
    armature, parameters = model.armature.astype(dtype), model.joint_parameters.astype(dtype)
    order, spaces, forces = [], [], []
    for kind, group in topology.groups.items():
        count, k = len(group), kind.nv
        coordinates = tuple(q[topology.q_start[group] + i] for i in range(kind.nq))
        own = tuple(parameters[topology.parameter_start[group] + i] for i in range(len(kind.parameters)))
        clock = jnp.broadcast_to(model.time.astype(dtype), (count,))

        def stacked(vectors, count: int = count) -> jax.Array:
            flat = [jnp.broadcast_to(vector.array, (count, 6)).astype(dtype) for vector in vectors]
            return jnp.stack(flat, -1) if flat else jnp.zeros((count, 6, 0), dtype)

        freedoms = topology.v_start[group][:, None] + np.arange(k)
        space = JointSpace.of(
            stacked(kind.columns(coordinates, own, clock) if k else ()),
            stacked(kind.complement(coordinates, own, clock)),
            armature=armature[freedoms],
        )
        order.append(group)
        spaces.append(space)
        forces.append(times(space.forces[..., :k], tau[freedoms]) if k else jnp.zeros((count, 6), dtype))
    back = np.argsort(np.concatenate(order))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[back], *zip(spaces, forces, strict=True))
