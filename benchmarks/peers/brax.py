"""Brax's generalized pipeline, in an environment of its own. Its free joints move as MuJoCo's do."""

from __future__ import annotations

from typing import Any

import jax
from brax import kinematics
from brax.generalized import dynamics, mass
from brax.generalized.base import State
from brax.io import mjcf

from benchmarks.bodies import SPHERICAL, Bodies
from benchmarks.peers.jax_peer import Function, JaxPeer, Unsupported
from benchmarks.peers.mujoco_model import mujoco_model


class Peer(JaxPeer):
    engine = "brax"

    def model(self, bodies: Bodies) -> Any:
        if SPHERICAL in bodies.kinds:
            raise Unsupported("no spherical joints")
        return mjcf.load_model(mujoco_model(bodies)).replace(mj_model=None)

    def function(self, what: str, bodies: Bodies) -> Function:
        def placed(system: Any, q: jax.Array, v: jax.Array) -> Any:
            return dynamics.transform_com(system, State.init(q, v, *kinematics.forward(system, q, v)))

        def mass_matrix(system: Any, q: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
            return mass.matrix(system, placed(system, q, v))

        def forward(system: Any, q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
            state = placed(system, q, v)
            force = dynamics.forward(system, state, tau)
            return jax.scipy.linalg.solve(mass.matrix(system, state), force, assume_a="pos")

        known = {"fd": forward, "mass": mass_matrix}
        if what not in known:
            raise Unsupported("Brax has no such function")
        return known[what]
