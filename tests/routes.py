"""All results of dynax on a batch of states, compiled once per tree and evaluated for any numbers in the model."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import trees

import dynax as dx
from dynax.algorithms.crba import composites
from dynax.bodies.base import free_bases
from dynax.bodies.hinge import slot_rows
from dynax.spatial import ArticulatedInertia
from dynax.tree.bodies import world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.nodes import articulate
from dynax.tree.setup import setup

#: A body well inside the tree, and the frames in which its Jacobian is asked for.
NAMES = {"mixed": "b14", "screws": "b3", "arm": "b3"}
FRAMES = {"mixed": ("body",), "screws": ("body", "world", "world_aligned"), "arm": ("body",)}
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
MOTION = {
    "rotation": lambda model, q, v, a: dx.forward_kinematics(model, q).rotation,
    "position": lambda model, q, v, a: dx.forward_kinematics(model, q).translation,
    "velocity": lambda model, q, v, a: dx.body_velocities(model, q, v),
    "acceleration": lambda model, q, v, a: dx.body_accelerations(model, q, v, a),
    "momentum": lambda model, q, v, a: dx.momentum(model, q, v),
    "centroidal": lambda model, q, v, a: dx.centroidal_momentum(model, q, v),
    "centroidal_matrix": lambda model, q, v, a: dx.centroidal_momentum_matrix(model, q),
    "com": lambda model, q, v, a: dx.center_of_mass(model, q),
    "kinetic": lambda model, q, v, a: dx.kinetic_energy(model, q, v),
    "potential": lambda model, q, v, a: dx.potential_energy(model, q),
}
for _name in trees.TREES:
    MOTION["jacobian", _name] = lambda model, q, v, a, n=_name: {
        f: dx.jacobian(model, q, NAMES[n], frame=f) for f in FRAMES[n]
    }
    MOTION["jacobian_bias", _name] = lambda model, q, v, a, n=_name: {
        f: dx.jacobian_bias(model, q, v, NAMES[n], frame=f) for f in FRAMES[n]
    }

_PROGRAMS: dict = {}


def _run(what, function, model, *state):
    """Compiled once for each tree and kept, whatever file asks."""
    key = what, jax.tree.structure(model), tuple((x.shape, x.dtype.name) for x in state)
    if key not in _PROGRAMS:
        batch = jax.jit(lambda model, *state: jax.vmap(lambda *one: function(model, *one))(*state))
        _PROGRAMS[key] = batch.lower(model, *state).compile()
    return numpy(_PROGRAMS[key](model, *state))


class Results:
    """Results by name, computed when asked for."""

    def __init__(self, find):
        self._find, self._known = find, {}

    def __getitem__(self, what: str):
        if what not in self._known:
            self._known[what] = self._find(what)
        return self._known[what]


def dynamics(name: str, model: dx.Model, q, v, a, tau, external) -> Results:
    """The routes to accelerations and forces, for any numbers in the model called `name`."""
    state = tuple(jnp.asarray(x, q.dtype) for x in (q, v, a, tau, external))
    return Results(lambda what: _run(what, DYNAMICS[what], model, *state))


def motion(name: str, model: dx.Model, q, v, a) -> Results:
    """Poses, velocities, accelerations, Jacobians, momenta and energies."""
    state = tuple(jnp.asarray(x, q.dtype) for x in (q, v, a))

    def find(what):
        key = (what, name) if what.startswith("jacobian") else what
        return _run(key, MOTION[key], model, *state)

    return Results(find)


def numpy(tree):
    return jax.tree.map(np.asarray, tree)


@lru_cache
def case(name: str):
    """`(model, states, dynamics)` of one of `trees.TREES`."""
    model = trees.tree(name)
    s = trees.states(model)
    return model, s, dynamics(name, model, *s)


@lru_cache
def moving(name: str) -> Results:
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
    root = free_bases(model, s, inertias).closed(handed).matrix[:, :, 0]

    def matrices(inertia):
        return jnp.stack([jax.tree.map(lambda a, k=k: a[k], inertia).matrix for k in range(model.num_bodies - 1)])

    return matrices(p), matrices(plus), column.array, matrices(total), root
