"""A system on its own, before anything couples it to another: steps A to C of closed-chain dynamics (Jain, CC-6STEP).

    A   a^f      free accelerations of the joints, by the articulated-body recursion
    B   alpha^f  what they give the nodes, J a^f; Jdot v stands beside it and enters once
    C   Lambda   the compliance of the nodes

Nothing here knows what the system will be coupled to, so that another partner compiles and computes nothing anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.algorithms.factor import Factor, factorize
from dynax.algorithms.frames import FrameChoice, _check_frame
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.operators.compliance import inward, outward, unit_responses
from dynax.operators.nodes import (
    NodeRows,
    Nodes,
    find_nodes,
    node_biases,
    node_motions,
    node_rows,
    of_bodies,
    on_bodies,
    wrenches,
)
from dynax.spatial import Motion, Transform, Vec3
from dynax.tree.bodies import net_forces, passive_force, world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts, layout
from dynax.tree.setup import setup


class FreeMotion(NamedTuple):
    """What steps A to C find for a system with `m` nodes."""

    acceleration: jax.Array
    """`a^f` of the joints, shape `(nv,)`."""
    node_accelerations: jax.Array
    """`alpha^f = J a^f`, shape `(m, 6)`."""
    node_biases: jax.Array
    """`Jdot v`, shape `(m, 6)`."""
    node_velocities: jax.Array
    """Shape `(m, 6)`."""
    compliance: jax.Array
    """`Lambda = J M^-1 J^T`, shape `(6 m, 6 m)`."""
    poses: Transform
    """Of the nodes in the world."""
    rows: NodeRows
    factor: Factor
    """Of the mass matrix."""


@dataclass(frozen=True, eq=False)
class OpenSystem:
    """A system at one state under its own forces alone, from `open_system`."""

    model: Model
    q: jax.Array
    v: jax.Array
    free: FreeMotion
    nodes: tuple[str, ...]
    frame: FrameChoice

    def deflection(self, force: jax.Array) -> jax.Array:
        """`M^-1 J^T f`, shape `(nv,)`, for wrenches on the nodes, stacked: shape `(6 m,)`."""
        return _deflection(self.model, self.free.factor, self.free.rows, force, bodies=bodies_of(self))


jax.tree_util.register_dataclass(OpenSystem, data_fields=["model", "q", "v", "free"], meta_fields=["nodes", "frame"])


def bodies_of(system: OpenSystem) -> tuple[int, ...]:
    """The body of each node, -1 for the world."""
    return tuple(system.model.locate(name)[0] for name in system.nodes)


@partial(jax.jit, static_argnames=("bodies", "frame"))
def _free_motion(
    model: Model, q, v, tau, external, poses, *, bodies: tuple[int, ...], frame: FrameChoice
) -> FreeMotion:
    s, nodes = setup(model, q, v), Nodes(bodies, poses)
    kin = kinematics(model, s, v, positions=True, accelerations=True, gravity=True)
    rows, placed = node_rows(model, s, kin, nodes, frame)
    factor = factorize(model, q)
    forces = net_forces(s, kin, world_inertias(s, kin), external)
    given = jax.tree.map(lambda f: -f[:, None], Parts(forces.roots, s.layout.to_slots(forces.rows, s.layout.slot_last)))
    a, motions = outward(factor, *inward(factor, given, (tau - passive_force(model, q, v))[:, None]))
    motion = jax.tree.map(lambda x: x[:, 0], of_bodies(s.layout, bodies, motions))
    lift = Motion(Vec3.zero(s.gravity.x), s.gravity)  # what kinematics have at the base
    velocity = of_bodies(s.layout, bodies, Parts(kin.roots.velocity, kin.rows.velocity))
    accelerated = Parts(kin.roots.acceleration + lift, kin.rows.acceleration + lift)
    bias = of_bodies(s.layout, bodies, accelerated)
    return FreeMotion(
        a[:, 0],
        node_motions(rows, motion).array,
        node_biases(rows, frame, velocity, bias).array,
        node_motions(rows, velocity).array,
        unit_responses(s.layout, factor, rows, nodes)[0],
        placed,
        rows,
        factor,
    )


@partial(jax.jit, static_argnames=("bodies",))
def _deflection(model: Model, factor: Factor, rows: NodeRows, force, *, bodies: tuple[int, ...]) -> jax.Array:
    plan = layout(model.topology)
    own = on_bodies(plan, bodies, jax.tree.map(lambda a: a[:, None], wrenches(rows, force.reshape(-1, 6))))
    total = jax.tree.map(lambda a: a.sum(1), own)
    return outward(factor, *inward(factor, total, jnp.zeros((model.nv, 1), force.dtype)))[0][:, 0]


@for_models
def open_system(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike | None = None,
    external: ArrayLike | None = None,
    *,
    nodes: str | Sequence[str],
    frame: FrameChoice = "body",
) -> OpenSystem:
    """A system at one state, ready to be coupled at its nodes to itself or to another, in O(n m).

    It is computed, and compiled, without regard to what it is coupled to: name all nodes that will ever be.

    **Arguments:**

    - `q`, `v`, `tau`, `external`: as in `forward_dynamics`; `tau` is zero if not given.
    - `nodes`: names of `m` bodies or frames; `KeyError` with near names otherwise.
    - `frame`: axes and points of their six-vectors, as for `dx.jacobian`.
    """
    _check_frame(frame)
    names = (nodes,) if isinstance(nodes, str) else tuple(nodes)
    q, v, tau, external = as_state(model, q=q, v=v, tau=tau, external=external, optional=("tau",))
    tau = jnp.zeros_like(v) if tau is None else tau
    found = find_nodes(model, names, q.dtype)
    free = _free_motion(model, q, v, tau, external, found.poses, bodies=found.bodies, frame=frame)
    return OpenSystem(model, q, v, free, names, frame)
