"""MJX, in dynax's own process. Its free joints move as MuJoCo's do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from mujoco import mjx

from benchmarks.bodies import Bodies
from benchmarks.case import Case
from benchmarks.jax_calls import use_precision, without_fusion_emitters
from benchmarks.ours import DT, STEPS
from benchmarks.peers.jax_peer import Function, JaxPeer, Unsupported
from benchmarks.peers.mujoco_model import mujoco_model
from benchmarks.peers.mujoco_state import mujoco_state
from benchmarks.robots import Robot, States
from benchmarks.timing import Contender

ROBOTS = ("panda", "ur5", "solo12", "talos", "chain8")  # of others compiling takes from half a minute on


class Mjx(JaxPeer):
    engine = "mjx"

    def __init__(self, options: Mapping[str, Any] | None = None):
        self.options = {**without_fusion_emitters(), **(options or {})}

    def model(self, bodies: Bodies) -> Any:
        return mjx.put_model(mujoco_model(bodies, DT))

    def function(self, what: str, bodies: Bodies) -> Function:
        data, tip = mjx.make_data(mujoco_model(bodies, DT)), mujoco_model(bodies).body(bodies.names[bodies.tip]).id

        def forward(m: Any, q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
            return mjx.forward(m, data.replace(qpos=q, qvel=v, qfrc_applied=tau)).qacc

        def inverse(m: Any, q: jax.Array, v: jax.Array, a: jax.Array) -> jax.Array:
            return mjx.inverse(m, data.replace(qpos=q, qvel=v, qacc=a)).qfrc_inverse

        def placed(m: Any, q: jax.Array) -> Any:
            return mjx.com_pos(m, mjx.kinematics(m, data.replace(qpos=q)))

        def mass(m: Any, q: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
            return mjx.full_m(m, mjx.crb(m, placed(m, q)))

        def jacobian(m: Any, q: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
            d = placed(m, q)
            linear, angular = mjx.jac(m, d, d.xpos[tip], tip)
            return jnp.concatenate([angular.T, linear.T])

        known = {"fd": forward, "id": inverse, "mass": mass, "jac": jacobian}
        if what not in known:
            raise Unsupported(f"{what} is not measured")
        return known[what]

    def contenders_of(self, case: Case, robot: Robot, states: States) -> list[Contender]:
        if case.robot not in ROBOTS or case.what in ("compile", "slope"):
            return []
        if case.what in ("dfd", "vjp") and robot.bodies.free:
            return []  # with respect to a quaternion there, to a tangent here: not the same Jacobian
        if case.what != "fd" and case.double:
            return []  # it takes as long as float32, and to compile it all once more takes minutes
        state = mujoco_state(robot)
        few = states if case.batch > 1 else states.head(1)
        q, v, x = state.to(few, acceleration=case.what == "id")
        if case.what == "rollout":
            return self._rollouts(case, robot, (q[0], v[0], x[0]))
        found = self.contenders(case, robot.bodies, (q, v, x))
        for contender in found:
            if contender.answer is not None and case.what not in ("dfd", "vjp"):
                contender.answer = state.back(case.what, states, contender.answer)
        return found

    def _rollouts(self, case: Case, robot: Robot, state: tuple) -> list[Contender]:
        use_precision(case.double)
        model, data = self.model(robot.bodies), mjx.make_data(mujoco_model(robot.bodies, DT))
        q, v, tau = (jnp.asarray(x, case.dtype) for x in state)

        def rollout(m: Any, q: jax.Array, v: jax.Array, controls: jax.Array) -> jax.Array:
            def step(d: Any, tau: jax.Array) -> tuple[Any, None]:
                return mjx.step(m, d.replace(qfrc_applied=tau)), None

            last, _ = jax.lax.scan(step, data.replace(qpos=q, qvel=v), controls)
            return last.qpos

        arguments = model, q, v, jnp.broadcast_to(tau, (STEPS, *tau.shape))
        derivative = jax.grad(lambda m, q, v, u: jnp.sum(rollout(m, q, v, u) ** 2), argnums=(1, 2, 3))
        return [
            self._timed(case, robot.bodies, "rollout", rollout, arguments),
            self._timed(case, robot.bodies, "gradient", derivative, arguments),
        ]
