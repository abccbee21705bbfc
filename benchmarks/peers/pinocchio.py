"""Pinocchio, float64, one thread: its own batch calls where there are any, else a loop in Python less its empty calls.

It is also the oracle, see `benchmarks.check`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pinocchio as pin

from benchmarks.bodies import FREE, SPHERICAL, Bodies
from benchmarks.case import Case
from benchmarks.robots import Robot, States
from benchmarks.timing import Contender, per_call, timed

ENGINE = "pinocchio"
LOOPED = 64  # states of a batch that a loop in Python goes through
LARGEST = 512  # freedoms: its data has arrays of their third power, 4 GB for these, 256 GB for two thousand


class PinState:
    """The robot in Pinocchio, and our states in its order and back; it knows its joints by their names."""

    def __init__(self, robot: Robot):
        self.model = _model(robot)
        bodies, ours = robot.bodies, robot.model
        self.tip = self._joint(bodies.joints[bodies.tip])
        q_rows, v_rows = np.zeros(ours.nq, int), np.zeros(ours.nv, int)
        for name, kind in zip(bodies.joints, bodies.kinds, strict=True):
            joint = self.model.joints[self._joint(name)]
            q, v = np.arange(ours.nq)[ours.q_slice(name)], np.arange(ours.nv)[ours.v_slice(name)]
            if kind in (FREE, SPHERICAL):
                q = np.concatenate([q[:-4], np.roll(q[-4:], -1)])  # w x y z to x y z w
            if kind == FREE:
                v = np.roll(v, 3)  # the linear ones first
            q_rows[joint.idx_q : joint.idx_q + joint.nq] = q
            v_rows[joint.idx_v : joint.idx_v + joint.nv] = v
        self._q, self._v, self.back = q_rows, v_rows, np.argsort(v_rows)

    @cached_property
    def data(self) -> Any:
        return self.model.createData()

    def _joint(self, name: str) -> int:
        """The free joint has no name in a URDF and stands first."""
        return self.model.getJointId(name) if self.model.existJointName(name) else 1

    def to(self, states: States) -> tuple[np.ndarray, ...]:
        """Rows of states; quaternions exactly as long as float64 can say."""
        q = states.q[:, self._q].copy()
        return pin_normalized(self.model, q), states.v[:, self._v], states.tau[:, self._v]


@lru_cache(maxsize=1)
def pin_state(robot: Robot) -> PinState:
    return PinState(robot)


class Pinocchio:
    def contenders(self, case: Case, robot: Robot, states: States) -> list[Contender]:
        if robot.model.nv > LARGEST:
            return []
        state = pin_state(robot)
        match case.what:
            case "fd" | "slope":
                return [_parallel(state, states, "abaInParallel", pin.abaInParallel)]
            case "id":
                return [_parallel(state, states, "rneaInParallel", pin.rneaInParallel)]
            case "mass":
                return [_looped(state, states, "crba", pin.crba, 1)]
            case "jac":
                return [_looped(state, states, "computeJointJacobian", pin.computeJointJacobian, 1, (state.tip,), (0,))]
            case "dfd":
                return [_looped(state, states, "computeABADerivatives", pin.computeABADerivatives, 3)]
            case "lone":
                lone = _looped(state, states, "aba", pin.aba, 3)
                lone.overhead, lone.route = 0.0, "aba, a call from Python"
                return [lone]
        return []


def _parallel(state: PinState, states: States, route: str, function: Callable) -> Contender:
    arrays = [np.asfortranarray(x.T) for x in state.to(states)]
    out, pool = np.zeros_like(arrays[1], order="F"), pin.ModelPool(state.model, 1)
    return Contender(
        ENGINE, f"{route}, one thread", timed(lambda: function(1, pool, *arrays, out)), evaluations=len(states.q)
    )


def _looped(
    state: PinState,
    states: States,
    route: str,
    function: Callable,
    takes: int,
    extra: tuple = (),
    extra_empty: tuple = (),
) -> Contender:
    rows = list(zip(*state.to(states.head(LOOPED))[:takes], strict=True))

    def loop(model: pin.Model, data: pin.Data, rows: list[tuple[np.ndarray, ...]], extra: tuple) -> Callable:
        def call() -> None:
            for row in rows:
                function(model, data, *row, *extra)

        return call

    nothing = pin.Model()
    empty_rows = [tuple(np.zeros(0) for _ in range(takes))] * len(rows)
    empty = per_call(timed(loop(nothing, nothing.createData(), empty_rows, extra_empty)), calls=20) / len(rows)
    block = timed(loop(state.model, state.data, rows, extra))
    return Contender(ENGINE, f"{route}, less the empty call", block, evaluations=len(rows), overhead=empty)


def pin_normalized(model: Any, q: np.ndarray) -> np.ndarray:
    return np.array([pin.normalize(model, row) for row in q])


def _model(robot: Robot) -> Any:
    if robot.source is None:
        return _from_bodies(robot.bodies)
    flyer = (pin.JointModelFreeFlyer(),) if robot.bodies.free else ()
    read = pin.buildModelFromXML if robot.source.lstrip().startswith("<") else pin.buildModelFromUrdf
    model = read(robot.source, *flyer)
    if robot.welded:
        return pin.buildReducedModel(model, [model.getJointId(name) for name in robot.welded], pin.neutral(model))
    return model


def _from_bodies(bodies: Bodies) -> Any:
    model, joints = pin.Model(), []
    for k, kind in enumerate(bodies.kinds):
        match kind:
            case "free":
                joint = pin.JointModelFreeFlyer()
            case "spherical":
                joint = pin.JointModelSpherical()
            case "revolute":
                joint = pin.JointModelRevoluteUnaligned(bodies.axes[k])
            case "prismatic":
                joint = pin.JointModelPrismaticUnaligned(bodies.axes[k])
            case _:
                raise ValueError(f"Pinocchio has no joint {kind!r}")
        parent = joints[bodies.parents[k]] if bodies.parents[k] >= 0 else 0
        placement = pin.SE3(bodies.rotation[k], bodies.translation[k])
        joints.append(model.addJoint(parent, joint, placement, bodies.joints[k]))
        inertia = pin.Inertia(bodies.mass[k], bodies.com[k], bodies.inertia[k])
        model.appendBodyToJoint(joints[-1], inertia, pin.SE3.Identity())
    return model
