"""Results are compared with Pinocchio's in float64 before anything is timed, those of very large robots with the
plain equations.

What solves with the mass matrix is judged by the residual of the equation it solves: the solution itself has as few
digits as the robot's condition number leaves, in any engine.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
import pinocchio as pin

import dynax as dx
from benchmarks.case import Case
from benchmarks.jax_calls import CHECKED, use_precision
from benchmarks.newton_euler import inverse_dynamics
from benchmarks.ours import cotangent
from benchmarks.peers.pinocchio import PinState, pin_state
from benchmarks.robots import Robot, States, states

TOLERANCE = {"float32": 2e-4, "float64": 1e-9}
GRADIENT_FACTOR = 50.0  # derivatives, and what a hundred steps make of a state, have fewer digits
LARGE = 300  # freedoms, from which on Pinocchio's data takes gigabytes


class Mismatch(AssertionError):
    """A result that is not the oracle's."""


def check(case: Case, robot: Robot, batch: States, answer: Any) -> float:
    """The largest relative error of an answer; raises `Mismatch` if it is too large."""
    theirs, few = pin_state(robot), batch.head(CHECKED)
    match case.what:
        case "fd" | "slope" if robot.model.nv > LARGE:
            error = _forward_plainly(robot, few, answer)
        case "fd" | "slope" | "lone":
            error = _forward(theirs, few, answer)
        case "id" | "mass" | "jac":
            error = _relative(answer, _direct(case.what, theirs, few))
        case "dfd":
            error = _derivatives(theirs, few, answer)
        case "vjp":
            error = _gradient(theirs, few, answer)
        case _:
            raise ValueError(f"no oracle for {case.what!r}")
    bound = TOLERANCE[case.dtype] * (GRADIENT_FACTOR if case.what in ("dfd", "vjp") else 1.0)
    if not error <= bound:
        raise Mismatch(f"relative error {error:.1e}, more than {bound:.0e}")
    return error


@lru_cache(maxsize=1)
def check_same_robot(robot: Robot) -> None:
    """A robot that no file describes was built twice: do both mean the same?"""
    if robot.source is not None:
        return
    use_precision(True)
    few = states(robot, Case("id", robot.bodies.name, "float64", CHECKED))
    answer = jax.jit(jax.vmap(partial(dx.inverse_dynamics, robot.model)))(few.q, few.v, few.tau)
    error = _relative(answer, _direct("id", pin_state(robot), few))
    if error > TOLERANCE["float64"]:
        raise Mismatch(f"{robot.bodies.name} differs between the engines by {error:.1e}")
    jax.clear_caches()  # JAX's own caches do not survive a change of precision


def check_equal(case: Case, answers: list[Any]) -> float:
    """The same for what has no oracle: the largest difference between engines."""
    error = max(_relative(mine, first) for other in answers[1:] for mine, first in zip(other, answers[0], strict=True))
    bound = TOLERANCE[case.dtype] * GRADIENT_FACTOR
    if not error <= bound:
        raise Mismatch(f"the engines differ by {error:.1e}, more than {bound:.0e}")
    return error


def _relative(answer: Any, expected: np.ndarray) -> float:
    """Per state, relative to its largest entry."""
    answer, expected = np.asarray(answer, np.float64), np.asarray(expected, np.float64)
    if answer.shape != expected.shape:
        raise Mismatch(f"shape {answer.shape}, expected {expected.shape}")
    axes = tuple(range(1, expected.ndim))
    scale = np.maximum(np.max(np.abs(expected), axis=axes), 1e-300)
    return float(np.max(np.max(np.abs(answer - expected), axis=axes) / scale))


def _symmetric(upper: np.ndarray) -> np.ndarray:
    return np.triu(upper) + np.triu(upper, 1).T


