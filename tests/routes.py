"""All results of dynax on a batch of states, compiled once per tree and evaluated for any numbers in the model."""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import trees

import dynax as dx
from dynax.algorithms._articulated import RootInertia, articulate, slot_rows
from dynax.algorithms._bodies import world_inertias
from dynax.algorithms._crba import composites
from dynax.algorithms._kinematics import kinematics
from dynax.algorithms._setup import setup
from dynax.spatial import ArticulatedInertia

#: A body well inside the tree.
NAMES = {"mixed": "b14", "screws": "b3", "arm": "b3"}
FRAMES = ("body", "world", "world_aligned")
DYNAMICS = {
    "fd": lambda model, q, v, a, tau, external: dx.forward_dynamics(model, q, v, tau, external),
    "id": lambda model, q, v, a, tau, external: dx.inverse_dynamics(model, q, v, a, external),
    "mass": lambda model, q, v, a, tau, external: dx.mass_matrix(model, q),
    "inverse": lambda model, q, v, a, tau, external: dx.inverse_mass_matrix(model, q),
    "bias": lambda model, q, v, a, tau, external: dx.bias_force(model, q, v, external),
    "coriolis": lambda model, q, v, a, tau, external: dx.coriolis_matrix(model, q, v),
    "gravity": lambda model, q, v, a, tau, external: dx.gravity_force(model, q),
    "forces": lambda model, q, v, a, tau, external: dx.joint_forces(model, q, v, a, external),
    "regressor": lambda model, q, v, a, tau, external: dx.inverse_dynamics_regressor(model, q, v, a),
}
#: Hinges on the ground take their own way through the code in a few places only.
ASKED = {name: tuple(DYNAMICS)[: 5 if name == "arm" else None] for name in trees.TREES}
ASKED_FRAMES = {"mixed": ("body",), "screws": FRAMES, "arm": ("body",)}


@partial(jax.jit, static_argnames="asked")
def _dynamics(model: dx.Model, *state, asked: tuple[str, ...]):
    return jax.vmap(lambda *one: {what: DYNAMICS[what](model, *one) for what in asked})(*state)


def dynamics(name: str, model: dx.Model, q, v, a, tau, external):
    """The routes to accelerations and forces, for any numbers in the model called `name`."""
    return numpy(_dynamics(model, q, v, a, tau, external, asked=ASKED[name]))


@partial(jax.jit, static_argnames=("body", "frames"))
def _motion(model: dx.Model, q, v, a, *, body: str, frames: tuple[str, ...]):
    def one(q, v, a):
        poses = dx.forward_kinematics(model, q)
        return {
            "rotation": poses.rotation,
            "position": poses.translation,
            "velocity": dx.body_velocities(model, q, v),
            "acceleration": dx.body_accelerations(model, q, v, a),
            "momentum": dx.momentum(model, q, v),
            "kinetic": dx.kinetic_energy(model, q, v),
            "potential": dx.potential_energy(model, q),
            "jacobian": {f: dx.jacobian(model, q, body, frame=f) for f in frames},
            "jacobian_bias": {f: dx.jacobian_bias(model, q, v, body, frame=f) for f in frames},
        } | (
            {
                "centroidal": dx.centroidal_momentum(model, q, v),
                "centroidal_matrix": dx.centroidal_momentum_matrix(model, q),
                "com": dx.center_of_mass(model, q),
            }
            if len(frames) > 1
            else {}
        )

    return jax.vmap(one)(q, v, a)


def motion(name: str, model: dx.Model, q, v, a):
    """Poses, velocities, accelerations, Jacobians, momenta and energies."""
    return numpy(_motion(model, q, v, a, body=NAMES[name], frames=ASKED_FRAMES[name]))


def numpy(tree):
    return jax.tree.map(np.asarray, tree)


@lru_cache
def case(name: str):
    """`(model, states, dynamics)` of one of `trees.TREES`."""
    model = trees.tree(name)
    s = trees.states(model)
    return model, s, dynamics(name, model, *s)


@lru_cache
def moving(name: str):
    """`motion` of the same states."""
    model, s, _ = case(name)
    return motion(name, model, s.q, s.v, s.a)


@jax.jit
def articulated(model: dx.Model, q):
    """Inside the recursions, for trees of one-freedom joints on a free root: one state, axes of the world.

    For the carried bodies in body order, about their joints: `P`, `P+`, columns, composite inertias; then the
    articulated inertia of the root in its own axes.
    """
    s = setup(model, q)
    kin = kinematics(model, s)
    inertias = world_inertias(s, kin)
    slots = slot_rows(model, s, kin)

    def step(handed, x):
        slot, inertia = x
        plus, _ = articulate(handed, inertia, slot)
        return plus.shift_to_parent(slot.offset), (handed + inertia, plus, slot.column.motion())

    zero = ArticulatedInertia.zero(0.0 * q[0])
    handed, ys = s.layout.slots.gather(step, zero, (slots, inertias.rows))
    p, plus, column = s.layout.slots.restore(ys)
    total = s.layout.bodies.restore(composites(s, kin, inertias).rows)
    root = RootInertia.of(model, s, handed, inertias.roots).matrix[:, :, 0]

    def matrices(inertia):
        return jnp.stack([jax.tree.map(lambda a, k=k: a[k], inertia).matrix for k in range(model.num_bodies - 1)])

    return matrices(p), matrices(plus), column.array, matrices(total), root
