"""Forward dynamics by articulated bodies, O(n) (Featherstone 2008, section 7.3; Jain, SOA-FD and SKO-FD)."""

from __future__ import annotations

from typing import NamedTuple

import jax

from dynax.algorithms.articulated import eliminate
from dynax.algorithms.factor import Factor
from dynax.bodies.hinge import slot_rows
from dynax.model import Model
from dynax.tree.bodies import net_forces, passive_force, world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.layout import Parts
from dynax.tree.setup import Setup, setup


def aba(model: Model, q, v, tau, external=None, execution: str = "automatic") -> jax.Array:
    """Accelerations for trailing batch axes."""
    s = setup(model, q, v, execution)
    kin = kinematics(model, s, v, accelerations=True, gravity=True)
    inertias = world_inertias(s, kin)
    forces = net_forces(s, kin, inertias, external)
    return eliminate(model, s, slot_rows(model, s, kin), inertias, forces, tau - passive_force(model, q, v)).a


class Solved(NamedTuple):
    """Forward dynamics at one state and all that it has found on its way."""

    setup: Setup
    a: jax.Array
    kin: Parts
    """With the accelerations found."""
    inertias: Parts
    factor: Factor


def solved(model: Model, q, v, tau, external, execution: str = "automatic") -> Solved:
    """Forward dynamics for trailing batch axes."""
    s = setup(model, q, v, execution)
    bias = kinematics(model, s, v, positions=True, accelerations=True, gravity=True)
    inertias = world_inertias(s, bias)
    slots = slot_rows(model, s, bias)
    forces = net_forces(s, bias, inertias, external)
    found = eliminate(model, s, slots, inertias, forces, tau - passive_force(model, q, v), motions=True)
    assert found.motions is not None
    kin = Parts(*(k._replace(acceleration=k.acceleration + m) for k, m in zip(bias, found.motions, strict=True)))
    return Solved(s, found.a, kin, inertias, Factor(s.layout.order, s.root_rotation, slots, found.gains, found.roots))