def _direct(what: str, theirs: PinState, states: States) -> np.ndarray:
    model, data, back = theirs.model, theirs.data, theirs.back
    rows = []
    for q, v, a in zip(*theirs.to(states), strict=True):
        match what:
            case "id":
                rows.append(pin.rnea(model, data, q, v, a)[back])
            case "mass":
                rows.append(_symmetric(pin.crba(model, data, q))[back][:, back])
            case _:
                six = pin.computeJointJacobian(model, data, q, theirs.tip)
                rows.append(np.roll(six, 3, axis=0)[:, back])
    return np.array(rows)


def _forward(theirs: PinState, states: States, answer: np.ndarray) -> float:
    """`M a + bias - tau`, over the size of its terms."""
    model, data, errors = theirs.model, theirs.data, []
    accelerations = np.asarray(answer, np.float64)[:, np.argsort(theirs.back)]
    for q, v, tau, a in zip(*theirs.to(states), accelerations, strict=True):
        residual = pin.rnea(model, data, q, v, a) - tau
        bias = pin.nonLinearEffects(model, data, q, v).copy()
        mass = _symmetric(pin.crba(model, data, q))
        scale = np.max(np.abs(mass) @ np.abs(a)) + np.max(np.abs(bias)) + np.max(np.abs(tau))
        errors.append(np.max(np.abs(residual)) / scale)
    return float(np.max(errors))


def _forward_plainly(robot: Robot, states: States, answer: np.ndarray) -> float:
    """The same residual of one state."""
    bodies, q, v, tau = robot.bodies, states.q[0], states.v[0], states.tau[0]
    a = np.asarray(answer[0], np.float64)
    residual = inverse_dynamics(bodies, q, v, a) - tau
    bias = inverse_dynamics(bodies, q, v, np.zeros_like(a))
    return float(np.max(np.abs(residual)) / (np.max(np.abs(bias)) + np.max(np.abs(tau))))


def _derivatives(theirs: PinState, states: States, answer: Any) -> float:
    """`M da/dx + d(M a + bias)/dx`, over the size of its terms, for q and v; `M da/dtau - 1` for tau."""
    model, data, back, errors = theirs.model, theirs.data, theirs.back, []
    order = np.argsort(back)
    for q, v, tau, *ours in zip(*theirs.to(states), *answer, strict=True):
        by_q, by_v, by_tau = (np.asarray(x, np.float64)[order][:, order] for x in ours)
        a = pin.aba(model, data, q, v, tau).copy()
        tau_by_q, tau_by_v, mass = (np.array(x) for x in pin.computeRNEADerivatives(model, data, q, v, a))
        mass = _symmetric(mass)
        for ours_by, theirs_by in ((by_q, tau_by_q), (by_v, tau_by_v), (by_tau, -np.eye(model.nv))):
            scale = np.max(np.abs(mass) @ np.abs(ours_by)) + np.max(np.abs(theirs_by))
            errors.append(np.max(np.abs(mass @ ours_by + theirs_by)) / scale)
    return float(np.max(errors))


def _gradient(theirs: PinState, states: States, answer: Any) -> float:
    """Along `v` and `tau`, and along `q` where that is its own tangent."""
    model, data, back = theirs.model, theirs.data, theirs.back
    expected = []
    for q, v, tau in zip(*theirs.to(states), strict=True):
        jacobians = pin.computeABADerivatives(model, data, q, v, tau)
        along = cotangent(states.v)
        expected.append([along @ np.array(_full(j, k))[back][:, back] for k, j in enumerate(jacobians)])
    columns = [np.array(column) for column in zip(*expected, strict=True)]
    skipped = 0 if model.nq == model.nv else 1
    pairs = list(zip(answer, columns, strict=True))[skipped:]
    return max(_relative(ours, theirs_) for ours, theirs_ in pairs)


def _full(jacobian: np.ndarray, which: int) -> np.ndarray:
    """The last, the inverse mass matrix, may have its upper triangle only."""
    return _symmetric(jacobian) if which == 2 else jacobian
