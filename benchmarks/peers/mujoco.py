"""MuJoCo's C engine, float64, called from a loop in Python less the same calls on an empty model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import numpy as np

from benchmarks.case import Case
from benchmarks.jax_calls import CHECKED
from benchmarks.ours import STEPS
from benchmarks.peers.mujoco_state import mujoco_state
from benchmarks.robots import Robot, States
from benchmarks.timing import Contender, per_call, timed

ENGINE = "mujoco"
LOOPED = 64  # states of a batch that a loop in Python goes through
LARGEST = 128  # freedoms: beyond, its factor of the mass matrix of a chain takes the machine's patience

Rows = Sequence[tuple[np.ndarray, ...]]


class Mujoco:
    def contenders(self, case: Case, robot: Robot, states: States) -> list[Contender]:
        if case.what == "rollout":
            return [_rollout(robot, states)]
        if case.what not in ROUTES or robot.model.nv > LARGEST:
            return []
        state = mujoco_state(robot)
        few = states.head(LOOPED)
        rows = list(zip(*state.to(few, acceleration=case.what == "id"), strict=True))
        route, step, read = ROUTES[case.what]
        nothing = mujoco.MjSpec().compile()
        empty = [(np.zeros(0),) * 3] * len(rows)
        overhead = per_call(timed(_loop(nothing, empty, step, 0)), calls=20) / len(rows)
        model = state.model
        data, results = mujoco.MjData(model), []
        for row in rows[:CHECKED]:
            step(model, data, row, state.tip)
            results.append(read(model, data, row, state.tip))
        answer = state.back(case.what, few, np.array(results))
        block = timed(_loop(model, rows, step, state.tip))
        return [Contender(ENGINE, route, block, answer, len(rows), overhead)]


def _rollout(robot: Robot, states: States) -> Contender:
    """All steps in one call."""
    state = mujoco_state(robot)
    model, data = state.model, mujoco.MjData(state.model)
    qpos, qvel, force = (x[0] for x in state.to(states.head(1)))

    def call() -> None:
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = qpos, qvel, force
        mujoco.mj_step(model, data, nstep=STEPS)

    call()
    return Contender(ENGINE, "rollout", timed(call), data.qpos[None].copy())


def _loop(model: Any, rows: Rows, step: Callable, tip: int) -> Callable[[], None]:
    data = mujoco.MjData(model)

    def call() -> None:
        for row in rows:
            step(model, data, row, tip)

    return call


def _forward(model: Any, data: Any, row: tuple, tip: int) -> None:
    data.qpos[:], data.qvel[:], data.qfrc_applied[:] = row
    mujoco.mj_forward(model, data)


def _inverse(model: Any, data: Any, row: tuple, tip: int) -> None:
    data.qpos[:], data.qvel[:], data.qacc[:] = row
    mujoco.mj_inverse(model, data)


def _mass(model: Any, data: Any, row: tuple, tip: int) -> np.ndarray:
    data.qpos[:] = row[0]
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_makeM(model, data)
    dense = np.empty((model.nv, model.nv))
    mujoco.mj_fullM(model, data, dense)
    return dense


def _jacobian(model: Any, data: Any, row: tuple, tip: int) -> np.ndarray:
    data.qpos[:] = row[0]
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    six = np.empty((6, model.nv))
    mujoco.mj_jacBody(model, data, six[3:], six[:3], tip)
    return six


ROUTES: dict[str, tuple[str, Callable, Callable]] = {
    "fd": ("mj_forward", _forward, lambda model, data, row, tip: data.qacc.copy()),
    "id": ("mj_inverse", _inverse, lambda model, data, row, tip: data.qfrc_inverse.copy()),
    "mass": ("mj_makeM, mj_fullM", _mass, _mass),
    "jac": ("mj_jacBody", _jacobian, _jacobian),
}
"""What is called, how it is timed, and how its result is read."""
