"""Crocoddyl's FDDP on the problems of `benchmarks.optimal_control`, in an environment of its own.

Reads a problem a line (JSON) from standard input, solves it `repeats` times, and prints what came of it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import crocoddyl
import numpy as np
import pinocchio as pin


def reach(p: dict[str, Any]) -> tuple[Any, list, list]:
    """An arm's, as `benchmarks.optimal_control.reach`."""
    full = pin.buildModelFromUrdf(p["file"])
    fixed = [full.getJointId(name) for name in full.names if "finger" in name]
    model = pin.buildReducedModel(full, fixed, np.zeros(full.nq))
    model.armature[:] = 0.0
    state = crocoddyl.StateMultibody(model)
    actuation = crocoddyl.ActuationModelFull(state)
    x0 = np.concatenate([np.asarray(p["q0"]), np.zeros(model.nv)])
    frame, target = model.getFrameId(p["frame"]), np.asarray(p["target"])
    running, last = crocoddyl.CostModelSum(state, model.nv), crocoddyl.CostModelSum(state, model.nv)

    def term(residual: Any, activation: Any = None) -> Any:
        return crocoddyl.CostModelResidual(state, *([] if activation is None else [activation]), residual)

    running.addCost("state", term(crocoddyl.ResidualModelState(state, x0, model.nv)), p["state"])
    running.addCost("control", term(crocoddyl.ResidualModelControl(state, model.nv)), p["control"])
    hand = crocoddyl.ResidualModelFrameTranslation(state, frame, target, model.nv)
    last.addCost("hand", term(hand), p["hand"])
    speeds = crocoddyl.ActivationModelWeightedQuad(np.repeat([0.0, 1.0], model.nv))
    last.addCost("speed", term(crocoddyl.ResidualModelState(state, x0, model.nv), speeds), p["speed"])
    stage, end = (
        crocoddyl.IntegratedActionModelEuler(
            crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs), dt
        )
        for costs, dt in ((running, p["dt"]), (last, 0.0))
    )
    problem = crocoddyl.ShootingProblem(x0, [stage] * p["knots"], end)
    hold = pin.computeGeneralizedGravity(model, model.createData(), x0[: model.nq])
    return problem, [x0] * (p["knots"] + 1), [hold] * p["knots"]


def quadrotor(p: dict[str, Any]) -> tuple[Any, list, list]:
    """Crocoddyl's own, as `benchmarks.optimal_control.quadrotor`."""
    model = pin.Model()
    joint = model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "root_joint")
    model.appendBodyToJoint(joint, pin.Inertia(p["mass"], np.zeros(3), np.diag(p["inertia"])), pin.SE3.Identity())
    frame = model.addFrame(pin.Frame("body", joint, 0, pin.SE3.Identity(), pin.FrameType.OP_FRAME))
    state, d = crocoddyl.StateMultibody(model), p["arm"]
    ways = crocoddyl.ThrusterType.CCW, crocoddyl.ThrusterType.CW
    thrusters = [
        crocoddyl.Thruster(pin.SE3(np.eye(3), np.array(at)), p["drag"], ways[k % 2])
        for k, at in enumerate([(d, 0, 0), (0, d, 0), (-d, 0, 0), (0, -d, 0)])
    ]
    actuation = crocoddyl.ActuationModelFloatingBaseThrusters(state, thrusters)
    start = np.concatenate([pin.neutral(model), np.zeros(model.nv)])
    running, last = crocoddyl.CostModelSum(state, 4), crocoddyl.CostModelSum(state, 4)
    weights = crocoddyl.ActivationModelWeightedQuad(np.array([0.1] * 3 + [1e3] * 9))
    drift = crocoddyl.CostModelResidual(state, weights, crocoddyl.ResidualModelState(state, start, 4))
    effort = crocoddyl.CostModelResidual(state, crocoddyl.ResidualModelControl(state, 4))
    goal = pin.SE3(np.eye(3), np.asarray(p["goal"]))
    pose = crocoddyl.CostModelResidual(state, crocoddyl.ResidualModelFramePlacement(state, frame, goal, 4))
    for name, term, weight in (("drift", drift, 1e-6), ("effort", effort, 1e-6), ("pose", pose, 1e-2)):
        running.addCost(name, term, weight)
    last.addCost("pose", pose, 3.0)
    stage, end = (
        crocoddyl.IntegratedActionModelEuler(
            crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs), p["dt"]
        )
        for costs in (running, last)
    )
    problem = crocoddyl.ShootingProblem(start, [stage] * p["knots"], end)
    return problem, [start] * (p["knots"] + 1), [np.zeros(4)] * p["knots"]


def main() -> None:
    for line in sys.stdin:
        p = json.loads(line)
        problem, states, controls = {"reach": reach, "quadrotor": quadrotor}[p["kind"]](p)
        found = []
        for _ in range(p["repeats"]):
            solver, log = crocoddyl.SolverFDDP(problem), crocoddyl.CallbackLogger()
            solver.th_stop = p["stop"]
            solver.setCallbacks([log])
            begin = time.process_time()
            solver.solve(states, controls, p["iterations"], False)
            found.append((time.process_time() - begin) / max(solver.iter, 1))
        row = {"cost": solver.cost, "costs": [float(c) for c in log.costs], "seconds": found}
        print(json.dumps({**row, "version": crocoddyl.__version__, "pinocchio": pin.__version__}), flush=True)


if __name__ == "__main__":
    main()
