"""Accelerations under forces of the mean velocity of a step,

    M(q) a + bias(q, v + h a) = tau        M a_i = tau - bias(q, v + h a_(i-1))        a_0 = 0

where `h` is half a step. The configuration is the same in each evaluation, so places, inertias and the factor of the
mass matrix are; what an evaluation adds are the velocities and one solution, three walks of 6-vectors. Of a geared tree
`a` stands before what the gears bear, and `tau` before what they ask of the accelerations (`geared`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dynax.algorithms.factor import Factor, factor_at
from dynax.algorithms.geared import Geared, Ungeared, system
from dynax.model import Model
from dynax.tree.bodies import net_forces, spring_force, world_inertias
from dynax.tree.kinematics import kinematics, motions
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, group_motions, setup


class Place(NamedTuple):
    """What a configuration decides by itself."""

    setup: Setup
    kin: Parts
    inertias: Parts

    def factor(self, model: Model) -> Factor:
        """Of the mass matrix, with the armature of the model."""
        return factor_at(model, self.setup, self.kin, self.inertias)

    def system(self, model: Model, like: jax.Array) -> Geared | Ungeared:
        """What solves for accelerations; `like` has the type and the batch."""
        return system(model, self.factor(model), like)

    def moving(self, model: Model, v: jax.Array, a: jax.Array | None = None) -> tuple[Setup, Parts]:
        """With velocities `v` and accelerations `a` of the joints, none if that is `None`."""
        s = self.setup
        if not model.topology.all_screws:
            s = s._replace(motions=tuple(group_motions(model, s.q, v, list(model.topology.carried))))
        return s, motions(model, s, self.kin, v, a)


def place(model: Model, q: jax.Array, execution: str = "automatic", *, positions: bool = False) -> Place:
    """For trailing batch axes. Armature has those of the velocity too, since friction is part of it."""
    q = jnp.broadcast_to(q, (len(q), *jnp.broadcast_shapes(q.shape[1:], model.armature.shape[1:])))
    s = setup(model, q, execution=execution)
    kin = kinematics(model, s, positions=positions)
    return Place(s, kin, world_inertias(s, kin))


def evaluations(
    model: Model, x: Place, known: Geared | Ungeared, v: jax.Array, tau: jax.Array, half: jax.Array, count: int
) -> jax.Array:
    """`a_1` to `a_count`, each like `tau`, shape `(count, n, *batch)`, without the model's damping and dry friction."""
    nv = model.nv
    tau = jnp.concatenate([tau[:nv] - spring_force(model, x.setup.q), tau[nv:]])

    def nearer(a: jax.Array, _) -> tuple[jax.Array, jax.Array]:
        s, kin = x.moving(model, v + half * a[:nv])
        needed = net_forces(s, kin, x.inertias, None)
        on_nodes = Parts(needed.roots, s.layout.to_slots(needed.rows, s.layout.slot_last))
        a = known.solve(tau, jax.tree.map(lambda f: -f[:, None], on_nodes))
        return a, a

    return lax.scan(nearer, jnp.zeros_like(tau), length=count)[1]
